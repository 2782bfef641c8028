#!/usr/bin/env bash
# Makes recordings of crashes for `gretel bench synth`: programs of Debian that crash, or that are told to abort while they compute.
#
#   scripts/crashes.sh [--out DIR] [--engine soft|kvm] [--only REGEX] [--gretel FILE] [--contexts]
#
# With --contexts each crumb has its calling context, which `gretel bench synth --records N+contexts` needs.
# tests/crashes/list has a crash in each line: its name, after how many seconds it is told to abort (0: it crashes by itself), and the
# command, which runs in DIR (crashes-out) beside the inputs that are made for it. DIR/NAME is the recording; one that is there is kept.
# A program that is not installed is skipped with a word.
set -euo pipefail

die() { echo "crashes: $*" >&2; exit 120; }

engine=soft out=crashes-out only=. gretel=target/release/gretel contexts=()
while [ $# -gt 0 ]; do
    if [ "$1" = --contexts ]; then
        contexts=(--contexts)
        shift
        continue
    fi
    [ $# -gt 1 ] || die "$1 needs a value"
    case $1 in
    --out) out=$2 ;;
    --engine) engine=$2 ;;
    --only) only=$2 ;;
    --gretel) gretel=$2 ;;
    *) die "what is $1?" ;;
    esac
    shift 2
done
list=$(realpath "$(dirname "$0")/../tests/crashes/list")
# shellcheck source=scripts/engines.sh
. "$(dirname "$0")/engines.sh"
cd "$out"

make_inputs() {
    awk 'BEGIN { for (i = 0; i < 8000; i++) print i * 7919 % 100003, "the quick brown fox " i * 31 " jumps 0x" i " lazy" }' >words
    awk 'BEGIN { printf "["; for (i = 0; i < 5000; i++) printf "%s{\"a\":%d,\"b\":[\"x%d\",%d.5,null]}", i ? "," : "", i * 7, i, i; print "]" }' >data.json
    echo 'scale=900; 4*a(1)' >pi.bc
    echo 'proc fib n {if {$n<2} {return $n}; expr {[fib [expr {$n-1}]]+[fib [expr {$n-2}]]}}; fib 30' >fib.tcl
    printf 's=0\nfor i in range(10**8): s=(s*31+i)%%1000003\n' >loop.py
    head -c 8000000 /dev/urandom >noise
}

# Records a command until it crashes, or for so long and then tells it to abort.
record() { # name, seconds, command
    local recorder status=0
    timeout 120 "$gretel" record --engine "$engine" "${contexts[@]}" -o "$1" -- sh -c "exec $3" </dev/null >/dev/null 2>"$1.messages" &
    recorder=$!
    if [ "$2" != 0 ]; then
        sleep "$2"
        # To the recorder itself: a signal to gretel is the program's.
        pkill -ABRT -P "$recorder" || true
    fi
    wait "$recorder" 2>/dev/null || status=$?
    if [ -f "$1/core" ]; then
        echo "$1: kept"
        rm "$1.messages"
    else
        echo "$1: no core (status $status), see $1.messages" >&2
        rm -rf "$1"
    fi
}

make_inputs
while IFS='|' read -r name seconds command; do
    case $name in '' | \#*) continue ;; esac
    [[ $name =~ $only ]] && [ ! -e "$name" ] || continue
    if ! command -v "${command%% *}" >/dev/null; then
        echo "skipped: $name, since ${command%% *} is not installed" >&2
        continue
    fi
    record "$name" "$seconds" "$command"
done <"$list"
