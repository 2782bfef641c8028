#!/usr/bin/env bash
# The acceptance list: programs of many processes and threads, natively and recorded, and every recording replayed many
# times; then two programs with a race, recorded under --chaos until their updates are lost.
#
#   scripts/judge.sh [--replays N] [--chaos N] [--engine soft|kvm|both] [--only REGEX] [--limit SECONDS] [--out DIR]
#                    [--gretel FILE]
#
#   --replays   how often each recording is replayed on each engine (20)
#   --chaos     how many recordings of each racy program, in turns on each engine (200); each is replayed on each engine
#   --only      the programs whose name matches
#   --limit     for a program, a recording or a replay (120)
#
# Prints a table. The exit status is 0 when every program recorded did as natively, every replay was equal with one
# digest, and some recordings of each racy program lost updates; 1 otherwise. DIR (judge-out) has the recordings and
# what gretel said. The sources are in tests/judge/.
set -euo pipefail

readonly none_lost=8000

replays=20 chaos=200 engine=both only=. out=judge-out limit=120
root=$(realpath "$(dirname "$0")/..")
gretel=$root/${CARGO_TARGET_DIR:-target}/release/gretel
failed=0

die() { echo "judge: $*" >&2; exit 120; }
have() { command -v "$1" >/dev/null; }

while [ $# -gt 0 ]; do
    case $1 in
    --replays) replays=${2:?} && shift 2 ;;
    --chaos) chaos=${2:?} && shift 2 ;;
    --engine) engine=${2:?} && shift 2 ;;
    --only) only=${2:?} && shift 2 ;;
    --limit) limit=${2:?} && shift 2 ;;
    --out) out=${2:?} && shift 2 ;;
    --gretel) gretel=${2:?} && shift 2 ;;
    *) die "unknown argument $1" ;;
    esac
done
# shellcheck source=engines.sh
source "$root/scripts/engines.sh"
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1 GOMAXPROCS=4
export GIT_AUTHOR_NAME=A GIT_COMMITTER_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE="1000000000 +0000" GIT_COMMITTER_DATE="1000000000 +0000"

row() {
    printf '%-16s %-8s %-10s %-18s %s\n' "$@"
}

limited() { timeout -s KILL "$limit" "$@" </dev/null; }

# Runs a command in $place, made anew by $prepare; its output goes to a file, its status after it.
run_in_place() { # output, errors, command...
    local to=$1 errors=$2 status=0
    shift 2
    rm -rf "$place"
    mkdir -p "$place"
    (cd "$place" && eval "$prepare") >"$out/prepared" 2>&1 || die "not prepared: $(cat "$out/prepared")"
    (cd "$place" && limited "$@") >"$to" 2>"$errors" || status=$?
    echo "status $status" >>"$to"
}

# Replays a recording on an engine so many times; sets `equal`, and adds the digests to `digests`.
replay() { # recording, engine, times, what it says
    local line
    equal=0
    for _ in $(seq "$3"); do
        if line=$(limited "$gretel" replay "$1" --engine "$2" 2>>"$4"); then
            equal=$((equal + 1))
            digests+=$(grep -o 'digest .*' <<<"$line" || true)$'\n'
        fi
    done
}

# Compares a program with itself under gretel.
judge() { # name, what makes its folder, command...
    local name=$1 prepare=$2 place=$out/$1/place folder=$out/$1 recorder replayer verdict note digests equal counts
    shift 2
    [[ $name =~ $only ]] || return 0
    have "$1" || { row "$name" - skipped - "there is no $1" && return 0; }
    rm -rf "$folder"
    mkdir -p "$folder"
    run_in_place "$folder/native" "$folder/native.err" "$@"
    for recorder in "${engines[@]}"; do
        note='' digests='' counts=''
        run_in_place "$folder/$recorder" "$folder/$recorder.err" \
            "$gretel" record --engine "$recorder" -o "$folder/$recorder.rec" -- "$(command -v "$1")" "${@:2}"
        verdict=same
        if ! cmp -s "$folder/native" "$folder/$recorder"; then
            verdict=differs
            note="$(tail -n 1 "$folder/$recorder"), natively $(tail -n 1 "$folder/native"); $(reason "$folder/$recorder.err")"
        fi
        for replayer in "${engines[@]}"; do
            replay "$folder/$recorder.rec" "$replayer" "$replays" "$folder/$recorder.replays"
            counts+="$replayer $equal/$replays "
            [ "$equal" -eq "$replays" ] || { failed=1 && note+="; $(tail -qn 1 "$folder/$recorder.replays" | cut -c 9-120)"; }
        done
        if [ "$(sort -u <<<"$digests" | grep -c .)" -gt 1 ]; then
            failed=1
            note+="; the digests differ"
        fi
        [ "$verdict" = same ] || failed=1
        row "$name" "$recorder" "$verdict" "$counts" "${note#; }"
    done
}

