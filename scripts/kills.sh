#!/usr/bin/env bash
# redis under load and the flight recorder, killed -9 again and again: each window that is left must replay.
#
#   scripts/kills.sh [--kills N] [--seconds S] [--engine soft|kvm] [--flight SIZE] [--out DIR] [--gretel FILE]
#
#   --kills     how often (50)
#   --seconds   how long it runs at most before it is killed; how long is random (40)
#   --flight    the window (24M)
#
# Prints a line for each kill. The exit status is 0 when every window replayed equal; 1 otherwise, and its recording is
# kept in DIR (kills-out).
set -euo pipefail

kills=50 seconds=40 engine=kvm flight=24M out=kills-out
root=$(realpath "$(dirname "$0")/..")
gretel=$root/${CARGO_TARGET_DIR:-target}/release/gretel
port=17345 failed=0

die() { echo "kills: $*" >&2; exit 120; }

while [ $# -gt 0 ]; do
    case $1 in
    --kills) kills=${2:?} && shift 2 ;;
    --seconds) seconds=${2:?} && shift 2 ;;
    --engine) engine=${2:?} && shift 2 ;;
    --flight) flight=${2:?} && shift 2 ;;
    --out) out=${2:?} && shift 2 ;;
    --gretel) gretel=${2:?} && shift 2 ;;
    *) die "unknown argument $1" ;;
    esac
done
for program in redis-server redis-benchmark; do
    command -v "$program" >/dev/null || die "$program is not installed (Debian's redis-server and redis-tools)"
done
mkdir -p "$out" && out=$(realpath "$out")

load() { while :; do timeout 20 redis-benchmark -p "$port" -q -n 2000 -c 20 -r 10000 -t set,get,incr,lpush,lrange_100,mset >/dev/null 2>&1 || sleep 0.2; done; }

printf '%-5s %-8s %-8s %s\n' kill seconds replay said
for n in $(seq "$kills"); do
    recording=$out/$n.rec
    rm -rf "$recording"
    (cd "$out" && exec "$gretel" record --engine "$engine" --flight "$flight" -o "$recording" -- \
        redis-server --port "$port" --save '' --appendonly no) >"$out/output" 2>&1 &
    recorder=$!
    # A recorder that is killed before there is a window leaves none.
    until [ -s "$recording/flight/000000/journal" ]; do
        kill -0 "$recorder" 2>/dev/null || die "redis cannot be recorded: see $out/output"
        sleep 0.1
    done
    # redis-benchmark that finds nobody there tries until its time limit, and loads nothing.
    until redis-cli -p "$port" ping >/dev/null 2>&1; do
        kill -0 "$recorder" 2>/dev/null || die "redis does not answer: see $out/output"
        sleep 0.1
    done
    load &
    loader=$!
    ran=$((RANDOM % seconds + 1)).$((RANDOM % 1000))
    sleep "$ran"
    kill -KILL "$recorder"
    # What it runs tries to connect for ever, but for its time limit.
    kill -STOP "$loader"
    pkill -TERM -P "$loader" || true
    kill -KILL "$loader"
    wait "$recorder" "$loader" 2>/dev/null || true
    # 123: the journal has no end, which is said.
    status=0
    said=$(timeout 600 "$gretel" replay "$recording" --engine "$engine" 2>&1) || status=$?
    verdict=equal
    [ "$status" = 123 ] && grep -q 'were replayed and are as recorded' <<<"$said" || verdict=differs failed=1
    printf '%-5s %-8s %-8s %s\n' "$n" "$ran" "$verdict" "$(tail -n 1 <<<"$said" | cut -c 1-150)"
    [ "$verdict" = differs ] || rm -rf "$recording"
done
exit "$failed"
