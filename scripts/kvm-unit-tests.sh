#!/usr/bin/env bash
# Records the tests of kvm-unit-tests for x86-64 as machines, replays them, and says what passes.
#
#   scripts/kvm-unit-tests.sh SRC [--engine soft] [--limit SECONDS] [--jobs N] [--only REGEX] [--out DIR] [--gretel FILE]
#
# SRC is a kvm-unit-tests (https://gitlab.com/kvm-unit-tests/kvm-unit-tests) that is built: `./configure --arch=x86_64 && make`. Its
# x86/unittests.cfg says which tests there are, with what arguments. Each is a Multiboot program; it runs with one processor, and each
# recording is replayed. Kernels run on the software CPU alone. DIR (kvm-unit-tests-out) has in the end:
#
#   results.tsv     a line for each test: end, checks that passed, failed and were skipped, replay, a note
#   logs/           what each test printed, and below it what gretel said
#   results/        what a run that was interrupted goes on from: run the same command again
#
# The end is `pass`, `fail` or `skip` as the test says of itself, `abort` by an exception that it has no handler for; `refused`, `time-out`
# and other words are gretel's. The note has the checks that failed, or what gretel said. Tests that cannot run on one processor without
# virtualization are not run, and the list says why.
set -euo pipefail

readonly columns=$'test\tend\tpassed\tfailed\tskipped\treplay\tnote'

# Tests that are not run: their names as a regular expression, and why.
readonly left_out='
smptest3?                      needs two processors
vmexit_.*                      measures the cost of exits, checks nothing
vmx.*|ept.*                    needs VMX
svm.*                          needs SVM
intel_iommu                    needs an IOMMU and PCI
hyperv_.*                      needs Hyper-V
'

# Tests that ask for what the machine has not, and are run as far as they go.
readonly asking='
emulator|ioapic|lam  QEMU'\''s pc-testdev
hypercall            KVM'\''s hypercalls
vmware_backdoors     VMware'\''s port
s3                   a sleep state and firmware
realmode             code of 16 bits below 1 MiB
'

say() { echo "kvm-unit-tests: $*" >&2; }
die() { say "$*"; exit 120; }

# The tests of unittests.cfg: name, file, architecture, processors, arguments, with a bar between.
list_tests() {
    awk -v only="$1" '
        function put() { if (name != "" && name ~ only) print name "|" file "|" arch "|" smp "|" args }
        /^\[/ { put(); name = $0; gsub(/[][]/, "", name); file = arch = smp = args = "" }
        /^[a-z_]+ *=/ {
            key = $0; sub(/ *=.*/, "", key)
            value = $0; sub(/^[^=]*= */, "", value)
            gsub(/^["'\'']|["'\'']$/, "", value)
            if (key == "file") file = value
            if (key == "arch") arch = value
            if (key == "smp") smp = value
            if (key == "test_args") args = value
        }
        END { put() }' "$SRC/x86/unittests.cfg"
}

# What a list has beside a test's name.
listed() { # name, list
    local pattern text
    while read -r pattern text; do
        [ -z "$pattern" ] || ! [[ $1 =~ ^($pattern)$ ]] || echo "$text"
    done <<<"$2"
}

# Why a test is not run; nothing if it is.
why_not() { # name, architecture
    [ "$2" != i386 ] || echo "is for 32-bit builds alone"
    listed "$1" "$left_out"
}

# The end of a recording, by gretel's status and what it said.
end_of() { # status, what gretel said
    case $1 in
    1) echo pass ;;
    3) echo fail ;;
    77) echo skip ;;
    126) echo refused ;;
    124 | 137) echo time-out ;;
    121) echo "not loaded" ;;
    127) echo abort ;;
    134) echo triple-fault ;;
    0) if grep -q 'the guest waits' "$2"; then echo idle; else echo halted; fi ;;
    *) echo "status $1" ;;
    esac
}

replay() { # recording
    local status=0
    timeout -s KILL "$((2 * LIMIT))" "$GRETEL" replay "$1" >"$work/replayed" 2>&1 </dev/null || status=$?
    # A replay ends as what it replays.
    if [ "$status" = 137 ]; then
        echo timeout
    elif grep -q '^replayed on soft: ' "$work/replayed"; then
        echo equal
    else
        echo "differs: $(head -n 1 "$work/replayed")"
    fi
}

# Checks that failed, without numbers that tell calls of one check apart, or gretel's reason for its end.
note_of() { # end, log, what gretel said
    local failed
    failed=$(grep -a '^FAIL: ' "$2" | cut -c 7- | tr -d '\r' | tr '\t' ' ' | cut -c 1-60 | uniq -c |
        awk '{ n = $1; $1 = ""; printf "%s%s%s", sep, substr($0, 2), (n > 1 ? " (" n " times)" : ""); sep = "; " }')
    case $1 in
    refused) echo "$(grep -m 1 'not served' "$3" | sed 's/^gretel: not served: //; s/; [0-9]* events.*//')${failed:+; $failed}" ;;
    "not loaded") head -n 1 "$3" | sed 's/^gretel: //' ;;
    *) echo "$failed" ;;
    esac
}

