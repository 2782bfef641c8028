#!/usr/bin/env bash
# Boots Debian's cloud kernel into a shell of busybox, has it make a file system on a disk and, where this process may make a TAP
# interface, fetch a file from this host over it, types into it, records all of that and replays it. Then it is booted with a console of
# virtio, random bytes of this host's and a vsock, by which a program of the guest and one of this host talk both ways.
#
#   scripts/kernel-boot.sh [--gretel FILE] [--out DIR] [--package NAME] [--replays N]
#
# The kernel is fetched with `apt-get download` (27 MB) unless DIR (target/kernel) has it: Debian's cloud kernel, or that of the package
# NAME. The initial file system is made of busybox-static and the kernel's modules for the disk. Prints how
# long recording and replays took, and fails where one differs.
set -euo pipefail

cd "$(dirname "$0")/.."
gretel=target/release/gretel out=target/kernel package= replays=1
. scripts/kernel-common.sh
while [ $# -gt 0 ]; do
    case $1 in
        --gretel) gretel=$2 ;;
        --package) package=$2 ;;
        --out) out=$2 ;;
        --replays) replays=$2 ;;
        *) die "unknown option $1" ;;
    esac
    shift 2
done
mkdir -p "$out"

# A TAP interface with an address of this host, if it can be made, and a server of a file there. Sets `net`, and `sum` of the file.
tap=gretel-boot net=none sum= server=
make_network() {
    ip tuntap add dev "$tap" mode tap 2>/dev/null || { say "no TAP interface can be made here: booting without a network"; return 0; }
    trap 'ip link delete "$tap"; [ -z "$server" ] || kill "$server"' EXIT
    ip address add 10.213.45.1/30 dev "$tap" && ip link set "$tap" up
    mkdir -p "$out/web"
    head -c 300000 "$kernel" >"$out/web/served"
    sum=$(md5sum <"$out/web/served" | cut -d' ' -f1) net=tap=$tap
    busybox httpd -f -p 10.213.45.1:7213 -h "$out/web" &
    server=$!
}

# What is typed: a file system is made, written to, and looked at anew; a file comes over the network.
session() {
    printf '%s\r' 'cat /proc/uptime; ls /proc | wc -l' \
        'mke2fs -q /dev/vda && mount /dev/vda /mnt && cp -r /bin/busybox /init /mnt && sync && umount /mnt' \
        'echo 3 >/proc/sys/vm/drop_caches; mount /dev/vda /mnt && cmp /mnt/busybox /bin/busybox && echo DISK OK' \
        ${sum:+'ip address add 10.213.45.2/30 dev eth0; ip link set eth0 up; ping -c 3 10.213.45.1'} \
        ${sum:+'wget -q -O /mnt/fetched http://10.213.45.1:7213/served; md5sum </mnt/fetched'} \
        'sync; umount /mnt; poweroff -f'
}

# The host's end of the vsock: answers who comes to port 7000, then connects to port 52 and has 300,000 bytes sent back.
peer() {
    python3 - "$1" <<'PEER'
import socket, sys, threading
path = sys.argv[1]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path + "_7000")
listener.listen()
print("ready", flush=True)
guest, _ = listener.accept()
asked = b"".join(iter(lambda: guest.recv(4096), b""))
guest.sendall(b"VSOCK ANSWER to " + asked + b"\n")
guest.close()
host = socket.socket(socket.AF_UNIX)
host.connect(path)
host.sendall(b"CONNECT 52\n")
line = b""
while not line.endswith(b"\n"):
    line += host.recv(1) or sys.exit("port 52 is closed")
sent = bytes(n * 7 % 251 for n in range(300_000))
def send():
    host.sendall(sent)
    host.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
back = b"".join(iter(lambda: host.recv(65536), b""))
sys.exit(0 if back == sent else f"{len(back)} bytes came back")
PEER
}

# A boot with the other devices of virtio.
boot_with_more() {
    local rec=$out/rec-virtio said=$out/peer-said more
    more=$(mktemp -u "${TMPDIR:-/tmp}/gretel-vsock.XXXXXX")
    rm -rf "$rec"
    peer "$more" >"$said" 2>&1 &
    peer=$!
    until grep -q ready "$said"; do kill -0 "$peer" || die "the host's end of the vsock failed: $(cat "$said")"; sleep 0.1; done
    say "recording a boot with a console of virtio, random bytes and a vsock"
    printf '%s\r' 'cat /sys/class/misc/hw_random/rng_current; head -c 16 /dev/hwrng | od -An -tx1; tty' \
        '/vsock echo 52 >/tmp/echo & /vsock ask 7000 question; wait; cat /tmp/echo' 'poweroff -f' |
        "$gretel" record --kernel "$kernel" --initrd "$out/initrd.gz" --console virtio --rng --vsock "$more" -o "$rec" \
            >"$out/recorded-virtio" 2>"$out/said" || { cat "$out/said"; die "the recording failed"; }
    cat "$out/said" >&2
    wait "$peer" || die "the host's end of the vsock: $(cat "$said")"
    rm -f "${more}_7000"
    for line in 'virtio_rng.0' '/dev/hvc0' 'VSOCK ANSWER to question' 'echo: 300000 bytes'; do
        grep -q "$line" "$out/recorded-virtio" || die "'$line' is not in $out/recorded-virtio"
    done
    for n in $(seq "$replays"); do
        "$gretel" replay "$rec" --output >"$out/replayed-virtio" || die "replay $n failed"
        cmp "$out/recorded-virtio" "$out/replayed-virtio" || die "replay $n printed something else"
    done
    # In a debugger, too: behind the connections, from a checkpoint, and at the end.
    "$gretel" core "$rec" --at end --log | grep -q 'Power down' || die "the end of $rec is another one"
    say "$replays of $replays replays are as recorded"
}

fetch_kernel
musl-gcc -static -O1 -o "$out/vsock" guest-images/kernel/vsock.c || die "guest-images/kernel/vsock.c cannot be built"
make_initrd "$out/initrd.gz" "$out/vsock"
make_network
rec=$out/rec image=$out/disk
rm -rf "$rec" "$image"
truncate -s 64M "$image"
say "recording a boot of $kernel"
TIMEFORMAT='kernel-boot: recorded in %R s, %U s of processor time'
time session | "$gretel" record --kernel "$kernel" --initrd "$out/initrd.gz" --disk "$image" --net "$net" -o "$rec" >"$out/recorded" 2>"$out/said" ||
    { cat "$out/said"; die "the recording failed"; }
cat "$out/said" >&2
grep -q BOOTED "$out/recorded" || die "the shell did not come; $out/recorded has what was printed"
grep -q "^DISK OK" "$out/recorded" || die "the disk did not work; see $out/recorded"
grep -q 'Power down' "$out/recorded" || die "the shell did not do what was typed; see $out/recorded"
if [ -n "$sum" ]; then
    grep -q "3 packets received" "$out/recorded" || die "ping had no answers; see $out/recorded"
    grep -q "^$sum" "$out/recorded" || die "the file that came over the network is another; see $out/recorded"
fi
cmp -n 67108864 "$image" /dev/zero || die "the disk's image was written to"
rm "$image"
TIMEFORMAT='kernel-boot: replayed in %R s, %U s of processor time'
for n in $(seq "$replays"); do
    time "$gretel" replay "$rec" --output >"$out/replayed" || die "replay $n failed"
    cmp "$out/recorded" "$out/replayed" || die "replay $n printed something else"
done
say "$replays of $replays replays are as recorded; $rec has $(du -sh "$rec" | cut -f1)"
boot_with_more
