#!/usr/bin/env bash
# The main job, on a real crash: record a guest image until it crashes, replay it three times on each engine that works
# here, look at the core, and synthesize a suffix that is longer than its 16 branch records cover.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly guest=guest-images/build/glibc/overflow
readonly input=guest-images/overflow/input.txt
readonly out=demo-out/overflow
readonly gretel=${CARGO_TARGET_DIR:-target}/release/gretel

heading() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# Shows a gretel command, and runs it.
run() {
    heading "gretel $*"
    "$gretel" "$@"
}

# Records; that the guest crashes is what we came for.
record() {
    rm -rf "$out"
    local status=0
    heading "gretel record -o $out -- $guest < $input"
    "$gretel" record -o "$out" -- "$guest" <"$input" || status=$?
    [ "$status" -eq 139 ] || { echo "the guest should have ended with SIGSEGV (139), not with status $status"; exit 1; }
}

engines() {
    local device=${GRETEL_KVM_DEVICE:-/dev/kvm}
    if [ -r "$device" ] && [ -w "$device" ]; then
        echo kvm
    else
        echo "skipped: engine kvm, since this user cannot open $device" >&2
    fi
    echo soft
}

# Three replays on each engine, all of which must have the same digest.
replay() {
    local engine line results=""
    for engine in $(engines); do
        heading "gretel replay $out --engine $engine    (three times)"
        for _ in 1 2 3; do
            line=$("$gretel" replay "$out" --engine "$engine")
            echo "$line"
            results+=$line$'\n'
        done
    done
    [ "$(grep -o 'digest .*' <<<"$results" | sort -u | wc -l)" -eq 1 ] || { echo "the replays differ"; exit 1; }
}

run doctor
record
replay
run core "$out"
heading "gdb"
gdb -batch -nx -ex bt "$guest" "$out/core" | tail -n 3
run synth "$out" --records 16
