//! The concrete machine: the architectural state of one thread over a [`Bus`].

mod across;
mod modes;
mod parts;
mod translation;

pub use crate::tlb::{ENTRIES, Entry, PART_BITS, PARTS, Part};
pub use parts::{CodePage, Parts};

use crate::bus::{Bus, PAGE_SIZE, PageFault};
use crate::concrete::Concrete;
use crate::flags::{ARITHMETIC, By, Flag, Flags};
use crate::frames::Frames;
use crate::interpreter::Counters;
use crate::machine::{Control, Exec, Machine, Trap};
use crate::op::{Gpr, Segment};
use crate::state::{Fpu, MxcsrMask, RFLAGS_DF, RFLAGS_FIXED, RFLAGS_IF, Regs, State};
use crate::tlb::Tlb;
use crate::vectors::{Block, Vectors};
use rustc_hash::FxHashSet;

/// The registers of one thread, and the memory it sees.
///
/// Arithmetic flags are kept as what computed them; [`Cpu::regs`] works them out.
pub struct Cpu<B> {
    gpr: [u64; 16],
    flags: Flags<u64, bool>,
    pub(crate) rip: u64,
    pub(crate) reads: Tlb,
    pub(crate) writes: Tlb,
    pub(crate) fetches: Tlb,
    /// The pages that were fetched from since all translations were forgotten: whether those of others change is nothing to code.
    fetched: FxHashSet<u64>,
    /// Those with decoded instructions are never in `writes`.
    pub(crate) frames: Frames,
    /// Set when a store met a frame with decoded instructions; the store has not happened.
    pub(crate) code_store: Option<u64>,
    fault: Option<PageFault>,
    down: bool,
    /// RFLAGS but for the arithmetic flags and DF.
    other_flags: u64,
    bases: [u64; 2],
    vectors: Vectors,
    /// All of it but the vector registers.
    fpu: Fpu,
    /// What the last step that trapped raised.
    pub(crate) trapped: Option<Trap>,
    /// Instructions that differ between processors are for another one.
    pub(crate) leaves_differing: bool,
    /// What FXSAVE stores as MXCSR_MASK.
    mxcsr_mask: MxcsrMask,
    /// Instructions that depend on the system are for that side of the CPU (the crate `x86-system`).
    pub(crate) has_system: bool,
    /// What runs is 32-bit code ([`Cpu::set_narrow`]).
    pub(crate) narrow: bool,
    /// The translations of the other mode, where there are two.
    parked: Option<Box<modes::Parked>>,
    /// What has retired.
    pub(crate) retired: Counters,
    /// How many bytes string instructions may still go through before the run ends.
    pub(crate) string_bytes_left: u64,
    bus: B,
}

/// The part of a linear address below which a 48-bit address is canonical when shifted in.
const fn is_canonical(va: u64) -> bool {
    (va << 16).cast_signed() >> 16 == va.cast_signed()
}

/// #GP comes before any page fault: both ends of an access are checked before its pages are looked up.
fn both_canonical(va: u64, n: u64) -> Exec {
    if is_canonical(va) && is_canonical(va.wrapping_add(n - 1)) { Ok(()) } else { Err(Trap::General) }
}

/// A RAM offset as an index. RAM is a slice, so offsets inside it fit.
#[expect(clippy::cast_possible_truncation, reason = "gretel runs on 64-bit hosts only")]
#[inline(always)]
pub(crate) const fn index(offset: u64) -> usize {
    offset as usize
}

/// The low bytes of a value, as a store of `w` bits writes them.
#[inline(always)]
pub(crate) fn put_bytes(to: &mut [u8], v: u64) {
    to.copy_from_slice(&v.to_le_bytes()[..to.len()]);
}

/// A little-endian number of up to 8 bytes.
#[inline(always)]
pub(crate) fn get_bytes(from: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..from.len()].copy_from_slice(from);
    u64::from_le_bytes(bytes)
}

