# BIND with threads and a zone of its own.
packages="bind9 bind9-dnsutils"
prepare() {
    printf '$TTL 60\n@ IN SOA ns.test. me.test. 1 60 60 60 60\n@ IN NS ns.test.\nns IN A 192.0.2.1\nwww IN A 192.0.2.2\n' >zone
    printf 'options { directory "%s"; listen-on port %s { 127.0.0.1; }; listen-on-v6 { none; }; pid-file "%s/named.pid"; session-keyfile none; recursion no; dnssec-validation no; };\ncontrols { };\nzone "test" { type master; file "zone"; };\n' "$place" "$port" "$place" >conf
}
service=(named -g -c "$place/conf" -n 2)
ask() { dig +short +time=2 +tries=5 "$@" @127.0.0.1 -p "$port"; }
ready() { [ "$(ask ns.test)" = 192.0.2.1 ]; }
load() { for n in $(seq 10); do ask www.test; done | uniq -c; ask +tcp www.test; ask AXFR test | wc -l; }
