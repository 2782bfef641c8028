#!/usr/bin/env bash
# Runs gretel's tests of processors on KVM as other hosts have it, on processors that are emulated: with AMD's SVM and nested paging by
# QEMU (TCG), and with Intel's VMX and EPT by Bochs. Needs root and Debian's packages debootstrap, e2fsprogs, kmod, cpio, busybox-static,
# and qemu-system-x86 for SVM; for VMX xorriso, isolinux, syslinux-common, bochsbios, vgabios and a Bochs of one's own.
#
#   scripts/hosts.sh svm|vmx [--out DIR] [--run FILE] [--limit SECONDS] [--bochs FILE]
#
#   --out     where the machine's disk is kept, and what it printed (hosts-out)
#   --run     a bash script to run in the machine, as root in the checkout, in place of the tests
#   --limit   after which the machine is ended (7200)
#   --bochs   a Bochs (https://github.com/bochs-emu/Bochs) that was configured with --enable-x86-64 --enable-cpu-level=6 --enable-vmx=2
#             --enable-avx --enable-evex --enable-handlers-chaining --enable-repeat-speedups --with-nogui. Debian's stops in a debugger
#
# The machine has Debian's kernel, a small Debian with compilers, and this checkout under its own path, with the development build's
# tests. The emulators are slow: what takes a second natively takes a minute. DIR/svm.txt and vmx.txt have what was printed; the exit
# status is that of what was run.
set -euo pipefail

root=$(realpath "$(dirname "$0")/..")
out=hosts-out run='' limit=7200 bochs=bochs

say() { echo "hosts: $*" >&2; }
die() { say "$*"; exit 120; }

host=${1:-}
case $host in svm | vmx) shift ;; *) die "which host: svm or vmx?" ;; esac
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=${2:?} && shift 2 ;;
    --run) run=$(realpath "${2:?}") && shift 2 ;;
    --limit) limit=${2:?} && shift 2 ;;
    --bochs) bochs=${2:?} && shift 2 ;;
    *) die "unknown argument $1" ;;
    esac
done
[ "$(id -u)" = 0 ] || die "needs root, to make a file system"
PATH=$PATH:/usr/sbin:/sbin
needed=(debootstrap mke2fs depmod cpio busybox)
case $host in
svm) needed+=(qemu-system-x86_64) ;;
vmx) needed+=(xorriso "$bochs") ;;
esac
for each in "${needed[@]}"; do
    command -v "$each" >/dev/null || die "$each is not there: see the head of this script"
done
if [ "$host" = vmx ] && "$bochs" --help 2>&1 | grep -q -e '-rc '; then
    die "$bochs stops in its debugger, as Debian's does: see --bochs in the head of this script"
fi
mkdir -p "$out"
out=$(realpath "$out")

# The machine's Debian, made once.
debian() {
    [ ! -e "$out/debian/done" ] || return 0
    say "fetching Debian"
    rm -rf "$out/debian"
    debootstrap --variant=minbase \
        --include=gcc,g++,make,gdb,libc6-dev,musl-tools,busybox-static,python3-minimal,procps,iproute2 \
        bookworm "$out/debian" >"$out/debootstrap.log" || die "debootstrap failed; see $out/debootstrap.log"
    touch "$out/debian/done"
}

# Debian's kernel, the generic one: the cloud's has no KVM.
fetch_kernel() {
    local package
    [ ! -e "$out/kernel/boot" ] || return 0
    package=$(apt-cache depends linux-image-amd64 | awk '/Depends:/ { print $2; exit }')
    [ -n "$package" ] || die "there is no linux-image-amd64 here (apt-get update?)"
    (cd "$out" && apt-get -qq download "$package" && dpkg-deb -x "$package"_*.deb kernel)
    depmod -b "$out/kernel" "$(ls "$out/kernel/lib/modules")"
}

# An initial file system that loads what the disk and KVM need, and goes on from the disk.
make_initrd() {
    local tree=$out/initrd module version
    version=$(ls "$out/kernel/lib/modules")
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,proc,dev,sys,disk}
    cp "$(command -v busybox)" "$tree/bin/"
    for module in virtio_pci virtio_blk ata_piix sd_mod ext4 kvm-intel kvm-amd; do
        modprobe -d "$out/kernel" -S "$version" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
    done | awk '!seen[$0]++' | while read -r module; do
        cp "$module" "$tree/"
        basename "$module" >>"$tree/modules"
    done
    cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
# One of the two KVM modules is refused: the processor has the other's.
for module in $(cat /modules); do insmod "/$module" 2>/dev/null; done
while ! mount -t ext4 /dev/vda /disk 2>/dev/null && ! mount -t ext4 /dev/sda /disk 2>/dev/null; do sleep 1; done
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs tmp /dev/shm
for each in proc sys dev; do mount --move /$each /disk/$each; done
exec switch_root /disk /machine
INIT
    chmod +x "$tree/init"
    (cd "$tree" && find . | cpio -o -H newc --quiet) >"$out/initrd.cpio"
}

# The paths of the tests' programs. All are built, so that nothing is built anew that `make test` has.
test_programs() {
    (cd "$root" && cargo test --workspace --locked --no-run 2>&1) | sed -n 's/^ *Executable .*(\(.*\))$/\1/p' |
        grep -E '/(vmm|engines|process|ring0)-[0-9a-f]+$'
}