# One test, from its line to its line in results/.
one() { # name|file|architecture|processors|arguments
    local name file arch smp args result work status=0 end note asks log said replayed=- why
    IFS='|' read -r name file arch smp args <<<"$1"
    result=$OUT/results/$name.tsv work=$OUT/running/$name log=$OUT/logs/$name said=$OUT/logs/$name.gretel
    [ ! -e "$result" ] || return 0
    line() { local IFS=$'\t'; echo "$*" >"$result.new" && mv "$result.new" "$result"; }
    why=$(why_not "$name" "$arch")
    [ -n "$why" ] || [ -e "$SRC/x86/$file" ] || why="its file $file is not built"
    if [ -n "$why" ]; then
        line "$name" "not run" - - - - "$why"
        return 0
    fi
    args=$(eval "echo \"$args\"")
    mkdir -p "$work"
    timeout --kill-after 10 "$LIMIT" "$GRETEL" record --kernel "$SRC/x86/$file" --initrd "$OUT/environment" --cmdline "$args" \
        -o "$work/recording" >"$log" 2>"$said" </dev/null || status=$?
    end=$(end_of "$status" "$said")
    [ ! -e "$work/recording" ] || replayed=$(replay "$work/recording")
    note=$(note_of "$end" "$log" "$said")
    asks=$(listed "$name" "$asking")
    [ -z "$smp" ] || asks=${asks:+$asks and }"$smp processors"
    note=${asks:+asks for $asks}${asks:+${note:+; }}$note
    line "$name" "$end" "$(grep -ac '^PASS: ' "$log")" "$(grep -ac '^FAIL: ' "$log")" "$(grep -ac '^SKIP: ' "$log")" \
        "$replayed" "$note"
    rm -rf "$work"
}

summarize() {
    { echo "$columns"; cut -d '|' -f 1 "$OUT/tests" | sed "s|.*|$OUT/results/&.tsv|" | xargs cat; } >"$OUT/results.tsv"
    column -t -s $'\t' <"$OUT/results.tsv"
    awk -F '\t' '
        NR == 1 { next }
        { all++ }
        $2 == "not run" { left++; next }
        { run++; ends[$2]++; passed += $3; failed += $4; skipped += $5; equal += $6 == "equal" }
        END {
            printf "%d tests, %d not run; of %d:", all, left, run
            for (end in ends) printf " %d %s", ends[end], end
            printf "; checks: %d passed, %d failed, %d skipped; replays: %d equal\n", passed, failed, skipped, equal
        }' "$OUT/results.tsv"
}

main() {
    local only=. jobs=2 engine=soft out=kvm-unit-tests-out
    SRC= LIMIT=240 GRETEL=$(dirname "$0")/../${CARGO_TARGET_DIR:-target}/release/gretel
    while [ $# -gt 0 ]; do
        case $1 in
        --engine) engine=${2:?} && shift 2 ;;
        --limit) LIMIT=${2:?} && shift 2 ;;
        --jobs) jobs=${2:?} && shift 2 ;;
        --only) only=${2:?} && shift 2 ;;
        --out) out=${2:?} && shift 2 ;;
        --gretel) GRETEL=${2:?} && shift 2 ;;
        -*) die "unknown option $1" ;;
        *) SRC=$1 && shift ;;
        esac
    done
    [ "$engine" = soft ] || die "kernels run on the software CPU alone: --engine soft"
    [ -e "$SRC/x86/unittests.cfg" ] || die "${SRC:-nothing} is no kvm-unit-tests: it has no x86/unittests.cfg"
    [ -n "$(ls "$SRC"/x86/*.flat 2>/dev/null)" ] || die "$SRC is not built: ./configure --arch=x86_64 && make"
    [ -x "$GRETEL" ] || die "$GRETEL is no program: cargo build --release, or --gretel FILE"
    mkdir -p "$out"/{results,logs,work}
    SRC=$(realpath "$SRC") OUT=$(realpath "$out") GRETEL=$(realpath "$GRETEL")
    export SRC LIMIT OUT GRETEL
    # Else the tests ask QEMU's firmware configuration.
    printf '%s\n' NR_CPUS=1 MEMSIZE=512 MEMLIMIT=0 TEST_DEVICE=0 >"$OUT/environment"
    list_tests "$only" >"$OUT/tests"
    [ -s "$OUT/tests" ] || die "no test matches $only"
    tr '\n' '\0' <"$OUT/tests" | xargs -0 -P "$jobs" -n 1 "$0" --one
    summarize
}

case ${1-} in
--one) shift && one "$@" ;;
*) main "$@" ;;
esac
