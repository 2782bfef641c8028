# What scripts that boot Debian's kernel share: fetching it, and an initial file system. Sourced with `out`, `package` and `gretel`
# set.

say() { echo "$(basename "$0" .sh): $*" >&2; }
die() { say "$*"; exit 1; }

# Sets `kernel`, from `out` or by apt-get: that of `package`, or where that is empty Debian's cloud kernel.
fetch_kernel() {
    mkdir -p "$out/boot"
    kernel=$(find "$out/boot" -name "vmlinuz-${package#linux-image-}*" | head -n 1)
    [ -z "$kernel" ] || return 0
    package=${package:-$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')}
    [ -n "$package" ] || die "there is no linux-image-cloud-amd64 here (apt-get update?)"
    (cd "$out" && apt-get -qq download "$package" && dpkg-deb -x "$package"_*.deb .)
    kernel=$(find "$out/boot" -name "vmlinuz-${package#linux-image-}*" | head -n 1)
    [ -n "$kernel" ] || die "$package has no kernel"
}

drivers=(virtio_ring virtio virtio_mmio virtio_blk failover net_failover virtio_net virtio_console virtio-rng
    vsock vmw_vsock_virtio_transport_common vmw_vsock_virtio_transport)

# Copies the kernel's driver NAME to DIR. Some kernels have it compressed, and some in themselves.
copy_driver() {
    local name=$1 dir=$2 modules=$out/lib/modules/${kernel##*/vmlinuz-} found
    found=$(find "$modules/kernel" -name "$name.ko" -o -name "$name.ko.xz" | head -n 1)
    case $found in
        *.xz) xz -dc "$found" >"$dir/$name.ko" ;;
        *.ko) cp "$found" "$dir" ;;
        *) grep -q "/$name\.ko\$" "$modules/modules.builtin" || die "$kernel has no driver $name" ;;
    esac
}

# An initial file system FILE: a shell on the console, behind a line that says that it is there, and these files. The drivers of virtio
# are modules of most kernels.
make_initrd() {
    local file=$1 root=$out/root applet busybox driver
    shift
    busybox=$(command -v busybox) || die "busybox-static is not installed"
    rm -rf "$root"
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,mnt}
    for driver in "${drivers[@]}"; do copy_driver "$driver" "$root"; done
    [ $# = 0 ] || cp "$@" "$root"
    cp "$busybox" "$root/bin/busybox"
    for applet in $("$busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    echo "${drivers[@]}" >"$root/drivers"
    cat >"$root/init" <<'INIT'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for driver in $(cat /drivers); do [ ! -e /$driver.ko ] || insmod /$driver.ko; done
# A console whose driver is among these was not there before.
exec </dev/console >/dev/console 2>&1
echo "BOOTED $(uname -r)"
exec setsid cttyhack sh
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | "$busybox" cpio -o -H newc 2>/dev/null) | gzip -9 >"$file"
}
