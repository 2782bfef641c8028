//! What chose a constant. A value is followed over all that it is made of, and that may end at a constant of the code: how the program
//! came there is the question then, and the answer a branch, with what it compared.
//!
//! Example: `id.unwrap()` panics, since `id` is `None`. That is a zero which `Option::copied` stored, on the way of its `match` for
//! `None`; the branch of the `match` looked at what the map's lookup gave. Where a function has no such branch, its caller's is asked.
//!
//! It is only asked for where all ways of a slice end so, in small numbers: one that leads to an input has an answer. What decides that
//! an instruction is come to is told by the code of its function: one way of the branch leads to it whatever happens, the other may not.

use crate::symbols::Symbols;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vmm::engine::lookout::Lookout;
use vmm::position::Position;
use vmm::process::Process;
use vmm::replay::ReplayError;
use vmm::slice::recorded::Recorded;
use vmm::slice::{Byte, Follow, History, Made, Node, Place, Slice, Writer, slice};
use vmm::travel::Stop;
use x86::op::Gpr;

/// So many constants behind each other are gone behind.
const MOST_ROUNDS: usize = 12;
/// A slice that ends in more constants is made of too much for one of them to tell.
const MOST_ENDS: usize = 6;
/// So many callers are asked.
const DEEP: usize = 4;

/// A moment and an instruction that wrote something then.
type Written = (Position, u64);

/// What chose what was written.
enum Choice {
    /// The instruction itself: a conditional move.
    Own,
    /// A branch: when, and the bytes that it looked at.
    Branch(Position, BTreeSet<Byte>),
    /// Nothing that is known.
    Unknown,
}

/// What bytes are made of; where that is constants alone, also what chose these. The symbols are those of whatever was looked at last.
pub(super) fn slice_with_choices(
    history: &mut Recorded<'_>,
    symbols: &mut Symbols,
    asked: (Position, Place),
    bytes: &BTreeSet<Byte>,
    (follow, most): (Follow, usize),
    told: &mut dyn FnMut(usize, Position),
) -> Result<Slice<Position>, ReplayError> {
    let mut choices: BTreeMap<Written, Choice> = BTreeMap::new();
    let mut round = 0;
    loop {
        let mut knowing =
            Knowing { history, choices: &choices, conditions: follow.conditions, moves: BTreeSet::new() };
        let all = Follow { conditions: true, ..follow };
        let found = slice(&mut knowing, asked, bytes, all, most, told)?;
        let moves = knowing.moves;
        let ends = constants(&found);
        round += 1;
        if ends.is_empty() || round > MOST_ROUNDS {
            return Ok(found);
        }
        // A conditional move that chose among constants tells more than how the program came to them.
        let mut is_more = !moves.is_empty();
        choices.extend(moves.into_iter().map(|it| (it, Choice::Own)));
        for (number, node) in ends {
            let is_asked = choices.contains_key(&written(node)) || is_of_move(&found, number, &choices);
            if is_more || is_asked {
                continue;
            }
            let choice = choice(history, symbols, written(node), node.writer.place)?;
            is_more = !matches!(choice, Choice::Unknown);
            choices.insert(written(node), choice);
        }
        if !is_more {
            return Ok(found);
        }
    }
}

fn written(node: &Node<Position>) -> Written {
    (node.writer.at, node.writer.rip)
}

/// Whether it is a conditional move that took a node's value: the condition has been asked for.
fn is_of_move(slice: &Slice<Position>, number: usize, choices: &BTreeMap<Written, Choice>) -> bool {
    let mut users = slice.nodes.iter().filter(|it| it.sources.iter().any(|source| source.node == number));
    users.any(|user| matches!(choices.get(&written(user)), Some(Choice::Own)))
}

/// Whether a constant is a null pointer, a truth, an alternative's tag, an error: a number that the source has for others, too. Any other
/// one says where it comes from.
fn is_small(node: &Node<Position>) -> bool {
    let bytes = || node.writer.given.values().skip(1).map(|(value, _)| *value);
    bytes().all(|it| it == Some(0)) || bytes().all(|it| it == Some(0xff))
}

