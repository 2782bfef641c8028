//! Whether the run ended in the core: what is compared, and what is not and why.

use super::exits::Compared;
use super::ring0::{Differing, Ring0};
use super::stage::{self, Stage};
use super::{CertificateError, Difference, DontCare, Request};
use crate::past::hypothesis::Kernel;
use crate::report::fault::stored_by_refused_call;
use iced_x86::{Instruction, RflagsBits};
use std::ops::Range;
use vmm::elfcore::Core;
use vmm::engine::EngineKind;
use x86::op::Gpr;
use x86::state::State;

/// RFLAGS bit 16, RF: set in the image that an exception pushes, so that a breakpoint does not hit twice.
const RESUME_FLAG: u64 = 1 << 16;

/// The arithmetic flags: iced's bit, the bit in RFLAGS, the name.
const FLAGS: [(u32, u64, &str); 6] = [
    (RflagsBits::CF, 1, "CF"),
    (RflagsBits::PF, 1 << 2, "PF"),
    (RflagsBits::AF, 1 << 4, "AF"),
    (RflagsBits::ZF, 1 << 6, "ZF"),
    (RflagsBits::SF, 1 << 7, "SF"),
    (RflagsBits::OF, 1 << 11, "OF"),
];

/// What the manual leaves undefined at the end of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Undefined {
    /// Bits of RFLAGS, and the address of the instruction that left each so.
    flags: [Option<u64>; 6],
    /// The same for r11 as the last system call left it, with its value.
    r11: Option<(u64, u64)>,
}

impl Undefined {
    /// Before anything ran.
    pub(super) const NOTHING: Undefined = Undefined { flags: [None; 6], r11: None };

    /// Takes in an instruction that retired.
    pub(super) fn retire(&mut self, instruction: &Instruction) {
        let (modified, undefined) = (instruction.rflags_modified(), instruction.rflags_undefined());
        for (state, (bit, _, _)) in self.flags.iter_mut().zip(FLAGS) {
            if undefined & bit != 0 {
                *state = Some(instruction.ip());
            } else if modified & bit != 0 {
                *state = None;
            }
        }
    }

    /// Takes in a system call, which copies the flags to r11.
    pub(super) fn call(&mut self, kernel: Kernel, r11: u64) {
        if kernel == Kernel::Gretel {
            self.flags = [None; 6];
        }
        self.r11 = Some((r11, self.mask()));
    }

    fn mask(&self) -> u64 {
        let undefined = self.flags.iter().zip(FLAGS).filter(|(state, _)| state.is_some());
        undefined.fold(0, |mask, (_, (_, bit, _))| mask | bit)
    }

    /// The bits of r11 that are undefined, if it still holds what the last system call left there.
    fn r11_mask(&self, r11: u64) -> u64 {
        self.r11.filter(|(value, _)| *value == r11).map_or(0, |(_, mask)| mask)
    }
}

/// Compares all registers and all memory. Gives how many bytes of memory were equal, or the first difference.
pub(super) fn with_core(
    engine: EngineKind,
    stage: &mut Stage<'_>,
    core: &Core,
    undefined: &Undefined,
) -> Result<Result<u64, Difference>, CertificateError> {
    let found = stage.state()?;
    let registers = registers(&core.state, &found, undefined);
    if let Some((what, expected, found)) =
        registers.into_iter().find(|(_, expected, found)| expected != found)
    {
        let (expected, found) = (format!("{expected:#x}"), format!("{found:#x}"));
        return Ok(Err(Difference { engine, step: None, what, expected, found }));
    }
    match stage.ring0() {
        Some(machine) => Ok(whole_machine(engine, machine, core)),
        None => Ok(memory(engine, stage.pages(), core)),
    }
}

/// Compares what a machine has beside the registers of a program: those of the system, and all of its memory.
fn whole_machine(engine: EngineKind, machine: &mut Ring0<'_>, core: &Core) -> Result<u64, Difference> {
    let different = |what: String, expected: String, found: String| Difference {
        engine,
        step: None,
        what,
        expected,
        found,
    };
    if let Some((expected, found)) = machine.differing_registers() {
        return Err(different("registers of the system".to_owned(), expected, found));
    }
    match machine.differing_memory() {
        Some(Differing { physical, expected, found }) => Err(different(
            format!("physical memory at {physical:#x}"),
            format!("{expected:#04x}"),
            format!("{found:#04x}"),
        )),
        None => Ok(core.machine.as_ref().map_or(0, |machine| machine.memory().len() as u64)),
    }
}