impl<B: Bus> Cpu<B> {
    /// A thread in its reset state over `bus`.
    #[must_use]
    pub fn new(bus: B) -> Cpu<B> {
        let mut cpu = Cpu {
            gpr: [0; 16],
            flags: Flags { by: By::Bits([false; 6]), w: 64, a: 0, b: 0, r: 0 },
            rip: 0,
            reads: Tlb::new(),
            writes: Tlb::new(),
            fetches: Tlb::new(),
            fetched: FxHashSet::default(),
            frames: Frames::default(),
            code_store: None,
            fault: None,
            down: false,
            other_flags: 0,
            bases: [0; 2],
            vectors: Vectors::from_parts(&Fpu::default().vector),
            fpu: Fpu::default(),
            trapped: None,
            leaves_differing: false,
            mxcsr_mask: MxcsrMask::default(),
            has_system: false,
            narrow: false,
            parked: None,
            retired: Counters::default(),
            string_bytes_left: u64::MAX,
            bus,
        };
        cpu.set_regs(&Regs { rflags: RFLAGS_FIXED | RFLAGS_IF, ..Regs::default() });
        cpu
    }

    /// The memory behind this CPU.
    pub fn bus(&self) -> &B {
        &self.bus
    }

    /// The memory behind this CPU, to change. Whoever changes its map calls [`Cpu::invalidate_page`] or
    /// [`Cpu::flush_tlb`]; whoever writes where instructions may be calls [`Cpu::written`].
    pub fn bus_mut(&mut self) -> &mut B {
        &mut self.bus
    }

    /// The integer registers.
    #[must_use]
    pub fn regs(&self) -> Regs {
        let arithmetic = Flag::ALL
            .iter()
            .zip(self.flags.bits(&Concrete))
            .fold(0, |all, (flag, set)| all | u64::from(set) << flag.bit());
        let direction = if self.down { RFLAGS_DF } else { 0 };
        Regs {
            gpr: self.gpr,
            rip: self.rip,
            rflags: self.other_flags | arithmetic | direction,
            fs_base: self.bases[0],
            gs_base: self.bases[1],
        }
    }

    /// Loads the integer registers. Bit 1 of the flags is set whatever `regs` says.
    pub fn set_regs(&mut self, regs: &Regs) {
        self.gpr = regs.gpr;
        self.rip = regs.rip;
        self.bases = [regs.fs_base, regs.gs_base];
        self.down = regs.rflags & RFLAGS_DF != 0;
        self.other_flags = regs.rflags & !(ARITHMETIC | RFLAGS_DF) | RFLAGS_FIXED;
        self.flags = Flags::from_bits(&Concrete, Flag::ALL.map(|f| regs.rflags >> f.bit() & 1 != 0));
    }

    /// The x87 and vector registers.
    #[must_use]
    pub fn fpu(&self) -> Fpu {
        Fpu { vector: self.vectors.parts(), ..self.fpu }
    }

    /// Loads the x87 and vector registers.
    pub fn set_fpu(&mut self, fpu: &Fpu) {
        self.fpu = *fpu;
        self.vectors = Vectors::from_parts(&fpu.vector);
    }

    /// The whole state.
    #[must_use]
    pub fn state(&self) -> State {
        State { regs: self.regs(), fpu: self.fpu() }
    }

    /// Loads the whole state.
    pub fn load_state(&mut self, state: &State) {
        self.set_regs(&state.regs);
        self.set_fpu(&state.fpu);
    }

    /// The instruction pointer.
    #[must_use]
    pub fn rip(&self) -> u64 {
        self.rip
    }

    /// Moves the instruction pointer.
    pub fn set_rip(&mut self, rip: u64) {
        self.rip = rip;
    }

    /// From now on FXSAVE stores this as MXCSR_MASK.
    pub fn set_mxcsr_mask(&mut self, mask: MxcsrMask) {
        self.mxcsr_mask = mask;
    }

    /// From now on instructions whose results differ between processors
    /// ([`crate::decode::differs_between_processors`]) do not run but end a run, so that another processor executes them; or
    /// they run like others.
    pub fn leave_differing(&mut self, leave: bool) {
        self.leaves_differing = leave;
    }

    /// The details of the last [`Trap::Page`].
    #[must_use]
    pub fn last_page_fault(&self) -> Option<PageFault> {
        self.fault
    }
}

impl<B: Bus> Machine for Cpu<B> {
    type D = Concrete;

