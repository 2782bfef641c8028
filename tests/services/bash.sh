# bash -i on a terminal: job control by commands and keys, a pipeline.
packages="bsdutils"
is_quick=1
run() { mkfifo keys; printf '%s\n' 'PS1="$ "' 'echo $((6 * 7))' 'sleep 100 &' 'jobs' 'kill %1' 'wait' 'seq 3 | sort -r' 'tty | sed "s/[0-9]*$//"' 'stty size' 'sleep 50' $'\032' 'jobs' 'fg' $'\003' 'echo $?' 'exit 3' >lines; exec script -qefc "stty cols 80 rows 24 -echo; $(printf '%q ' "$@")" /dev/null <keys; }
service=(bash --norc --noprofile -i)
expected=3
ready() { [ -e "$place/keys" ]; }
load() {
    while read -r line; do echo "$line"; sleep 0.3; done <lines >keys
    while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done
    tr -d '\r' <"$place/../output" | sed 's/^\(\[1\]\) [0-9]*$/\1/' | sed 's/\x1b\[?2004[hl]//g' | grep -v -e '^gretel:' -e '^[$ ]*$'
}
stop() { :; }
