# bash -i on a terminal: job control by commands and keys, a pipeline. The next line is typed when the one before has
# said what it says, so that no slow machine types ahead of the program.
packages="bsdutils"
is_quick=1
run() { mkfifo keys; exec script -qefc "stty cols 80 rows 24 -echo; $(printf '%q ' "$@")" /dev/null <keys; }
service=(bash --norc --noprofile -i)
expected=3
ready() { [ -e "$place/keys" ]; }

# What is on the terminal, without the switches of bracketed paste.
screen() { tr -d '\r' <"$place/../output" | sed 's/\x1b\[?2004[hl]//g'; }

# Types keys once bash, or what runs in it, has said this last.
typed() { # pattern of the last line, keys
    local n
    for ((n = 0; n < 600; n++)); do
        # shellcheck disable=SC2053 # it is a pattern
        [[ $(screen | tail -n 1) != $1 ]] || break
        kill -0 "$runner" 2>/dev/null || break
        sleep 0.05
    done
    printf '%b' "$2"
}

load() {
    {
        typed 'bash-*[$#] ' 'PS1="\\#> "\n'
        typed '2> ' 'echo $((6 * 7))\n'
        typed '3> ' 'sleep 100 &\n'
        typed '4> ' 'jobs\n'
        typed '5> ' 'kill %1; wait\n'
        typed '6> ' 'seq 3 | sort -r\n'
        typed '7> ' 'tty | sed "s/[0-9]*$//"\n'
        typed '8> ' 'stty size\n'
        typed '9> ' 'sh -c "trap '\''echo goes on'\'' CONT; echo stop me; while :; do sleep 0.1; done"\n'
        typed 'stop me' '\032'
        typed '10> ' 'jobs\n'
        typed '11> ' 'fg\n'
        typed 'goes on' '\003'
        typed '12> ' 'echo $?\n'
        typed '13> ' 'exit 3\n'
    } >keys
    while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done
    screen | sed 's/^\(\[1\]\) [0-9]*$/\1/' | grep -v '^gretel:'
}
stop() { :; }
