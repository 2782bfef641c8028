# Caddy: a Go server of files, under its own configuration.
packages="caddy curl"
prepare() {
    mkdir -p www
    for n in $(seq 20); do echo "page $n" >"www/$n"; done
    head -c 2000000 /dev/urandom >www/big
    printf '{\n admin off\n auto_https off\n}\nhttp://127.0.0.1:%s {\n root * %s\n file_server\n encode gzip\n respond /hi "hi {path}"\n}\n' "$port" "$place/www" >Caddyfile
}
service=(env HOME="$place" caddy run --config "$place/Caddyfile")
load() {
    for n in $(seq 20); do get "/$n"; done
    get /big | cmp - www/big && echo same
    for n in $(seq 20); do get /hi & done | sort | uniq -c
}
