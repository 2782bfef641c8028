# etcd, one member.
packages="etcd-server etcd-client"
service=(etcd --data-dir "$place/data" --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" --listen-peer-urls "http://127.0.0.1:$((port + 1))" --log-level error)
ctl() { ETCDCTL_API=3 etcdctl --endpoints "http://127.0.0.1:$port" "$@"; }
ready() { ctl endpoint health; }
expected=143
load() { for n in $(seq 20); do ctl put "k$n" "v$n"; done | uniq -c; ctl get --prefix k | tail -n 2; ctl del k1; }
