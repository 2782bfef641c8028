//! What is measured: programs of many kinds, those of them that this machine has or can compile.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A program, as a line for the shell natively and under gretel alike.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) argv: Vec<String>,
}

const ARITHMETIC: &str = "\
int main(void) {
    unsigned long x = 88172645463325252ul, sum = 0;
    for (long n = 0; n < 300000000; n++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; sum += x; }
    return sum == 0;
}";

const SMALL_CALLS: &str = "\
#include <fcntl.h>
#include <unistd.h>
int main(void) {
    int file = open(\"/dev/zero\", O_RDONLY);
    char bytes[8];
    for (int n = 0; n < 20000; n++) if (read(file, bytes, 8) != 8) return 1;
    return 0;
}";

const SPIN_WAIT: &str = "\
#include <pthread.h>
static volatile int turn;
static void *other(void *unused) {
    for (int n = 0; n < 50; n++) { while (turn != 1) ; turn = 0; }
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, other, 0);
    for (int n = 0; n < 50; n++) { while (turn != 0) ; turn = 1; }
    pthread_join(thread, 0);
    return 0;
}";

/// Some thousand lines, for the compiler.
const GENERATE: &str = "for i in $(seq 300); do echo \"int f$i(int a, int b) { int s = 0; \
    for (int i = a; i < b; i++) s += (i * $i) ^ (s >> 3); return s; }\"; done > big.c";

const JSON: &str = "\
import json
value = [{'n': n, 'text': str(n) * 3, 'list': list(range(n % 20))} for n in range(4000)]
for _ in range(3): value = json.loads(json.dumps(value))
print(len(value))";

const SQL: &str = "\
create table t(a integer primary key, b text, c real); \
with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) \
insert into t select i, 'row ' || i, i * 1.5 from n; \
create index u on t(b); select count(*), sum(c) from t where b like '%7%';";

/// All that can be run here, in the folder `dir`; the others are named on stderr.
pub(crate) fn all(dir: &Path) -> Vec<Program> {
    let text: String = (0..200_000_u64).map(|n| format!("{:x} ", n.wrapping_mul(2_654_435_761))).collect();
    fs::write(dir.join("text"), text.replace("7 ", "7\n")).expect("a file");
    let shell = |line: &str| vec!["sh".to_owned(), "-c".to_owned(), line.to_owned()];
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut programs = vec![
        compiled(dir, "arithmetic", ARITHMETIC),
        compiled(dir, "20,000 small calls", SMALL_CALLS),
        compiled(dir, "spin wait", SPIN_WAIT),
        given("python3, JSON", words(&["python3", "-c", JSON])),
        given("sqlite3 in memory", words(&["sqlite3", ":memory:", SQL])),
        given("gzip", shell("exec gzip -c text > text.gz")),
        given("tar and gzip", shell("tar -cf - -C /usr/include . | gzip -1 > tar.gz")),
        given("sort", shell("exec sort text > sorted")),
        given("a shell script", shell("for i in 1 2 3 4 5 6 7 8 9 10; do ls / | grep -c usr; done")),
        given("true", words(&["/bin/true"])),
    ];
    let generated = Command::new("sh").args(["-c", GENERATE]).current_dir(dir).status();
    if generated.is_ok_and(|status| status.success()) {
        programs.push(given("gcc", words(&["gcc", "-O2", "-c", "big.c", "-o", "big.o"])));
    }
    programs.into_iter().flatten().collect()
}

fn given(name: &'static str, argv: Vec<String>) -> Option<Program> {
    let is_there = Command::new("sh").args(["-c", &format!("command -v {}", argv[0])]).output();
    if is_there.is_ok_and(|found| found.status.success()) {
        return Some(Program { name, argv });
    }
    eprintln!("skipped: {name}, since {} is not here", argv[0]);
    None
}

fn compiled(dir: &Path, name: &'static str, source: &str) -> Option<Program> {
    let file = name.replace([' ', ','], "-");
    fs::write(dir.join(format!("{file}.c")), source).expect("a file");
    let gcc = Command::new("gcc")
        .args(["-O1", "-pthread", "-o", &file, &format!("{file}.c")])
        .current_dir(dir)
        .status();
    if gcc.is_ok_and(|status| status.success()) {
        return Some(Program { name, argv: vec![format!("./{file}")] });
    }
    eprintln!("skipped: {name}, since gcc cannot make it");
    None
}
