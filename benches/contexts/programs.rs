//! The programs whose contexts are decoded: deep recursion, many call sites, and what busybox does.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A program to run.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) stdin: Vec<u8>,
}

/// Reads an expression one byte at a time and evaluates it by recursive descent: deep mutual recursion, an exit at each
/// byte.
const PARSER: &str = r#"
#include <stdio.h>
#include <unistd.h>
static int next;
static void advance(void) { unsigned char c; next = read(0, &c, 1) == 1 ? c : -1; }
static long expression(void);
__attribute__((noinline)) static long factor(void) {
    if (next == '(') { advance(); long inner = expression(); advance(); return inner; }
    if (next == '-') { advance(); return -factor(); }
    long number = 0;
    while (next >= '0' && next <= '9') { number = number * 10 + next - '0'; advance(); }
    return number;
}
__attribute__((noinline)) static long term(void) {
    long value = factor();
    while (next == '*') { advance(); value = (value * factor()) % 1000003; }
    return value;
}
__attribute__((noinline)) static long expression(void) {
    long value = term();
    while (next == '+') { advance(); value += term(); }
    return value;
}
int main(void) { advance(); printf("%ld\n", expression()); return 0; }
"#;

/// A shell script of functions that call each other and print; each `echo` is a system call.
const SCRIPT: &str = "\
leaf() { echo \"$1\"; }
left() { if [ $1 -gt 0 ]; then right $(( $1 - 1 )); leaf l; else leaf x; fi; }
right() { if [ $1 -gt 0 ]; then left $(( $1 - 1 )); left $(( $1 - 2 )); leaf r; else leaf y; fi; }
n=0; while [ $n -lt 60 ]; do right $(( n % 12 )); n=$(( n + 1 )); done";

/// A recursive function that flushes at every number.
const AWK: &str = "\
function f(n) { print n; fflush(); return n < 2 ? n : f(n - 1) + g(n - 2) } \
function g(n) { print -n; fflush(); return n < 2 ? n : f(n - 1) + f(n - 2) } BEGIN { print f(17) }";

/// Sums up the fields of a file, and flushes at every line.
const LINES: &str =
    "{ for (i = 1; i <= NF; i++) sum[i % 7] += length($i); print toupper($1), sum[3]; fflush() }";

/// Functions of the maze, and calls in each.
const FUNCTIONS: u64 = 300;
const CALLS: u64 = 6;

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// An expression of about `length` bytes.
pub(crate) fn expression(length: usize) -> Vec<u8> {
    let mut random = Random(88_172_645_463_325_252);
    let (mut text, mut open) = (Vec::new(), 0_usize);
    while text.len() + open < length {
        match random.below(6) {
            0 | 1 if open < 40 => {
                text.push(b'(');
                open += 1;
                continue;
            }
            2 => {
                text.push(b'-');
                continue;
            }
            _ => text.extend(random.below(1000).to_string().bytes()),
        }
        while open > 0 && random.below(3) == 0 {
            text.push(b')');
            open -= 1;
        }
        text.push(if random.below(2) == 0 { b'+' } else { b'*' });
    }
    text.push(b'1');
    text.extend(std::iter::repeat_n(b')', open));
    text
}

/// A program of many call sites: functions that call each other by chance, 2 to 25 deep, with a system call at the end of
/// each way. Half of the ways are from a few, as in programs that have their habits; half are new.
fn maze() -> String {
    let mut random = Random(2_463_534_242);
    let mut source = String::from(
        "#include <unistd.h>\n#include <sys/syscall.h>\n\
         static unsigned long state; static volatile int sink;\n\
         static unsigned long next(void) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return state; }\n",
    );
    for f in 0..FUNCTIONS {
        _ = writeln!(source, "static void f{f}(int n);");
    }
    for f in 0..FUNCTIONS {
        _ = write!(
            source,
            "__attribute__((noinline)) static void f{f}(int n) {{ if (!n) {{ syscall(SYS_getppid); return; }} \
             switch (next() % {CALLS}) {{"
        );
        for call in 0..CALLS {
            _ = write!(source, " case {call}: f{}(n - 1); break;", random.below(FUNCTIONS));
        }
        // Of functions that differ in nothing, the compiler would make one.
        _ = writeln!(source, " }} sink = {f}; }}");
    }
    source.push_str(
        "int main(void) { for (int way = 1; way <= 200000; way++) {\n\
         state = way % 2 ? way * 2654435761ul : (way % 1000 + 1) * 40503ul; next(); f0(2 + next() % 24); } return 0; }\n",
    );
    source
}

/// What words are made of.
const LETTERS: &[u8; 12] = b"etaoinshrdlu";

/// Lines of words, as many as asked for.
fn text(lines: usize) -> Vec<u8> {
    let mut random = Random(4_101_842_887_655_102_017);
    let mut text = Vec::new();
    for _ in 0..lines {
        for _ in 0..1 + random.below(9) {
            text.extend(
                (0..1 + random.below(8)).map(|_| LETTERS[usize::try_from(random.below(12)).expect("small")]),
            );
            text.push(b' ');
        }
        text.push(b'\n');
    }
    text
}

/// Compiles a static program.
fn compiled(dir: &Path, name: &str, compiler: &str, source: &str) -> Option<OsString> {
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(format!("{name}-{compiler}")));
    let written = fs::write(&file, source).is_ok();
    let built = Command::new(compiler).args(["-O2", "-static", "-o"]).arg(&program).arg(&file).status();
    (written && built.is_ok_and(|status| status.success())).then(|| program.into())
}

/// All of them that this machine can make.
pub(crate) fn cases(dir: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    let sources = [
        ("parser, glibc", "parser", "gcc", PARSER, expression(1_000_000)),
        ("parser, musl", "parser", "musl-gcc", PARSER, expression(1_000_000)),
        ("maze, glibc", "maze", "gcc", &maze(), Vec::new()),
    ];
    for (name, file, compiler, source, stdin) in sources {
        match compiled(dir, file, compiler, source) {
            Some(program) => cases.push(Case { name, program, arguments: Vec::new(), stdin }),
            None => println!("{name}: skipped: {compiler} cannot make static programs here"),
        }
    }
    let busybox: [(&str, &[&str], usize); 5] = [
        ("busybox sort", &["sort"], 20_000),
        ("busybox awk, lines", &["awk", LINES], 20_000),
        ("busybox awk, recursion", &["awk", AWK], 0),
        ("busybox sh", &["sh", "-c", SCRIPT], 0),
        ("busybox find", &["find", "/usr/include"], 0),
    ];
    for (name, arguments, lines) in busybox {
        let arguments = arguments.iter().map(OsString::from).collect();
        cases.push(Case { name, program: "busybox".into(), arguments, stdin: text(lines) });
    }
    cases
}
