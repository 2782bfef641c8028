# bash -i on a terminal: job control by commands and keys, a pipeline.
packages="bsdutils"
is_quick=1
terminal=-echo
run() { run_on_terminal "$@"; }
service=(bash --norc --noprofile -i)
expected=3
ready() { [ -e "$place/keys" ]; }

load() {
    {
        typed 'bash-*[$#] ' 'PS1="\\#> "\n'
        typed '2> ' 'echo $((6 * 7))\n'
        typed '3> ' 'sleep 100 &\n'
        typed '4> ' 'jobs\n'
        typed '5> ' 'kill %1; sleep 0.2\n'
        typed '6> ' 'seq 3 | sort -r\n'
        typed '7> ' 'tty | sed "s/[0-9]*$//"\n'
        typed '8> ' 'stty size\n'
        typed '9> ' 'sh -c "trap '\''echo goes on'\'' CONT; echo stop me; while :; do read x; done"\n'
        typed 'stop me' '\032'
        typed '10> ' 'jobs\n'
        typed '11> ' 'fg\n'
        typed 'goes on' '\003'
        typed '12> ' 'echo $?\n'
        typed '13> ' 'exit 3\n'
    } >keys
    while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done
    said | sed 's/^\(\[1\]\) [0-9]*$/\1/' | grep -v '^gretel:'
}
stop() { :; }
