#!/usr/bin/env bash
# Runs the test programs of rr natively and under gretel, and says where they differ.
#
#   scripts/rr-tests.sh SRC [--engine soft|kvm|both] [--limit SECONDS] [--jobs N] [--out DIR] [--only REGEX]
#                       [--gretel FILE]
#
# SRC is a checkout of rr (https://github.com/rr-debugger/rr); its src/test/*.c and src/test/x86/*.c are the programs.
# Each is compiled dynamically and run natively, as an ordinary user in an empty folder, with the arguments and the
# signal from outside that its .run file says. One that passes is then recorded on each engine, and each recording is
# replayed on each engine. DIR (rr-tests-out) has in the end:
#
#   results.tsv     a line for each program: native end, each recording, each replay, a note
#   differ/         what gretel said where a recording or a replay differs
#   bin/, results/  what a run that was interrupted goes on from: run the same command again
#
# With LD_BIND_NOW=1 in the environment the programs have it, too. An end is a status, with + when the program printed EXIT-SUCCESS. Needs root, to have users for the programs to be:
# some of them signal all that their user may signal.
set -euo pipefail

readonly columns=$'test\tnative\tsoft\tkvm\tsoft>soft\tsoft>kvm\tkvm>soft\tkvm>kvm\tnote'
readonly first_user=61001 # of as many as there are jobs, that nobody else is

say() { echo "rr-tests: $*" >&2; }
die() { say "$*"; exit 120; }

