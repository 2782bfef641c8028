//! The dynamic backward slice of a value: who wrote it, and what that was made of, back to where it entered the program.
//!
//! Example: `mov rax, [rax+0x18]` faults. The bytes of rax were copied from memory by the same instruction one round
//! before; that memory was stored to by a `strcpy`, whose bytes came from a buffer that a `read` had filled.
//!
//! [`slice`] asks a [`History`] for the last writer of some bytes, then for those of the bytes that this was made of
//! ([`x86_provenance`]), newest first. It is a thin slice (Sridharan, Fink, Bodik: "Thin Slicing", PLDI 2007): it follows
//! what a value is made of, and, if that is asked for ([`Follow`]), what told where it was found and what chose it. It is
//! exact to the byte, and of one execution: no aliases are guessed.
//!
//! [`fault`] says which bytes are to blame for a crash. [`recorded`] is the history of a recording: [`recorded::Recorded`]
//! goes back through it for stores to memory ([`memory`]) and for instructions that write a register ([`registers`]).
//! [`survey`] goes through it once for who started whom, and what went through which pipe. [`hidden`] looks for the moment
//! when bytes became what they were, where the writer that was found contradicts the value; [`moved`] are calls that copy
//! memory, [`frame`] is a signal handler's, [`stack`] knows what moves the stack pointer and says nothing of its value.

pub mod fault;
mod frame;
mod hidden;
mod memory;
mod moved;
pub mod recorded;
mod registers;
mod stack;
mod survey;

pub use hidden::shared_at;
use iced_x86::Instruction;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
pub use x86_provenance::{Byte, Origin};

/// Whose registers and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The process.
    pub pid: i32,
    /// The task.
    pub thread: i32,
}

impl Place {
    /// Whose a byte is: registers are a thread's, memory is the process's.
    fn owner(self, byte: Byte) -> i32 {
        match byte {
            Byte::Memory(_) => self.pid,
            Byte::Stream(..) => 0,
            _ => self.thread,
        }
    }
}

/// What wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// An instruction.
    Instruction(Instruction),
    /// A system call: the kernel wrote.
    Call {
        /// Its number.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
        /// Call, arguments and result as strace prints them.
        line: String,
    },
    /// An instruction that reads the machine: a time stamp, random bits.
    Machine(String),
    /// A signal, whose handler begins.
    Signal(i32),
    /// A task was started, with the registers or the memory of the one that started it.
    Started,
    /// Another program was executed.
    Executed(String),
    /// It is as the execution begins: in words, how.
    Begin(String),
    /// Something that cannot be told more closely.
    Unknown(String),
}

/// What wrote some bytes last.
#[derive(Clone, Debug)]
pub struct Writer<At> {
    /// Before it; where the kernel wrote, behind its event.
    pub at: At,
    /// What it made the bytes of was written before this.
    pub after: At,
    /// Who.
    pub place: Place,
    /// The instruction's address; of a system call, that behind it.
    pub rip: u64,
    /// What.
    pub made: Made,
    /// Those bytes that it wrote of those that were asked for: with what value, if that is known, and what they are made of.
    pub given: BTreeMap<Byte, (Option<u8>, Origin)>,
    /// Whose bytes those are that these are made of.
    pub from: Place,
    /// What those were then, as far as that is known: whoever is found to have written them must have written that.
    pub uses: BTreeMap<Byte, u8>,
}

/// An execution, as far as it can be asked for writers.
pub trait History {
    /// A moment.
    type At: Copy + Ord + Hash + Debug;
    /// Why it cannot be told.
    type Error;

    /// What bytes are at a moment, as far as that is known.
    ///
    /// # Errors
    /// When the execution cannot be looked at.
    fn values(
        &mut self,
        at: Self::At,
        place: Place,
        bytes: &BTreeSet<Byte>,
    ) -> Result<BTreeMap<Byte, u8>, Self::Error>;

    /// The last thing before `at` that wrote any of these bytes: all of one register, of memory, or of one stream. `None` where
    /// somebody wants it to stop.
    ///
    /// # Errors
    /// When the execution cannot be looked at.
    fn writer(
        &mut self,
        at: Self::At,
        place: Place,
        bytes: &[Byte],
    ) -> Result<Option<Writer<Self::At>>, Self::Error>;

    /// Who made bytes of memory what they are at a moment, where the last writer that is seen wrote something else: under another address,
    /// from another process, as a call that is not seen to write. `None` where that cannot be told either.
    ///
    /// # Errors
    /// When the execution cannot be looked at.
    fn hidden_writer(
        &mut self,
        _at: Self::At,
        _place: Place,
        _bytes: &[(Byte, u8)],
    ) -> Result<Option<Writer<Self::At>>, Self::Error> {
        Ok(None)
    }
}

