#!/usr/bin/env bash
# Crashes Debian's cloud kernel with each module of guest-images/kernel/modules: records the panic, replays it, and takes it back in gdb to
# the instruction that faulted.
#
#   scripts/kernel-crash.sh [--gretel FILE] [--out DIR] [--package NAME] [--module NAME]
#
# The kernel and its headers are fetched as kernel-boot.sh does (40 MB). Needs gcc-12, make, gdb and
# busybox-static. Checked for each module: what the kernel prints; that the replay is equal; that the core has the registers that gdb
# finds at the recording's end; that `gretel core` has the log, the task and the call trace that the kernel has printed; that `gretel synth` takes the crash back
# over all branch records, with as many true instructions as its expected.toml has; that gdb, going back to the faulting instruction, finds there the registers that the kernel has printed.
set -euo pipefail

cd "$(dirname "$0")/.."
gretel=$PWD/target/release/gretel out=$PWD/target/kernel package= names=
. scripts/kernel-common.sh
while [ $# -gt 0 ]; do
    case $1 in
        --gretel) gretel=$(realpath "$2") ;;
        --package) package=$2 ;;
        --out) mkdir -p "$2" && out=$(realpath "$2") ;;
        --module) names=$2 ;;
        *) die "unknown option $1" ;;
    esac
    shift 2
done
modules=$PWD/guest-images/kernel/modules
mkdir -p "$out"

# The headers as packages have them, but for paths that begin with /usr/src. They are there whole or not at all.
fetch_headers() {
    local version=$1 common kbuild new=$out/headers.new
    headers=$out/headers/usr/src/linux-headers-$version
    [ ! -e "$headers/Makefile" ] || return 0
    common=linux-headers-${version%-cloud-amd64}-common
    # Of Linux 6.1 one serves all versions.
    case $version in 6.1.*) kbuild=linux-kbuild-6.1 ;; *) kbuild=linux-kbuild-${version%-cloud-amd64} ;; esac
    rm -rf "$new" "$out/headers" && mkdir -p "$new"
    (cd "$new" && apt-get -qq download "linux-headers-$version" "$common" "$kbuild" &&
        for package in *.deb; do dpkg-deb -x "$package" .; done)
    sed -i "s,/usr/src/,$out/headers/usr/src/,g" "$new/usr/src/linux-headers-$version"/{Makefile,.kernelvariables}
    mv "$new" "$out/headers"
}

# Builds a module: its .ko.
build() {
    local name=$1 work=$out/modules/$1
    rm -rf "$work" && mkdir -p "$work"
    cp "$modules/$name/$name.c" "$work"
    echo "obj-m := $name.o" >"$work/Kbuild"
    # Without BTF, which needs pahole.
    make -C "$headers" M="$work" CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$work/made" 2>&1 || { cat "$work/made"; die "$name cannot be built"; }
    ko=$work/$name.ko
}

# The value of a key in an expected.toml.
value() { sed -n "s/^$2 = \"\(.*\)\"\$/\1/p" "$modules/$1/expected.toml"; }

# Registers of a recording where these commands lead gdb, from its end: `name value`, in sixteen digits.
registers() {
    local rec=$1 names='rax rbx rcx rdx rsi rdi rbp r8 r9 r10 r11 r12 r13 r14 r15 rip'
    shift
    "$gretel" gdb "$rec" --at end -- -nx -batch "$@" -ex "info registers $names" 2>"$out/gdb-said" |
        awk '$1 ~ /^r[a-z0-9]+$/ && $2 ~ /^0x/ { v = substr($2, 3); while (length(v) < 16) v = "0" v; print $1, v }'
}

# What `gretel core` says, against what the kernel has printed: its log as far as the console has it, and each frame of its call trace that
# it was sure of, in order, behind the function that faulted.
explain() {
    local name=$1 rec=$2 function=$3
    "$gretel" core "$rec" >"$out/explained" || die "$name: gretel core failed"
    "$gretel" core --log "$rec" | sed 's/^\[ *//' | sort -u >"$out/log"
    tr -d '\r' <"$out/recorded" | sed -n 's/^\[ *\([0-9]*\.[0-9]\{6\}\]\)/\1/p' | sort -u >"$out/console"
    [ "$(comm -12 "$out/console" "$out/log" | wc -l)" -gt 200 ] || die "$name: the core's log is not what was printed; see $out/log"
    grep -q "^task [0-9]*: sh\$" "$out/explained" || die "$name: the task is not the shell; see $out/explained"
    grep -q "$function+0x[0-9a-f]*.* (an exception or interrupt came here)" "$out/explained" ||
        die "$name: the stack does not have $function; see $out/explained"
    tr -d '\r' <"$out/recorded" | awk '/Call Trace:/ { is_there = 1 } is_there; /RIP: 0033/ { exit }' | grep -oE '\]  [A-Za-z_][A-Za-z0-9_.]*\+0x[0-9a-f]+' |
        cut -c4- >"$out/trace"
    [ "$(wc -l <"$out/trace")" -ge 4 ] || die "$name: the kernel has printed no call trace; see $out/recorded"
    sed -n '/(an exception or interrupt came here)/,/^$/p' "$out/explained" | grep -oE '[A-Za-z_][A-Za-z0-9_.]*\+0x[0-9a-f]+' >"$out/frames"
    tail -n "$(wc -l <"$out/trace")" "$out/frames" | cmp - "$out/trace" ||
        die "$name: the stack is not the kernel's call trace: $out/frames and $out/trace"
}

