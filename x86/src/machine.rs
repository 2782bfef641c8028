//! The state that an instruction may touch, and the ways in which it may end.

use crate::domain::{Bin, Domain};
use crate::flags::Flags;
use crate::op::{BranchKind, Gpr, Segment};
use crate::packed::Packed;
use crate::state::MxcsrMask;

/// Why an instruction did not retire. One byte, so that `Exec<u64>` fits two registers (a 24-byte trap costs
/// 17 % of the interpreter's speed); the details (CR2, the error code) live in the machine, as on hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Trap {
    /// #PF; the address and error code are in the machine.
    Page,
    /// #DE: division by zero, or a quotient that does not fit.
    Divide,
    /// #UD, raised by an instruction that is defined to raise it (UD2) or that this CPU model lacks.
    Undefined,
    /// #GP: non-canonical address, misaligned SSE operand, privileged instruction.
    General,
    /// #SS: non-canonical address in a stack access.
    Stack,
    /// #BP: INT3.
    Breakpoint,
    /// #DB: INT1, or single-stepping.
    Debug,
    /// #MF: an unmasked x87 exception is pending.
    X87,
    /// #XM: an unmasked SIMD floating-point exception.
    Simd,
    /// The path contradicts itself (symbolic machines only).
    Infeasible,
}

/// The result of a step of an instruction.
pub type Exec<T = ()> = Result<T, Trap>;

/// A machine's bit-vector.
pub type Bv<M> = <<M as Machine>::D as Domain>::Bv;
/// A machine's truth value.
pub type Bool<M> = <<M as Machine>::D as Domain>::Bool;
/// A machine's 128 bits of a vector register.
pub type PackedOf<M> = <<M as Machine>::D as Domain>::Packed;
/// A machine's arithmetic flags.
pub type FlagsOf<M> = Flags<Bv<M>, Bool<M>>;
/// A machine's control transfer.
pub type FlowOf<M> = Flow<Bv<M>, Bool<M>>;

/// Control and status registers that are read and written whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// MXCSR, 32 bits.
    Mxcsr,
    /// The x87 control word, 16 bits.
    X87Control,
    /// The x87 status word, 16 bits, including TOP.
    X87Status,
    /// The x87 tag word in its abridged form (FXSAVE): 8 bits, 1 = the physical register is not empty.
    X87Tag,
}

/// Where control goes next, as data: an interpreter picks, a synthesizer asserts.
#[derive(Clone, Copy, Debug)]
pub enum Flow<V, B> {
    /// A jump, call or return to a 64-bit address.
    Jump(V),
    /// A conditional branch to `to`, else to the next instruction.
    Branch {
        /// Whether it is taken.
        taken: B,
        /// The target when taken.
        to: u64,
    },
    /// One iteration of a string instruction is done; the same instruction runs again if `again`.
    Repeat {
        /// Whether there is another iteration.
        again: B,
    },
    /// SYSCALL: rip is the next instruction; rcx and r11 are written by whoever serves the call.
    Syscall,
    /// An instruction that reads the machine rather than the program's state; the engine supplies the result.
    MachineRead(MachineRead),
}

/// Instructions whose result is not a function of the guest's own state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MachineRead {
    /// CPUID.
    Cpuid,
    /// RDTSC.
    Rdtsc,
    /// RDTSCP.
    Rdtscp,
    /// RDPID.
    Rdpid,
    /// RDRAND.
    Rdrand,
    /// RDSEED.
    Rdseed,
    /// XGETBV.
    Xgetbv,
    /// XBEGIN, XEND, XABORT, XTEST: whether a transaction commits is the processor's whim. No CPU model has them, so
    /// the engine answers with #UD.
    Transaction,
    /// XSAVE, XRSTOR and their kin: which components there are is the system's, and which of them the processor
    /// takes for unused is its own.
    ExtendedState,
}

/// Architectural state, with memory and traps: the only way in which a semantics touches the world.
///
/// Rule for every semantics: accesses that can trap come first, commits (`set_*`, and the last `store`) come
/// last, so that a faulting instruction leaves no trace. [`crate::faulty`] checks it.
pub trait Machine: Sized {
    /// The domain of values.
    type D: Domain;

