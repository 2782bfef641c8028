#!/usr/bin/env bash
# Boots Debian's cloud kernel into a shell of busybox, types into it, records all of that and replays it.
#
#   scripts/kernel-boot.sh [--gretel FILE] [--out DIR] [--kernel FILE]
#
# The kernel is fetched with `apt-get download` (27 MB) unless DIR (target/kernel) has it or --kernel names one; the initial file
# system is made of busybox-static. Prints how long recording and replay took, and fails where a replay differs.
set -euo pipefail

say() { echo "kernel-boot: $*" >&2; }
die() { say "$*"; exit 1; }

cd "$(dirname "$0")/.."
gretel=target/release/gretel out=target/kernel kernel=
while [ $# -gt 0 ]; do
    case $1 in
        --gretel) gretel=$2 ;;
        --out) out=$2 ;;
        --kernel) kernel=$2 ;;
        *) die "unknown option $1" ;;
    esac
    shift 2
done
mkdir -p "$out"

fetch_kernel() {
    local package
    kernel=$(find "$out" -name 'vmlinuz-*' | head -n 1)
    [ -z "$kernel" ] || return 0
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')
    [ -n "$package" ] || die "there is no linux-image-cloud-amd64 here (apt-get update?); give --kernel FILE"
    (cd "$out" && apt-get -qq download "$package" && dpkg-deb -x "$package"_*.deb .)
    kernel=$(find "$out" -name 'vmlinuz-*' | head -n 1)
}

# A shell on the console, behind a line that says that it is there.
make_initrd() {
    local root=$out/root applet busybox
    busybox=$(command -v busybox) || die "busybox-static is not installed"
    rm -rf "$root"
    mkdir -p "$root"/{bin,proc,sys,dev,tmp}
    cp "$busybox" "$root/bin/busybox"
    for applet in $("$busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    cat >"$root/init" <<'INIT'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
echo "BOOTED $(uname -r)"
exec setsid cttyhack sh
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | "$busybox" cpio -o -H newc 2>/dev/null) | gzip -9 >"$out/initrd.gz"
}

[ -n "$kernel" ] || fetch_kernel
make_initrd
rec=$out/rec
rm -rf "$rec"
say "recording a boot of $kernel"
TIMEFORMAT='kernel-boot: recorded in %R s, %U s of processor time'
time printf 'cat /proc/uptime; ls /proc | wc -l\rpoweroff -f\r' |
    "$gretel" record --kernel "$kernel" --initrd "$out/initrd.gz" -o "$rec" >"$out/recorded" 2>"$out/said" ||
    { cat "$out/said"; die "the recording failed"; }
cat "$out/said" >&2
grep -q BOOTED "$out/recorded" || die "the shell did not come; $out/recorded has what was printed"
grep -q 'Power down' "$out/recorded" || die "the shell did not do what was typed; see $out/recorded"
TIMEFORMAT='kernel-boot: replayed in %R s, %U s of processor time'
time "$gretel" replay "$rec" --output >"$out/replayed"
cmp "$out/recorded" "$out/replayed" || die "the replay printed something else"
say "the replay is as recorded; ls -s $rec: $(du -sh --apparent-size "$rec" | cut -f1)"
