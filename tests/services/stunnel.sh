# stunnel: TLS with threads, in front of a server that is not recorded.
packages="stunnel4 openssl curl python3"
prepare() {
    local backend=$((port + 10000))
    mkdir -p www && echo hello >www/x && head -c 300000 /dev/zero >www/big
    python3 -m http.server "$backend" --bind 127.0.0.1 --directory www >/dev/null 2>&1 </dev/null &
    echo $! >backend
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -subj /CN=localhost -days 2
    cat key.pem cert.pem >both.pem
    printf 'foreground = yes\npid =\n[x]\naccept = 127.0.0.1:%s\nconnect = 127.0.0.1:%s\ncert = %s\n' "$port" "$backend" "$place/both.pem" >conf
}
service=(stunnel4 "$place/conf")
fetch() { curl -sk --max-time 20 "https://127.0.0.1:$port$1"; }
load() {
    for n in $(seq 10); do fetch /x; done
    fetch /big | md5sum
    for n in $(seq 6); do fetch /x & done | sort | uniq -c
}
stop() { kill -TERM "$pid" "$(cat backend)"; }
