# What a shell does without a second process: loops, functions, arithmetic, expansions, here-documents, reading.
count() {
    local n=$1 sum=0
    while [ "$n" -gt 0 ]; do
        sum=$((sum + n * n % 7))
        n=$((n - 1))
    done
    echo "sum $sum"
}
count 100
for word in "$@"; do
    case $word in
    a*) echo "starts with a: ${word}" ;;
    *\ *) echo "has a blank: ${#word} ${word%% *} ${word##* }" ;;
    esac
done
lines=0
while read -r first rest; do
    lines=$((lines + 1))
    printf '%s|%5.5s|%s\n' "$lines" "$first" "${rest:-nothing}"
done
while read -r text; do echo "document: $text"; done <<END
one $lines
two $((1 << 20))
END
set -- 5 3 9 1
max=0
for n; do [ "$n" -gt "$max" ] && max=$n; done
echo "max $max, $# of them, ${undefined-unset}"
trap 'echo "trap at the end, status $?"' EXIT
eval 'nested="e$max"'
echo "$nested"
exit 42