/// The ends of a slice, by number, if all of them are constants and they are few.
fn constants(slice: &Slice<Position>) -> Vec<(usize, &Node<Position>)> {
    let ends = slice.nodes.iter().enumerate();
    let ends: Vec<_> = ends.filter(|(_, it)| it.sources.is_empty() && !it.writer.moves_stack()).collect();
    let is_constant = |(_, node): &(usize, &Node<Position>)| {
        let origins = || node.writer.given.values().map(|(_, origin)| origin);
        let is_made = matches!(node.writer.made, Made::Instruction(_));
        is_made && origins().all(|it| it.value.is_empty()) && is_small(node)
    };
    if slice.cut.is_none() && ends.len() <= MOST_ENDS && ends.iter().all(is_constant) {
        ends
    } else {
        Vec::new()
    }
}

/// A history that knows what chose some constants: their values are made of that.
struct Knowing<'a, 'h> {
    history: &'a mut Recorded<'h>,
    choices: &'a BTreeMap<Written, Choice>,
    /// Other conditions are followed, too.
    conditions: bool,
    /// Conditional moves whose conditions are not.
    moves: BTreeSet<Written>,
}

impl History for Knowing<'_, '_> {
    type At = Position;
    type Error = ReplayError;

    fn values(
        &mut self,
        at: Position,
        place: Place,
        bytes: &BTreeSet<Byte>,
    ) -> Result<BTreeMap<Byte, u8>, ReplayError> {
        self.history.values(at, place, bytes)
    }

    fn writer(
        &mut self,
        at: Position,
        place: Place,
        bytes: &[Byte],
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        let Some(mut writer) = self.history.writer(at, place, bytes)? else { return Ok(None) };
        let choice = self.choices.get(&(writer.at, writer.rip));
        let is_followed = self.conditions || matches!(choice, Some(Choice::Own));
        for (_, origin) in writer.given.values_mut() {
            if !is_followed && !origin.condition.is_empty() {
                origin.condition.clear();
                self.moves.insert((writer.at, writer.rip));
            }
            if let Some(Choice::Branch(_, bytes)) = choice {
                origin.condition.extend(bytes);
            }
        }
        if let Some(Choice::Branch(at, _)) = choice {
            writer.after = *at;
        }
        Ok(Some(writer))
    }

    fn hidden_writer(
        &mut self,
        at: Position,
        place: Place,
        bytes: &[(Byte, u8)],
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        self.history.hidden_writer(at, place, bytes)
    }
}

/// The branch that led to an instruction: of the innermost call around it in which one did.
fn choice(
    history: &mut Recorded<'_>,
    symbols: &mut Symbols,
    (at, rip): Written,
    place: Place,
) -> Result<Choice, ReplayError> {
    let travel = history.travel();
    travel.seek(at)?;
    let process = travel.process();
    if (process.pid(), process.thread()) != (place.pid, place.thread) || process.cpu().regs().rip != rip {
        return Ok(Choice::Unknown);
    }
    symbols.look(process);
    let stack = symbols.backtrace(process, place.thread, DEEP);
    for (n, (frame, _)) in stack.frames.iter().enumerate() {
        let lookup = frame.lookup_address();
        let parts = symbols.parts_of(lookup);
        let travel = history.travel();
        travel.seek(at)?;
        let code = Code::of(travel.process(), &parts);
        let deciding = code.deciding(if n == 0 { frame.rip } else { code.around(lookup) });
        let (Some(entry), false) = (parts.first().map(|part| part.start), deciding.is_empty()) else {
            continue;
        };
        let caller = stack.frames.get(n + 1).map_or(u64::MAX, |(caller, _)| caller.rsp);
        let mut lookout = Lookout { at: deciding, data: Vec::new() };
        lookout.at.push(entry);
        lookout.at.sort_unstable();
        lookout.at.dedup();
        travel.follow(place.pid);
        let mut is_own = |process: &Process, _: Stop| {
            let rsp = process.cpu().regs().gpr[usize::from(Gpr::RSP.0)];
            process.thread() == place.thread && (frame.rsp..caller).contains(&rsp)
        };
        let stop = travel.backward_where(&lookout, &mut is_own)?;
        // Where this call begins, nothing in it has decided: an earlier one's branches are not its own.
        let is_branch =
            matches!(stop, Stop::Breakpoint(_)) && history.travel().process().cpu().regs().rip != entry;
        if is_branch && let Some(blame) = history.blame_branch(None)? {
            return Ok(Choice::Branch(blame.at, blame.bytes));
        }
    }
    Ok(Choice::Unknown)
}

