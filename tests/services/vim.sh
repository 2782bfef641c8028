# vim on a terminal.
packages="vim bsdutils"
run() { mkfifo keys; exec script -qefc "stty cols 80 rows 24; $(printf '%q ' "$@")" /dev/null <keys; }
service=(vim -u NONE -n file)
ready() { [ -e "$place/keys" ]; }
load() {
    { sleep 1; printf 'ihello\nworld\033'; sleep 0.5; printf ':%%s/o/0/g\r'; sleep 0.5; printf 'yyp:wq\r'; sleep 1; } >keys
    while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done
    cat file
}
stop() { :; }
