# What scripts that boot Debian's kernel share: fetching it, and an initial file system. Sourced with `out` and `gretel` set.

say() { echo "$(basename "$0" .sh): $*" >&2; }
die() { say "$*"; exit 1; }

# Sets `kernel`, from `out` or by apt-get.
fetch_kernel() {
    local package
    mkdir -p "$out/boot"
    kernel=$(find "$out/boot" -name 'vmlinuz-*' | head -n 1)
    [ -z "$kernel" ] || return 0
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')
    [ -n "$package" ] || die "there is no linux-image-cloud-amd64 here (apt-get update?)"
    (cd "$out" && apt-get -qq download "$package" && dpkg-deb -x "$package"_*.deb .)
    kernel=$(find "$out/boot" -name 'vmlinuz-*' | head -n 1)
}

# An initial file system FILE: a shell on the console, behind a line that says that it is there, and these files. The drivers of virtio
# are modules.
make_initrd() {
    local file=$1 root=$out/root applet busybox drivers net vsock
    shift
    busybox=$(command -v busybox) || die "busybox-static is not installed"
    rm -rf "$root"
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,mnt}
    drivers=$(find "$out/lib" -path '*/kernel/drivers')
    net=${drivers%/drivers}/net
    cp "$drivers"/virtio/{virtio,virtio_ring,virtio_mmio}.ko "$drivers/block/virtio_blk.ko" "$@" "$root"
    cp "$net/core/failover.ko" "$drivers"/net/{net_failover,virtio_net}.ko "$root"
    vsock=vmw_vsock_virtio_transport
    cp "$drivers"/char/{virtio_console,hw_random/virtio-rng}.ko "$net/vmw_vsock"/{vsock,${vsock}_common,$vsock}.ko "$root"
    cp "$busybox" "$root/bin/busybox"
    for applet in $("$busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    cat >"$root/init" <<'INIT'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for driver in virtio_ring virtio virtio_mmio virtio_blk failover net_failover virtio_net virtio_console virtio-rng \
    vsock vmw_vsock_virtio_transport_common vmw_vsock_virtio_transport; do insmod /$driver.ko; done
# A console whose driver is among these was not there before.
exec </dev/console >/dev/console 2>&1
echo "BOOTED $(uname -r)"
exec setsid cttyhack sh
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | "$busybox" cpio -o -H newc 2>/dev/null) | gzip -9 >"$file"
}
