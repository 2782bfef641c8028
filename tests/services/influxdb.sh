# InfluxDB 1: Go, files that are mapped.
packages="influxdb curl"
prepare() {
    printf 'reporting-disabled = true\nbind-address = "127.0.0.1:%s"\n[meta]\n  dir = "%s/meta"\n[data]\n  dir = "%s/data"\n  wal-dir = "%s/wal"\n[http]\n  bind-address = "127.0.0.1:%s"\n' "$((port + 1))" "$place" "$place" "$place" "$port" >conf
}
service=(influxd run -config "$place/conf")
load() {
    get /query --data-urlencode 'q=CREATE DATABASE d'
    for n in $(seq 10); do get '/write?db=d' --data-binary "m v=$n ${n}000000000"; done
    get '/query?db=d' --data-urlencode 'q=SELECT sum(v) FROM m'
}
