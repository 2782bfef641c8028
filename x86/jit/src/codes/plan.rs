//! How a region is found in the guest's code, and what becomes of it: its plan, which waits until the code is compiled.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use x86::bus::Bus;
use x86::cpu::{CodePage, Cpu};
use x86::decode::{depends_on_the_system, differs_between_processors};
use x86::interpreter::Interpreter;
use x86::machine::{Control, Handler, Machine};
use x86::opaque::SSE_MODE;
use x86::table;

use super::Codes;
use crate::floats::DEFAULT_MXCSR;
use crate::kept::Source;
use crate::native::outcall_entry;
use crate::outcall::{Does, Outcall, Outcalls};
use crate::region::{self, How, Region, Sought};
use crate::spans::Reach;

/// What becomes of a region: everything but its code, which is compiled elsewhere.
pub(crate) struct Plan<B: Bus> {
    pub(super) head: u64,
    pub(super) pages: Vec<CodePage>,
    /// Where its instructions begin, in order.
    pub(super) addresses: Vec<u64>,
    /// The state in which its code is left; the code is of no use but for that search.
    pub(super) sought: Option<Sought>,
    /// How many of its instructions look around bytes that are watched.
    pub(super) around: usize,
    /// What its code calls: it has their addresses.
    pub(super) outcalls: Outcalls<B>,
    /// What it was made from, if its code is to be kept.
    pub(super) source: Option<Source>,
}

impl<B: Bus> Plan<B> {
    /// Whether it is for the code at `rip`.
    pub(crate) fn begins_at(&self, rip: u64) -> bool {
        self.head == rip
    }
}

/// The code of a guest as regions are found in it, and what is noted meanwhile.
struct Guest<'i, B: Bus> {
    interpreter: &'i mut Interpreter<B>,
    codes: &'i Codes<B>,
    pages: Vec<CodePage>,
}

/// The region of the block at `head`, for the search of now if it comes by where that is for. Without one the plan is for the
/// knowledge of that.
pub(crate) fn plan<B: Bus>(
    interpreter: &mut Interpreter<B>,
    codes: &Codes<B>,
    head: u64,
) -> (Plan<B>, Option<Region>) {
    let mut guest = Guest { interpreter, codes, pages: Vec::new() };
    let mut region = Region::find(head, &mut guest, codes.sought);
    let Guest { pages, .. } = guest;
    let called = region.as_mut().map_or_else(Vec::new, Region::number_outcalls);
    let mut outcalls = Outcalls::new();
    called.iter().filter_map(outcall).for_each(|outcall| outcalls.add(outcall));
    let addresses = region.as_ref().map_or_else(Vec::new, Region::addresses);
    let sought = region.as_ref().and_then(|region| region.sought);
    let around = codes.left_for_watched.among(&addresses);
    let is_kept = |region: &&Region| region.sought.is_none() && around == 0;
    let to_keep = region.as_ref().filter(|region| codes.kept.is_some() && is_kept(region));
    let source = to_keep.and_then(|region| source(interpreter.cpu_mut(), region, &called));
    (Plan { head, pages, addresses, sought, around, outcalls, source }, region)
}

/// What a region is made from, as it is now, with the instructions that the CPU runs.
fn source<B: Bus>(cpu: &mut Cpu<B>, region: &Region, called: &[Instruction]) -> Option<Source> {
    let mut parts = region.parts();
    // The page of the first instruction is what the region is known by.
    let first = parts.iter().position(|part| part.contains(&region.head))?;
    parts.swap(0, first);
    let parts = parts.into_iter().map(|part| {
        let length = usize::try_from(part.end - part.start).ok()?;
        let (_, bytes) = cpu.code_page(part.start)?;
        Some((part.start, bytes.get(..length)?.to_vec()))
    });
    let parts = parts.collect::<Option<_>>()?;
    Some(Source {
        parts,
        addresses: region.addresses(),
        outcalls: called.iter().map(Instruction::ip).collect(),
    })
}

/// The plan of the region at `head` that was made from `source`, if that is what the guest has now.
pub(super) fn plan_of<B: Bus>(cpu: &mut Cpu<B>, head: u64, source: &Source) -> Option<Plan<B>> {
    let mut pages = Vec::new();
    for (start, bytes) in &source.parts {
        let (page, now) = cpu.code_page(*start)?;
        if now.get(..bytes.len())? != bytes {
            return None;
        }
        if !pages.contains(&page) {
            pages.push(page);
        }
    }
    let mut outcalls = Outcalls::new();
    for rip in &source.outcalls {
        let i = Decoder::with_ip(64, &source.instruction(*rip), *rip, DecoderOptions::NONE).decode();
        outcalls.add(outcall(&i)?);
    }
    let addresses = source.addresses.clone();
    Some(Plan { head, pages, addresses, sought: None, around: 0, outcalls, source: None })
}

/// An instruction for the CPU to run; `None` for one that the interpreter asks whether it is to run at all, and for what ends a block.
fn outcall<B: Bus>(i: &Instruction) -> Option<Outcall<B>> {
    if differs_between_processors(i) {
        return None;
    }
    let (handler, op) = table::lookup::<Cpu<B>>(i)?;
    let does = match handler {
        Handler::Body(body) => Does::Body(body),
        Handler::Last(iteration, None) if i.is_string_instruction() => Does::String(iteration),
        Handler::Last(..) => return None,
    };
    Some(Outcall::new(outcall_entry::<B>(), i, does, op))
}

impl<B: Bus> Guest<'_, B> {
    /// Whether there is code for floats: for a program that rounds otherwise, or has denormals be zero, it would be left each time.
    fn has_default_modes(&self) -> bool {
        self.interpreter.cpu().control(Control::Mxcsr) & SSE_MODE == DEFAULT_MXCSR
    }
}

impl<B: Bus> region::Code for Guest<'_, B> {
    fn bytes(&mut self, rip: u64) -> Option<Vec<u8>> {
        let (page, bytes) = self.interpreter.cpu_mut().code_page(rip)?;
        let bytes = bytes.to_vec();
        if !self.pages.contains(&page) {
            self.pages.push(page);
        }
        Some(bytes)
    }

    fn is_warm(&mut self, rip: u64) -> bool {
        self.interpreter.is_warm(rip)
    }

    fn reach(&self, rip: u64) -> Reach {
        // The bytes that are watched may be among those that are looked up with others.
        if self.looks_around(rip) { Reach::Alone } else { self.codes.spread.reach(rip) }
    }

    fn looks_around(&self, rip: u64) -> bool {
        self.codes.left_for_watched.looks_around(rip)
    }

    fn how(&mut self, i: &Instruction) -> Option<How> {
        if self.interpreter.cpu().has_system() && depends_on_the_system(i) {
            return None;
        }
        match table::lookup_integer::<Cpu<B>>(i) {
            Some((Handler::Last(_, None), _)) if !i.is_string_instruction() => return None,
            Some((Handler::Last(_, None), _)) => {}
            Some(_) => return Some(How::Inline),
            None => {}
        }
        if table::lookup_compiled::<Cpu<B>>(i).is_some_and(|it| !it.is_float || self.has_default_modes()) {
            return Some(How::Inline);
        }
        outcall::<B>(i).map(|_| How::Outcall(0))
    }
}
