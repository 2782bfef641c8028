#!/usr/bin/env bash
# Recordings of redis under load whose files are cut, or have a bit flipped, at random: what precedes the damage must replay.
#
#   scripts/cuts.sh [--cuts N] [--flips N] [--size BYTES] [--engine soft|kvm] [--seed N] [--out DIR] [--gretel FILE]
#
#   --cuts      how often each of the two recordings is cut (100)
#   --flips     how often a bit of each is flipped (50)
#   --size      how large the journal is to be, in bytes (24000000)
#   --engine    what records and replays (soft)
#   --seed      what the offsets are drawn from (1)
#
# There is one recording with its whole journal, and one of the flight recorder, whose segments and checkpoints are damaged too.
# Each replay must end with exit code 123, name the damaged file and an offset, and count events that the whole recording has;
# or, where the damage is in what replay does without, with 0 and as many events and the same digest as the whole recording. A
# panic, a replay that takes longer than a minute and five times what the whole one takes, and any other exit code are wrong.
#
# Prints a line for each that is wrong, and the numbers at the end. The exit status is 0 when none was; 1 otherwise, and what was
# wrong is kept in DIR (cuts-out).
set -euo pipefail

cuts=100 flips=50 size=24000000 engine=soft seed=1 out=cuts-out
root=$(realpath "$(dirname "$0")/..")
gretel=$root/${CARGO_TARGET_DIR:-target}/release/gretel
port=17346 wrong=0

die() { echo "cuts: $*" >&2; exit 120; }

while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || die "$1 needs a value"
    case $1 in
    --cuts) cuts=$2 ;;
    --flips) flips=$2 ;;
    --size) size=$2 ;;
    --engine) engine=$2 ;;
    --seed) seed=$2 ;;
    --out) out=$2 ;;
    --gretel) gretel=$2 ;;
    *) die "unknown argument $1" ;;
    esac
    shift 2
done
for program in redis-server redis-benchmark redis-cli; do
    command -v "$program" >/dev/null || die "$program is not installed (Debian's redis-server and redis-tools)"
done
mkdir -p "$out" && out=$(realpath "$out") && cd "$out"
RANDOM=$seed

# A number below $1, in $drawn: no subshell, in which each would be the same.
draw() { drawn=$(((RANDOM << 45 | RANDOM << 30 | RANDOM << 15 | RANDOM) % $1)); }

bytes_of_journals() { find "$1" -name journal -size +0 -printf '%s\n' | awk '{ all += $1 } END { print all + 0 }'; }

# Records redis into a folder, with these options, until as much as the journal is to have was written; the window of a flight
# recorder never has as much, and moves until the batches end.
record() { # folder, options
    local folder=$1 recorder batch=0
    shift
    [ -e "$folder/whole" ] && return
    rm -rf "$folder" && mkdir "$folder"
    "$gretel" record --engine "$engine" "$@" -o "$folder/whole" -- \
        redis-server --port "$port" --save '' --appendonly no >"$folder/output" 2>&1 &
    recorder=$!
    until redis-cli -p "$port" ping >/dev/null 2>&1; do
        sleep 0.2
        kill -0 "$recorder" 2>/dev/null || die "redis cannot be recorded: see $out/$folder/output"
    done
    # Values that do not compress, many to a read, and others of one request each.
    while [ "$(bytes_of_journals "$folder/whole")" -lt "$size" ] && [ "$batch" -lt 30 ]; do
        batch=$((batch + 1))
        { base64 -w 8000 /dev/urandom 2>/dev/null || true; } | head -n 500 | awk '{ printf "set key:%d %s\r\n", NR, $0 }' |
            redis-cli -p "$port" --pipe >/dev/null
        redis-benchmark -p "$port" -q -c 10 -n 50 -r 1000 -d 100 -t set,lpush,mset >/dev/null
    done
    redis-cli -p "$port" shutdown nosave >/dev/null 2>&1 || true
    wait "$recorder" || die "redis ended with status $?: see $out/$folder/output"
}

# Replays a folder: its exit status in $status, what it printed in $said, and events and digest in $events and $digest.
replay() { # folder, limit
    status=0
    said=$(timeout "$2" "$gretel" replay "$1" --engine "$engine" 2>&1) || status=$?
    events=$(sed -n 's/^replayed on [a-z]*: \([0-9]*\) events.*/\1/p' <<<"$said")
    digest=$(sed -n 's/^replayed on .* digest \([0-9a-f]*\)$/\1/p' <<<"$said")
}

# What is wrong with a replay of a damaged recording, or nothing.
judge() { # the damaged file
    grep -q 'panicked' <<<"$said" && echo panicked && return
    case $status in
    0) [ "$events" = "$whole_events" ] && [ "$digest" = "$whole_digest" ] || echo "says equal, and has other events" ;;
    123)
        grep -qF "$1" <<<"$said" && grep -q 'offset 0x\|offset [0-9]' <<<"$said" || echo "does not name the file and the offset"
        [ -z "$events" ] || [ "$events" -le "$whole_events" ] || echo "has more events than there were"
        ;;
    124) echo "says that the replay differs" ;;
    *) echo "ends with status $status" ;;
    esac
}

# Damages one file of a copy, replays it, and counts.
try() { # folder, file in it, what: a cut or a flip
    local file=damaged/$2 length what
    rm -rf damaged && cp -a --reflink=auto "$1/whole" damaged
    chmod u+w "$file"
    length=$(stat -c %s "$file")
    draw "$length"
    case $3 in
    cut) truncate -s "$drawn" "$file" ;;
    flip)
        printf "\\x$(printf %02x $(($(od -An -tu1 -j "$drawn" -N 1 "$file") ^ (1 << RANDOM % 8))))" |
            dd of="$file" bs=1 seek="$drawn" conv=notrunc status=none
        ;;
    esac
    replay damaged "$limit"
    what=$(judge "$2")
    tried=$((tried + 1))
    case $status in 0) equal=$((equal + 1)) ;; esac
    [ -z "$events" ] || replayed=$((replayed + events))
    if [ -n "$what" ]; then
        wrong=$((wrong + 1))
        echo "$1: $3 of $2 at $drawn of $length: $what: $(tail -n 2 <<<"$said" | tr '\n' ' ' | cut -c 1-300)"
        mv damaged "wrong-$engine-$wrong"
    fi
}

record "flight-$engine" --flight 24M --checkpoint-every 1
record "journal-$engine"
for folder in "flight-$engine" "journal-$engine"; do
    SECONDS=0
    replay "$folder/whole" 3600
    [ "$status" = 0 ] || die "the whole recording does not replay (status $status): $said"
    whole_events=$events whole_digest=$digest limit=$((SECONDS * 5 + 60))
    mapfile -t files < <(cd "$folder/whole" && find . -name journal -printf '%P\n' -o -path './flight/*/checkpoints' -printf '%P\n' | sort)
    for what in cut flip; do
        tried=0 equal=0 replayed=0
        [ "$what" = cut ] && times=$cuts || times=$flips
        for _ in $(seq "$times"); do
            draw ${#files[@]}
            try "$folder" "${files[drawn]}" "$what"
        done
        [ "$times" = 0 ] || echo "$folder, $(bytes_of_journals "$folder/whole") bytes of journal: $tried times a $what:" \
            "$equal equal all the same, on the mean $((replayed / tried)) of $whole_events events replayed, $wrong wrong so far"
    done
done
rm -rf damaged
[ "$wrong" = 0 ]
