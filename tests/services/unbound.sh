# unbound with local data.
packages="unbound bind9-dnsutils"
prepare() { printf 'server:\n interface: 127.0.0.1\n port: %s\n do-daemonize: no\n chroot: ""\n username: ""\n pidfile: "%s/pid"\n num-threads: 2\n module-config: "iterator"\n local-zone: "test." static\n local-data: "www.test. A 192.0.2.2"\n' "$port" "$place" >conf; }
service=(unbound -d -c "$place/conf")
ask() { dig +short +time=2 +tries=5 "$@" @127.0.0.1 -p "$port"; }
ready() { [ "$(ask www.test)" = 192.0.2.2 ]; }
load() { for n in $(seq 20); do ask www.test; done | uniq -c; ask +tcp www.test; }
