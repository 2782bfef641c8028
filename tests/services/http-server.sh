# Python's http.server, a thread for each connection. Its SIGTERM is not handled.
packages="python3 curl wrk"
prepare() { mkdir -p www && echo hello >www/index.html && head -c 200000 /dev/zero >www/zeros; }
service=(python3 -m http.server "$port" --bind 127.0.0.1 --directory "$place/www")
expected=143
load() {
    get /
    get /zeros | cksum
    get /missing -o /dev/null -w '%{http_code}\n'
    for n in $(seq 8); do get / & done | sort | uniq -c
    wrk -t 1 -c 4 -d 1 "http://127.0.0.1:$port/" | grep -c 'requests in'
}
