//! What is not compared, and why: the whole list, as data that the tool prints.
//!
//! Two tables: [`UNDEFINED`] (flags and results that the manuals leave undefined) and [`EXCLUDED`] (instructions that are not
//! generated); two more, of what differs by vendor, are in [`crate::vendor`]. References are to the Intel SDM vol. 2 and the AMD APM
//! vol. 3, at the instruction.

use crate::vendor;
use iced_x86::{Instruction, Mnemonic, OpKind};
use x86::flags::{ARITHMETIC, Flag};

/// NT and ID. AC, which a program can change too, would make the misaligned accesses of what follows fault.
pub(crate) const HARMLESS_FLAGS: u64 = 1 << 14 | 1 << 21;
/// RFLAGS bits that are compared: the arithmetic flags, DF, NT and ID. The others are not the program's to see (RF is
/// an artefact of the fault) or cannot be changed by what is generated.
pub const COMPARED_FLAGS: u64 = ARITHMETIC | x86::state::RFLAGS_DF | HARMLESS_FLAGS;

/// What an instruction leaves undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Undefined {
    /// RFLAGS bits.
    pub flags: u64,
    /// The destination register or memory operand.
    pub destination: bool,
}

/// When a row of [`UNDEFINED`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// The masked count is not zero.
    CountNotZero,
    /// The masked count is neither zero nor one.
    CountAboveOne,
    /// The masked count is at least the width of the operand.
    CountAtLeastWidth,
    /// The masked count is more than the width of the operand.
    CountAboveWidth,
}