# Ends all processes that carry this run's mark in their environment, in whatever session or group they are.
end_marked() {
    local file
    for file in /proc/[0-9]*/environ; do
        if tr '\0' '\n' 2>/dev/null <"$file" | grep -qxF "GRETEL_RR=$1"; then
            file=${file#/proc/}
            kill -s KILL "${file%/environ}" 2>/dev/null || true
        fi
    done
}

# Sends a signal from outside: after some seconds, and once the program has said that it is ready.
signal_later() { # timeout's id, signal, seconds, output
    local child
    sleep "$3"
    for _ in $(seq 100); do
        grep -q ready "$4" && break
        sleep 0.1
    done
    child=$(pgrep -P "$1") && kill -s "$2" "$child" || true
}

# Runs a command as the slot's user in a new empty folder, with a limit; sets `end`.
run_as_user() { # output, errors, signal, seconds, command...
    local out=$1 err=$2 signal=$3 seconds=$4 started=$SECONDS status=0 killer= job
    shift 4
    rm -rf "$folder"
    mkdir -p "$folder"
    chown "$user:$user" "$folder"
    (cd "$folder" && ulimit -c 0 && exec env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$folder" TMPDIR="$folder" LC_ALL=C \
        ${LD_BIND_NOW:+LD_BIND_NOW=1} GRETEL_RR="$mark" GRETEL_KVM_DEVICE="$DEVICE" \
        timeout -s KILL "$LIMIT" setpriv --reuid "$user" --regid "$user" --clear-groups "$@") </dev/null >"$out" 2>"$err" &
    job=$!
    if [ -n "$signal" ]; then
        signal_later "$job" "$signal" "$seconds" "$out" &
        killer=$!
    fi
    wait "$job" 2>/dev/null || status=$?
    [ -z "$killer" ] || wait "$killer" 2>/dev/null || true
    end_marked "$mark"
    find /dev/shm -user "$user" -delete 2>/dev/null || true
    if [ "$status" -eq 137 ] && [ $((SECONDS - started)) -ge "$LIMIT" ]; then
        end=timeout
    elif grep -q EXIT-SUCCESS "$out"; then
        end=$status+
    else
        end=$status
    fi
}

# What gretel said first of a reason, or nothing.
reason() {
    grep -a '^gretel: ' "$1" | grep -av -e '^gretel: exited' -e '^gretel: ended' -e '^gretel: next' | head -n 1 |
        cut -c 9-200 | tr '\t' ' ' || true
}

replay() { # recording, engine
    local status=0
    timeout -s KILL "$LIMIT" env GRETEL_KVM_DEVICE="$DEVICE" "$GRETEL" replay "$1" --engine "$2" \
        >"$work/replayed" 2>&1 </dev/null || status=$?
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

# One program, from its source to its line in results/.
one() {
    local source=$1 name result user folder mark work end native note= token arguments= signal= seconds= engine
    name=$(basename "$source" .c)
    result=$OUT/results/$name.tsv
    [ ! -e "$result" ] || return 0
    user=$((FIRST_USER + ${SLOT:-0}))
    folder=$OUT/running/$user/folder mark=$name-$$ work=$OUT/running/$user
    mkdir -p "$work"
    line() { local IFS=$'\t'; echo "$*" >"$result.new" && mv "$result.new" "$result"; }

    if ! gcc -std=gnu11 -O0 -g3 -DDEBUG -UNDEBUG -pthread -w -I "$SRC/src/test" -I "$SRC/src/preload" -I "$SRC/include" -I "$SRC/src" \
        -I "$OUT/generated" -o "$OUT/bin/$name" "$source" -ldl -lrt 2>"$work/compiler"; then
        line "$name" - - - - - - - "does not compile: $(grep -m1 -a error "$work/compiler" | cut -c 1-150)"
        return 0
    fi
    if [ -e "$OUT/drivers/$name.run" ]; then
        IFS=$'\t' read -r token signal seconds arguments < <(driver "$name") || true
    fi
    [ "${signal:-none}" != none ] || signal=
    # Nobody quotes the arguments in the drivers either.
    # shellcheck disable=SC2086
    set -- $arguments
    run_as_user "$work/out" "$work/err" "$signal" "$seconds" "$OUT/bin/$name" "$@"
    native=$end
    case $native in
    0 | *+) ;;
    *)
        if [ "$native" = timeout ] || [ "${token:-none}" = none ] || ! grep -qa -- "$token" "$work/out"; then
            line "$name" "$native" - - - - - - "does not pass natively: $(tail -qn 1 "$work/err" | cut -c 1-150 | tr '\t' ' ')"
            return 0
        fi
        ;;
    esac

    local -A recorded=([soft]=- [kvm]=-) replayed=([soft.soft]=- [soft.kvm]=- [kvm.soft]=- [kvm.kvm]=-)
    for engine in $ENGINES; do
        rm -rf "$work/recording"
        install -d -o "$user" -g "$user" "$work/recording"
        run_as_user "$work/out" "$work/err" "$signal" "$seconds" \
            "$GRETEL" record --engine "$engine" -o "$work/recording" -- "$OUT/bin/$name" "$@"
        if [ "$end" = "$native" ]; then
            recorded[$engine]=same
        else
            recorded[$engine]=$end
            keep "$name.$engine" "$work/err"
            note=${note:-$(reason "$work/err")}
        fi
        [ "$end" != timeout ] || continue
        local replayer
        for replayer in $ENGINES; do
            replayed[$engine.$replayer]=$(replay "$work/recording" "$replayer")
            if [ "${replayed[$engine.$replayer]}" != equal ]; then
                keep "$name.$engine.$replayer" "$work/replayed"
                note=${note:-replay: $(reason "$work/replayed")}
            fi
        done
    done
    line "$name" "$native" "${recorded[soft]}" "${recorded[kvm]}" "${replayed[soft.soft]}" "${replayed[soft.kvm]}" \
        "${replayed[kvm.soft]}" "${replayed[kvm.kvm]}" "$note"
    rm -rf "$work/recording" "$folder"
}

# What rr's own driver would do: the token that the output must have, the signal, its delay, the arguments.
driver() {
    local made
    mkdir -p "$folder"
    made=$(cd "$folder" && BIN=$OUT/bin timeout 10 bash "$OUT/drivers/$1.run" 2>/dev/null | grep -a "^$1"$'\t' | head -n 1) || true
    [ -z "$made" ] || cut -f 2- <<<"$made"
}

# Copies of the drivers beside a util.sh that only says what it was asked for.
make_drivers() {
    mkdir -p "$OUT/drivers"
    cp "$SRC"/src/test/*.run "$OUT/drivers/"
    cp "$SRC"/src/test/x86/*.run "$OUT/drivers/" 2>/dev/null || true
    cat >"$OUT/drivers/util.sh" <<'STUB'
TESTNAME=$(basename "$0" .run) TESTNAME_NO_BITNESS=$TESTNAME bitness= nonce= LIB_ARG= workdir=/nonexistent
said() { printf '%s\t%s\t%s\t%s\t%s\n' "${exe##*/}" "${token:-none}" "${signal:-none}" "${seconds:-0}" "$arguments"; exit; }
record() { exe=$1; shift; arguments=$*; said; }
just_record() { record "$@"; }
record_async_signal() { signal=$1 seconds=$2 exe=$3 arguments=${4-}; said; }
compare_test() { token=$1; record "${3:-$TESTNAME}"; }
debug_test() { record "$TESTNAME"; }
debug_test_gdb_only() { record "$TESTNAME"; }
save_exe() { saved_exe=$BIN/$1; }
cp() { :; }
for function in skip_if_no_syscall_buf skip_if_old_systemd skip_if_test_32_bit skip_if_rr_32_bit skip_if_syscall_buf \
    skip_if_rr_32_bit_with_shell_64_bit switch_to_nontmp_workdir_if_possible; do
    eval "$function() { :; }"
done
STUB
}

