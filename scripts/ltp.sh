#!/usr/bin/env bash
# Runs the system-call tests of LTP natively and under gretel, and says where they differ.
#
#   scripts/ltp.sh ROOT [--engine soft|kvm|both] [--limit SECONDS] [--jobs N] [--only REGEX] [--out DIR] [--gretel FILE]
#
# ROOT is an installed LTP (https://github.com/linux-test-project/ltp): its runtest/syscalls says which tests there are,
# its testcases/bin has them. Each runs natively, as root in an empty folder. One that passes is then recorded on each
# engine, and each recording is replayed on the engine that made it. DIR (ltp-out) has in the end:
#
#   results.tsv     a line for each test: native end, each recording, each replay, checks that passed, a note
#   differ/         what the test and gretel said where a recording or a replay differs
#   results/        what a run that was interrupted goes on from: run the same command again
#
# An end is a status; LTP's 32 says that this machine has not what the test needs. A test that ends as natively, but with another
# number of checks that passed, has the end `other`, and counts. Needs root: most tests do. They are kept in namespaces of their own, without the
# rights to set the clock, to load modules or to restart the machine, without loop devices and with /proc/sys for reading alone;
# those that need one of these do not pass natively, and the few that would still do harm are left out by name.
set -euo pipefail

readonly columns=$'test\tnative\tsoft\tkvm\tsoft>soft\tkvm>kvm\tchecks\tnote'
readonly refused_capabilities=-sys_time,-sys_boot,-sys_module

# Tests that are not run: their names as a regular expression, and why.
readonly left_out='
acct0[12]               turn the accounting of the whole machine on and off
fork1[34]|fork06|fork11 fork for minutes, or map all memory there is
msgstress01             starts thousands of processes for minutes
madvise06|min_free_kb   fill the memory
mlock0[35]              lock memory many times over
setpriority01           adds a user to the machine
swapo(n|ff)0[0-9]       change the swap space
syslog1[12]             change what the console shows
vhangup0[12]            hang up the terminal
'

say() { echo "ltp: $*" >&2; }
die() { say "$*"; exit 120; }

# A command in the slot's new empty folder, with a limit, in namespaces that end with it; sets `end`.
run() { # output, command...
    local out=$1 started=$SECONDS status=0
    shift
    rm -rf "$folder"
    # Some tests become other users there.
    install -d -m 1777 "$folder"
    unshare --mount --ipc --uts --pid --fork --kill-child --mount-proc \
        "$0" --inside "$folder" "$@" </dev/null >"$out" 2>&1 || status=$?
    end=$status
    if [ "$status" -eq 137 ] && [ $((SECONDS - started)) -ge "$LIMIT" ]; then
        end=timeout
    fi
}

# The first process of the namespaces: shows the test no more than it may have.
inside() { # folder, command...
    local folder=$1 device
    shift
    for device in /dev/loop*; do
        [ ! -e "$device" ] || mount --bind /dev/null "$device"
    done
    mount --bind -o ro /proc/sys /proc/sys
    mount -t tmpfs -o mode=1777 shm /dev/shm
    cd "$folder"
    ulimit -c 0
    # Not by exec: the first process of a namespace has no default ends by signals.
    env -i PATH="$ROOT/testcases/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME="$folder" LC_ALL=C \
        LTPROOT="$ROOT" TMPDIR="$folder" LTP_COLORIZE_OUTPUT=n LTP_TIMEOUT_MUL=3 LTP_RUNTIME_MUL=0.1 \
        "$KCONFIG" timeout -s KILL "$LIMIT" setpriv --bounding-set="$refused_capabilities" "$@"
}

# How many checks LTP's summary says have passed, or nothing: older tests have none.
checks() { awk '$1 == "passed" && NF == 2 { passed = $2 } END { print passed }' "$1"; }

# What gretel said first, else what the test said of its first failure.
reason() {
    {
        grep -a '^gretel: ' "$1" | grep -av -e '^gretel: exited' -e '^gretel: ended' -e '^gretel: next' | cut -c 9-
        grep -aE 'TFAIL|TBROK|TCONF' "$1"
    } | head -n 1 | cut -c 1-200 | tr '\t' ' ' || true
}

replay() { # recording, engine
    local status=0
    timeout -s KILL "$LIMIT" "$GRETEL" replay "$1" --engine "$2" >"$work/replayed" 2>&1 </dev/null || status=$?
    case $status in
    0) echo equal ;;
    124) echo diverged ;;
    137) echo timeout ;;
    *) echo "error $status" ;;
    esac
}

keep() { # name, file
    mkdir -p "$OUT/differ"
    cp "$2" "$OUT/differ/$1"
}