/// What a byte is to the one that it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Its value is computed from it.
    Value,
    /// It told where that is in memory.
    Address,
    /// It chose it.
    Condition,
}

/// What is followed besides values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Follow {
    /// Addresses.
    pub addresses: bool,
    /// Conditions.
    pub conditions: bool,
}

/// One step of a slice.
#[derive(Clone, Debug)]
pub struct Node<At> {
    /// What wrote; `given` has all bytes that were asked for.
    pub writer: Writer<At>,
    /// What they are made of, and which nodes wrote that.
    pub sources: BTreeSet<Source>,
}

/// An edge of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// The number of the node that wrote it.
    pub node: usize,
    /// What it is.
    pub byte: Byte,
    /// To what end.
    pub role: Role,
}

/// Why a slice has an end that is not that of the value's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It has as many nodes as were asked for.
    Nodes,
    /// Somebody wanted it to stop.
    Asked,
}

/// A slice: a graph without circles, whose nodes are in order, the newest first.
#[derive(Clone, Debug)]
pub struct Slice<At> {
    /// The nodes.
    pub nodes: Vec<Node<At>>,
    /// Those that wrote what was asked for.
    pub roots: BTreeSet<Source>,
    /// What was not followed any more, if so.
    pub cut: Option<Cut>,
}

/// A question that is open.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ask<At> {
    at: At,
    place: Place,
    bytes: Vec<Byte>,
    /// Which nodes want to know (`None`: the question itself), and to what end.
    by: BTreeSet<(Option<usize>, Role)>,
    /// What the bytes are then, as far as that is known.
    values: Vec<Option<u8>>,
}

/// What is made when, by whom, at which address: there is one node of it.
type Key<At> = (At, Place, u64, u8);

struct Slicer<'a, H: History> {
    history: &'a mut H,
    follow: Follow,
    open: BinaryHeap<Ask<H::At>>,
    slice: Slice<H::At>,
    /// How many of its nodes only move the stack pointer.
    moves: usize,
    numbers: HashMap<Key<H::At>, usize>,
    known: HashMap<(i32, Byte), Vec<Known<H::At>>>,
}

/// Of a byte: when it was written, until when it is known to have stayed so, and the node that wrote it.
type Known<At> = (At, At, usize);

/// The slice of some bytes as they are at a moment, of at most so many nodes, and as many again that only move the stack pointer: each
/// call and return has one, and they are not to take the place of what the value was made of. `progress` is told how many there are, and
/// of when the next question is.
///
/// # Errors
/// When the execution cannot be looked at.
pub fn slice<H: History>(
    history: &mut H,
    (at, place): (H::At, Place),
    bytes: &BTreeSet<Byte>,
    follow: Follow,
    most: usize,
    progress: &mut dyn FnMut(usize, H::At),
) -> Result<Slice<H::At>, H::Error> {
    let uses = history.values(at, place, bytes)?;
    let slice = Slice { nodes: Vec::new(), roots: BTreeSet::new(), cut: None };
    let mut slicer = Slicer {
        history,
        follow,
        open: BinaryHeap::new(),
        slice,
        moves: 0,
        numbers: HashMap::new(),
        known: HashMap::new(),
    };
    slicer.ask((at, place), bytes, &uses, (None, Role::Value));
    while let Some(mut ask) = slicer.open.pop() {
        while let Some(same) = slicer.open.peek().filter(|it| is_same(it, &ask)) {
            ask.by.extend(&same.by);
            slicer.open.pop();
        }
        if slicer.slice.nodes.len() - slicer.moves >= most {
            slicer.slice.cut = Some(Cut::Nodes);
            break;
        }
        if slicer.moves >= most && ask.bytes.iter().all(|byte| stack::is_pointer(*byte)) {
            slicer.slice.cut = Some(Cut::Nodes);
            continue;
        }
        progress(slicer.slice.nodes.len(), ask.at);
        if !slicer.answer(ask)? {
            slicer.slice.cut = Some(Cut::Asked);
            break;
        }
    }
    Ok(slicer.finish())
}

fn is_same<At: PartialEq>(a: &Ask<At>, b: &Ask<At>) -> bool {
    (&a.at, a.place, &a.bytes) == (&b.at, b.place, &b.bytes)
}

