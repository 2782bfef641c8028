# rsync's daemon, with a chroot where it may.
packages="rsync"
prepare() {
    mkdir -p share && for n in $(seq 20); do head -c $((n * 3000)) /dev/zero | tr '\0' b >share/$n; done
    printf 'port = %s\naddress = 127.0.0.1\npid file = %s/pid\nlog file = %s/log\n%s\n[share]\npath = %s/share\n' "$port" "$place" "$place" "$([ "$(id -u)" -eq 0 ] && printf 'uid = root\ngid = root\nuse chroot = yes' || echo 'use chroot = no')" "$place" >conf
}
service=(rsync --daemon --no-detach --config="$place/conf")
load() { rsync -r "rsync://127.0.0.1:$port/share/" copy && diff -r share copy && echo same; rsync "rsync://127.0.0.1:$port/share/" | wc -l; }
