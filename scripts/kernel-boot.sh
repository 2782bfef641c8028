#!/usr/bin/env bash
# Boots Debian's cloud kernel into a shell of busybox, has it make a file system on a disk, types into it, records all of that and
# replays it.
#
#   scripts/kernel-boot.sh [--gretel FILE] [--out DIR] [--replays N]
#
# The kernel is fetched with `apt-get download` (27 MB) unless DIR (target/kernel) has it; the initial file system is made of
# busybox-static and the kernel's modules for the disk. Prints how long recording and replays took, and fails where one differs.
set -euo pipefail

cd "$(dirname "$0")/.."
gretel=target/release/gretel out=target/kernel replays=1
. scripts/kernel-common.sh
while [ $# -gt 0 ]; do
    case $1 in
        --gretel) gretel=$2 ;;
        --out) out=$2 ;;
        --replays) replays=$2 ;;
        *) die "unknown option $1" ;;
    esac
    shift 2
done
mkdir -p "$out"

# What is typed: a file system is made, written to, and looked at anew.
session() {
    printf '%s\r' 'cat /proc/uptime; ls /proc | wc -l' \
        'mke2fs -q /dev/vda && mount /dev/vda /mnt && cp -r /bin/busybox /init /mnt && sync && umount /mnt' \
        'echo 3 >/proc/sys/vm/drop_caches; mount /dev/vda /mnt && cmp /mnt/busybox /bin/busybox && echo DISK OK' \
        'umount /mnt; poweroff -f'
}

fetch_kernel
make_initrd "$out/initrd.gz"
rec=$out/rec image=$out/disk
rm -rf "$rec" "$image"
truncate -s 64M "$image"
say "recording a boot of $kernel"
TIMEFORMAT='kernel-boot: recorded in %R s, %U s of processor time'
time session | "$gretel" record --kernel "$kernel" --initrd "$out/initrd.gz" --disk "$image" -o "$rec" >"$out/recorded" 2>"$out/said" ||
    { cat "$out/said"; die "the recording failed"; }
cat "$out/said" >&2
grep -q BOOTED "$out/recorded" || die "the shell did not come; $out/recorded has what was printed"
grep -q "^DISK OK" "$out/recorded" || die "the disk did not work; see $out/recorded"
grep -q 'Power down' "$out/recorded" || die "the shell did not do what was typed; see $out/recorded"
cmp -n 67108864 "$image" /dev/zero || die "the disk's image was written to"
rm "$image"
TIMEFORMAT='kernel-boot: replayed in %R s, %U s of processor time'
for n in $(seq "$replays"); do
    time "$gretel" replay "$rec" --output >"$out/replayed" || die "replay $n failed"
    cmp "$out/recorded" "$out/replayed" || die "replay $n printed something else"
done
say "$replays of $replays replays are as recorded; $rec has $(du -sh "$rec" | cut -f1)"