impl<H: History> Slicer<'_, H> {
    /// Opens questions after bytes: one for each register, and each stretch of memory.
    fn ask(
        &mut self,
        (at, place): (H::At, Place),
        bytes: &BTreeSet<Byte>,
        uses: &BTreeMap<Byte, u8>,
        by: (Option<usize>, Role),
    ) {
        let mut groups: Vec<Vec<Byte>> = Vec::new();
        for byte in bytes {
            match groups.last_mut() {
                Some(group) if group.last().is_some_and(|last| belong(*last, *byte)) => group.push(*byte),
                _ => groups.push(vec![*byte]),
            }
        }
        let by = BTreeSet::from([by]);
        self.open.extend(groups.into_iter().map(|bytes| {
            let values = bytes.iter().map(|byte| uses.get(byte).copied()).collect();
            Ask { at, place, bytes, by: by.clone(), values }
        }));
    }

    /// Finds who wrote; false if it is to stop.
    fn answer(&mut self, ask: Ask<H::At>) -> Result<bool, H::Error> {
        let Ask { at, place, bytes, by, values } = ask;
        let mut left: Vec<(Byte, Option<u8>)> = Vec::new();
        for (byte, value) in bytes.into_iter().zip(values) {
            match self.known_writer(at, place, byte) {
                Some(number) if self.is_so(number, byte, value) => self.link(&by, number, byte),
                _ => left.push((byte, value)),
            }
        }
        if left.is_empty() {
            return Ok(true);
        }
        let asked: Vec<Byte> = left.iter().map(|(byte, _)| *byte).collect();
        let Some(mut writer) = self.history.writer(at, place, &asked)? else { return Ok(false) };
        let wrong = refute(&mut writer, &left);
        self.take_hidden(&writer, wrong, (at, place), &by)?;
        let (before, given) = (writer.at, writer.given.clone());
        if !given.is_empty() {
            self.take(writer, at, place, &by);
        }
        left.retain(|(byte, _)| !given.contains_key(byte) && !self.is_linked(at, place, *byte));
        if !left.is_empty() {
            let (bytes, values) = left.into_iter().unzip();
            self.open.push(Ask { at: before, place, bytes, by, values });
        }
        Ok(true)
    }

    /// Takes over who else wrote bytes that were not what the last writer that is seen made them.
    fn take_hidden(
        &mut self,
        seen: &Writer<H::At>,
        mut wrong: Vec<(Byte, u8, u8)>,
        (at, place): (H::At, Place),
        by: &BTreeSet<(Option<usize>, Role)>,
    ) -> Result<(), H::Error> {
        while !wrong.is_empty() {
            let used: Vec<(Byte, u8)> = wrong.iter().map(|(byte, _, value)| (*byte, *value)).collect();
            let hidden = self.history.hidden_writer(at, place, &used)?;
            let Some(hidden) = hidden.filter(|it| used.iter().any(|(byte, _)| it.given.contains_key(byte)))
            else {
                self.take(lost(seen, wrong), at, place, by);
                return Ok(());
            };
            wrong.retain(|(byte, ..)| !hidden.given.contains_key(byte));
            self.take(hidden, at, place, by);
        }
        Ok(())
    }

    /// Takes over what wrote the bytes that it gives, and asks on.
    fn take(&mut self, writer: Writer<H::At>, at: H::At, place: Place, by: &BTreeSet<(Option<usize>, Role)>) {
        let (before, given) = (writer.at, writer.given.clone());
        let number = self.number(writer);
        // What the bytes are made of is asked for at once: eight bytes of a register are one search, not eight.
        let mut all = Origin::default();
        for (byte, (_, origin)) in given {
            self.known.entry((place.owner(byte), byte)).or_default().push((before, at, number));
            self.link(by, number, byte);
            all.value.extend(origin.value);
            all.address.extend(origin.address);
            all.condition.extend(origin.condition);
        }
        self.expand(number, &all);
    }

    /// Whether a byte of this question has been answered.
    fn is_linked(&self, at: H::At, place: Place, byte: Byte) -> bool {
        let all = self.known.get(&(place.owner(byte), byte));
        all.is_some_and(|all| all.iter().any(|(_, asked, _)| *asked == at))
    }

    /// Whether a node wrote this, as far as that is known.
    fn is_so(&self, number: usize, byte: Byte, value: Option<u8>) -> bool {
        let given = self.slice.nodes[number].writer.given.get(&byte).and_then(|(value, _)| *value);
        given.zip(value).is_none_or(|(given, value)| given == value)
    }

    fn known_writer(&self, at: H::At, place: Place, byte: Byte) -> Option<usize> {
        let all = self.known.get(&(place.owner(byte), byte))?;
        all.iter().find(|(written, asked, _)| *written < at && at <= *asked).map(|(.., number)| *number)
    }

    fn link(&mut self, by: &BTreeSet<(Option<usize>, Role)>, node: usize, byte: Byte) {
        for (who, role) in by {
            let source = Source { node, byte, role: *role };
            match who {
                Some(who) => self.slice.nodes[*who].sources.insert(source),
                None => self.slice.roots.insert(source),
            };
        }
    }

    /// The number of what wrote; it takes over what is given now.
    fn number(&mut self, writer: Writer<H::At>) -> usize {
        let kind = match &writer.made {
            Made::Instruction(_) => 0,
            Made::Begin(_) => 1,
            Made::Unknown(_) => 4,
            Made::Started => 2,
            _ => 3,
        };
        let key = (writer.at, writer.place, writer.rip, kind);
        if let Some(number) = self.numbers.get(&key) {
            let known = &mut self.slice.nodes[*number].writer;
            known.given.extend(writer.given);
            known.uses.extend(writer.uses);
            return *number;
        }
        let number = self.slice.nodes.len();
        self.numbers.insert(key, number);
        self.moves += usize::from(writer.moves_stack());
        self.slice.nodes.push(Node { writer, sources: BTreeSet::new() });
        number
    }

    /// Asks for what a byte is made of.
    fn expand(&mut self, number: usize, origin: &Origin) {
        let Writer { after: at, from, .. } = self.slice.nodes[number].writer;
        let uses = self.slice.nodes[number].writer.uses.clone();
        self.ask((at, from), &origin.value, &uses, (Some(number), Role::Value));
        if self.follow.addresses {
            self.ask((at, from), &origin.address, &uses, (Some(number), Role::Address));
        }
        if self.follow.conditions {
            self.ask((at, from), &origin.condition, &uses, (Some(number), Role::Condition));
        }
    }

    /// The slice, its nodes in order.
    fn finish(self) -> Slice<H::At> {
        let Slice { nodes, roots, cut } = self.slice;
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|number| std::cmp::Reverse((nodes[*number].writer.at, usize::MAX - number)));
        let mut places = vec![0; nodes.len()];
        for (place, number) in order.iter().enumerate() {
            places[*number] = place;
        }
        let moved = |sources: &BTreeSet<Source>| {
            sources.iter().map(|source| Source { node: places[source.node], ..*source }).collect()
        };
        let mut sorted: Vec<Option<Node<H::At>>> = nodes
            .into_iter()
            .map(|node| Some(Node { sources: moved(&node.sources), writer: node.writer }))
            .collect();
        let nodes = order.into_iter().filter_map(|number| sorted[number].take()).collect();
        Slice { nodes, roots: moved(&roots), cut }
    }
}

