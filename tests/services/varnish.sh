# Varnish: a manager that compiles its configuration with gcc, and a child with many threads, in front of a server that is not recorded.
packages="varnish curl gcc python3"
prepare() {
    local backend=$((port + 10000))
    mkdir -p www work
    for n in $(seq 20); do echo "page $n" >"www/$n"; done
    python3 -m http.server "$backend" --bind 127.0.0.1 --directory www >/dev/null 2>&1 </dev/null &
    echo $! >backend
    printf 'vcl 4.1; backend default { .host = "127.0.0.1"; .port = "%s"; } sub vcl_deliver { set resp.http.X-N = obj.hits; }\n' "$backend" >conf.vcl
}
service=(varnishd -F -f "$place/conf.vcl" -a "127.0.0.1:$port" -n "$place/work" -s malloc,32m -T none -j none)
load() {
    for n in $(seq 20); do get "/$n" && get "/$n" -i | grep -a X-N; done
    for n in $(seq 20); do get "/$n" & done | sort
    get /none -o /dev/null -w '%{http_code}\n'
}
stop() { kill -TERM "$pid" "$(cat backend)"; }
