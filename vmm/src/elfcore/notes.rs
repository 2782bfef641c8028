//! The note records of an x86-64 core: their types, and the layouts of what they hold.

use super::{FileMapping, ProcessInfo, SignalInfo};
use crate::engine::Counters;
use x86::state::{Fpu, Regs};
use x86::xsave::{Layout, SOFTWARE, component};

/// Registers and signal of a thread (owner `CORE`).
pub const NT_PRSTATUS: u32 = 1;
/// x87 and SSE registers, the FXSAVE image (owner `CORE`).
pub const NT_FPREGSET: u32 = 2;
/// Name and command line (owner `CORE`).
pub const NT_PRPSINFO: u32 = 3;
/// The auxiliary vector (owner `CORE`).
pub const NT_AUXV: u32 = 6;
/// The signal's `siginfo_t` (owner `CORE`): `SIGI`.
pub const NT_SIGINFO: u32 = 0x5349_4749;
/// The mapped files (owner `CORE`): `FILE`.
pub const NT_FILE: u32 = 0x4649_4c45;
/// The XSAVE image (owner `LINUX`), whose first 512 bytes are the FXSAVE image.
pub const NT_X86_XSTATE: u32 = 0x202;

/// The owner name of gretel's notes.
pub const OWNER: &str = "gretel";
/// The branch trail, as `lbr::Trail::to_bytes` writes it (owner `gretel`).
pub const NT_GRETEL_TRAIL: u32 = 1;
/// How the core was made: UTF-8 `key: value` lines (owner `gretel`).
pub const NT_GRETEL_ORIGIN: u32 = 2;
/// Retired instructions, taken branches, conditional branches: three 64-bit words (owner `gretel`).
pub const NT_GRETEL_COUNTERS: u32 = 3;
/// The newest crumbs, as `lbr::Crumbs::to_bytes` writes them (owner `gretel`).
pub const NT_GRETEL_CRUMBS: u32 = 4;
/// The words of call sites, as `lbr::context::Table::to_bytes` writes them (owner `gretel`).
pub const NT_GRETEL_CONTEXTS: u32 = 5;

/// Size of `struct elf_prstatus`.
pub const PRSTATUS_SIZE: usize = 336;
/// Size of `struct elf_prpsinfo`.
pub const PRPSINFO_SIZE: usize = 136;
/// Size of `siginfo_t`.
pub const SIGINFO_SIZE: usize = 128;

/// Offset of `pr_reg` in `struct elf_prstatus`.
const PR_REG: usize = 112;
/// Where each general register stands in `pr_reg` (`struct user_regs_struct`), by hardware number:
/// rax rcx rdx rbx rsp rbp rsi rdi r8 … r15.
const GPR_SLOT: [usize; 16] = [10, 11, 12, 5, 19, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0];
const ORIG_RAX_SLOT: usize = 15;
const RIP_SLOT: usize = 16;
const CS_SLOT: usize = 17;
const RFLAGS_SLOT: usize = 18;
const SS_SLOT: usize = 20;
const FS_BASE_SLOT: usize = 21;
const GS_BASE_SLOT: usize = 22;
/// The selectors that Linux gives to 64-bit user code and stack.
const USER_CS: u64 = 0x33;
const USER_SS: u64 = 0x2b;

