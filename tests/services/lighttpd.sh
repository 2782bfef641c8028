# lighttpd.
packages="lighttpd curl wrk"
prepare() {
    mkdir -p www && echo hello >www/index.html && head -c 300000 /dev/zero >www/zeros
    printf 'server.document-root = "%s/www"\nserver.port = %s\nserver.bind = "127.0.0.1"\nindex-file.names = ( "index.html" )\n' "$place" "$port" >conf
}
service=(lighttpd -D -f "$place/conf")
load() {
    get /
    get /zeros | cksum
    wrk -t 1 -c 8 -d 1 "http://127.0.0.1:$port/" | grep -c 'requests in'
}
# While it still has wrk's connections it ends with status 1, natively too.
stop() {
    sleep 0.5
    kill -TERM "$pid"
}
