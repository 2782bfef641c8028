# mosquitto: messages from one client to others.
packages="mosquitto mosquitto-clients"
prepare() { printf 'listener %s 127.0.0.1\nallow_anonymous true\n' "$port" >conf; }
service=(mosquitto -c "$place/conf")
load() {
    local client
    for client in 1 2; do timeout 10 mosquitto_sub -h 127.0.0.1 -p "$port" -t 'a/#' -q 1 -C 20 >"sub$client" & done
    sleep 1
    for n in $(seq 20); do mosquitto_pub -h 127.0.0.1 -p "$port" -t "a/$n" -q 1 -m "message $n"; done
    wait
    sort sub1 sub2 | uniq -c
}
