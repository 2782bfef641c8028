# Knot DNS: threads, RCU, LMDB.
packages="knot bind9-dnsutils"
prepare() {
    mkdir -p storage run
    printf '$TTL 60\n@ IN SOA ns.test. me.test. 1 60 60 60 60\n@ IN NS ns.test.\nns IN A 192.0.2.1\nwww IN A 192.0.2.2\n' >storage/test.zone
    printf 'server:\n    rundir: "%s/run"\n    listen: 127.0.0.1@%s\ndatabase:\n    storage: "%s/storage"\ntemplate:\n  - id: default\n    storage: "%s/storage"\n    file: "%%s.zone"\nzone:\n  - domain: test\n' "$place" "$port" "$place" "$place" >conf
}
service=(knotd -c "$place/conf")
ask() { dig +short +time=2 +tries=5 "$@" @127.0.0.1 -p "$port"; }
ready() { [ "$(ask ns.test)" = 192.0.2.1 ]; }
load() { for n in $(seq 10); do ask www.test; done | uniq -c; ask +tcp www.test; }
