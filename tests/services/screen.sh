# screen: a terminal within a terminal.
packages="screen bsdutils"
run() { run_on_terminal "$@"; }
service=(env SCREENDIR="$place/s" screen -c /dev/null -s /bin/sh)
ready() { [ -e "$place/keys" ]; }
prepare() { mkdir -m 700 s; }
load() {
    typed '*[$#] ' 'echo $((6 * 7)) >answer; tty >tty; exit\r' >keys
    while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done
    cat answer
    wc -l <tty
}
stop() { :; }
