//! The programs that `bench record` measures unless it is given one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vmm::cpu_model::Model;
use vmm::elf::Image;
use vmm::launch::launch_here;

/// A program to measure.
pub(super) struct Program {
    pub(super) name: String,
    /// The program and its arguments.
    pub(super) argv: Vec<OsString>,
    /// What it reads as standard input; nothing if there is no file.
    pub(super) stdin: Option<PathBuf>,
}

/// A program of the built-in set that this machine cannot run, and why.
pub(super) struct Missing {
    pub(super) name: &'static str,
    pub(super) why: String,
}

impl Program {
    /// One that the command line gives.
    ///
    /// # Errors
    /// When gretel cannot run it.
    pub(super) fn given(argv: &[OsString], stdin: Option<&Path>) -> Result<Program, String> {
        check(argv)?;
        let name = argv.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        Ok(Program { name, argv: argv.to_vec(), stdin: stdin.map(Path::to_owned) })
    }

    /// It, with its standard input; what it prints goes nowhere.
    pub(super) fn wired(&self, mut command: Command) -> io::Result<Command> {
        let stdin = match &self.stdin {
            Some(path) => File::open(path)?.into(),
            None => Stdio::null(),
        };
        command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }
}

/// Whether gretel can run a program.
fn check(argv: &[OsString]) -> Result<(), String> {
    let (program, arguments) = argv.split_first().ok_or("there is no program")?;
    let launch = launch_here(program, arguments, Model::default()).map_err(|error| error.to_string())?;
    Image::parse(&launch.executable).map_err(|error| format!("{} {error}", launch.path))?;
    Ok(())
}

/// Arithmetic and nothing else.
const COMPUTES: &str = "\
int main(void) {
    unsigned long x = 88172645463325252ul, sum = 0;
    for (long n = 0; n < 200000000; n++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; sum += x; }
    return sum == 0;
}";

/// Reads one byte at a time.
const CALLS: &str = "\
#include <fcntl.h>
#include <unistd.h>
int main(void) {
    int file = open(\"/dev/zero\", O_RDONLY);
    char byte;
    for (int n = 0; n < 20000; n++) if (read(file, &byte, 1) != 1) return 1;
    return 0;
}";

/// Goes through a list, and through its end.
const CRASHES: &str = "\
#include <stdlib.h>
struct node { struct node *next; unsigned long value; };
static volatile unsigned long sum;
int main(void) {
    struct node *list = 0;
    for (unsigned long n = 0; n < 200000; n++) {
        struct node *node = malloc(sizeof *node);
        *node = (struct node) { list, n };
        list = node;
    }
    for (int round = 0; round < 300; round++)
        for (struct node *at = list; at; at = at->next) sum += at->value * round;
    for (struct node *at = list;; at = at->next) sum += at->value;
    return sum != 0;
}";

const AWK: &str = "{ for (i = 1; i <= NF; i++) words[$i]++ } END { for (w in words) n += words[w]; print n }";

const SCRIPT: &str = "\
fib() { if [ $1 -lt 2 ]; then r=$1; else fib $(( $1 - 1 )); local a=$r; fib $(( $1 - 2 )); r=$(( a + r )); fi; }
fib 20; echo $r";

/// All of them that this machine can run, and why not the others. `dir` is for what has to be made.
pub(super) fn built_in(dir: &Path) -> io::Result<(Vec<Program>, Vec<Missing>)> {
    let (mut programs, mut missing) = (Vec::new(), Vec::new());
    for (name, source) in [("computes", COMPUTES), ("calls", CALLS), ("crashes", CRASHES)] {
        match compiled(dir, name, source)? {
            Ok(program) => {
                programs.push(Program { name: name.to_owned(), argv: vec![program.into()], stdin: None })
            }
            Err(why) => missing.push(Missing { name, why }),
        }
    }
    let text = dir.join("text");
    fs::write(&text, words(8_000_000))?;
    let applets: [(&str, &[&str]); 4] = [
        ("busybox sort", &["sort"]),
        ("busybox awk", &["awk", AWK]),
        ("busybox sha256sum", &["sha256sum"]),
        ("busybox sh", &["sh", "-c", SCRIPT]),
    ];
    for (name, arguments) in applets {
        let argv: Vec<_> = ["busybox"].iter().chain(arguments).map(OsString::from).collect();
        match check(&argv) {
            Ok(()) => programs.push(Program { name: name.to_owned(), argv, stdin: Some(text.clone()) }),
            Err(why) => missing.push(Missing { name, why }),
        }
    }
    Ok((programs, missing))
}

/// Makes a static program, or says why it cannot be made.
fn compiled(dir: &Path, name: &str, source: &str) -> io::Result<Result<PathBuf, String>> {
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&file, source)?;
    let made = Command::new("gcc").args(["-O1", "-static", "-o"]).arg(&program).arg(&file).output();
    Ok(match made {
        Ok(made) if made.status.success() => Ok(program),
        Ok(_) => Err("gcc cannot make static programs here".to_owned()),
        Err(error) => Err(format!("gcc cannot be run: {error}")),
    })
}

/// Lines of words that look random and are the same each time, `bytes` or a few more.
fn words(bytes: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.extend_from_slice(format!("{:x}", random(5000) * 2_654_435_761).as_bytes());
        text.push(if random(8) == 0 { b'\n' } else { b' ' });
    }
    text.push(b'\n');
    text
}
