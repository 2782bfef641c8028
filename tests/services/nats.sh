# NATS: messages in Go, with streams on disk.
packages="nats-server netcat-openbsd"
service=(nats-server -a 127.0.0.1 -p "$port" -js -sd "$place/js")
expected=1
talk() {
    printf 'CONNECT {"verbose":false}\r\nSUB a 1\r\n'
    sleep 0.5
    for n in $(seq 300); do printf 'PUB a 5\r\nhello\r\n'; done
    printf 'PING\r\n'
    sleep 1
}
load() { talk | timeout 20 nc -q1 127.0.0.1 "$port" | tr -d '\r' | grep -v INFO | sort | uniq -c; }
