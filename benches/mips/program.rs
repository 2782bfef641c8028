//! Static programs with musl, which asks the processor nothing, so that all emulators execute the same instructions; and the
//! few system calls that they make.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use vmm::elf::Image as Elf;
use x86::op::Gpr;

use crate::emulator::{Guest, Image, Piece};

const STACK: u64 = 0x7fff_0000;
const STACK_SIZE: u64 = 0x10_0000;
/// Where brk and mmap take memory from.
const HEAP: u64 = 0x1000_0000;
const HEAP_SIZE: u64 = 0x40_0000;
const PAGE: u64 = 4096;

/// Compiles `guest-images/programs/NAME.c`, and lays it out with a stack.
pub(crate) fn image(name: &str, dir: &Path) -> Result<Image, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("guest-images/programs/{name}.c"));
    let program = dir.join(name);
    let built =
        Command::new("musl-gcc").args(["-O2", "-static", "-w", "-o"]).arg(&program).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("musl-gcc cannot make static programs here".to_owned());
    }
    let file = std::fs::read(&program).map_err(|error| error.to_string())?;
    let elf = Elf::parse(&file).map_err(|error| error.to_string())?;
    let mut pieces = vec![Piece { at: HEAP, bytes: vec![0; size(HEAP_SIZE)] }];
    for segment in &elf.segments {
        let at = segment.start - segment.start % PAGE;
        let mut bytes = vec![0; size(segment.end - at)];
        let (from, len) = (size(segment.offset), size(segment.file_end - segment.start));
        let content = file.get(from..from + len).ok_or("the program is cut")?;
        bytes[size(segment.start - at)..][..len].copy_from_slice(content);
        pieces.push(Piece { at, bytes }.whole_pages());
    }
    let first = first_stack(&elf);
    let mut stack = vec![0; size(STACK_SIZE)];
    let at = stack.len() - 1024;
    for (to, word) in stack[at..].chunks_exact_mut(8).zip(&first) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    pieces.push(Piece { at: STACK - STACK_SIZE, bytes: stack });
    Ok(Image { pieces, entry: elf.entry, stack: STACK - 1024 })
}

/// The sources of all programs, up to 64 KiB.
pub(crate) fn input() -> Result<Vec<u8>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest-images/programs");
    let mut all = Vec::new();
    for name in [
        "cipher.c",
        "compress.c",
        "containers.cpp",
        "hash.c",
        "interpreter.c",
        "json.cpp",
        "sort.c",
        "trees.rs",
    ] {
        all.extend(std::fs::read(folder.join(name)).map_err(|error| format!("{name}: {error}"))?);
    }
    all.truncate(1 << 16);
    Ok(all)
}

fn size(n: u64) -> usize {
    usize::try_from(n).expect("a size of this file is small")
}

/// argc, no arguments, no environment, and the auxiliary vector: AT_PHDR, AT_PHENT, AT_PHNUM, AT_PAGESZ, AT_RANDOM.
fn first_stack(elf: &Elf) -> Vec<u64> {
    let mut words = vec![0, 0, 0];
    for (key, value) in [(3, elf.headers), (4, 56), (5, elf.header_count), (6, PAGE), (25, STACK - 64)] {
        words.extend([key, value]);
    }
    words.extend([0, 0]);
    words
}

/// The kernel that a program sees: standard input, a heap, and somewhere to write to.
pub(crate) struct Kernel<'a> {
    input: &'a [u8],
    /// Where free memory begins.
    heap: u64,
    mapped: bool,
    /// What it wrote, the status at its end, and how often it called.
    pub(crate) outcome: Outcome,
}

/// What must be the same on all emulators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) output: Vec<u8>,
    pub(crate) status: u64,
    pub(crate) calls: BTreeMap<u64, u64>,
}

impl<'a> Kernel<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Kernel<'a> {
        Kernel { input, heap: HEAP, mapped: false, outcome: Outcome::default() }
    }

    /// Serves a call; `false` when it was exit.
    pub(crate) fn serve(&mut self, guest: &mut dyn Guest) -> bool {
        let number = guest.reg(Gpr::RAX);
        let a = [Gpr::RDI, Gpr::RSI, Gpr::RDX].map(|r| guest.reg(r));
        *self.outcome.calls.entry(number).or_default() += 1;
        let result = match number.cast_signed() {
            libc::SYS_exit | libc::SYS_exit_group => {
                self.outcome.status = a[0];
                return false;
            }
            libc::SYS_read => self.read(guest, a[1], a[2]),
            libc::SYS_readv => vectors(guest, a[1], a[2]).map(|(at, n)| self.read(guest, at, n)).sum(),
            libc::SYS_write => self.write(guest, a[1], a[2]),
            libc::SYS_writev => vectors(guest, a[1], a[2]).map(|(at, n)| self.write(guest, at, n)).sum(),
            libc::SYS_brk => self.set_break(a[0]),
            libc::SYS_mmap => self.take(a[1]),
            libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_set_tid_address | libc::SYS_rt_sigprocmask => 0,
            libc::SYS_arch_prctl => {
                guest.set_fs_base(a[1]);
                0
            }
            _ => (-i64::from(libc::ENOSYS)).cast_unsigned(),
        };
        guest.set_reg(Gpr::RAX, result);
        true
    }

    fn read(&mut self, guest: &mut dyn Guest, at: u64, n: u64) -> u64 {
        let (now, later) = self.input.split_at(self.input.len().min(size(n)));
        guest.write(at, now);
        self.input = later;
        now.len() as u64
    }

    fn write(&mut self, guest: &mut dyn Guest, at: u64, n: u64) -> u64 {
        let mut bytes = vec![0; size(n)];
        guest.read(at, &mut bytes);
        self.outcome.output.extend(bytes);
        n
    }

    /// brk fails once mmap has taken what lies behind the break: then malloc takes from mmap, too.
    fn set_break(&mut self, to: u64) -> u64 {
        if !self.mapped && (self.heap..HEAP + HEAP_SIZE).contains(&to) {
            self.heap = to;
        }
        self.heap
    }

    /// Fresh pages.
    fn take(&mut self, bytes: u64) -> u64 {
        self.mapped = true;
        let at = self.heap.next_multiple_of(PAGE);
        self.heap = (at + bytes).next_multiple_of(PAGE);
        assert!(self.heap <= HEAP + HEAP_SIZE, "the program wants more memory than it has");
        at
    }
}

/// The buffers of readv and writev.
fn vectors(guest: &mut dyn Guest, at: u64, count: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
    let mut bytes = vec![0; size(count) * 16];
    guest.read(at, &mut bytes);
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect();
    words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>().into_iter()
}
