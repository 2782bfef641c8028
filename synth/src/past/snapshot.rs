//! The registers at a point of the past, as terms.

use crate::term::{Term, Terms};
use std::rc::Rc;
use x86::flags::Flag;
use x86::state::{RFLAGS_AC, RFLAGS_DF, RFLAGS_IF, State};

/// How many control registers there are: those of [`x86::machine::Control`].
pub const CONTROLS: usize = 4;
/// Their widths, in the order of [`x86::machine::Control`].
pub const CONTROL_WIDTHS: [u32; CONTROLS] = [32, 16, 16, 8];
/// The bits of the x87 status word that hold TOP.
pub const STATUS_TOP: u16 = 7 << 11;

/// Every register, as a term.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// General registers, 64 bits each.
    pub gpr: [Term; 16],
    /// Arithmetic flags, truth values, in the order of [`Flag::ALL`].
    pub flags: [Term; 6],
    /// Whether an instruction after this point reads these flags, or the core holds them.
    pub flags_observed: bool,
    /// The direction flag, a truth value.
    pub direction: Term,
    /// Of a kernel: the interrupt flag, a truth value. A program cannot change it.
    pub interrupts: Option<Term>,
    /// Of a kernel: the access flag, which lifts SMAP, a truth value. Of a program it is not followed.
    pub access: Option<Term>,
    /// Bases of FS and GS.
    pub segment_bases: [Term; 2],
    /// Of a kernel: the base of GS that SWAPGS brings (`IA32_KERNEL_GS_BASE`), 64 bits.
    pub inactive_gs: Option<Term>,
    /// The vector and opmask registers.
    pub vector: Vectors,
    /// Physical x87 registers: significand (64 bits), sign and exponent (16 bits).
    pub x87: [(Term, Term); 8],
    /// MXCSR, x87 control, x87 status (its TOP field reads zero here), x87 tag.
    pub controls: [Term; CONTROLS],
    /// TOP, which is always known: each instruction changes it by a fixed amount.
    pub x87_top: u8,
}

/// The vector and opmask registers. Most instructions touch the xmm registers alone, and there is a snapshot for every
/// instruction of a path: what lies above is shared between them until one writes it.
#[derive(Clone, Debug)]
pub struct Vectors {
    xmm: [[Term; 2]; 16],
    above: Rc<Above>,
}

/// Parts 2 to 7 of the first sixteen registers, the other sixteen, and the opmask registers.
#[derive(Clone, Debug)]
struct Above {
    low: [[Term; 6]; 16],
    high: [[Term; 8]; 16],
    opmask: [Term; 8],
}

impl Vectors {
    /// Registers of which part `p` of number `n` is `part(n, p)`, and opmask `n` is `opmask(n)`.
    pub fn new(mut part: impl FnMut(usize, usize) -> Term, opmask: impl FnMut(usize) -> Term) -> Vectors {
        use std::array::from_fn;
        let xmm = from_fn(|n| from_fn(|p| part(n, p)));
        let low = from_fn(|n| from_fn(|p| part(n, p + 2)));
        let high = from_fn(|n| from_fn(|p| part(n + 16, p)));
        Vectors { xmm, above: Rc::new(Above { low, high, opmask: from_fn(opmask) }) }
    }

    /// Part `part` of register `n`.
    #[must_use]
    pub fn part(&self, n: u8, part: u8) -> Term {
        let (n, part) = (usize::from(n & 31), usize::from(part & 7));
        match (n, part) {
            (0..16, 0..2) => self.xmm[n][part],
            (0..16, _) => self.above.low[n][part - 2],
            _ => self.above.high[n - 16][part],
        }
    }

    /// Writes a part.
    pub fn set_part(&mut self, n: u8, part: u8, v: Term) {
        if self.part(n, part) == v {
            return;
        }
        let (n, part) = (usize::from(n & 31), usize::from(part & 7));
        match (n, part) {
            (0..16, 0..2) => self.xmm[n][part] = v,
            (0..16, _) => Rc::make_mut(&mut self.above).low[n][part - 2] = v,
            _ => Rc::make_mut(&mut self.above).high[n - 16][part] = v,
        }
    }

    /// Opmask register `n`.
    #[must_use]
    pub fn opmask(&self, n: u8) -> Term {
        self.above.opmask[usize::from(n & 7)]
    }

    /// Writes an opmask register.
    pub fn set_opmask(&mut self, n: u8, v: Term) {
        if self.opmask(n) != v {
            Rc::make_mut(&mut self.above).opmask[usize::from(n & 7)] = v;
        }
    }

    /// Every term, in a fixed order: the registers part by part, then the opmask registers.
    pub fn values(&self) -> impl Iterator<Item = Term> + '_ {
        let parts = (0..32).flat_map(move |n| (0..8).map(move |part| self.part(n, part)));
        parts.chain(self.above.opmask)
    }
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
            interrupts: None,
            access: None,
            segment_bases: [regs.fs_base, regs.gs_base].map(|v| terms.lit_term(64, v)),
            inactive_gs: None,
            vector: Vectors::new(
                |n, part| terms.lit_term(64, fpu.vector[n][part]),
                |n| terms.lit_term(64, fpu.opmask[n]),
            ),
            x87: fpu.st.map(|(s, e)| (terms.lit_term(64, s), terms.lit_term(16, u64::from(e)))),
            controls: std::array::from_fn(|n| terms.lit_term(CONTROL_WIDTHS[n], controls[n])),
            x87_top: fpu.status.to_le_bytes()[1] >> 3 & 7,
        }
    }

    /// Every term of it, in a fixed order.
    #[must_use]
    pub fn values(&self) -> Vec<Term> {
        let mut all = Vec::with_capacity(320);
        all.extend(self.gpr);
        all.extend(self.flags);
        all.push(self.direction);
        all.extend(self.segment_bases);
        all.extend(self.x87.iter().flat_map(|&(significand, exponent)| [significand, exponent]));
        all.extend(self.controls);
        all.extend(self.vector.values());
        all.extend(self.interrupts);
        all.extend(self.access);
        all.extend(self.inactive_gs);
        all
    }

    /// The registers of a kernel's core: the interrupt flag is one of them, the access flag, and the other base of GS.
    #[must_use]
    pub fn of_kernel(terms: &Terms, state: &State, inactive_gs: u64) -> Snapshot {
        let interrupts = Some(terms.bool_term(state.regs.rflags & RFLAGS_IF != 0));
        let access = Some(terms.bool_term(state.regs.rflags & RFLAGS_AC != 0));
        let inactive_gs = Some(terms.lit_term(64, inactive_gs));
        Snapshot { interrupts, access, inactive_gs, ..Snapshot::of_state(terms, state) }
    }
}
