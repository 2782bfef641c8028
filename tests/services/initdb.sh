# PostgreSQL's initdb: many short processes.
packages="postgresql-15"
drop=()
[ "$(id -u)" -ne 0 ] || drop=(setpriv --reuid nobody --regid nogroup --clear-groups)
prepare() { [ "$(id -u)" -ne 0 ] || { chown nobody:nogroup "$place" && chmod a+rx "$(dirname "$place")" "$out"; }; }
service=("${drop[@]}" /usr/lib/postgresql/15/bin/initdb -D "$place/data" -U me -A trust --no-sync)
ready() { :; }
load() { while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done; cat "$place/data/PG_VERSION"; find "$place/data" -type f | wc -l; }
stop() { :; }
