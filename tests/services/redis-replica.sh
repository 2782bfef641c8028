# Two of Redis under one recording, the second a copy of the first.
packages="redis-server redis-tools"
service=(sh -c "redis-server --port $port --dir $place --save '' & redis-server --port $((port + 1)) --dir $place --save '' --replicaof 127.0.0.1 $port & wait")
ready() { redis-cli -p "$((port + 1))" info replication | grep -q master_link_status:up; }
load() {
    # WAIT waits for what its own connection wrote.
    { for n in $(seq 200); do echo "SET k$n v$n"; done; echo WAIT 1 5000; } | redis-cli -p "$port" | sort | uniq -c
    redis-cli -p "$((port + 1))" mget k1 k100 k200
    redis-cli -p "$((port + 1))" set k1 refused
}
stop() { redis-cli -p "$((port + 1))" shutdown nosave; redis-cli -p "$port" shutdown nosave; }
