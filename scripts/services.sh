#!/usr/bin/env bash
# Servers and terminal programs of Debian, under load: each one natively, then recorded on each engine and replayed many
# times. A service is a file of tests/services/, which tells how it is started, asked and ended.
#
#   scripts/services.sh [--replays N] [--engine soft|kvm|auto|both] [--only REGEX] [--quick] [--install] [--limit SECONDS]
#                       [--out DIR] [--gretel FILE]
#
#   --replays   how often each recording is replayed on each engine (20)
#   --only      the services whose name matches
#   --quick     those alone that say they are quick
#   --install   install the Debian packages that are missing first, as root or with sudo
#   --limit     for a run of a service, and for a replay (120)
#
# Prints a table. The exit status is 0 when every service that is there answered recorded as it did natively, ended with
# the same status, and every replay was equal with one digest; 1 otherwise. DIR (services-out) has the recordings, what
# was answered and what gretel said.
set -euo pipefail

replays=20 engine=both only=. quick= install= out=services-out limit=120
root=$(realpath "$(dirname "$0")/..")
gretel=$root/${CARGO_TARGET_DIR:-target}/release/gretel
failed=0

die() { echo "services: $*" >&2; exit 120; }
have() { command -v "$1" >/dev/null; }

while [ $# -gt 0 ]; do
    case $1 in
    --replays) replays=${2:?} && shift 2 ;;
    --engine) engine=${2:?} && shift 2 ;;
    --only) only=${2:?} && shift 2 ;;
    --quick) quick=1 && shift ;;
    --install) install=1 && shift ;;
    --limit) limit=${2:?} && shift 2 ;;
    --out) out=${2:?} && shift 2 ;;
    --gretel) gretel=${2:?} && shift 2 ;;
    *) die "unknown argument $1" ;;
    esac
done
# shellcheck source=engines.sh
source "$root/scripts/engines.sh"
sources=$root/tests/services
# Servers are in sbin; what a user has in front of the system's own programs is not what is to be tested.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL=C PATH PYTHONDONTWRITEBYTECODE=1
unset GRETEL_LOG

row() { printf '%-14s %-8s %-9s %-20s %s\n' "$@"; }

# A service's file sets these; what it leaves out is as here.
defaults() {
    packages='' is_quick='' expected=0 service=() terminal='' limited=(timeout --foreground -k 5 -s KILL "$limit")
    prepare() { :; }
    run() { exec "${limited[@]}" "$@"; }
    ready() { answers "$port"; }
    load() { :; }
    stop() { kill -TERM "$pid"; }
}

# Whether someone listens there.
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# What a URL of the service answers; with `-i` and the like before the path.
get() { curl -sS --max-time 20 "${@:2}" "http://127.0.0.1:$port$1"; }

# How the command line is run on a terminal whose keys come from the FIFO `keys`. Nobody else is in its process group: who
# is gets the signals of the keys as well, and `timeout` passes them on.
run_on_terminal() {
    mkfifo keys
    exec "${limited[@]}" script -qefc "stty cols 80 rows 24 $terminal; exec $(printf '%q ' "$@")" /dev/null <keys
}

# What is on the terminal, without the switches of bracketed paste.
said() { tr -d '\r' <"$place/../output" | sed 's/\x1b\[?2004[hl]//g'; }

# Types keys once this was said last, so that a slow program is not typed ahead of.
typed() { # pattern of the last line, keys
    local n
    for ((n = 0; n < 600; n++)); do
        # shellcheck disable=SC2053 # it is a pattern
        [[ $(said | tail -n 1) != $1 ]] || break
        kill -0 "$runner" 2>/dev/null || break
        sleep 0.05
    done
    printf '%b' "$2"
}

port_of() { echo $((20000 + ($(cksum <<<"$1" | cut -d' ' -f1) + $2) % 10000)); }

