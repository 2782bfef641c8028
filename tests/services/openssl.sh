# openssl s_server, answered in TLS 1.3.
packages="openssl curl"
prepare() {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 30 -subj /CN=localhost
    echo hello >page
}
service=(openssl s_server -accept "$port" -key "$place/key" -cert "$place/cert" -WWW -quiet)
expected=143
load() { for n in $(seq 5); do curl -sk --max-time 20 "https://127.0.0.1:$port/page"; done; }