# What gretel said first of a reason.
reason() {
    grep -a '^gretel: ' "$1" | grep -av -e '^gretel: exited' -e '^gretel: ended' -e '^gretel: next' | head -n 1 | cut -c 9-120 || true
}

# Records a racy program again and again, each time with another seed.
race() { # name
    local name=$1 folder=$out/$1 n recorder replayer sum digests equal lost=0 wrong=0 unequal=0 seen=''
    [[ $name =~ $only ]] || return 0
    rm -rf "$folder"
    mkdir -p "$folder"
    gcc -O1 -pthread -o "$folder/$name" "$root/tests/judge/$name.c"
    if ! "$gretel" record --help | grep -q -e --chaos; then
        failed=1
        row "$name" - "not run" - "gretel record has no --chaos"
        return 0
    fi
    for n in $(seq "$chaos"); do
        recorder=${engines[n % ${#engines[@]}]}
        rm -rf "$folder/rec"
        sum=$(limited "$gretel" record --engine "$recorder" --chaos --seed "$n" -o "$folder/rec" -- "$folder/$name" 2>>"$folder/said") || true
        case $sum in
        "$none_lost") ;;
        '' | *[!0-9]*) wrong=$((wrong + 1)) ;;
        *) lost=$((lost + 1)) && seen+=$sum$'\n' ;;
        esac
        digests=
        for replayer in "${engines[@]}"; do
            replay "$folder/rec" "$replayer" 1 "$folder/said"
            [ "$equal" -eq 1 ] || unequal=$((unequal + 1))
        done
        if [ "$(sort -u <<<"$digests" | grep -c .)" -gt 1 ]; then
            unequal=$((unequal + 1))
        fi
    done
    row "$name" "${engines[*]}" "$lost/$chaos lost" "$unequal unequal" "$wrong without a sum; $(sort -u <<<"$seen" | grep -c . || true) sums"
    [ "$lost" -gt 0 ] && [ "$wrong" -eq 0 ] && [ "$unequal" -eq 0 ] || failed=1
}

sources=$root/tests/judge
row program recorded output "replays equal" note
judge pipelines : sh "$sources/pipelines.sh"
judge substitution : sh -c 'echo "$(for n in $(seq 5); do echo "$(echo "$n" | rev) $(printf %s "$n" | wc -c)"; done)" | sort -r; echo `echo \`echo deep\``'
judge make "cp -r '$sources/project/.' ." sh -c 'make -s -j2 && ./sum 1 2 3 && cksum libsum.a sum'
judge git-clone "git init -q -b main one && cd one && cp -r '$sources/.' . && git add . && git commit -q -m first && git tag v1 && git gc -q && echo more >more && git add . && git commit -q -m second" \
    sh -c 'git clone -q one two && cd two && git log --format="%h %s" && git status --short && ls && git checkout -q v1 && git ls-files | wc -l'
python=$(PATH=/usr/bin:/bin:$PATH command -v python3 || true)
judge subprocess : "${python:-python3}" "$sources/subprocesses.py"
judge multiprocessing : "${python:-python3}" "$sources/processes.py"
judge perl : perl "$sources/fork.pl"
if have go && CGO_ENABLED=0 go build -trimpath -o "$out/workers" "$sources/workers.go"; then
    judge go : "$out/workers"
else
    row go - skipped - "there is no go"
fi
race racy-threads
race racy-processes
exit "$failed"