# What `gretel synth` finds backwards from the crash: certified over all records that are used, and true as far as these.
take_back() {
    local name=$1 rec=$2 covered true
    "$gretel" synth "$rec" >"$out/taken-back" 2>"$out/said" || die "$name: gretel synth: $(cat "$out/said")"
    covered=$(sed -n 's/.* times the \([0-9]*\) that the .* branch records cover$/\1/p' "$out/taken-back")
    true=$(sed -n 's/^against the recording: the last \([0-9]*\) of .*/\1/p' "$out/taken-back")
    [ -n "$covered" ] || die "$name: not all branch records are covered; see $out/taken-back"
    [ "${true:-0}" -ge "$(value "$name" least)" ] ||
        die "$name: only ${true:-0} instructions of the suffix are true; see $out/taken-back"
    say "$name: $(head -n 1 "$out/taken-back"), the last $true true"
}

crash() {
    local name=$1 rec=$out/crash-$1 function before panic place base at
    function=$(value "$name" function) before=$(value "$name" before) panic=$(value "$name" panic)
    rm -rf "$rec"
    printf '%s\rinsmod /%s.ko; grep -w %s /proc/kallsyms\recho %s >/proc/%s\r' "${before:-:}" "$name" "$function" \
        "$(value "$name" write)" "$name" |
        "$gretel" record --kernel "$kernel" --initrd "$out/crash-initrd.gz" --cmdline 'console=ttyS0 panic=-1 oops=panic' -o "$rec" \
            >"$out/recorded" 2>"$out/said" && die "$name: the kernel did not crash; see $out/recorded"
    grep -q "kernel panic: ${panic:-Fatal exception}" "$out/said" || die "$name: it ended otherwise: $(cat "$out/said")"
    grep -qF "$(value "$name" says)" "$out/recorded" || die "$name: the kernel has said something else; see $out/recorded"
    "$gretel" replay "$rec" --output >"$out/replayed" || die "$name: the replay failed"
    cmp "$out/recorded" "$out/replayed" || die "$name: the replay printed something else"

    # The core is of the end, as the recording is.
    gdb -nx -batch -ex "core $rec/core" -ex 'info registers rip rsp rbx' 2>/dev/null | grep '^r' >"$out/core-registers"
    "$gretel" gdb "$rec" --at end -- -nx -batch -ex 'info registers rip rsp rbx' 2>/dev/null | grep '^r' >"$out/end-registers"
    [ -s "$out/core-registers" ] || die "$name: gdb finds no registers in the core"
    cmp "$out/core-registers" "$out/end-registers" || die "$name: the core has other registers than the recording's end"

    explain "$name" "$rec" "$function"
    take_back "$name" "$rec"

    # RIP: 0010:FUNCTION+0xOFFSET/0xSIZE
    place=$(sed -n "s/.*RIP: 0010:$function+0x\([0-9a-f]*\)\/.*/\1/p" "$out/recorded" | head -n 1)
    # Without a repetition by number, which Debian's mawk has not.
    base=$(tr -d '\r' <"$out/recorded" | awk -v f="$function" '$3 == f && length($1) == 16 && $1 ~ /^[0-9a-f]+$/ { print $1; exit }')
    [ -n "$place" ] && [ -n "$base" ] || die "$name: the kernel did not fault in $function; see $out/recorded"
    at=$(printf '%016x' $((0x$base + 0x$place)))
    registers "$rec" -ex "break *0x$at" -ex 'reverse-continue' >"$out/found"
    grep -q "^rip $at" "$out/found" || die "$name: going back, gdb does not come to 0x$at: $(cat "$out/gdb-said")"
    tr -d '\r' <"$out/recorded" | grep -A12 "RIP: 0010:$function" | grep -oE 'R[A-Z0-9]{2}: [0-9a-f]{16}' | head -n 15 |
        awk '{ name = tolower(substr($1, 1, 3)); sub(/^r0/, "r", name); print name, $2 }' | sort >"$out/printed"
    grep -v '^rip' "$out/found" | sort >"$out/shown"
    [ "$(wc -l <"$out/printed")" = 15 ] || die "$name: the kernel has not printed its registers; see $out/recorded"
    cmp "$out/printed" "$out/shown" || die "$name: at 0x$at gdb shows other registers than the kernel has printed"
    say "$name: crashed in $function+0x$place, replayed, and taken back to it"
}

fetch_kernel
fetch_headers "$(basename "$kernel" | sed 's/^vmlinuz-//')"
names=${names:-$(cd "$modules" && ls -d */ | tr -d /)}
kos=()
for name in $names; do
    build "$name"
    kos+=("$ko")
done
make_initrd "$out/crash-initrd.gz" "${kos[@]}"
for name in $names; do crash "$name"; done