# One test, from its line in runtest/syscalls to its line in results/.
one() {
    local name result work=$OUT/running/${SLOT:-0} folder end native note= passed engine
    name=$1
    shift
    result=$OUT/results/$name.tsv folder=$work/folder
    [ ! -e "$result" ] || return 0
    mkdir -p "$work"
    line() { local IFS=$'\t'; echo "$*" >"$result.new" && mv "$result.new" "$result"; }

    run "$work/out" "$@"
    native=$end
    if [ "$native" != 0 ]; then
        line "$name" "$native" - - - - - "natively: $(grep -aE -m 1 'TFAIL|TBROK|TCONF' "$work/out" | cut -c 1-200 | tr '\t' ' ')"
        return 0
    fi
    passed=$(checks "$work/out")

    local -A recorded=([soft]=- [kvm]=-) replayed=([soft]=- [kvm]=-)
    for engine in $ENGINES; do
        rm -rf "$work/recording"
        run "$work/out" "$GRETEL" record --engine "$engine" -o "$work/recording" -- "$@"
        recorded[$engine]=$end
        if [ "$end" = 0 ]; then
            recorded[$engine]=same
            [ "$(checks "$work/out")" = "$passed" ] || recorded[$engine]=other
        fi
        if [ "${recorded[$engine]}" != same ]; then
            keep "$name.$engine" "$work/out"
            note=${note:-$(reason "$work/out")}
        fi
        [ "$end" != timeout ] || continue
        replayed[$engine]=$(replay "$work/recording" "$engine")
        if [ "${replayed[$engine]}" != equal ]; then
            keep "$name.$engine.replay" "$work/replayed"
            note=${note:-replay: $(reason "$work/replayed")}
        fi
    done
    line "$name" "$native" "${recorded[soft]}" "${recorded[kvm]}" "${replayed[soft]}" "${replayed[kvm]}" "${passed:--}" "$note"
    rm -rf "$work/recording" "$folder"
}

# The lines of runtest/syscalls that are to be run: name, command and arguments.
list_tests() {
    local pattern
    pattern=$(awk 'NF { printf "%s%s", bar, $1; bar = "|" }' <<<"$left_out")
    awk -v only="$1" -v without="^($pattern)\$" \
        '!/^#/ && NF && $1 ~ only && $1 !~ without && $2 !~ without' "$ROOT/runtest/syscalls"
}

summarize() {
    { echo "$columns"; cat "$OUT"/results/*.tsv; } >"$OUT/results.tsv"
    awk -F '\t' -v engines="$ENGINES" '
        NR == 1 { for (n = 1; n <= NF; n++) column[$n] = n; next }
        { all++ }
        $2 == 32 { unfit++; next }
        $2 != 0 { failing++; next }
        {
            passing++
            count = split(engines, engine, " ")
            for (e = 1; e <= count; e++) {
                how = $column[engine[e]]
                replay = $column[engine[e] ">" engine[e]]
                same[engine[e]] += how == "same" || how == "other"
                other[engine[e]] += how == "other"
                replays[engine[e]] += replay != "-"
                equal[engine[e]] += replay == "equal"
                if (replay != "-" && replay != "equal") unequal[engine[e]] = unequal[engine[e]] " " $1
                if (how == "same" || $1 in seen) continue
                seen[$1] = 1
                why = $8 == "" ? "another end" : $8
                if (how == "timeout") why = "time-out"
                else if (match(why, /^(system call|ioctl) [^ ]+/)) why = substr(why, RSTART, RLENGTH)
                else sub(/^[^ ]*:[0-9]+: /, "", why)
                category[why] = category[why] " " $1
                number[why]++
            }
        }
        END {
            printf "%d tests; %d lack something here, %d do not pass natively, %d pass\n", all, unfit, failing, passing
            for (e = 1; e <= count; e++) {
                printf "recorded on %s: %d of %d as natively", engine[e], same[engine[e]], passing
                printf ", %d of them with another number of checks\n", other[engine[e]]
                printf "replays on %s: %d of %d equal%s\n", engine[e], equal[engine[e]], replays[engine[e]],
                    unequal[engine[e]] == "" ? "" : "; not" unequal[engine[e]]
            }
            for (why in category) printf "%d\t%s:%s\n", number[why], why, category[why] | "sort -rn"
        }' "$OUT/results.tsv"
}

# Where LTP learns how the kernel was configured: from a copy, which the guest has, too.
kernel_configuration() {
    if [ -r /proc/config.gz ]; then
        cp /proc/config.gz "$OUT/config.gz"
        echo "KCONFIG_PATH=$OUT/config.gz"
    else
        echo KCONFIG_SKIP_CHECK=1
    fi
}

main() {
    local only=. engine=both jobs=2 engines
    local gretel=$(dirname "$0")/../${CARGO_TARGET_DIR:-target}/release/gretel out=ltp-out
    ROOT= LIMIT=60
    while [ $# -gt 0 ]; do
        case $1 in
        --engine) engine=${2:?} && shift 2 ;;
        --limit) LIMIT=${2:?} && shift 2 ;;
        --jobs) jobs=${2:?} && shift 2 ;;
        --only) only=${2:?} && shift 2 ;;
        --out) out=${2:?} && shift 2 ;;
        --gretel) gretel=${2:?} && shift 2 ;;
        -*) die "unknown option $1" ;;
        *) ROOT=$1 && shift ;;
        esac
    done
    [ -d "$ROOT/testcases/bin" ] && [ -e "$ROOT/runtest/syscalls" ] ||
        die "${ROOT:-nothing} is no installed LTP: it has no testcases/bin and runtest/syscalls"
    [ "$(id -u)" -eq 0 ] || die "needs root, as most tests do"
    . "$(dirname "$0")/engines.sh"
    mkdir -p "$out"/{results,running}
    ROOT=$(realpath "$ROOT") OUT=$out GRETEL=$gretel ENGINES=${engines[*]} KCONFIG=
    KCONFIG=$(kernel_configuration)
    export ROOT LIMIT OUT GRETEL ENGINES KCONFIG
    list_tests "$only" >"$OUT/tests"
    [ -s "$OUT/tests" ] || die "no test matches $only"
    # The arguments in that file are quoted as a shell would have them.
    xargs -a "$OUT/tests" -P "$jobs" --process-slot-var=SLOT -L 1 "$0" --one
    summarize
}

case ${1-} in
--one) shift && one "$@" ;;
--inside) shift && inside "$@" ;;
*) main "$@" ;;
esac
