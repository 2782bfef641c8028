//! The registers at a point of the past, as terms.

use crate::term::{Term, Terms};
use x86::flags::Flag;
use x86::state::{RFLAGS_DF, State};

/// How many control registers there are: those of [`x86::machine::Control`].
pub const CONTROLS: usize = 4;
/// Their widths, in the order of [`x86::machine::Control`].
pub const CONTROL_WIDTHS: [u32; CONTROLS] = [32, 16, 16, 8];
/// The bits of the x87 status word that hold TOP.
pub const STATUS_TOP: u16 = 7 << 11;

/// Every register, as a term.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// General registers, 64 bits each.
    pub gpr: [Term; 16],
    /// Arithmetic flags, truth values, in the order of [`Flag::ALL`].
    pub flags: [Term; 6],
    /// Whether an instruction after this point reads these flags, or the core holds them.
    pub flags_observed: bool,
    /// The direction flag, a truth value.
    pub direction: Term,
    /// Bases of FS and GS.
    pub segment_bases: [Term; 2],
    /// Halves of the vector registers.
    pub vector: [[Term; 2]; 16],
    /// Physical x87 registers: significand (64 bits), sign and exponent (16 bits).
    pub x87: [(Term, Term); 8],
    /// MXCSR, x87 control, x87 status (its TOP field reads zero here), x87 tag.
    pub controls: [Term; CONTROLS],
    /// TOP, which is always known: each instruction changes it by a fixed amount.
    pub x87_top: u8,
}

impl Snapshot {
    /// The registers of the core.
    #[must_use]
    pub fn of_state(terms: &Terms, state: &State) -> Snapshot {
        let (regs, fpu) = (&state.regs, &state.fpu);
        let status = fpu.status & !STATUS_TOP;
        let controls = [u64::from(fpu.mxcsr), u64::from(fpu.control), u64::from(status), u64::from(fpu.tag)];
        Snapshot {
            gpr: regs.gpr.map(|v| terms.lit_term(64, v)),
            flags: Flag::ALL.map(|f| terms.bool_term(regs.rflags >> f.bit() & 1 == 1)),
            flags_observed: true,
            direction: terms.bool_term(regs.rflags & RFLAGS_DF != 0),
            segment_bases: [regs.fs_base, regs.gs_base].map(|v| terms.lit_term(64, v)),
            vector: fpu.xmm.map(|halves| halves.map(|v| terms.lit_term(64, v))),
            x87: fpu.st.map(|(s, e)| (terms.lit_term(64, s), terms.lit_term(16, u64::from(e)))),
            controls: std::array::from_fn(|n| terms.lit_term(CONTROL_WIDTHS[n], controls[n])),
            x87_top: fpu.status.to_le_bytes()[1] >> 3 & 7,
        }
    }

    /// Every term of it, in a fixed order.
    #[must_use]
    pub fn values(&self) -> Vec<Term> {
        let mut all = Vec::with_capacity(96);
        all.extend(self.gpr);
        all.extend(self.flags);
        all.push(self.direction);
        all.extend(self.segment_bases);
        all.extend(self.vector.as_flattened());
        all.extend(self.x87.iter().flat_map(|&(significand, exponent)| [significand, exponent]));
        all.extend(self.controls);
        all
    }
}
