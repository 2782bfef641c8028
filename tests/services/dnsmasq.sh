# dnsmasq: names over UDP and TCP.
packages="dnsmasq-base bind9-dnsutils"
service=(dnsmasq -k -C /dev/null -p "$port" --listen-address=127.0.0.1 --bind-interfaces --no-resolv --no-hosts --address=/one.test/192.0.2.1 --txt-record=two.test,hello -u root -x "$place/pid")
ask() { dig +short +time=2 +tries=5 "$@" @127.0.0.1 -p "$port"; }
ready() { [ "$(ask one.test)" = 192.0.2.1 ]; }
load() { for n in $(seq 10); do ask "x$n.one.test"; done; ask +tcp two.test TXT; ask none.test +noall +comments | grep -o 'status: [A-Z]*'; }
