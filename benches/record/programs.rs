//! What is measured: programs of many kinds, those of them that this machine has or can compile.

use crate::services::{Service, Work};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program, as a command line natively and under gretel alike.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) argv: Vec<String>,
    /// It is a server, which is asked for something and then ended.
    pub(crate) service: Option<Service>,
}

const ARITHMETIC: &str = "\
int main(void) {
    unsigned long x = 88172645463325252ul, sum = 0;
    for (long n = 0; n < 900000000; n++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; sum += x; }
    return sum == 0;
}";

const SMALL_CALLS: &str = "\
#include <fcntl.h>
#include <unistd.h>
int main(void) {
    int file = open(\"/dev/zero\", O_RDONLY);
    char bytes[8];
    for (int n = 0; n < 200000; n++) if (read(file, bytes, 8) != 8) return 1;
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

/// Goroutines that hand numbers on, and the collector.
const GO: &str = "\
package main
import (\"fmt\"; \"sort\"; \"strings\"; \"sync\")
func main() {
    words := make(chan []string)
    var group sync.WaitGroup
    var lock sync.Mutex
    seen := map[string]int{}
    for n := 0; n < 4; n++ {
        group.Add(1)
        go func() {
            defer group.Done()
            for batch := range words { lock.Lock(); for _, word := range batch { seen[word]++ }; lock.Unlock() }
        }()
    }
    for n := 0; n < 2000; n++ { words <- strings.Fields(strings.Repeat(fmt.Sprintf(\"w%d x%d y \", n, n%97), 20)) }
    close(words)
    group.Wait()
    keys := make([]string, 0, len(seen))
    for key := range seen { keys = append(keys, key) }
    sort.Strings(keys)
    fmt.Println(len(keys), keys[0])
}";

/// Two workers; everything else in the folder.
const NGINX: &str = "\
daemon off; worker_processes 2; pid nginx.pid; error_log /dev/null; events { worker_connections 64; } \
http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; \
scgi_temp_path s; server { listen 127.0.0.1:17461; location / { return 200 'crumbs'; } } }";

/// Some thousand lines, for the compiler.
const GENERATE: &str = "for i in $(seq 300); do echo \"int f$i(int a, int b) { int s = 0; \
    for (int i = a; i < b; i++) s += (i * $i) ^ (s >> 3); return s; }\"; done > big.c";

const JSON: &str = "\
import json
value = [{'n': n, 'text': str(n) * 3, 'list': list(range(n % 20))} for n in range(4000)]
for _ in range(60): value = json.loads(json.dumps(value))
print(len(value))";

const SQL: &str = "\
create table t(a integer primary key, b text, c real); \
with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000) \
insert into t select i, 'row ' || i, i * 1.5 from n; \
create index u on t(b); select count(*), sum(c) from t where b like '%7%';";

/// All that can be run here, in the folder `dir`; the others are named on stderr. Those that compute do so for a quarter of a
/// second to two natively, so that the start, which `true` shows, is not most of what is measured.
pub(crate) fn all(dir: &Path) -> Vec<Program> {
    let text: String = (0..1_000_000_u64).map(|n| format!("{:x} ", n.wrapping_mul(2_654_435_761))).collect();
    fs::write(dir.join("text"), text.replace("7 ", "7\n")).expect("a file");
    let lines: String = (0..700_000_u64).map(|n| format!("{} {n}\n", n * 7919 % 1_000_003)).collect();
    fs::write(dir.join("lines"), lines).expect("a file");
    let shell = |name, line: &str| given(name, &["sh", "-c", line]);
    let mut programs = vec![
        compiled(dir, "arithmetic", ARITHMETIC),
        compiled(dir, "200,000 small calls", SMALL_CALLS),
        compiled(dir, "spin wait", SPIN_WAIT),
        given("python3, JSON", &["python3", "-c", JSON]),
        given("sqlite3 in memory", &["sqlite3", ":memory:", SQL]),
        shell("gzip", "exec gzip -c text > text.gz"),
        shell("tar and gzip", "tar -cf - -C /usr/include . | gzip -1 > tar.gz"),
        shell("sort", "exec sort lines > sorted"),
        shell("a shell script", "for i in 1 2 3 4 5 6 7 8 9 10; do ls / | grep -c usr; done"),
        given("true", &["/bin/true"]),
    ];
    let generated = Command::new("sh").args(["-c", GENERATE]).current_dir(dir).status();
    if generated.is_ok_and(|status| status.success()) {
        programs.push(given("gcc", &["gcc", "-O2", "-c", "big.c", "-o", "big.o"]));
    }
    programs.push(in_go(dir));
    programs.extend([
        redis("redis, set and get", 20_000, 1),
        redis("redis, 16 at once", 200_000, 16),
        nginx(dir),
    ]);
    programs.into_iter().flatten().collect()
}

/// A program of this machine. What PATH has first may be a script that looks for the program (pyenv's are): that is not what is
/// measured.
fn given(name: &'static str, argv: &[&str]) -> Option<Program> {
    let Some(path) = program(argv[0]) else {
        eprintln!("skipped: {name}, since {} is not here", argv[0]);
        return None;
    };
    let rest = argv[1..].iter().map(|word| (*word).to_owned());
    let argv = [path.to_string_lossy().into_owned()].into_iter().chain(rest).collect();
    Some(Program { name, argv, service: None })
}

/// The first ELF file of this name in PATH, and where servers are.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(OsStr::new(name))).find(|file| is_elf(file))
}

fn is_elf(file: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(file).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// `redis-benchmark`, with so many requests under way on each of fifty connections.
fn redis(name: &'static str, requests: u32, pipelined: u32) -> Option<Program> {
    const PORT: u16 = 17_460;
    let port = PORT.to_string();
    let client = program("redis-benchmark");
    let argv = ["redis-server", "--port", &port, "--save", "", "--bind", "127.0.0.1"];
    let server = given(name, &argv)?;
    let Some(client) = client else {
        eprintln!("skipped: {name}, since redis-benchmark is not here");
        return None;
    };
    let (requests_text, pipelined) = (requests.to_string(), pipelined.to_string());
    let words = ["-p", &port, "-q", "-c", "50", "-n", &requests_text, "-P", &pipelined, "-t", "set,get"];
    // Of each kind.
    let work = Work::Requests(2.0 * f64::from(requests));
    Some(Program { service: Some(Service { port: PORT, client: line(&client, &words), work }), ..server })
}

fn nginx(dir: &Path) -> Option<Program> {
    const PORT: u16 = 17_461;
    fs::write(dir.join("nginx.conf"), NGINX).expect("a file");
    let prefix = format!("{}/", dir.display());
    let server = given("nginx", &["nginx", "-p", &prefix, "-c", "nginx.conf"])?;
    let Some(client) = program("wrk") else {
        eprintln!("skipped: nginx, since wrk is not here");
        return None;
    };
    let url = format!("http://127.0.0.1:{PORT}/");
    let client = line(&client, &["-t", "1", "-c", "8", "-d", "2", &url]);
    Some(Program { service: Some(Service { port: PORT, client, work: Work::Wrk }), ..server })
}

fn line(program: &Path, words: &[&str]) -> Vec<String> {
    let program = program.to_string_lossy().into_owned();
    [program].into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect()
}

fn compiled(dir: &Path, name: &'static str, source: &str) -> Option<Program> {
    let file = name.replace([' ', ','], "-");
    fs::write(dir.join(format!("{file}.c")), source).expect("a file");
    let mut gcc = Command::new("gcc");
    made(dir, name, file.clone(), gcc.args(["-O1", "-pthread", "-o", &file, &format!("{file}.c")]))
}

fn in_go(dir: &Path) -> Option<Program> {
    fs::write(dir.join("go.go"), GO).expect("a file");
    let mut go = Command::new("go");
    made(dir, "a Go program", "go-program".to_owned(), go.args(["build", "-o", "go-program", "go.go"]))
}

/// A program that a compiler makes in the folder.
fn made(dir: &Path, name: &'static str, file: String, compiler: &mut Command) -> Option<Program> {
    if compiler.current_dir(dir).status().is_ok_and(|status| status.success()) {
        return Some(Program { name, argv: vec![format!("./{file}")], service: None });
    }
    eprintln!("skipped: {name}, since {} cannot make it", compiler.get_program().display());
    None
}
