//! What values are read from: a thread of the program where it stands, with its stack. For an editor ([`crate::dap`]), and for who
//! names bytes by an expression ([`crate::named`]).

use crate::symbols::Symbols;
use crate::values::{Frame, Function, Info, Lines, Variable, World};
use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use vmm::elfcore::AT_ENTRY;
use vmm::elfcore::unwind::{Backtrace, FoundBy};
use vmm::process::Process;
use x86::state::Fpu;

/// Frames that are looked at at once: of a stack that is deeper, the innermost.
const MOST_FRAMES: usize = 10_000;
/// So many frames are enough for a value of the innermost.
const FEW_FRAMES: usize = 3;
/// Registers by DWARF number.
const DWARF_RBP: u16 = 6;
const DWARF_RSP: u16 = 7;

/// A module's name and where it is.
type Module = (String, u64);

/// Symbols, of its own or another's, debug information and line tables of the program, kept for the next question.
pub(crate) struct Known<S = Symbols> {
    pub(crate) symbols: S,
    /// The program's entry point, which tells it from its libraries.
    entry: Option<u64>,
    infos: RefCell<HashMap<Module, Option<Rc<Info>>>>,
    lines: RefCell<Vec<(Rc<Info>, Rc<Lines>)>>,
    /// How the stack pointer before the call is found, by address, as far as it was asked for.
    rules: RefCell<HashMap<u64, Option<(u16, i64)>>>,
    functions: RefCell<HashMap<u64, Rc<Vec<Function>>>>,
}

impl Known {
    /// Takes what is loaded now.
    pub(crate) fn look(&mut self, process: &Process) {
        self.symbols.look(process);
        // Something else may be loaded at these addresses now.
        self.rules.borrow_mut().clear();
        self.functions.borrow_mut().clear();
        self.entry = entry_point(process);
    }
}

impl<'a> Known<&'a Symbols> {
    /// Of symbols that have looked at the process.
    pub(crate) fn of(process: &Process, symbols: &'a Symbols) -> Known<&'a Symbols> {
        Known { entry: entry_point(process), ..Known::new(symbols) }
    }
}

impl<S: Borrow<Symbols>> Known<S> {
    /// Those of no process yet.
    pub(crate) fn new(symbols: S) -> Known<S> {
        Known {
            symbols,
            entry: None,
            infos: RefCell::default(),
            lines: RefCell::default(),
            rules: RefCell::default(),
            functions: RefCell::default(),
        }
    }

    fn symbols(&self) -> &Symbols {
        self.symbols.borrow()
    }

    /// The debug information of the module that an address is in.
    pub(crate) fn info(&self, address: u64) -> Option<Rc<Info>> {
        let module = self.symbols().module_at(address)?;
        let mut infos = self.infos.borrow_mut();
        let info = infos.entry((module.path().to_owned(), module.bias())).or_insert_with(|| {
            let is_program = self.entry.is_some_and(|entry| module.names().extent().contains(&entry));
            let thread_local = module.thread_local().filter(|_| is_program);
            let info = Info::new(Arc::clone(module.dwarf()?), module.bias(), thread_local);
            Some(Rc::new(info.of_file(Path::new(module.path()))))
        });
        info.clone()
    }

    /// That of all modules.
    pub(crate) fn infos(&self) -> Vec<Rc<Info>> {
        let starts = self.symbols().modules().iter().map(|module| module.names().extent().start);
        starts.filter_map(|start| self.info(start)).collect()
    }

    /// That of the program itself, without its libraries.
    pub(crate) fn program(&self) -> Option<Rc<Info>> {
        self.info(self.entry?)
    }

    /// The compiled function at an address, by its lines.
    pub(crate) fn lines(&self, address: u64) -> Option<Rc<Lines>> {
        let info = self.info(address)?;
        let covers = |lines: &Lines| lines.ranges.iter().any(|range| range.contains(&address));
        let known = self.lines.borrow().iter().find(|(of, it)| Rc::ptr_eq(of, &info) && covers(it)).cloned();
        if let Some((_, lines)) = known {
            return Some(lines);
        }
        let lines = Rc::new(Lines::at(&info, address)?);
        self.lines.borrow_mut().push((info, Rc::clone(&lines)));
        Some(lines)
    }

    /// The functions of the source at an address, the innermost inlined one first.
    pub(crate) fn functions(&self, pc: u64) -> Rc<Vec<Function>> {
        let find = || Rc::new(self.info(pc).map(|info| Function::at(&info, pc)).unwrap_or_default());
        Rc::clone(self.functions.borrow_mut().entry(pc).or_insert_with(find))
    }

    /// The stack pointer before the innermost frame of a thread was called, which tells its frames apart.
    pub(crate) fn cfa(&self, process: &Process, thread: i32) -> Option<u64> {
        if thread == process.thread() {
            // The way of almost all hits of a step, which are many.
            let regs = process.cpu().regs();
            let mut rules = self.rules.borrow_mut();
            match rules.entry(regs.rip).or_insert_with(|| self.symbols().cfa_rule(regs.rip)) {
                Some((DWARF_RSP, offset)) => return Some(regs.gpr[4].wrapping_add_signed(*offset)),
                Some((DWARF_RBP, offset)) => return Some(regs.gpr[5].wrapping_add_signed(*offset)),
                _ => {}
            }
        }
        let stack = self.symbols().walk(process, thread, 2)?;
        stack.frames.get(1).filter(|frame| frame.by != FoundBy::Signal).map(|frame| frame.rsp)
    }

