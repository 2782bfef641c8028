# tinyproxy in front of Python's http.server, both recorded.
packages="tinyproxy python3 curl"
prepare() { mkdir -p www && echo hello >www/index.html && printf 'Port %s\nListen 127.0.0.1\nTimeout 10\nAllow 127.0.0.1\nLogFile "%s/log"\nPidFile "%s/pid"\n' "$port" "$place" "$place" >conf; }
service=(sh -c "python3 -m http.server $((port + 1)) --bind 127.0.0.1 --directory $place/www 2>/dev/null & one=\$!
    tinyproxy -d -c $place/conf & other=\$!
    trap 'kill \$one \$other' TERM
    wait; wait; exit 0")
ready() { answers "$port" && answers "$((port + 1))"; }
load() { for n in $(seq 10); do curl -sS -x "http://127.0.0.1:$port" "http://127.0.0.1:$((port + 1))/"; done | uniq -c; }