/// The code of a function, by address.
struct Code(BTreeMap<u64, Instruction>);

impl Code {
    fn of(process: &Process, parts: &[Range<u64>]) -> Code {
        let mut all = BTreeMap::new();
        for part in parts {
            let mut code = vec![0; usize::try_from(part.end - part.start).unwrap_or(0)];
            if process.read_memory(part.start, &mut code) {
                let decoder = Decoder::with_ip(64, &code, part.start, DecoderOptions::NONE);
                all.extend(decoder.into_iter().map(|it| (it.ip(), it)));
            }
        }
        Code(all)
    }

    /// The instruction that an address is in.
    fn around(&self, address: u64) -> u64 {
        self.0.range(..=address).next_back().map_or(address, |(start, _)| *start)
    }

    /// The branches one of whose ways leads to `at` whatever happens, and the other perhaps not; and those to where a table says.
    fn deciding(&self, at: u64) -> Vec<u64> {
        let avoids = self.avoiding(at);
        let decides = |it: &Instruction| match it.flow_control() {
            FlowControl::ConditionalBranch => {
                avoids.contains(&it.next_ip()) != self.leaves_or_avoids(&avoids, it.near_branch_target())
            }
            other => other == FlowControl::IndirectBranch,
        };
        self.0.values().filter(|it| decides(it)).map(Instruction::ip).collect()
    }

    /// Whether a way to there does not lead to what is avoided: it leaves the function, or goes on in it so.
    fn leaves_or_avoids(&self, avoids: &BTreeSet<u64>, target: u64) -> bool {
        !self.0.contains_key(&target) || avoids.contains(&target)
    }

    /// From where the function can be left without coming to `at`.
    fn avoiding(&self, at: u64) -> BTreeSet<u64> {
        let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut todo = Vec::new();
        for it in self.0.values().filter(|it| it.ip() != at) {
            let mut leads = |to: u64| match self.0.contains_key(&to) {
                true => before.entry(to).or_default().push(it.ip()),
                false => todo.push(it.ip()),
            };
            match it.flow_control() {
                FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception => {
                    todo.push(it.ip());
                }
                FlowControl::UnconditionalBranch => leads(it.near_branch_target()),
                FlowControl::ConditionalBranch => {
                    leads(it.near_branch_target());
                    leads(it.next_ip());
                }
                _ => leads(it.next_ip()),
            }
        }
        let mut found = BTreeSet::new();
        while let Some(from) = todo.pop() {
            if found.insert(from) {
                todo.extend(before.get(&from).into_iter().flatten());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::*;

    const CODE: u64 = 0x40_1000;

    /// `int f(int a, int b) { if (a) g(); int r = 1; if (b) r = 0; return r; }`: the second branch alone decides that `r` becomes zero, and
    /// none that it becomes one.
    #[test]
    fn a_branch_decides_what_one_way_alone_comes_to() {
        let mut a = CodeAssembler::new(64).expect("64-bit");
        let (mut on, mut end) = (a.create_label(), a.create_label());
        let assembled = (|| {
            a.test(edi, edi)?;
            a.je(on)?;
            a.call(CODE + 0x1000)?;
            a.set_label(&mut on)?;
            a.mov(eax, 1)?;
            a.test(esi, esi)?;
            a.je(end)?;
            a.xor(eax, eax)?;
            a.set_label(&mut end)?;
            a.ret()?;
            a.assemble(CODE)
        })();
        let bytes = assembled.expect("it assembles");
        let code: Vec<Instruction> =
            Decoder::with_ip(64, &bytes, CODE, DecoderOptions::NONE).into_iter().collect();
        let all = Code(code.iter().map(|it| (it.ip(), *it)).collect());
        assert_eq!(all.deciding(code[6].ip()), [code[5].ip()], "the zero");
        assert_eq!(all.deciding(code[3].ip()), [0; 0], "the one is always written");
        assert_eq!(all.deciding(code[2].ip()), [code[1].ip()], "the call");
        assert_eq!(all.around(code[2].ip() + 1), code[2].ip());
    }
}
