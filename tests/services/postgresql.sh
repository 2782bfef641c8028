# PostgreSQL: a new cluster, its server under pgbench, and queries. Its programs refuse to run as root.
packages="postgresql-15"
bin=/usr/lib/postgresql/15/bin
drop=()
[ "$(id -u)" -ne 0 ] || drop=(setpriv --reuid nobody --regid nogroup --clear-groups)
prepare() {
    if [ "$(id -u)" -eq 0 ]; then chown nobody:nogroup "$place" && chmod a+rx "$(dirname "$place")"; fi
    "${drop[@]}" "$bin/initdb" -D "$place/data" -U me -A trust --no-sync >"$place/initdb"
}
service=("${drop[@]}" "$bin/postgres" -D "$place/data" -p "$port" -k "$place" -h 127.0.0.1)
sql() { "$bin/psql" -X -A -t -h 127.0.0.1 -p "$port" -U me postgres "$@"; }
ready() { "$bin/pg_isready" -h 127.0.0.1 -p "$port" -U me; }
load() {
    "$bin/pgbench" -i -q -h 127.0.0.1 -p "$port" -U me postgres 2>&1 | grep -c done
    "$bin/pgbench" -c 4 -t 25 -h 127.0.0.1 -p "$port" -U me postgres 2>&1 | grep 'actually processed'
    sql -c 'select count(*), sum(abalance) is not null from pgbench_accounts' -c 'create index on pgbench_accounts (abalance)' \
        -c "select md5(string_agg(x::text, ',')) from generate_series(1, 1000) x" -c 'vacuum analyze' -c 'select 1/0' 2>&1
}
stop() { kill -INT "$pid"; }
