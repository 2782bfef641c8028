# vim on a terminal.
packages="vim bsdutils"
run() { run_on_terminal "$@"; }
service=(vim -u NONE -n file)
ready() { [ -e "$place/keys" ]; }
load() {
    {
        typed '*"file" \[New*' 'ihello\nworld\033'
        sleep 0.5
        printf ':%%s/o/0/g\r'
        sleep 0.5
        printf 'yyp:wq\r'
    } >keys
    while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done
    cat file
}
stop() { :; }