impl When {
    fn text(self) -> &'static str {
        match self {
            When::Always => "always",
            When::CountNotZero => "count > 0",
            When::CountAboveOne => "count > 1",
            When::CountAtLeastWidth => "count >= width",
            When::CountAboveWidth => "count > width",
        }
    }

    /// `count` is `None` where it is not known: then the row applies if any count makes it apply.
    fn applies(self, i: &Instruction, count: Option<u64>) -> bool {
        let width = operand_width(i);
        let Some(count) = count else {
            return match self {
                When::CountAtLeastWidth | When::CountAboveWidth => width < 32,
                _ => true,
            };
        };
        match self {
            When::Always => true,
            When::CountNotZero => count != 0,
            When::CountAboveOne => count > 1,
            When::CountAtLeastWidth => count >= width,
            When::CountAboveWidth => count > width,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The instructions.
    pub mnemonics: &'static [Mnemonic],
    /// When it applies.
    pub when: When,
    /// The undefined flags.
    pub flags: &'static [Flag],
    /// Whether the result is undefined, too.
    pub destination: bool,
    /// What the manuals say.
    pub reason: &'static str,
}

use Flag::{Adjust, Carry, Overflow, Parity, Sign, Zero};
use Mnemonic as M;

/// Flags and results that the manuals leave undefined.
pub const UNDEFINED: &[Row] = &[
    Row {
        mnemonics: &[M::And, M::Or, M::Xor, M::Test],
        when: When::Always,
        flags: &[Adjust],
        destination: false,
        reason: "logic: AF is undefined",
    },
    Row {
        mnemonics: &[M::Shl, M::Sal, M::Shr, M::Sar, M::Shld, M::Shrd],
        when: When::CountNotZero,
        flags: &[Adjust],
        destination: false,
        reason: "shifts: AF is undefined unless the count is zero",
    },
    Row {
        mnemonics: &[M::Shl, M::Sal, M::Shr, M::Sar, M::Shld, M::Shrd, M::Rol, M::Ror, M::Rcl, M::Rcr],
        when: When::CountAboveOne,
        flags: &[Overflow],
        destination: false,
        reason: "OF is defined for shifts and rotates by one only",
    },
    Row {
        mnemonics: &[M::Shl, M::Sal, M::Shr],
        when: When::CountAtLeastWidth,
        flags: &[Carry],
        destination: false,
        reason: "CF is undefined when the count is not less than the width (8- and 16-bit operands)",
    },
    Row {
        mnemonics: &[M::Shld, M::Shrd],
        when: When::CountAboveWidth,
        flags: &[Carry, Parity, Zero, Sign],
        destination: true,
        reason: "result and flags are undefined when the count is above the width (16-bit operands)",
    },
    Row {
        mnemonics: &[M::Mul, M::Imul],
        when: When::Always,
        flags: &[Parity, Adjust, Zero, Sign],
        destination: false,
        reason: "multiplication defines CF and OF only",
    },
    Row {
        mnemonics: &[M::Div, M::Idiv],
        when: When::Always,
        flags: &[Carry, Parity, Adjust, Zero, Sign, Overflow],
        destination: false,
        reason: "division leaves all flags undefined",
    },
    Row {
        mnemonics: &[M::Bt, M::Bts, M::Btr, M::Btc],
        when: When::Always,
        flags: &[Parity, Adjust, Sign, Overflow],
        destination: false,
        reason: "bit tests define CF and keep ZF",
    },
    Row {
        mnemonics: &[M::Bsf, M::Bsr],
        when: When::Always,
        flags: &[Carry, Parity, Adjust, Sign, Overflow],
        destination: false,
        reason: "bit scans define ZF only",
    },
    Row {
        mnemonics: &[M::Lzcnt, M::Tzcnt],
        when: When::Always,
        flags: &[Parity, Adjust, Sign, Overflow],
        destination: false,
        reason: "zero counts define CF and ZF only",
    },
    Row {
        mnemonics: &[M::Andn, M::Blsi, M::Blsmsk, M::Blsr, M::Bzhi],
        when: When::Always,
        flags: &[Parity, Adjust],
        destination: false,
        reason: "BMI: AF and PF are undefined",
    },
    Row {
        mnemonics: &[M::Bextr],
        when: When::Always,
        flags: &[Parity, Adjust, Sign],
        destination: false,
        reason: "BEXTR defines ZF and clears CF and OF",
    },
];

/// What is not compared of a fault; [`crate::compare`] has the code, one function for each.
pub const FAULT_LATITUDE: [&str; 6] = [
    "whether bytes that are no instruction raise #UD, or #PF where more of them would be in a page that is missing, or \
     #GP where there would be more than 15",
    "memory after an ENTER that faults on the far end of its frame: AMD has already pushed rbp",
    "whether an access across the last user address is #GP or #PF there: no program has that page",
    "the present bit of a page fault beyond user addresses: it tells of the host's page tables",
    "which fault is raised, by an instruction with two memory accesses that both fault: the manuals set no order",
    "flags after a fault in a repeated CMPS or SCAS: Intel restores them, AMD keeps those of the last iteration",
];

/// Instructions that are not generated.
pub const EXCLUDED: &[(&[Mnemonic], &str)] = &[
    (&[M::Int1], "INT1: hypervisors that intercept it differ in where rip is afterwards"),
    (
        &[M::Rdpmc, M::Rdpkru, M::Wrpkru, M::Ptwrite, M::Getsec],
        "what is switched off for a guest, #GP or #UD: the host may have it switched on",
    ),
    (&[M::Syscall, M::Sysenter, M::Int, M::Into], "system calls: their effect is not the processor's"),
    (
        &[
            M::Cpuid,
            M::Rdtsc,
            M::Rdtscp,
            M::Rdpid,
            M::Rdrand,
            M::Rdseed,
            M::Xgetbv,
            M::Xbegin,
            M::Xend,
            M::Xabort,
            M::Xtest,
        ],
        "reads of the machine: the result is not a function of the program's state",
    ),
    (
        &[M::Xsave, M::Xsave64, M::Xsavec, M::Xsavec64, M::Xsaveopt, M::Xsaveopt64, M::Xrstor, M::Xrstor64],
        "the extended state: processors differ in which of it they take for unused, so who runs a program serves them",
    ),
];

/// Whether `i` stores the pointers of the last x87 instruction, which are not modelled: it is generated alone, from a
/// state where they are zero.
pub(crate) fn stores_pointers(i: &Instruction) -> bool {
    matches!(i.mnemonic(), M::Fxsave | M::Fxsave64 | M::Fnstenv | M::Fnsave)
}

/// MXCSR bit 17: misaligned exception mask, which AMD has and Intel reserves.
pub const MXCSR_MISALIGNED: u32 = 1 << 17;
/// LDMXCSR of that bit.
const MISALIGNED_MODE: &str = "cases that set MXCSR bit 17: AMD's misaligned mode, #GP on Intel";

/// Why `i`, whose bytes begin `code`, is not generated, if it is not.
#[must_use]
pub fn exclusion(i: &Instruction, code: &[u8]) -> Option<&'static str> {
    let everywhere = EXCLUDED.iter().find(|(mnemonics, _)| mnemonics.contains(&i.mnemonic()));
    everywhere.map(|(_, reason)| *reason).or_else(|| vendor::another_meaning(i, code))
}

