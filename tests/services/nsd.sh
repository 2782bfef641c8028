# NSD: a parent that serves by children.
packages="nsd bind9-dnsutils"
prepare() {
    printf '$TTL 60\n@ IN SOA ns.test. me.test. 1 60 60 60 60\n@ IN NS ns.test.\nns IN A 192.0.2.1\nwww IN A 192.0.2.2\n' >zone
    printf 'server:\n  ip-address: 127.0.0.1\n  port: %s\n  server-count: 2\n  username: ""\n  chroot: ""\n  zonesdir: "%s"\n  pidfile: "%s/pid"\n  xfrdfile: "%s/xfrd"\n  zonelistfile: "%s/list"\n  xfrdir: "%s"\n  logfile: "%s/log"\nremote-control:\n  control-enable: no\nzone:\n  name: test\n  zonefile: zone\n' "$port" "$place" "$place" "$place" "$place" "$place" "$place" >conf
}
service=(nsd -d -c "$place/conf")
ask() { dig +short +time=2 +tries=5 "$@" @127.0.0.1 -p "$port"; }
ready() { [ "$(ask ns.test)" = 192.0.2.1 ]; }
load() { for n in $(seq 10); do ask www.test; done | uniq -c; ask +tcp www.test; }