    /// The algebra.
    fn d(&self) -> &Self::D;
    /// A general register, 64 bits.
    fn reg(&self, r: Gpr) -> Bv<Self>;
    /// Writes a general register, 64 bits.
    fn set_reg(&mut self, r: Gpr, v: Bv<Self>);
    /// The arithmetic flags.
    fn flags(&self) -> FlagsOf<Self>;
    /// Writes the arithmetic flags.
    fn set_flags(&mut self, f: FlagsOf<Self>);
    /// Writes the arithmetic flags if `c`: a host branch when concrete, a merge when symbolic.
    fn set_flags_if(&mut self, c: Bool<Self>, f: FlagsOf<Self>);
    /// The direction flag.
    fn direction(&self) -> Bool<Self>;
    /// Writes the direction flag.
    fn set_direction(&mut self, down: Bool<Self>);
    /// RFLAGS but for the arithmetic flags and DF, which are clear, 64 bits.
    fn system_flags(&self) -> Bv<Self>;
    /// Writes them. A machine that does not keep them answers [`Machine::system_flags`] with unknown bits.
    fn set_system_flags(&mut self, v: Bv<Self>);
    /// What FXSAVE stores as MXCSR_MASK.
    fn mxcsr_mask(&self) -> MxcsrMask {
        MxcsrMask::default()
    }
    /// The base of a segment (zero but for FS and GS).
    fn segment_base(&self, s: Segment) -> Bv<Self>;
    /// Writes the base of FS or GS.
    fn set_segment_base(&mut self, s: Segment, base: Bv<Self>);
    /// Part `part` (64 bits, 0 the lowest, 7 the highest) of vector register `n`, 0 to 31.
    fn vector(&self, n: u8, part: u8) -> Bv<Self>;
    /// Writes a part of a vector register.
    fn set_vector(&mut self, n: u8, part: u8, v: Bv<Self>);
    /// 128 bits of vector register `n`: parts `2 * block` and `2 * block + 1`.
    #[inline(always)]
    fn packed(&self, n: u8, block: u8) -> PackedOf<Self> {
        PackedOf::<Self>::from_parts([self.vector(n, 2 * block), self.vector(n, 2 * block + 1)])
    }
    /// Writes 128 bits of a vector register.
    #[inline(always)]
    fn set_packed(&mut self, n: u8, block: u8, v: PackedOf<Self>) {
        let [low, high] = v.parts(self.d());
        self.set_vector(n, 2 * block, low);
        self.set_vector(n, 2 * block + 1, high);
    }
    /// Opmask register `n`, 0 to 7, 64 bits.
    fn opmask(&self, n: u8) -> Bv<Self>;
    /// Writes an opmask register.
    fn set_opmask(&mut self, n: u8, v: Bv<Self>);
    /// Physical x87 register `n` (not relative to TOP): significand (64 bits), sign and exponent (16 bits).
    fn x87(&self, n: u8) -> (Bv<Self>, Bv<Self>);
    /// Writes a physical x87 register.
    fn set_x87(&mut self, n: u8, significand: Bv<Self>, sign_exponent: Bv<Self>);
    /// The x87 TOP field as a host number: symbolic machines keep the stack depth concrete by policy.
    fn x87_top(&self) -> u8;
    /// Writes TOP.
    fn set_x87_top(&mut self, top: u8);
    /// A control or status register.
    fn control(&self, c: Control) -> Bv<Self>;
    /// Writes a control or status register.
    fn set_control(&mut self, c: Control, v: Bv<Self>);
    /// Loads `w` bits (8, 16, 32 or 64) from a linear address.
    fn load(&mut self, w: u32, va: Bv<Self>) -> Exec<Bv<Self>>;
    /// Loads what the same instruction is about to store: a page that is missing or may not be written faults as
    /// a write, as on processors.
    fn load_for_update(&mut self, w: u32, va: Bv<Self>) -> Exec<Bv<Self>> {
        self.load(w, va)
    }
    /// Loads parts of 64 bits, the first from `va` and each from 8 bytes above the one before it.
    fn load_parts(&mut self, va: Bv<Self>, parts: &mut [Bv<Self>]) -> Exec {
        for (at, part) in (0..).step_by(8).zip(parts) {
            let from = self.d().bin(Bin::Add, 64, va, self.d().lit(64, at));
            *part = self.load(64, from)?;
        }
        Ok(())
    }
    /// Loads `N` times 128 bits (at most 4), the first from `va` and each from 16 bytes above the one before it.
    fn load_packed<const N: usize>(&mut self, va: Bv<Self>, blocks: &mut [PackedOf<Self>; N]) -> Exec {
        let mut parts = [[self.d().lit(64, 0); 2]; N];
        self.load_parts(va, parts.as_flattened_mut())?;
        *blocks = parts.map(PackedOf::<Self>::from_parts);
        Ok(())
    }
    /// Loads those of `count` lanes of `w` bits whose bit is set in `chosen` (64); the others are zero, and not accessed.
    /// The result is as many of the parts of 64 bits as hold them.
    fn load_chosen(
        &mut self,
        va: Bv<Self>,
        w: u32,
        count: u32,
        chosen: Bv<Self>,
        parts: &mut [Bv<Self>],
    ) -> Exec {
        for (first, part) in (0..count).step_by(64 / w as usize).zip(parts) {
            let mut lanes = [self.d().lit(w, 0); 8];
            for (n, lane) in (first..count).zip(&mut lanes[..64 / w as usize]) {
                let from = self.d().bin(Bin::Add, 64, va, self.d().lit(64, u64::from(n * w / 8)));
                *lane = self.load_if(self.d().bit(64, n, chosen), w, from)?;
            }
            let d = self.d();
            let of = |n: u32| lanes[n as usize];
            *part = (1..64 / w).fold(of(0), |part, n| d.concat(w, of(n), n * w, part));
        }
        Ok(())
    }
    /// Stores `w` bits at a linear address, all or nothing.
    fn store(&mut self, w: u32, va: Bv<Self>, v: Bv<Self>) -> Exec;
    /// Stores parts of 64 bits (at most eight), the first at `va` and each 8 bytes above the one before it, all or
    /// nothing.
    fn store_parts(&mut self, va: Bv<Self>, parts: &[Bv<Self>]) -> Exec;
    /// Stores `N` times 128 bits (at most 4), the first at `va` and each 16 bytes above the one before it, all or
    /// nothing.
    fn store_packed<const N: usize>(&mut self, va: Bv<Self>, blocks: &[PackedOf<Self>; N]) -> Exec {
        let parts = blocks.map(|block| block.parts(self.d()));
        self.store_parts(va, parts.as_flattened())
    }
    /// Stores those of `count` lanes of `w` bits of `parts` whose bit is set in `chosen` (64), all or nothing.
    fn store_chosen(
        &mut self,
        va: Bv<Self>,
        w: u32,
        count: u32,
        chosen: Bv<Self>,
        parts: &[Bv<Self>],
    ) -> Exec {
        let to = |m: &Self, n: u32| m.d().bin(Bin::Add, 64, va, m.d().lit(64, u64::from(n * w / 8)));
        for n in 0..count {
            let at = to(self, n);
            self.prepare_store_if(self.d().bit(64, n, chosen), at, u64::from(w / 8))?;
        }
        for n in 0..count {
            let (at, part) = (to(self, n), parts[(n * w / 64) as usize]);
            let v = if w == 64 { part } else { self.d().extract(64, n * w % 64, w, part) };
            self.store_if(self.d().bit(64, n, chosen), w, at, v)?;
        }
        Ok(())
    }
    /// [`Machine::load`] if `c`, else zero, and no access.
    fn load_if(&mut self, c: Bool<Self>, w: u32, va: Bv<Self>) -> Exec<Bv<Self>>;
    /// [`Machine::store`] if `c`.
    fn store_if(&mut self, c: Bool<Self>, w: u32, va: Bv<Self>, v: Bv<Self>) -> Exec;
    /// [`Machine::prepare_store`] if `c`.
    fn prepare_store_if(&mut self, c: Bool<Self>, va: Bv<Self>, bytes: u64) -> Exec;
    /// Traps if a store to any of the `bytes` bytes (at most a page) at `va` would, and changes nothing: the
    /// first step of an instruction whose result takes several stores.
    fn prepare_store(&mut self, va: Bv<Self>, bytes: u64) -> Exec {
        for offset in [0, bytes - 1] {
            let at = self.d().bin(Bin::Add, 64, va, self.d().lit(64, offset));
            let byte = self.load(8, at)?;
            self.store(8, at, byte)?;
        }
        Ok(())
    }
    /// Traps here if `c`. A symbolic machine assumes `!c`, or `c` where it knows that this is the crash.
    fn trap_if(&mut self, c: Bool<Self>, t: Trap) -> Exec;
}

/// The effect of an instruction that falls through.
pub type Body<M> = fn(&mut M, &crate::op::Op) -> Exec;
/// The effect of an instruction that ends a block.
pub type Last<M> = fn(&mut M, &crate::op::Op) -> Exec<FlowOf<M>>;

/// What the table gives for an instruction.
pub enum Handler<M: Machine> {
    /// It falls through to the next instruction.
    Body(Body<M>),
    /// It ends a block; the kind is that of its branch record when taken, `None` where it makes none
    /// (string instructions, machine reads).
    Last(Last<M>, Option<BranchKind>),
}