    #[inline(always)]
    fn d(&self) -> &Concrete {
        &Concrete
    }
    #[inline(always)]
    fn reg(&self, r: Gpr) -> u64 {
        self.gpr[usize::from(r.0 & 15)]
    }
    #[inline(always)]
    fn set_reg(&mut self, r: Gpr, v: u64) {
        self.gpr[usize::from(r.0 & 15)] = v;
    }
    #[inline(always)]
    fn flags(&self) -> Flags<u64, bool> {
        self.flags
    }
    #[inline(always)]
    fn set_flags(&mut self, f: Flags<u64, bool>) {
        self.flags = f;
    }
    #[inline(always)]
    fn set_flags_if(&mut self, c: bool, f: Flags<u64, bool>) {
        if c {
            self.flags = f;
        }
    }
    fn direction(&self) -> bool {
        self.down
    }
    fn set_direction(&mut self, down: bool) {
        self.down = down;
    }
    fn system_flags(&self) -> u64 {
        self.other_flags
    }
    fn set_system_flags(&mut self, v: u64) {
        self.other_flags = v;
    }
    #[inline(always)]
    fn segment_base(&self, s: Segment) -> u64 {
        match s {
            Segment::Flat => 0,
            Segment::Fs => self.bases[0],
            Segment::Gs => self.bases[1],
        }
    }
    fn set_segment_base(&mut self, s: Segment, base: u64) {
        match s {
            Segment::Flat => {}
            Segment::Fs => self.bases[0] = base,
            Segment::Gs => self.bases[1] = base,
        }
    }
    #[inline(always)]
    fn vector(&self, n: u8, part: u8) -> u64 {
        self.vectors.part(n, part)
    }
    #[inline(always)]
    fn set_vector(&mut self, n: u8, part: u8, v: u64) {
        self.vectors.set_part(n, part, v);
    }
    #[inline(always)]
    fn packed(&self, n: u8, block: u8) -> Block {
        self.vectors.block(n, block)
    }
    #[inline(always)]
    fn set_packed(&mut self, n: u8, block: u8, v: Block) {
        self.vectors.set_block(n, block, v);
    }
    #[inline(always)]
    fn opmask(&self, n: u8) -> u64 {
        self.fpu.opmask[usize::from(n & 7)]
    }
    fn set_opmask(&mut self, n: u8, v: u64) {
        self.fpu.opmask[usize::from(n & 7)] = v;
    }
    fn x87(&self, n: u8) -> (u64, u64) {
        let (significand, sign_exponent) = self.fpu.st[usize::from(n & 7)];
        (significand, u64::from(sign_exponent))
    }
    fn set_x87(&mut self, n: u8, significand: u64, sign_exponent: u64) {
        self.fpu.st[usize::from(n & 7)] = (significand, low16(sign_exponent));
    }
    fn x87_top(&self) -> u8 {
        let [_, high] = self.fpu.status.to_le_bytes();
        high >> 3 & 7
    }
    fn set_x87_top(&mut self, top: u8) {
        self.fpu.status = self.fpu.status & !(7 << 11) | u16::from(top & 7) << 11;
    }
    #[inline(always)]
    fn mxcsr_mask(&self) -> MxcsrMask {
        self.mxcsr_mask
    }
    #[inline(always)]
    fn control(&self, c: Control) -> u64 {
        match c {
            Control::Mxcsr => u64::from(self.fpu.mxcsr),
            Control::X87Control => u64::from(self.fpu.control),
            Control::X87Status => u64::from(self.fpu.status),
            Control::X87Tag => u64::from(self.fpu.tag),
        }
    }
    #[inline(always)]
    fn set_control(&mut self, c: Control, v: u64) {
        match c {
            Control::Mxcsr => self.fpu.mxcsr = u32::from(low16(v)) | u32::from(low16(v >> 16)) << 16,
            Control::X87Control => self.fpu.control = low16(v),
            Control::X87Status => self.fpu.status = low16(v),
            Control::X87Tag => self.fpu.tag = v.to_le_bytes()[0],
        }
    }
    #[inline(always)]
    fn load(&mut self, w: u32, va: u64) -> Exec<u64> {
        let n = u64::from(w / 8);
        if va % PAGE_SIZE > PAGE_SIZE - n {
            return self.load_across(n, va);
        }
        let at = index(self.locate_load(va, n)?);
        Ok(get_bytes(&self.bus.ram()[at..at + index(n)]))
    }
    #[inline(always)]
    fn load_for_update(&mut self, w: u32, va: u64) -> Exec<u64> {
        let n = u64::from(w / 8);
        if va % PAGE_SIZE > PAGE_SIZE - n {
            both_canonical(va, n)?;
            self.locate_write(va)?;
            self.locate_write(va.wrapping_add(n - 1))?;
            return self.load_across(n, va);
        }
        let at = index(self.locate_store(va, n)?);
        Ok(get_bytes(&self.bus.ram()[at..at + index(n)]))
    }
    #[inline(always)]
    fn store(&mut self, w: u32, va: u64, v: u64) -> Exec {
        let n = u64::from(w / 8);
        if va % PAGE_SIZE > PAGE_SIZE - n {
            return self.store_across(va, &v.to_le_bytes()[..index(n)]);
        }
        let at = index(self.locate_store(va, n)?);
        put_bytes(&mut self.bus.ram_mut()[at..at + index(n)], v);
        Ok(())
    }
    fn store_parts(&mut self, va: u64, parts: &[u64]) -> Exec {
        let mut bytes = [[0; 8]; 8];
        for (to, part) in bytes.iter_mut().zip(parts) {
            *to = part.to_le_bytes();
        }
        self.store_bytes(va, bytes[..parts.len().min(8)].as_flattened())
    }
    #[inline(always)]
    fn store_packed<const N: usize>(&mut self, va: u64, blocks: &[Block; N]) -> Exec {
        self.store_bytes(va, blocks.as_flattened())
    }
    #[inline(always)]
    fn load_packed<const N: usize>(&mut self, va: u64, blocks: &mut [Block; N]) -> Exec {
        let bytes = blocks.as_flattened_mut();
        if va % PAGE_SIZE > PAGE_SIZE - bytes.len() as u64 {
            return self.load_bytes_across(va, bytes);
        }
        let at = index(self.locate_read(va)?);
        bytes.copy_from_slice(&self.bus.ram()[at..at + bytes.len()]);
        Ok(())
    }
    fn load_parts(&mut self, va: u64, parts: &mut [u64]) -> Exec {
        let n = parts.len() * 8;
        if va % PAGE_SIZE > PAGE_SIZE - n as u64 {
            for (at, part) in (0..).step_by(8).zip(parts) {
                *part = self.load(64, va.wrapping_add(at))?;
            }
            return Ok(());
        }
        let at = index(self.locate_read(va)?);
        for (part, from) in parts.iter_mut().zip(self.bus.ram()[at..at + n].chunks_exact(8)) {
            *part = get_bytes(from);
        }
        Ok(())
    }
    fn load_if(&mut self, c: bool, w: u32, va: u64) -> Exec<u64> {
        if c { self.load(w, va) } else { Ok(0) }
    }
    fn store_if(&mut self, c: bool, w: u32, va: u64, v: u64) -> Exec {
        if c { self.store(w, va, v) } else { Ok(()) }
    }
    fn prepare_store_if(&mut self, c: bool, va: u64, bytes: u64) -> Exec {
        if c { self.prepare_store(va, bytes) } else { Ok(()) }
    }
    fn prepare_store(&mut self, va: u64, bytes: u64) -> Exec {
        both_canonical(va, bytes)?;
        let last = va.wrapping_add(bytes - 1);
        both_canonical(va, bytes)?;
        self.locate_write(va)?;
        if va / PAGE_SIZE != last / PAGE_SIZE {
            self.locate_write(last - last % PAGE_SIZE)?;
        }
        Ok(())
    }
    #[inline(always)]
    fn trap_if(&mut self, c: bool, t: Trap) -> Exec {
        if c { Err(t) } else { Ok(()) }
    }
}

/// The low 16 bits.
#[inline(always)]
fn low16(v: u64) -> u16 {
    let [a, b, ..] = v.to_le_bytes();
    u16::from_le_bytes([a, b])
}
