# haproxy in front of itself.
packages="haproxy curl"
prepare() {
    cat >conf <<CONF
global
    nbthread 2
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
frontend f
    bind 127.0.0.1:$port
    default_backend b
frontend inner
    bind 127.0.0.1:$((port + 1))
    http-request return status 200 content-type text/plain string "hello\n"
backend b
    server s 127.0.0.1:$((port + 1))
CONF
}
service=(haproxy -db -f "$place/conf")
expected=143
load() { for n in $(seq 20); do get "/$n"; done | sort | uniq -c; for n in $(seq 8); do get / & done | sort | uniq -c; }
