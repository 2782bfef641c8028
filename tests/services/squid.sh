# squid, which forks a worker and helpers, in front of Python's http.server.
packages="squid python3 curl"
prepare() {
    mkdir -p www && echo hello >www/index.html && touch log && chmod 777 . log && rm -f /dev/shm/squid-*
    printf 'visible_hostname x\nhttp_port 127.0.0.1:%s\nhttp_access allow all\ncache_log %s/log\naccess_log none\npid_filename %s/pid\nshutdown_lifetime 1 seconds\ncoredump_dir %s\ncache_effective_user proxy\npinger_enable off\n' \
        "$port" "$place" "$place" "$place" >conf
}
service=(sh -c "python3 -m http.server $((port + 1)) --bind 127.0.0.1 --directory $place/www 2>/dev/null & one=\$!
    squid -N -f $place/conf & other=\$!
    trap 'kill \$one \$other' TERM
    wait; wait; exit 0")
ready() { answers "$port" && answers "$((port + 1))"; }
load() { for n in $(seq 10); do curl -sS -x "http://127.0.0.1:$port" "http://127.0.0.1:$((port + 1))/"; done | uniq -c; }
