//! Directed cases: of every encoding, all pairs of [`crate::edges`] as its operands, in registers and in memory
//! ([`pairs`]), and every form of address at every edge of a page ([`addresses`]).
//!
//! What does not matter for a pair is random: which registers, the immediate, masks, flags, MXCSR and x87 control.

mod addresses;
mod pairs;

use super::operands::{Operands, Pins};
use super::template::{self, decode, encode, is_fit};
use super::{Batch, STATES, has_target};
use crate::case::Case;
use crate::layout::{CODE, DATA_SIZE};
use crate::native::BATCH;
use crate::random::Random;
use iced_x86::{Code, Instruction, Mnemonic, OpCodeOperandKind, OpKind};
use x86::state::State;

/// Bytes of memory that a case has for itself.
const SLOT: usize = 64;
/// Cases that have the same instruction but for its values or its address.
const GROUP: u64 = 32;
/// Where the code is.
const IP: u64 = CODE + 0x100;

/// What is enumerated of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grid {
    /// Pairs of values, in registers.
    Registers,
    /// Pairs of values, one in memory.
    Memory,
    /// Forms and places of addresses.
    Addresses,
}

const GRIDS: [Grid; 3] = [Grid::Registers, Grid::Memory, Grid::Addresses];

/// An encoding, and how many cases each grid has.
#[derive(Clone, Copy, Debug)]
struct Encoding {
    code: Code,
    sizes: [u64; 3],
}

/// The directed cases of some mnemonics, or of all.
#[derive(Debug)]
pub struct Directed {
    encodings: Vec<Encoding>,
    /// The encoding and the grid to go on with, and the number of the next case in it.
    at: (usize, usize, u64),
    /// Of so many groups of cases one is made.
    every: u64,
}

impl Directed {
    /// Every `every`-th group of the cases of `only` (of all mnemonics that have semantics, if there are none).
    #[must_use]
    pub fn new(only: &[Mnemonic], every: u64) -> Directed {
        let groups = template::all(only);
        let codes = groups.iter().flat_map(|(_, templates)| templates.iter().map(|t| t.code));
        let encodings = codes.filter(|code| !is_left_out(*code)).map(Encoding::new).collect();
        Directed { encodings, at: (0, 0, 0), every: every.max(1) }
    }

    /// The mnemonics that are generated.
    pub fn mnemonics(&self) -> impl Iterator<Item = Mnemonic> + '_ {
        self.encodings.iter().map(|encoding| encoding.code.mnemonic())
    }

    /// The next cases, of several encodings; none at the end.
    pub fn batch(&mut self, seed: u64) -> Batch {
        let mut batch = Batch::new([0; DATA_SIZE]);
        while batch.cases.len() + STATES <= BATCH {
            let (nth, grid, number) = self.at;
            let Some(encoding) = self.encodings.get(nth) else { break };
            let group = number / GROUP;
            if number >= encoding.sizes[grid] {
                self.at = if grid + 1 < GRIDS.len() { (nth, grid + 1, 0) } else { (nth + 1, 0, 0) };
            } else if group % self.every != (nth + grid) as u64 % self.every {
                self.at.2 = (group + 1) * GROUP;
            } else {
                self.at.2 += STATES as u64;
                encoding.add(&mut batch, GRIDS[grid], number, seed);
            }
        }
        batch
    }
}

/// Gathers have many addresses, MOV of an absolute one and XLATB have no form to choose, and popped flags may hold the
/// one that traps after each instruction: random cases have them.
fn is_left_out(code: Code) -> bool {
    use OpCodeOperandKind as K;
    let is_special = |kind: &K| matches!(kind, K::mem_offs | K::seg_rBX_al | K::seg_rDI);
    let kinds = code.op_code().op_kinds();
    let is_gather = kinds.iter().any(|kind| format!("{kind:?}").contains("vsib"));
    is_gather || kinds.iter().any(is_special) || matches!(code.mnemonic(), Mnemonic::Popf | Mnemonic::Popfq)
}

impl Encoding {
    fn new(code: Code) -> Encoding {
        let sizes = GRIDS.map(|grid| match instruction(code, grid, 0, 0) {
            Some(_) if grid == Grid::Addresses => addresses::COUNT,
            Some((i, _)) => pairs::count(&i),
            None => 0,
        });
        Encoding { code, sizes }
    }

    /// Adds [`STATES`] cases, from number `number` of the grid on.
    fn add(self, batch: &mut Batch, grid: Grid, number: u64, seed: u64) {
        let Some((i, bytes)) = instruction(self.code, grid, number / GROUP, seed) else { return };
        batch.encodings.push(vec![i.code()]);
        for number in number..number + STATES as u64 {
            let random = &mut Random::new(seed ^ number, self.code as u64);
            let slot = batch.cases.len() * SLOT;
            pairs::fill(&i, number, &mut batch.image[slot..slot + SLOT]);
            let addressed = if grid == Grid::Addresses { addresses::at(random, &i, number) } else { None };
            let (mut state, code) = match addressed {
                Some(made) => made,
                None => (pairs::state(random, &i, number, slot), bytes.clone()),
            };
            state.regs.rip = IP;
            batch.cases.extend(Case::new(&code, state));
        }
    }
}

/// An instruction of the encoding that fits the grid; a memory operand is one register.
fn instruction(code: Code, grid: Grid, group: u64, seed: u64) -> Option<(Instruction, Vec<u8>)> {
    const TRIES: u64 = 64;
    (0..TRIES).find_map(|attempt| {
        let random = &mut Random::new(seed ^ group, (code as u64) << 8 | attempt);
        let mut i = Operands::new(random, &mut Pins::default(), None).instruction(code, IP)?;
        if i.op_kinds().any(|kind| kind == OpKind::Memory) == (grid == Grid::Registers) {
            return None;
        }
        if grid == Grid::Registers {
            return fit(&i);
        }
        pairs::BASES.iter().find_map(|base| {
            let is_operand = (0..i.op_count()).any(|n| i.op_register(n).full_register() == *base);
            addresses::set_plain(&mut i, *base);
            if is_operand { None } else { fit(&i) }
        })
    })
}

/// The instruction as it decodes, and its bytes, if it can be encoded and compared. A branch leads to the next one.
fn fit(i: &Instruction) -> Option<(Instruction, Vec<u8>)> {
    let (mut i, mut bytes) = (*i, encode(i, IP)?);
    if has_target(&i) {
        i.set_near_branch64(IP + bytes.len() as u64);
        bytes = encode(&i, IP)?;
    }
    let decoded = decode(&bytes, IP).filter(|decoded| is_fit(decoded, &bytes))?;
    (decoded.mnemonic() == i.mnemonic()).then_some((decoded, bytes))
}

/// A state with nothing in it but what every case needs.
fn plain_state(random: &mut Random) -> State {
    let mut state = State { fpu: crate::values::fpu(random), ..State::default() };
    for value in &mut state.regs.gpr {
        *value = crate::values::integer(random);
    }
    state.regs.rflags = crate::values::rflags(random);
    state
}
