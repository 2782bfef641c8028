# SQLite's shell on 300,000 rows.
packages="sqlite3"
service=(sqlite3 "$place/db" "pragma journal_mode=wal; create table t(a integer primary key, b text);
with recursive n(x) as (select 1 union all select x + 1 from n where x < 300000) insert into t select x, hex(x * 7919) from n;
create index i on t(b); select count(*), min(b), max(b), sum(length(b)) from t; delete from t where a % 3 = 0; select count(*) from t; pragma integrity_check;")
ready() { :; }
load() { while kill -0 "$runner" 2>/dev/null; do sleep 0.1; done; cat "$place/../output"; }
stop() { :; }
