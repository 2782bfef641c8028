# chronyd without a clock to set, asked through its socket.
packages="chrony"
prepare() {
    mkdir -m 700 run
    printf 'local stratum 5\nallow 127.0.0.1\nport %s\nbindaddress 127.0.0.1\ncmdport 0\nbindcmdaddress %s/run/sock\npidfile %s/run/pid\ndriftfile %s/run/drift\nuser root\n' "$port" "$place" "$place" "$place" >conf
}
service=(chronyd -x -d -f "$place/conf")
ask() { chronyc -h "$place/run/sock" "$@"; }
ready() { ask tracking; }
load() { for n in 1 2 3; do ask tracking | grep -e Stratum -e Leap; ask sources | wc -l; ask activity; done; }