/// A little-endian word of up to eight bytes, or `None` behind the end.
pub(super) fn word(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let piece = bytes.get(at..at.checked_add(size)?)?;
    Some(piece.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// A little-endian 32-bit signed field.
fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

/// `struct elf_prstatus` of a thread.
#[must_use]
pub fn prstatus(regs: &Regs, signal: SignalInfo, thread: i32) -> Vec<u8> {
    let mut out = vec![0; PRSTATUS_SIZE];
    put(&mut out, 0, &signal.signo.to_le_bytes());
    put(&mut out, 4, &signal.code.to_le_bytes());
    put(&mut out, 12, &i16::try_from(signal.signo).unwrap_or(0).to_le_bytes());
    put(&mut out, 32, &thread.to_le_bytes());
    let mut slot = |n: usize, value: u64| put(&mut out, PR_REG + 8 * n, &value.to_le_bytes());
    for (value, n) in regs.gpr.iter().zip(GPR_SLOT) {
        slot(n, *value);
    }
    slot(ORIG_RAX_SLOT, u64::MAX);
    slot(RIP_SLOT, regs.rip);
    slot(CS_SLOT, USER_CS);
    slot(RFLAGS_SLOT, regs.rflags);
    slot(SS_SLOT, USER_SS);
    slot(FS_BASE_SLOT, regs.fs_base);
    slot(GS_BASE_SLOT, regs.gs_base);
    put(&mut out, 328, &1_i32.to_le_bytes());
    out
}

/// Reads `struct elf_prstatus`: the registers, the current signal and the thread id.
#[must_use]
pub fn read_prstatus(bytes: &[u8]) -> Option<(Regs, SignalInfo, i32)> {
    let slot = |n: usize| word(bytes, PR_REG + 8 * n, 8);
    let mut regs = Regs {
        rip: slot(RIP_SLOT)?,
        rflags: slot(RFLAGS_SLOT)?,
        fs_base: slot(FS_BASE_SLOT)?,
        gs_base: slot(GS_BASE_SLOT)?,
        ..Regs::default()
    };
    for (value, n) in regs.gpr.iter_mut().zip(GPR_SLOT) {
        *value = slot(n)?;
    }
    // `pr_cursig`, not the si_signo copy before it: old kernels leave that one zero.
    let signo = i32::from(i16::from_le_bytes(bytes.get(12..14)?.try_into().ok()?));
    Some((regs, SignalInfo { signo, code: int(bytes, 4)?, address: 0 }, int(bytes, 32)?))
}

/// `struct elf_prpsinfo`.
#[must_use]
pub fn prpsinfo(process: &ProcessInfo) -> Vec<u8> {
    let mut out = vec![0; PRPSINFO_SIZE];
    out[1] = b'R';
    put(&mut out, 24, &process.pid.to_le_bytes());
    let name = process.name.as_bytes();
    put(&mut out, 40, &name[..name.len().min(15)]);
    let arguments = process.arguments.as_bytes();
    put(&mut out, 56, &arguments[..arguments.len().min(79)]);
    out
}

/// Reads `struct elf_prpsinfo`.
#[must_use]
pub fn read_prpsinfo(bytes: &[u8]) -> Option<ProcessInfo> {
    let text = |from: usize, to: usize| {
        let field = bytes.get(from..to)?;
        let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
        Some(String::from_utf8_lossy(&field[..end]).trim_end().to_owned())
    };
    Some(ProcessInfo { pid: int(bytes, 24)?, name: text(40, 56)?, arguments: text(56, 136)? })
}

/// `siginfo_t`.
#[must_use]
pub fn siginfo(signal: SignalInfo) -> Vec<u8> {
    let mut out = vec![0; SIGINFO_SIZE];
    put(&mut out, 0, &signal.signo.to_le_bytes());
    put(&mut out, 8, &signal.code.to_le_bytes());
    put(&mut out, 16, &signal.address.to_le_bytes());
    out
}

/// Reads `siginfo_t`. The address field exists only for signals that the kernel raised for a fault
/// (`si_code` above zero); elsewhere the same bytes are the sender's ids.
#[must_use]
pub fn read_siginfo(bytes: &[u8]) -> Option<SignalInfo> {
    let (signo, code) = (int(bytes, 0)?, int(bytes, 8)?);
    let faults = matches!(signo, 4 | 5 | 7 | 8 | 11) && code > 0;
    Some(SignalInfo { signo, code, address: if faults { word(bytes, 16, 8)? } else { 0 } })
}

/// The NT_FILE record.
#[must_use]
pub fn file(files: &[FileMapping]) -> Vec<u8> {
    let page = crate::ram::PAGE;
    let mut out = Vec::new();
    out.extend((files.len() as u64).to_le_bytes());
    out.extend(page.to_le_bytes());
    for f in files {
        for value in [f.start, f.end, f.offset / page] {
            out.extend(value.to_le_bytes());
        }
    }
    for f in files {
        out.extend(f.path.bytes().filter(|b| *b != 0));
        out.push(0);
    }
    out
}

/// Reads the NT_FILE record.
#[must_use]
pub fn read_file(bytes: &[u8]) -> Option<Vec<FileMapping>> {
    let count = usize::try_from(word(bytes, 0, 8)?).ok()?;
    let page = word(bytes, 8, 8)?;
    let names_at = count.checked_mul(24)?.checked_add(16)?;
    let mut names = bytes.get(names_at..)?.split(|b| *b == 0);
    let mut files = Vec::new();
    for n in 0..count {
        let field = |k: usize| word(bytes, 16 + 24 * n + 8 * k, 8);
        files.push(FileMapping {
            start: field(0)?,
            end: field(1)?,
            offset: field(2)?.checked_mul(page)?,
            path: String::from_utf8_lossy(names.next()?).into_owned(),
        });
    }
    files.sort_by_key(|f| f.start);
    Some(files)
}

/// The NT_AUXV record, with the final AT_NULL.
#[must_use]
pub fn auxv(entries: &[(u64, u64)]) -> Vec<u8> {
    entries.iter().chain(&[(0, 0)]).flat_map(|(k, v)| [k.to_le_bytes(), v.to_le_bytes()]).flatten().collect()
}

/// Reads the NT_AUXV record up to AT_NULL.
#[must_use]
pub fn read_auxv(bytes: &[u8]) -> Vec<(u64, u64)> {
    let pair = |at| Some((word(bytes, at, 8)?, word(bytes, at + 8, 8)?));
    (0..bytes.len() / 16).map_while(|n| pair(16 * n)).take_while(|(kind, _)| *kind != 0).collect()
}

/// The XSAVE image, as Linux has it in cores: the components that are in use, XCR0 in the first of the words that are
/// software's.
#[must_use]
pub fn xstate(fpu: &Fpu) -> Vec<u8> {
    let components = match fpu.wide_components() & component::AVX512 {
        0 => component::LEGACY | component::AVX,
        _ => component::ALL,
    };
    let mut image = fpu.to_xsave(&Layout::MODEL, components);
    put(&mut image, SOFTWARE, &components.to_le_bytes());
    image
}

/// Reads the XSAVE image of a core, whose layout its size tells.
#[must_use]
pub fn read_xstate(bytes: &[u8]) -> Option<Fpu> {
    Fpu::from_xsave(&Layout::of_size(bytes.len()), bytes)
}

/// The counters' note.
#[must_use]
pub fn counters(c: &Counters) -> Vec<u8> {
    [c.instructions, c.taken_branches, c.conditional_branches].iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Reads the counters' note.
#[must_use]
pub fn read_counters(bytes: &[u8]) -> Option<Counters> {
    Some(Counters {
        instructions: word(bytes, 0, 8)?,
        taken_branches: word(bytes, 8, 8)?,
        conditional_branches: word(bytes, 16, 8)?,
    })
}
