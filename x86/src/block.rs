//! Straight-line runs of decoded instructions.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::bus::Bus;
use crate::cpu::Cpu;
use crate::decode::{MAX_INSTRUCTION, depends_on_the_system, differs_between_processors};
use crate::frames::{Frames, Stamp};
use crate::machine::{Handler, Last, Machine, Trap};
use crate::op::{BranchKind, Op};
use crate::origin::{Fetched, Origin};
use crate::overlong::is_too_long;
use crate::step::{self, Run, Step};
use crate::table::{self, hot};

/// Instructions in a block at most: bounds what one decode reads ahead.
const MAX_BLOCK: usize = 64;

/// The bytes of an instruction that could not be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    bytes: [u8; MAX_INSTRUCTION],
    len: u8,
}

impl Bytes {
    fn new(from: &[u8]) -> Bytes {
        let mut bytes = [0; MAX_INSTRUCTION];
        let len = from.len().min(MAX_INSTRUCTION);
        bytes[..len].copy_from_slice(&from[..len]);
        Bytes { bytes, len: u8::try_from(len).unwrap_or(0) }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The instruction that ends a block.
pub(crate) struct Ender<M: Machine> {
    pub(crate) run: Last<M>,
    pub(crate) op: Op,
    pub(crate) kind: Option<BranchKind>,
}

/// Instructions that run one after the other, all of one page but for a single one that crosses into a second.
pub(crate) struct Block<B: Bus> {
    pub(crate) steps: Arc<[Step<B>]>,
    /// The last of `steps` again, if it is not a conditional branch and does not fall through.
    pub(crate) last: Option<Ender<Cpu<B>>>,
    pub(crate) origin: Origin,
    /// The frames that the bytes came from; twice the same one unless the page boundary is crossed.
    stamps: [Stamp; 2],
    /// How often it may run before it is hot; [`crate::cache`] has the number while the block is in its front.
    pub(crate) reserve: u32,
}

impl<B: Bus> Block<B> {
    /// Whether the frames still hold what was decoded.
    pub(crate) fn is_current(&self, frames: &Frames) -> bool {
        self.stamps.iter().all(|stamp| frames.is_current(*stamp))
    }

    /// Whether this is the block of `origin` as the frames are now.
    pub(crate) fn is(&self, origin: &Origin, frames: &Frames) -> bool {
        self.origin == *origin && self.is_current(frames)
    }
}

/// Why there is no block at an address.
pub(crate) enum NoBlock {
    /// The fetch or the decoding traps there.
    Trap(Trap),
    /// A valid instruction without semantics.
    NoSemantics(Bytes),
    /// An instruction for the system side of the CPU.
    System,
}

impl Fetched {
    /// Decodes the next instruction, or says why there is none: more than 15 bytes are #GP.
    fn decode(&self, decoder: &mut Decoder<'_>) -> Result<Instruction, NoBlock> {
        let at = decoder.position();
        let i = decoder.decode();
        let rest = &self.bytes[at..];
        if !i.is_invalid() {
            return Ok(i);
        }
        // Out of bytes, not bad bytes: the fetch of the next page is what faults, or there are too many of them.
        Err(NoBlock::Trap(match self.beyond {
            Some(trap) if rest.len() < MAX_INSTRUCTION && decoder.last_error() == NO_MORE_BYTES => trap,
            _ if is_too_long(rest) => Trap::General,
            _ => Trap::Undefined,
        }))
    }
}

const NO_MORE_BYTES: iced_x86::DecoderError = iced_x86::DecoderError::NoMoreBytes;

/// What the table says of one instruction.
fn handler<M: Machine>(i: &Instruction, bytes: &[u8]) -> Result<(Handler<M>, Op), NoBlock> {
    table::lookup(i).ok_or_else(|| NoBlock::NoSemantics(Bytes::new(bytes)))
}

/// How many bits code has now.
fn bits<B: Bus>(cpu: &Cpu<B>) -> u32 {
    if cpu.narrow { 32 } else { 64 }
}

/// Decodes the one instruction at rip.
pub(crate) fn decode_one<B: Bus>(cpu: &mut Cpu<B>) -> Result<(Handler<Cpu<B>>, Op), NoBlock> {
    let rip = cpu.rip;
    let fetched = Origin::of(cpu, rip).map_err(NoBlock::Trap)?.fetch_one(cpu);
    let mut decoder = Decoder::with_ip(bits(cpu), &fetched.bytes, rip, DecoderOptions::NONE);
    let i = fetched.decode(&mut decoder)?;
    if cpu.has_system && depends_on_the_system(&i) {
        return Err(NoBlock::System);
    }
    let bytes = &fetched.bytes[..i.len()];
    if cpu.narrow {
        return table::narrow::lookup(&i).ok_or_else(|| NoBlock::NoSemantics(Bytes::new(bytes)));
    }
    handler(&i, bytes)
}

/// The instruction at rip, whatever it does; `None` where there is none.
pub(crate) fn instruction_at<B: Bus>(cpu: &mut Cpu<B>) -> Option<Instruction> {
    let rip = cpu.rip;
    let fetched = Origin::of(cpu, rip).ok()?.fetch_one(cpu);
    fetched.decode(&mut Decoder::with_ip(bits(cpu), &fetched.bytes, rip, DecoderOptions::NONE)).ok()
}

/// Decodes the block of `origin` and marks its frames as code. `steps` is empty room for it, before and behind.
pub(crate) fn decode_block<B: Bus>(
    cpu: &mut Cpu<B>,
    origin: Origin,
    steps: &mut Vec<Step<B>>,
) -> Result<Block<B>, NoBlock> {
    // No more than can be decoded: blocks are short, and pages long to copy.
    let fetched = origin.fetch(cpu, MAX_BLOCK);
    let mut decoder = Decoder::with_ip(64, &fetched.bytes, origin.rip(), DecoderOptions::NONE);
    let mut steps = Steps { all: steps, last: None, before: Instruction::default() };
    while steps.last.is_none() && steps.all.len() < MAX_BLOCK && decoder.position() < fetched.first {
        let at = decoder.position();
        let found = fetched
            .decode(&mut decoder)
            .and_then(|i| Ok((i, handler(&i, &fetched.bytes[at..at + i.len()])?)));
        let crosses = decoder.position() > fetched.first;
        match found {
            Ok(_) | Err(_) if crosses && at > 0 => break,
            Ok((i, (handler, op))) => steps.push(&i, handler, op),
            // What comes before it runs first; the failure is found again when control gets here.
            Err(_) if at > 0 => break,
            Err(e) => return Err(e),
        }
    }
    let crosses = decoder.position() > fetched.first && steps.all.len() == 1;
    let frames = origin.frames(crosses);
    for frame in frames {
        cpu.mark_code(frame);
    }
    let stamps = frames.map(|frame| cpu.frames.stamp(frame));
    Ok(Block { steps: steps.all.drain(..).collect(), last: steps.last, origin, stamps, reserve: 0 })
}

/// A block that is being made.
struct Steps<'a, B: Bus> {
    all: &'a mut Vec<Step<B>>,
    last: Option<Ender<Cpu<B>>>,
    /// The instruction of the last step.
    before: Instruction,
}

impl<B: Bus> Steps<'_, B> {
    fn push(&mut self, i: &Instruction, handler: Handler<Cpu<B>>, op: Op) {
        let run = if differs_between_processors(i) {
            Some(step::differing as Run<B>)
        } else if depends_on_the_system(i) {
            Some(step::of_system as Run<B>)
        } else {
            hot::lookup(i, &op)
        };
        let body = match handler {
            Handler::Body(body) => Some(body),
            Handler::Last(_, Some(BranchKind::Conditional)) if run.is_some() => {
                if let Some(step) = self.all.last_mut()
                    && let Some(both) = hot::with_branch(&self.before, &step.op, op.cc)
                {
                    step.run = both;
                }
                None
            }
            Handler::Last(run, kind) => {
                self.last = Some(Ender { run, op, kind });
                None
            }
        };
        self.all.push(Step { run: run.unwrap_or(step::general), body, op });
        self.before = *i;
    }
}