/// Takes out of what is given the bytes that were not so when they were used, and gives them: something else has written them since.
fn refute<At>(writer: &mut Writer<At>, asked: &[(Byte, Option<u8>)]) -> Vec<(Byte, u8, u8)> {
    let mut wrong = Vec::new();
    for (byte, value) in asked {
        let given = writer.given.get(byte).and_then(|(given, _)| *given);
        if let Some((given, value)) = given.zip(*value).filter(|(given, value)| given != value) {
            writer.given.remove(byte);
            wrong.push((*byte, given, value));
        }
    }
    wrong
}

/// What is said of such bytes.
fn lost<At: Copy>(writer: &Writer<At>, wrong: Vec<(Byte, u8, u8)>) -> Writer<At> {
    let (_, given, value) = wrong[0];
    let why = format!(
        "what was found last wrote {given:#x}, and it was {value:#x} when it was used: something wrote it that cannot be seen"
    );
    Writer {
        at: writer.at,
        after: writer.at,
        place: writer.place,
        rip: writer.rip,
        made: Made::Unknown(why),
        given: wrong.into_iter().map(|(byte, _, value)| (byte, (Some(value), Origin::default()))).collect(),
        from: writer.from,
        uses: BTreeMap::new(),
    }
}

/// Whether a byte comes right behind another in the same register, in memory or in a stream.
#[must_use]
pub fn belong(before: Byte, byte: Byte) -> bool {
    match (before, byte) {
        (Byte::Memory(before), Byte::Memory(byte)) => before.checked_add(1) == Some(byte),
        (Byte::Stream(a, before), Byte::Stream(b, byte)) => a == b && before.checked_add(1) == Some(byte),
        (Byte::General(a, n), Byte::General(b, m))
        | (Byte::Vector(a, n), Byte::Vector(b, m))
        | (Byte::Mask(a, n), Byte::Mask(b, m))
        | (Byte::X87(a, n), Byte::X87(b, m))
        | (Byte::Base(a, n), Byte::Base(b, m))
        | (Byte::Control(a, n), Byte::Control(b, m)) => a == b && n + 1 == m,
        (Byte::System(n), Byte::System(m)) => n + 1 == m,
        _ => false,
    }
}