/// What `i` leaves undefined, `rcx` being its value before, if that is known.
#[must_use]
pub fn undefined(i: &Instruction, rcx: Option<u64>) -> Undefined {
    let count = count(i, rcx);
    let mut undefined = Undefined::default();
    let rows = UNDEFINED.iter().filter(|row| row.mnemonics.contains(&i.mnemonic()));
    for row in rows.filter(|row| row.when.applies(i, count)) {
        undefined.flags |= row.flags.iter().fold(0, |all, flag| all | 1 << flag.bit());
        undefined.destination |= row.destination;
    }
    undefined
}

/// Whether `i` may leave the flags alone, by the value of its count.
#[must_use]
pub fn may_keep_flags(i: &Instruction) -> bool {
    matches!(
        i.mnemonic(),
        M::Shl | M::Sal | M::Shr | M::Sar | M::Shld | M::Shrd | M::Rol | M::Ror | M::Rcl | M::Rcr
    ) || i.is_string_instruction()
}

/// RFLAGS bits of a set of iced's flag bits.
#[must_use]
pub fn rflags(iced: u32) -> u64 {
    use iced_x86::RflagsBits as R;
    [(R::CF, Carry), (R::PF, Parity), (R::AF, Adjust), (R::ZF, Zero), (R::SF, Sign), (R::OF, Overflow)]
        .iter()
        .filter(|(bit, _)| iced & bit != 0)
        .fold(0, |all, (_, flag)| all | 1 << flag.bit())
}

/// The masked count of a shift or rotate.
fn count(i: &Instruction, rcx: Option<u64>) -> Option<u64> {
    let last = i.op_count().checked_sub(1)?;
    let raw = match i.op_kind(last) {
        OpKind::Immediate8 => Some(u64::from(i.immediate8())),
        _ => rcx,
    };
    raw.map(|count| count & if operand_width(i) == 64 { 63 } else { 31 })
}

/// Width in bits of the first operand.
fn operand_width(i: &Instruction) -> u64 {
    let bytes = match i.op_kind(0) {
        OpKind::Register => i.op_register(0).size(),
        _ => i.memory_size().size(),
    };
    8 * bytes as u64
}

/// The table as text, one line per row.
#[must_use]
pub fn table() -> String {
    let names = |mnemonics: &[Mnemonic]| {
        mnemonics.iter().map(|m| format!("{m:?}").to_lowercase()).collect::<Vec<_>>().join(" ")
    };
    let mut text = String::from("Not compared:\n");
    for row in UNDEFINED {
        let flags: Vec<&str> = row.flags.iter().map(|flag| flag_name(*flag)).collect();
        let result = if row.destination { " and the result" } else { "" };
        let (what, when) = (flags.join(" "), row.when.text());
        text += &format!("  {}: {what}{result} ({when}). {}\n", names(row.mnemonics), row.reason);
    }
    text += "Not modelled, so not compared: the x87 opcode, instruction and data pointers; RF, and the flags that \
             user programs cannot change.\n";
    text += "At a fault:\n";
    for reason in FAULT_LATITUDE {
        text += &format!("  {reason}\n");
    }
    text += "Not generated:\n";
    for (mnemonics, reason) in EXCLUDED {
        text += &format!("  {}: {reason}\n", names(mnemonics));
    }
    text += "Not generated on AMD's processors:\n";
    for (reason, _) in vendor::NOT_ON_AMD {
        text += &format!("  {reason}\n");
    }
    text += &format!("  {MISALIGNED_MODE}\n");
    text += "Forgiven, as processors differ:\n";
    for row in vendor::FORGIVEN {
        text += &format!("  {}\n", row.reason);
    }
    text
}

/// The name of a flag, in capitals.
pub(crate) fn flag_name(flag: Flag) -> &'static str {
    ["CF", "PF", "AF", "ZF", "SF", "OF"][flag as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::Code;

    /// iced has the manuals' undefined flags, encoding by encoding.
    #[test]
    fn no_flag_is_ignored_that_the_manuals_define() {
        for code in Code::values() {
            let mut i = Instruction::default();
            i.set_code(code);
            let ours = undefined(&i, None).flags;
            let theirs = rflags(i.rflags_undefined());
            assert_eq!(ours & !theirs & !count_dependent(code.mnemonic()), 0, "{code:?}");
        }
    }

    /// Flags whose definition depends on a count, which iced's per-encoding table cannot say.
    fn count_dependent(m: Mnemonic) -> u64 {
        match m {
            M::Shl | M::Sal | M::Shr | M::Shld | M::Shrd => ARITHMETIC,
            M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr => 1 << Overflow.bit() | 1 << Adjust.bit(),
            _ => 0,
        }
    }
}