/// The first difference between a thread that has not the processor at the end and the core.
pub(super) fn parked(
    engine: EngineKind,
    (thread, found): (u32, &State),
    core: &Core,
    undefined: &Undefined,
) -> Option<Difference> {
    let Some(expected) = core.thread(thread) else {
        let [what, expected] = [format!("thread {thread}"), "a thread of the core".to_owned()];
        return Some(Difference { engine, step: None, what, expected, found: "none".to_owned() });
    };
    let mut registers = registers(expected, found, undefined).into_iter();
    let (what, expected, found) = registers.find(|(_, expected, found)| expected != found)?;
    let (expected, found) = (format!("{expected:#x}"), format!("{found:#x}"));
    Some(Difference { engine, step: None, what: format!("{what} of thread {thread}"), expected, found })
}

/// Each register of the core and of the run: name, expected, found.
pub(super) fn registers(core: &State, run: &State, undefined: &Undefined) -> Vec<(String, u128, u128)> {
    let mut all = vec![("rip".to_owned(), core.regs.rip.into(), run.regs.rip.into())];
    for (number, name) in Gpr::NAMES.iter().enumerate() {
        let r11 = number == usize::from(Gpr::R11.0);
        let mask = if r11 { !undefined.r11_mask(run.regs.gpr[number]) } else { u64::MAX };
        let (expected, found) = (core.regs.gpr[number] & mask, run.regs.gpr[number] & mask);
        all.push(((*name).to_owned(), expected.into(), found.into()));
    }
    let mask = !(RESUME_FLAG | undefined.mask());
    all.push(("rflags".to_owned(), (core.regs.rflags & mask).into(), (run.regs.rflags & mask).into()));
    all.push(("fs_base".to_owned(), core.regs.fs_base.into(), run.regs.fs_base.into()));
    all.push(("gs_base".to_owned(), core.regs.gs_base.into(), run.regs.gs_base.into()));
    let (expected, found) = (&core.fpu, &run.fpu);
    for (number, (expected, found)) in expected.vector.iter().zip(&found.vector).enumerate() {
        let whole = |halves: &[u64]| u128::from(halves[1]) << 64 | u128::from(halves[0]);
        for (n, (expected, found)) in expected.chunks(2).zip(found.chunks(2)).enumerate() {
            let name = match n {
                0 => format!("xmm{number}"),
                _ => format!("bits {} to {} of zmm{number}", 128 * n, 128 * n + 127),
            };
            all.push((name, whole(expected), whole(found)));
        }
    }
    for (number, (expected, found)) in expected.opmask.iter().zip(found.opmask).enumerate() {
        all.push((format!("k{number}"), (*expected).into(), found.into()));
    }
    all.push(("mxcsr".to_owned(), expected.mxcsr.into(), found.mxcsr.into()));
    all.push(("x87 control word".to_owned(), expected.control.into(), found.control.into()));
    all.push(("x87 status word".to_owned(), expected.status.into(), found.status.into()));
    all.push(("x87 tag word".to_owned(), expected.tag.into(), found.tag.into()));
    for number in (0..8).filter(|number| expected.tag >> number & 1 == 1) {
        let whole = |(significand, sign): (u64, u16)| u128::from(sign) << 64 | u128::from(significand);
        all.push((format!("x87 register {number}"), whole(expected.st[number]), whole(found.st[number])));
    }
    all
}

/// Compares the pages that were touched. The others are the core's own.
fn memory<'a>(
    engine: EngineKind,
    pages: impl Iterator<Item = (u64, &'a [u8])>,
    core: &Core,
) -> Result<u64, Difference> {
    let unreliable = stored_by_refused_call(core).unwrap_or_default();
    for (page, found) in pages {
        let mut at = 0;
        while at < found.len() {
            let va = page + at as u64;
            let known = reliable(core.bytes(va), va, &unreliable);
            let len = known.len().min(found.len() - at);
            let (expected, found) = (&known[..len], &found[at..at + len]);
            if expected != found {
                return Err(first_difference(engine, va, expected, found));
            }
            // In a page that the core holds in part, what it does not hold is passed over, and so is what is unreliable.
            at += len.max(1);
        }
    }
    Ok(stage::held(core).saturating_sub(unreliable.end - unreliable.start))
}

/// Of bytes at `va`, those in front of what is unreliable; none in it.
fn reliable<'a>(bytes: &'a [u8], va: u64, unreliable: &Range<u64>) -> &'a [u8] {
    match unreliable.is_empty() || va >= unreliable.end {
        true => bytes,
        false => {
            let before = usize::try_from(unreliable.start.saturating_sub(va)).unwrap_or(usize::MAX);
            &bytes[..bytes.len().min(before)]
        }
    }
}

/// Where bytes from `va` on, which differ, differ first.
fn first_difference(engine: EngineKind, va: u64, expected: &[u8], found: &[u8]) -> Difference {
    let at = expected.iter().zip(found).position(|(expected, found)| expected != found).unwrap_or(0);
    Difference {
        engine,
        step: None,
        what: format!("memory at {:#x}", va + at as u64),
        expected: format!("{:#04x}", expected[at]),
        found: format!("{:#04x}", found[at]),
    }
}