# Tests that ask the machine itself, natively, and find that it is not as a processor: why, and their names.
not_of_processors() {
    local skipped=()
    case $host in
    svm)
        # QEMU's keeps reserved bits of x87's control word; goes to an address that is not canonical, and faults there.
        skipped+=(what_a_handler_writes_to_the_x87_image_is_loaded)
        skipped+=(frames_that_lead_nowhere_end_the_program a_call_of_text_has_stored_where_it_came_from)
        ;;
    esac
    # Too slow for the milliseconds that it asks about.
    skipped+=(timer_descriptors_are_read_and_polled)
    printf -- '--skip %s ' "${skipped[@]}"
}

# What runs in the machine: the tests that need a host, one program after the other.
tests() {
    local program
    echo 'export GRETEL_TEST_KVM_ALONE=1 failed=0'
    echo 'target/debug/gretel doctor || failed=1'
    while read -r program; do
        case $program in
        # Of the unit tests, those that have a processor.
        *vmm-*) echo "(cd vmm && ../$program engine:: sandbox:: probe:: process::) || failed=1" ;;
        *engines-*) echo "(cd vmm && ../$program) || failed=1" ;;
        # Some look how long something takes, and others run the processors at full load.
        *process-*) echo "(cd vmm && ../$program --test-threads 1 $(not_of_processors)) || failed=1" ;;
        # It says who runs ring 0. QEMU is no judge: it pushes RFLAGS without RF at a fault.
        *ring0-*) [ "$host" = svm ] || echo "(cd x86/system && ../../$program --nocapture) || failed=1" ;;
        esac
    done <"$out/programs"
    echo 'exit $failed'
}

# The disk: Debian, this checkout as far as tests need it, and what to run.
make_disk() {
    local tree=$out/tree file
    rm -rf "$tree"
    mkdir -p "$tree"
    cp -a "$out/debian/." "$tree"
    mkdir -p "$tree$root/target/debug/deps" "$tree$root/target/tmp"
    (cd "$root" && cp -a --parents .deps guest-images tests vmm/tests Cargo.toml "$tree$root")
    mkdir -p "$tree$root/vmm" "$tree$root/x86/system"
    (cd "$root" && for file in target/debug/gretel $(cat "$out/programs"); do
        [ ! -e "$file" ] || strip --strip-debug -o "$tree$root/$file" "$file"
    done)
    cp "$run" "$tree/task"
    cat >"$tree/machine" <<MACHINE
#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
ip link set lo up
cd $root
dmesg | grep -i -E 'kvm|svm' | head -n 5
bash /task </dev/null 2>&1
echo "the machine's end: status \$?"
sync
echo o >/proc/sysrq-trigger
sleep 60
MACHINE
    chmod +x "$tree/machine"
    rm -f "$out/disk" "$out/disk.lock"
    mke2fs -q -t ext4 -d "$tree" "$out/disk" 8G
    rm -rf "$tree"
}

readonly kernel_arguments='console=ttyS0 quiet mitigations=off'

svm() {
    exec qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 6G -nographic -no-reboot \
        -drive file="$out/disk",format=raw,if=virtio,cache=unsafe -nic none \
        -kernel "$out"/kernel/boot/vmlinuz-* -initrd "$out/initrd.cpio" -append "$kernel_arguments" \
        </dev/null >"$out/svm.txt" 2>&1
}

# Bochs begins from a disc.
vmx() {
    local iso=$out/iso
    rm -rf "$iso" && mkdir -p "$iso/isolinux"
    cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$iso/isolinux/"
    cp "$out"/kernel/boot/vmlinuz-* "$iso/vmlinuz"
    cp "$out/initrd.cpio" "$iso/initrd"
    printf 'DEFAULT l\nLABEL l\n KERNEL /vmlinuz\n INITRD /initrd\n APPEND %s tsc=reliable\n' "$kernel_arguments" \
        >"$iso/isolinux/isolinux.cfg"
    xorriso -as mkisofs -quiet -o "$out/disc" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot \
        -boot-load-size 4 -boot-info-table "$iso" 2>/dev/null
    cat >"$out/bochsrc" <<BOCHS
megs: 2048
cpu: model=corei7_skylake_x, count=1, ips=200000000, reset_on_triple_fault=0
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=$out/disc, status=inserted
ata1-master: type=disk, path=$out/disk, mode=flat
boot: cdrom
com1: enabled=1, mode=file, dev=$out/vmx.txt
display_library: nogui
clock: sync=none
log: $out/bochs.log
panic: action=report
error: action=ignore
info: action=ignore
BOCHS
    exec "$bochs" -q -f "$out/bochsrc" </dev/null >"$out/bochs.out" 2>&1
}

debian
fetch_kernel
make_initrd
if [ -z "$run" ]; then
    test_programs | sed "s|^$root/||" >"$out/programs" || die "the tests do not build: run cargo test --no-run"
    tests >"$out/tests.sh"
    run=$out/tests.sh
else
    touch "$out/programs"
fi
make_disk
say "the machine runs; what it prints is in $out/$host.txt"
# The emulators do not always end when the machine does.
: >"$out/$host.txt"
"$host" &
machine=$!
trap 'kill "$machine" 2>/dev/null' EXIT
for ((second = 0; second < limit; second++)); do
    kill -0 "$machine" 2>/dev/null || break
    ! grep -qa "^the machine's end" "$out/$host.txt" 2>/dev/null || break
    sleep 1
done
kill "$machine" 2>/dev/null || true
wait "$machine" 2>/dev/null || true
status=$(tr -d '\r' <"$out/$host.txt" | sed -n "s/^the machine's end: status //p" | tail -n 1)
[ -n "$status" ] || die "the machine did not come to its end; see $out/$host.txt"
say "status $status"
exit "$status"
