#!/usr/bin/env bash
# redis-server that dies while it serves its clients, in each of the ways of tests/crashes/redis: recorded, replayed, synthesized.
#
#   scripts/redis-crashes.sh [--out DIR] [--engine soft|kvm] [--only REGEX] [--time SECONDS] [--gretel FILE]
#
#   --out       where the recordings are kept, as DIR/ENGINE-NAME; one that is there is not made again (redis-crashes-out)
#   --engine    what records (soft); each engine that there is replays
#   --time      what a synthesis may take (20)
#
# redis runs without its own handler of crashes, which would end it in another place. ABRT is sent to the recorder, whose signals are
# the program's, while a client sends the command. Prints a line for each; the exit status is 0 when each left a core with
# branch records, was replayed equal on each engine, and has a certified suffix; 1 otherwise.
set -euo pipefail

die() { echo "redis-crashes: $*" >&2; exit 120; }

engine=soft out=redis-crashes-out only=. limit=20 failed=0 port=17347
root=$(realpath "$(dirname "$0")/..")
gretel=$root/${CARGO_TARGET_DIR:-target}/release/gretel
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || die "$1 needs a value"
    case $1 in
    --out) out=$2 ;;
    --engine) engine=$2 ;;
    --only) only=$2 ;;
    --time) limit=$2 ;;
    --gretel) gretel=$2 ;;
    *) die "unknown argument $1" ;;
    esac
    shift 2
done
for program in redis-server redis-cli; do
    command -v "$program" >/dev/null || die "$program is not installed (Debian's redis-server and redis-tools)"
done
list=$root/tests/crashes/redis
mkdir -p "$out" && out=$(realpath "$out") && cd "$out"
replayers=(soft)
if [ -w /dev/kvm ]; then replayers+=(kvm); fi

# Sends commands, split by ;, over one connection; the server may die of one.
send() { tr ';' '\n' <<<"$1" | redis-cli -p "$port" >/dev/null 2>&1 || true; }

# A script has ; in it.
send_each() {
    case $1 in
    eval*) redis-cli -p "$port" <<<"$1" >/dev/null 2>&1 || true ;;
    *';eval'*) send "${1%%;eval*}" && redis-cli -p "$port" <<<"eval${1#*;eval}" >/dev/null 2>&1 || true ;;
    *) send "$1" ;;
    esac
}

# Sends one command over and over, as long as the recorder lives.
load() { while kill -0 "$2" 2>/dev/null; do timeout 10 redis-cli -p "$port" -r 100 <<<"$1" >/dev/null 2>&1 || true; done; }

# Records one that dies.
record() { # folder, before, over and over, how
    local recorder loader='' status=0
    mkdir -p "$1.run"
    (cd "$1.run" && exec "$gretel" record --engine "$engine" -o "$out/$1" -- redis-server --port "$port" --save '' \
        --crash-log-enabled no --enable-debug-command yes) >"$1.messages" 2>&1 &
    recorder=$!
    until redis-cli -p "$port" ping >/dev/null 2>&1; do
        sleep 0.2
        kill -0 "$recorder" 2>/dev/null || die "redis cannot be recorded: see $out/$1.messages"
    done
    send_each "$2"
    if [ "$3" != - ]; then
        load "$3" "$recorder" &
        loader=$!
        sleep 1.5
    fi
    if [ "$4" = ABRT ]; then kill -ABRT "$recorder"; else send_each "$4"; fi
    # One that lives on after all is no crash.
    for _ in $(seq 300); do
        kill -0 "$recorder" 2>/dev/null || break
        sleep 0.2
    done
    kill -TERM "$recorder" 2>/dev/null || true
    wait "$recorder" || status=$?
    [ -z "$loader" ] || wait "$loader" 2>/dev/null || true
    ended=$status
}

printf '%-32s %-6s %-10s %s\n' crash status 'equal on' suffix
while IFS='|' read -r name before over how; do
    case $name in '' | \#*) continue ;; esac
    [[ $name =~ $only ]] || continue
    folder=$engine-$name ended=kept status=none
    [ -e "$folder/core" ] || { rm -rf "$folder" && record "$folder" "$before" "$over" "$how"; }
    equal=() verdict='no core'
    if [ -e "$folder/core" ]; then
        for replayer in "${replayers[@]}"; do
            timeout 900 "$gretel" replay "$folder" --engine "$replayer" >"$folder.$replayer" 2>&1 && equal+=("$replayer")
        done
        status=0
        "$gretel" synth "$folder" --time "$limit" >"$folder.synth" 2>"$folder.said" || status=$?
        verdict=$(head -n 1 "$folder.synth")
        [ "$status" = 0 ] || verdict="not certified (exit code $status): $(tail -n 1 "$folder.said")"
    fi
    printf '%-32s %-6s %-10s %s\n' "$name" "$ended" "${equal[*]:-none}" "$verdict"
    [ "${#equal[@]} $status" = "${#replayers[@]} 0" ] || failed=1
done <"$list"
exit "$failed"