/// What was not compared.
pub(super) fn dont_care(
    core: &Core,
    compared: u64,
    undefined: &Undefined,
    has_signals: bool,
    records: usize,
) -> Vec<DontCare> {
    let mut list = Vec::new();
    let mut add = |what: String, why: &str| list.push(DontCare { what, why: why.to_owned() });
    for ((_, _, name), at) in FLAGS.iter().zip(undefined.flags).filter_map(|(flag, at)| Some((flag, at?))) {
        add(format!("{name} after the instruction at {at:#x}"), "the manual leaves it undefined");
    }
    if undefined.r11_mask(core.state.regs.gpr[usize::from(Gpr::R11.0)]) != 0 {
        add("flags in r11".to_owned(), "undefined when the last system call saved them");
    }
    if let Some(Range { start, end }) = stored_by_refused_call(core) {
        add(
            format!("{} bytes of memory at {start:#x}", end - start),
            "a call to an address that is not canonical has stored there on some processors",
        );
    }
    add("RF in rflags".to_owned(), "processors set it in the image that an exception pushes");
    add("address and opcode of the last x87 instruction".to_owned(), "not part of any result");
    add("contents of empty x87 registers".to_owned(), "not part of any result");
    if records > 0 {
        add(
            "of branch records: mispredictions, cycles, and types".to_owned(),
            "nothing here computes the first two, and the type is that of the instruction at its source",
        );
    }
    if has_signals {
        add(
            "of signals: who sent them, the mask, and who asked for these handlers".to_owned(),
            "the suffix has what their frames say of it",
        );
    }
    if core.machine.is_some() {
        add(
            "accessed and dirty bits in page tables that the run has walked".to_owned(),
            "they tell when a translation was looked up, not what was computed",
        );
        add(
            "the devices, the clock, and translations that the processor keeps".to_owned(),
            "what the suffix asks of them is an input, what it sends to ports is theirs, and no interrupt comes in it",
        );
        return list;
    }
    let mapped: u64 = core.segments.iter().map(|segment| segment.end.saturating_sub(segment.start)).sum();
    if mapped > compared {
        add(format!("{} bytes of mappings", mapped - compared), "the core does not hold them");
    }
    list
}

/// What of the crumbs was not compared.
pub(super) fn not_of_crumbs(request: &Request<'_>, compared: &Compared) -> Vec<DontCare> {
    let Ok(Some(crumbs)) = request.core.crumbs() else { return Vec::new() };
    let mut list = Vec::new();
    let mut add = |what: String, why: &str| list.push(DontCare { what, why: why.to_owned() });
    add(
        "of crumbs: page faults and times".to_owned(),
        "which pages were there already, and the clock, are the recorder's and not the program's",
    );
    let has_contexts = crumbs.entries.iter().any(|entry| entry.crumb.context.is_some());
    if has_contexts && request.anchors.contexts().is_none() {
        add(
            "of crumbs: contexts".to_owned(),
            "they were not asked for, or nothing is there to walk stacks by",
        );
    }
    if compared.uncounted > 0 {
        add(
            format!("of {} crumbs: how many branches were taken behind them", compared.uncounted),
            "it was not counted exactly, or something happened in between",
        );
    }
    list.extend(compared.unseen.dont_care());
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm::elfcore::Rights;
    use vmm::elfcore::write::{Area, Contents, write};

    /// Segments of cores that others wrote need not begin and end with a page.
    #[test]
    fn pages_that_the_core_holds_in_part_are_compared_in_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        let rights = Rights { read: true, write: true, execute: false };
        let area = Area { start: 0x40_0800, end: 0x40_1800, rights };
        let file = std::fs::File::create(&path).unwrap();
        write(file, &Contents::default(), &[area], &mut |_, page| {
            page.fill(7);
            true
        })
        .unwrap();
        let core = Core::open(&path).unwrap();
        let compared = |bytes: &[u8; 0x1000]| {
            let [mut first, mut second] = [[0; 0x1000]; 2];
            first[0x800..].copy_from_slice(&bytes[..0x800]);
            second[..0x800].copy_from_slice(&bytes[0x800..]);
            let pages = [(0x40_0000, &first[..]), (0x40_1000, &second[..])];
            memory(EngineKind::Soft, pages.into_iter(), &core)
        };
        let mut bytes = [7; 0x1000];
        assert_eq!(compared(&bytes), Ok(0), "no page is there in whole");
        bytes[0xfff] = 8;
        assert_eq!(compared(&bytes).unwrap_err().what, "memory at 0x4017ff");
        bytes[0] = 8;
        assert_eq!(compared(&bytes).unwrap_err().what, "memory at 0x400800");
    }
}