make_generated() {
    local file
    mkdir -p "$OUT/generated"
    for file in AssemblyTemplates CheckSyscallNumbers SyscallEnums{,ForTests}{X64,X86,Generic} SyscallHelperFunctions \
        SyscallnameArch SyscallRecordCase; do
        python3 "$SRC/src/generate_syscalls.py" "$OUT/generated/$file.generated"
    done
}

summarize() {
    { echo "$columns"; cat "$OUT"/results/*.tsv; } >"$OUT/results.tsv"
    awk -F '\t' -v engines="$ENGINES" '
        NR == 1 { for (n = 1; n <= NF; n++) column[$n] = n; next }
        { all++ }
        $9 ~ /^does not compile/ { uncompiled++; next }
        $9 ~ /^does not pass natively/ { failing++; next }
        {
            passing++
            count = split(engines, engine, " ")
            for (e = 1; e <= count; e++) {
                how = $column[engine[e]]
                same[engine[e]] += how == "same"
                if (how != "same") {
                    why = $9 == "" || $9 ~ /^replay/ ? "another end" : $9
                    if (how == "timeout") why = "time-out"
                    else if (match(why, /^(system call|ioctl) [^ ]+/)) why = substr(why, RSTART, RLENGTH)
                    if (($1 SUBSEP why) in seen) continue
                    seen[$1, why] = 1
                    category[why] = category[why] " " $1
                    number[why]++
                }
                for (r = 1; r <= count; r++) {
                    replay = engine[e] ">" engine[r]
                    if ($column[replay] == "-") continue
                    replays[replay]++
                    equal[replay] += $column[replay] == "equal"
                    if ($column[replay] != "equal") unequal[replay] = unequal[replay] " " $1
                }
            }
        }
        END {
            printf "%d programs; %d do not compile, %d do not pass natively, %d pass\n", all, uncompiled, failing, passing
            for (e = 1; e <= count; e++) printf "recorded on %s: %d of %d as natively\n", engine[e], same[engine[e]], passing
            for (replay in replays) printf "replays %s: %d of %d equal%s\n", replay, equal[replay], replays[replay],
                unequal[replay] == "" ? "" : "; not" unequal[replay]
            for (why in category) printf "%d\t%s:%s\n", number[why], why, category[why] | "sort -rn"
        }' "$OUT/results.tsv"
}

main() {
    local only=. engine=both jobs=2
    SRC= LIMIT=60 OUT=rr-tests-out
    GRETEL=$(dirname "$0")/../${CARGO_TARGET_DIR:-target}/release/gretel
    while [ $# -gt 0 ]; do
        case $1 in
        --engine) engine=${2:?} && shift 2 ;;
        --limit) LIMIT=${2:?} && shift 2 ;;
        --jobs) jobs=${2:?} && shift 2 ;;
        --out) OUT=${2:?} && shift 2 ;;
        --only) only=${2:?} && shift 2 ;;
        --gretel) GRETEL=${2:?} && shift 2 ;;
        -*) die "unknown option $1" ;;
        *) SRC=$1 && shift ;;
        esac
    done
    case $engine in
    soft | kvm) ENGINES=$engine ;;
    both) ENGINES="soft kvm" ;;
    *) die "--engine takes soft, kvm or both, not $engine" ;;
    esac
    [ -e "$SRC/src/generate_syscalls.py" ] || die "$SRC is no checkout of rr: it has no src/generate_syscalls.py"
    [ -x "$GRETEL" ] || die "$GRETEL is not there: build it, or name another with --gretel"
    [ "$(id -u)" -eq 0 ] || die "needs root: the programs run as users $FIRST_USER and the next"
    mkdir -p "$OUT"/{bin,results,running}
    SRC=$(realpath "$SRC") OUT=$(realpath "$OUT") GRETEL=$(realpath "$GRETEL")
    setpriv --reuid "$FIRST_USER" --regid "$FIRST_USER" --clear-groups test -x "$GRETEL" -a -x "$OUT/bin" ||
        die "other users cannot reach $GRETEL or $OUT"
    # The programs' users cannot open /dev/kvm: they get a device of their own.
    DEVICE=$OUT/running/kvm
    if [[ $ENGINES = *kvm* ]]; then
        [ -c "$DEVICE" ] || mknod -m 666 "$DEVICE" c $((0x$(stat -c %t /dev/kvm))) $((0x$(stat -c %T /dev/kvm)))
    fi
    make_drivers
    make_generated
    export SRC LIMIT OUT GRETEL ENGINES DEVICE
    find "$SRC/src/test" "$SRC/src/test/x86" -maxdepth 1 -name '*.c' | sort | grep -E "$only" >"$OUT/sources" ||
        die "no program matches $only"
    xargs -a "$OUT/sources" -P "$jobs" --process-slot-var=SLOT -d '\n' -n 1 "$0" --one
    summarize
}

export FIRST_USER=$first_user
if [ "${1-}" = --one ]; then
    one "$2"
else
    main "$@"
fi
