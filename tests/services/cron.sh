# A script as cron runs them: locks, temporary files, a log that is rotated.
packages="util-linux findutils"
is_quick=1
prepare() {
    mkdir -p logs old
    for n in $(seq 30); do head -c "$((n * 100))" /dev/zero | tr '\0' a >"logs/$n.log"; done
    cat >job <<'SH'
set -e
exec 9>lock; flock -n 9 || exit 1
t=$(mktemp -d); trap 'rm -rf "$t"' EXIT
find logs -name '*.log' -size +1k | sort -V | while read -r f; do gzip -9nc "$f" >"$t/$(basename "$f").gz"; mv "$t/$(basename "$f").gz" old/; : >"$f"; done
ls -1 old | sort -V | tee list | wc -l
(cd old && sha256sum *.gz | sort | cksum)
date -u -d @0 +%F
tar cf - --sort=name --mtime=@0 --owner=0 --group=0 old | cksum
SH
}
service=(sh "$place/job")
ready() { ! kill -0 "$runner" 2>/dev/null || sleep 0.2; }
load() { while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done; cat "$place/../output"; }
stop() { :; }