    /// The name of a function at an address, with the distance from its beginning.
    fn name(&self, address: u64) -> Option<String> {
        let function = self.symbols().module_at(address)?.names().function_at(address)?;
        let name = synth::program::readable(&function.name);
        Some(match address - function.start {
            0 => name,
            offset => format!("{name}+{offset:#x}"),
        })
    }
}

/// A thread of the program where it stands.
pub(crate) struct Sight<'a, S = Symbols> {
    process: &'a Process,
    known: &'a Known<S>,
    thread: i32,
    fpu: Option<Fpu>,
    stack: RefCell<Stack>,
}

/// A stack, as far as it was walked.
#[derive(Default)]
struct Stack {
    asked: usize,
    frames: Vec<Frame>,
    stopped: Option<String>,
}

impl<'a, S: Borrow<Symbols>> Sight<'a, S> {
    /// A thread. Without `fpu`, nothing is known of vector registers.
    pub(crate) fn new(
        process: &'a Process,
        known: &'a Known<S>,
        thread: i32,
        fpu: Option<Fpu>,
    ) -> Sight<'a, S> {
        Sight { process, known, thread, fpu, stack: RefCell::default() }
    }

    /// The function of the source that is innermost in a frame.
    pub(crate) fn function(&self, frame: usize, level: usize) -> Option<Function> {
        let pc = self.frame(frame)?.pc;
        self.known.functions(pc).get(level).cloned()
    }

    /// All of them, the innermost first; `None` where there is no such frame.
    pub(crate) fn functions(&self, frame: usize) -> Option<Rc<Vec<Function>>> {
        Some(self.known.functions(self.frame(frame)?.pc))
    }

    /// Whether the source file that a frame is in has a variable of this name outside its functions.
    pub(crate) fn is_of_unit(&self, frame: usize, name: &str) -> bool {
        let pc = self.frame(frame).map(|frame| frame.pc);
        let info = pc.and_then(|pc| Some((self.known.info(pc)?, pc)));
        info.is_some_and(|(info, pc)| Variable::is_of_unit(&info, pc, name))
    }

    /// Whether a frame is in the program itself, and not in a library.
    pub(crate) fn is_in_program(&self, frame: usize) -> bool {
        let info = self.frame(frame).and_then(|frame| self.known.info(frame.pc));
        info.zip(self.known.program()).is_some_and(|(info, program)| Rc::ptr_eq(&info, &program))
    }

    /// All frames, and why there are no more.
    pub(crate) fn frames(&self, most: usize) -> (Vec<Frame>, Option<String>) {
        self.walk(most.min(MOST_FRAMES));
        let stack = self.stack.borrow();
        (stack.frames.clone(), stack.stopped.clone())
    }

    /// Walks the stack at least so far.
    fn walk(&self, most: usize) {
        if self.stack.borrow().asked >= most {
            return;
        }
        let walked = self.known.symbols().walk(self.process, self.thread, most);
        let Backtrace { frames, stopped } = walked.unwrap_or(Backtrace { frames: Vec::new(), stopped: None });
        let other = self.process.other_threads().find(|(id, _)| *id == self.thread).map(|(_, state)| *state);
        let fs_base = other.map_or_else(|| self.process.cpu().regs().fs_base, |state| state.regs.fs_base);
        let fpu = other.map(|state| state.fpu).or(self.fpu);
        let all = frames.iter().enumerate().map(|(n, frame)| {
            let caller = frames.get(n + 1);
            // A signal handler returns to the beginning of a function that nobody called.
            let restores = caller.is_some_and(|caller| caller.by == FoundBy::Signal);
            Frame {
                rip: frame.rip,
                pc: if restores { frame.rip } else { frame.lookup_address() },
                cfa: caller.filter(|_| !restores).map(|caller| caller.rsp),
                general: frame.registers,
                vector: fpu.filter(|_| n == 0).map(|fpu| std::array::from_fn(|n| low_half(&fpu, n))),
                fs_base,
            }
        });
        *self.stack.borrow_mut() = Stack { asked: most, frames: all.collect(), stopped };
    }
}

fn low_half(fpu: &Fpu, n: usize) -> u128 {
    let [low, high] = fpu.xmm(n);
    u128::from(high) << 64 | u128::from(low)
}

impl<S: Borrow<Symbols>> World for Sight<'_, S> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.process.read_memory(address, bytes)
    }

    fn frame(&self, n: usize) -> Option<Frame> {
        // One more, which has this one's CFA.
        self.walk(FEW_FRAMES.max(if n + 2 > FEW_FRAMES { MOST_FRAMES } else { 0 }));
        self.stack.borrow().frames.get(n).cloned()
    }

    fn info(&self, address: u64) -> Option<Rc<Info>> {
        self.known.info(address)
    }

    fn infos(&self) -> Vec<Rc<Info>> {
        self.known.infos()
    }

    fn name(&self, address: u64) -> Option<String> {
        self.known.name(address)
    }
}

/// The program's entry point, behind its loader.
pub(crate) fn entry_point(process: &Process) -> Option<u64> {
    process.auxv().into_iter().find(|(kind, _)| *kind == AT_ENTRY).map(|(_, entry)| entry)
}
