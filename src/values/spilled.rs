//! Which registers a function reads where it begins, before it writes them: those that it takes something in.
//!
//! Example: without optimisation, `fn add(count: u32)` begins with `mov [rsp+0x14], edi`. Where LLVM knows what all callers give, it begins
//! with `mov dword ptr [rsp+0x14], 4` instead, and edi has something else.

use super::passing::Source;
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, Register};
use std::collections::BTreeSet;

/// So many bytes are looked at: the beginning saves what it was given.
const BEGINNING: usize = 512;
/// General registers by their DWARF numbers.
const GENERAL: [Register; 16] = [
    Register::RAX,
    Register::RDX,
    Register::RCX,
    Register::RBX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Those that are read up to the first call or branch.
pub(super) struct Read(BTreeSet<Register>);

impl Read {
    /// By the function whose code begins at `entry`.
    pub(super) fn of(entry: u64, read: &dyn Fn(u64, &mut [u8]) -> bool) -> Read {
        let mut code = vec![0; BEGINNING];
        // A function at the end of a page may be shorter.
        while !code.is_empty() && !read(entry, &mut code) {
            code.truncate(code.len() / 2);
        }
        let (mut factory, mut written) = (InstructionInfoFactory::new(), BTreeSet::new());
        let mut found = BTreeSet::new();
        for instruction in Decoder::with_ip(64, &code, entry, DecoderOptions::NONE) {
            if instruction.flow_control() != FlowControl::Next {
                break;
            }
            let used = factory.info(&instruction).used_registers();
            let is_read = |access| {
                matches!(
                    access,
                    OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                )
            };
            let whole = |register: Register| match register.is_vector_register() {
                true => Register::ZMM0 + u32::try_from(register.number()).unwrap_or(0),
                false => register.full_register(),
            };
            let reads = used.iter().filter(|it| is_read(it.access())).map(|it| whole(it.register()));
            // What it has written is its own.
            found.extend(reads.filter(|it| !written.contains(it)).collect::<Vec<_>>());
            written.extend(used.iter().filter(|it| !is_read(it.access())).map(|it| whole(it.register())));
        }
        Read(found)
    }

    pub(super) fn has(&self, source: Source) -> bool {
        match source {
            Source::General(n) => GENERAL.get(n).is_some_and(|it| self.0.contains(it)),
            Source::Vector(n) => self.0.contains(&(Register::ZMM0 + u32::try_from(n).unwrap_or(0))),
            Source::Stack(_) => true,
        }
    }
}
