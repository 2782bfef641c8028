# Redis under its own load generator: a log of what was appended, a snapshot by a child.
packages="redis-server redis-tools"
is_quick=1
service=(redis-server --port "$port" --dir "$place" --save '' --appendonly yes)
ready() { redis-cli -p "$port" ping | grep -q PONG; }
load() {
    local cli=(redis-cli -p "$port")
    redis-benchmark -p "$port" -n "${requests:-2000}" -q -t set,get,incr,lpush,zadd,mset | tr '\r' '\n' | grep -o '^[A-Z]*.*requests' | sed 's/: .*/ done/'
    for n in $(seq 50); do echo "SET k$n v$n"; done | "${cli[@]}" | sort | uniq -c
    "${cli[@]}" get k7
    "${cli[@]}" eval 'return redis.call("incrby", KEYS[1], 5)' 1 n
    "${cli[@]}" bgsave
    for _ in $(seq 100); do "${cli[@]}" info persistence | grep -q 'rdb_bgsave_in_progress:0' && break; sleep 0.1; done
    "${cli[@]}" info persistence | grep -o 'rdb_last_bgsave_status:ok'
    "${cli[@]}" dbsize
}
