# MariaDB: a new data folder, the server, a table of some thousand rows.
packages="mariadb-server"
prepare() { mariadb-install-db --no-defaults --datadir="$place/data" --user=root --auth-root-authentication-method=normal --skip-test-db; }
service=(mariadbd --no-defaults --datadir="$place/data" --user=root --socket="$place/s" --port="$port" --bind-address=127.0.0.1 --pid-file="$place/pid")
sql() { mariadb --no-defaults -S "$place/s" -N -e "$1"; }
ready() { mariadb-admin --no-defaults -S "$place/s" ping; }
load() {
    sql 'create database d; use d; create table t(a int primary key auto_increment, b varchar(40)) engine=innodb;
         insert into t(b) select md5(seq) from seq_1_to_20000; select count(*), min(b), max(b) from t;
         begin; update t set b = concat(b, "x") where a < 100; rollback; select sum(length(b)) from t'
    mariadb-slap --no-defaults -S "$place/s" --concurrency=4 --iterations=2 --auto-generate-sql --number-of-queries=100 | grep -c 'Average number of seconds'
}