# Runs the service once, recorded if there are words before it; leaves answers, output, errors and status in a folder.
once() { # folder, words before it...
    local folder=$1 n answered=0 status=0
    shift
    rm -rf "$folder" && mkdir -p "$folder/place"
    cd "$folder/place"
    place=$folder/place
    # shellcheck source=/dev/null
    source "$sources/$name.sh"
    prepare >"$folder/prepared" 2>&1 || { echo "not prepared" >"$folder/answers"; return 1; }
    (run "$@" "${service[@]}") >"$folder/output" 2>"$folder/errors" &
    runner=$!
    pid=$runner
    for ((n = 0; n < 600; n++)); do
        if ready >/dev/null 2>&1; then answered=1 && break; fi
        kill -0 "$runner" 2>/dev/null || break
        sleep 0.1
    done
    # The service itself, or gretel, is timeout's child.
    pid=$(pgrep -P "$runner" | head -n 1 || true)
    if [ "$answered" = 1 ]; then
        (set +e; load) >"$folder/answers" 2>"$folder/load.errors" || true
    else
        echo "never ready" >"$folder/answers"
    fi
    stop >"$folder/stop" 2>&1 || true
    wait "$runner" || status=$?
    echo "status $status" >>"$folder/answers"
}

# Replays a recording on an engine so many times; sets `equal`, and adds the digests to `digests`.
replay() { # recording, engine, times, what it says
    local line
    equal=0
    for _ in $(seq "$3"); do
        if line=$(timeout -s KILL "$limit" "$gretel" replay "$1" --engine "$2" 2>>"$4" </dev/null); then
            equal=$((equal + 1))
            digests+=$(grep -ao 'digest .*' <<<"$line" || true)$'\n'
        fi
    done
}

# What gretel said first of a reason.
reason() {
    grep -a '^gretel: ' "$1" | grep -av -e '^gretel: exited' -e '^gretel: ended' -e '^gretel: next' | head -n 1 | cut -c 9-150 || true
}

judge() { # name
    local name=$1 folder=$out/$1 recorder replayer verdict note digests equal counts began
    defaults
    port=$(port_of "$name" 0) place=/nonexistent
    # shellcheck source=/dev/null
    source "$sources/$name.sh"
    [ -z "$quick" ] || [ -n "$is_quick" ] || return 0
    [ -z "$install" ] || install_packages
    for package in $packages; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed' ||
            { row "$name" - skipped - "package $package is not installed"; return 0; }
    done
    once "$folder/native" || true
    for recorder in "${engines[@]}"; do
        note='' digests='' counts=''
        port=$((port + 7))
        rm -rf "$folder/$recorder.rec"
        began=$SECONDS
        once "$folder/$recorder" "$gretel" record --engine "$recorder" -o "$folder/$recorder.rec" -- || true
        note="$((SECONDS - began)) s; "
        verdict=same
        if ! cmp -s "$folder/native/answers" "$folder/$recorder/answers" || ! grep -qx "status $expected" "$folder/$recorder/answers"; then
            verdict=differs failed=1
            note+="$(tail -n 1 "$folder/$recorder/answers"), natively $(tail -n 1 "$folder/native/answers"); $(reason "$folder/$recorder/errors")"
        fi
        for replayer in "${engines[@]}"; do
            replay "$folder/$recorder.rec" "$replayer" "$replays" "$folder/$recorder.replays"
            counts+="$replayer $equal/$replays "
            [ "$equal" -eq "$replays" ] || { failed=1 && note+="; $(tail -qn 1 "$folder/$recorder.replays" | cut -c 9-150)"; }
        done
        if [ "$(sort -u <<<"$digests" | grep -c .)" -gt 1 ]; then
            failed=1
            note+="; the digests differ"
        fi
        row "$name" "$recorder" "$verdict" "$counts" "${note%; }"
    done
}

install_packages() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    # shellcheck disable=SC2086
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get -qq -y install --no-install-recommends $packages >/dev/null
}

row service recorded answers "replays equal" note
for file in "$sources"/*.sh; do
    name=$(basename "$file" .sh)
    [[ $name =~ $only ]] || continue
    (judge "$name" && exit "$failed") || failed=1
done
exit "$failed"
