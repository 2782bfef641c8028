//! From a region to a function of Cranelift: the semantics of its instructions run on a machine that writes code.
//!
//! Registers are values within a run and lie in the CPU between runs. Each instruction begins with what was known before it
//! ([`Translator::before`]): where it cannot be done (its page has no cached translation, a condition of a trap holds) the code is
//! left with that, as if it had not begun, and the interpreter runs it. That is always right, because the semantics does what may
//! fail first and writes last.
//!
//! Ways out of a run are written when all runs are ([`crate::exits`]), since what they have to leave behind of the flags depends
//! on what the run they lead to asked for.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, Block, Function, InstBuilder, Signature, Value, types};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use iced_x86::Instruction;
use std::cell::RefCell;
use x86::flags::Flags;
use x86::machine::{Flow, Handler};
use x86::opaque::SSE_MODE;
use x86::table::{Compiled, lookup_compiled};

use crate::clif::{Bool, Bv, Clif, Two, own};
use crate::context::{Why, at};
use crate::exits::{Exit, Need, To};
use crate::flags::mention_stored;
use crate::floats::DEFAULT_MXCSR;
use crate::memory::{Checked, Reached};
use crate::outcall;
use crate::region::{How, Region, Run, Step};
use crate::spans::{Reach, Spans};
use crate::vectors;

/// What compiled code is at a moment, of the CPU.
#[derive(Clone, Copy)]
pub(crate) struct State {
    /// The registers that are values.
    pub(crate) registers: [Option<Bv>; 16],
    /// A bit for each of them that the CPU does not have.
    pub(crate) changed: u16,
    /// The vector registers, as far as they are values.
    pub(crate) vectors: [vectors::Register; 16],
    /// The flags; `None` where they lie in the context.
    pub(crate) flags: Option<Flags<Bv, Bool>>,
    /// The flags in the context are those at the start of the run.
    pub(crate) has_first_flags: bool,
}

impl State {
    /// At the start of a run.
    pub(crate) const START: State = State {
        registers: [None; 16],
        changed: 0,
        vectors: [vectors::Register::EMPTY; 16],
        flags: None,
        has_first_flags: true,
    };
}

/// A function that is being written.
pub(crate) struct Translator<'a> {
    pub(crate) d: Clif<'a>,
    pub(crate) region: &'a Region,
    /// Where each run begins.
    pub(crate) heads: Vec<Block>,
    /// What each run needs of the flags in the context.
    pub(crate) needs: Vec<Need>,
    pub(crate) exits: Vec<Exit>,
    /// [`crate::context::Counts`] of now.
    pub(crate) counts: Variable,
    /// Where the general registers are.
    pub(crate) gpr: Value,
    pub(crate) state: RefCell<State>,
    /// What was before this instruction.
    pub(crate) before: State,
    /// What was looked up in this run.
    pub(crate) checked: Checked,
    /// What is looked up together.
    pub(crate) spans: Spans,
    /// How close together what this instruction reaches for is looked up.
    pub(crate) reach: Reach,
    /// Whether it looks around bytes that are watched.
    pub(crate) looks_around: bool,
    /// Something was stored by this instruction: from then on it cannot be left.
    pub(crate) has_stored: bool,
    /// MXCSR was found to have its default modes in this run.
    pub(crate) has_default_modes: bool,
    /// The index of the run.
    pub(crate) run: usize,
    /// This instruction.
    pub(crate) rip: u64,
    /// Instructions of the run that are counted and have not run, with this one.
    behind: u64,
    /// Conditional branches of the run that were not taken.
    passed: u64,
}

/// The signature of compiled code: from the context to [`Why`] it was left.
pub(crate) fn signature() -> Signature {
    // A convention in which one function can go on as another.
    let mut signature = Signature::new(CallConv::Tail);
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    signature
}

/// Writes the function of a region. `None` where there is no code for it.
pub(crate) fn translate(
    region: &Region,
    function: &mut Function,
    shared: &mut FunctionBuilderContext,
    config: TargetFrontendConfig,
) -> Option<()> {
    let spans = write_once(region, function, shared, config, Spans::default())?;
    let Some(known) = spans.known() else { return Some(()) };
    function.clear();
    write_once(region, function, shared, config, known).map(|_| ())
}

/// Writes the function with what is known of its accesses; gives what was noted of them.
fn write_once(
    region: &Region,
    function: &mut Function,
    shared: &mut FunctionBuilderContext,
    config: TargetFrontendConfig,
    spans: Spans,
) -> Option<Spans> {
    function.signature = signature();
    let mut builder = FunctionBuilder::new(function, shared);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    builder.seal_block(entry);
    let context = builder.block_params(entry)[0];
    let gpr = builder.ins().load(types::I64, own(), context, at!(gpr));
    let counts = builder.declare_var(types::I64);
    let initial = builder.ins().load(types::I64, own(), context, at!(counts));
    builder.def_var(counts, initial);
    let heads = region.runs.iter().map(|_| builder.create_block()).collect();
    let mut translator = Translator {
        d: Clif::new(builder, context),
        region,
        heads,
        needs: vec![Need::Nothing; region.runs.len()],
        exits: Vec::new(),
        counts,
        gpr,
        state: RefCell::new(State::START),
        before: State::START,
        checked: Checked::default(),
        spans,
        reach: Reach::All,
        looks_around: false,
        has_stored: false,
        has_default_modes: false,
        run: 0,
        rip: region.head,
        behind: 0,
        passed: 0,
    };
    translator.write()?;
    translator.d.builder.into_inner().finalize(config);
    Some(translator.spans)
}

impl Translator<'_> {
    /// All of the function.
    fn write(&mut self) -> Option<()> {
        let head = self.region.by_start[&self.region.head];
        self.run = head;
        let mut entry = self.new_exit(To::Known(self.region.head), Why::GoOn);
        self.jump(entry.block);
        for (n, run) in self.region.runs.iter().enumerate() {
            self.run = n;
            let steps = self.write_run(run)?;
            if n == head && steps == 0 {
                return None;
            }
        }
        self.settle_needs();
        if self.needs[head] == Need::Bits {
            self.make_flags_bits(&mut entry);
        }
        self.exits.push(entry);
        self.write_exits();
        self.d.builder.borrow_mut().seal_all_blocks();
        Some(())
    }

    /// Writes a run; how many of its steps there is code for. `None` where it cannot be written at all.
    fn write_run(&mut self, run: &Run) -> Option<usize> {
        self.d.builder.borrow_mut().switch_to_block(self.heads[self.run]);
        self.d.forget();
        *self.state.borrow_mut() = State::START;
        self.checked.clear();
        self.spans.begin();
        self.passed = 0;
        self.has_default_modes = false;
        for (n, step) in run.steps.iter().enumerate() {
            self.rip = step.instruction.ip();
            self.behind = (run.steps.len() - n) as u64;
            self.before = *self.state.borrow();
            self.has_stored = false;
            (self.reach, self.looks_around) = (step.reach, step.looks_around);
            if n == 0 {
                self.leave_if_found();
            }
            let flow = self.write_step(step);
            self.note_flags();
            if !self.d.take_leaves().is_empty() {
                self.d.is_lacking.set(true);
            }
            if self.d.is_lacking.take() {
                // What has been written of it does no harm, unless it is a store.
                if self.has_stored {
                    return None;
                }
                let exit = self.exit_before(Why::Interpret);
                self.leave(exit);
                return Some(n);
            }
            self.behind -= 1;
            match flow? {
                None => {}
                Some(Flow::Branch { taken, to }) => self.write_branch(taken, to),
                Some(Flow::Jump(to)) => {
                    self.write_jump(to);
                    return Some(n + 1);
                }
                Some(_) => return None,
            }
        }
        let exit = self.new_exit(To::Known(run.next), Why::GoOn);
        self.leave(exit);
        Some(run.steps.len())
    }

    /// Writes an instruction; where control goes, if it is a branch.
    fn write_step(&mut self, step: &Step) -> Option<Option<Flow<Bv, Bool>>> {
        if let How::Outcall(number) = step.how {
            self.call_out(number, &step.instruction);
            return Some(None);
        }
        if let Some(Compiled { body, op, is_float }) = lookup_compiled(&step.instruction) {
            if is_float {
                self.ask_for_default_modes();
            }
            return body(self, &op).ok().map(|()| None);
        }
        let (handler, op) = lookup(&step.instruction)?;
        match handler {
            Handler::Body(body) => body(self, &op).ok().map(|()| None),
            Handler::Last(run, _) => run(self, &op).ok().map(Some),
        }
    }

    /// Leaves the code before this instruction unless MXCSR has its default modes.
    fn ask_for_default_modes(&mut self) {
        if self.has_default_modes {
            return;
        }
        let mxcsr = self.d.load_context(types::I64, at!(mxcsr));
        let mxcsr = self.d.builder.borrow_mut().ins().load(types::I32, own(), mxcsr, 0);
        let modes = self.d.two_known(Two::And, 32, mxcsr, SSE_MODE);
        let has_others = self.d.compare(IntCC::NotEqual, modes, self.d.constant(32, DEFAULT_MXCSR));
        self.leave_if(has_others);
        self.has_default_modes = true;
    }

    /// Notes that the run reads flags which lie in the context from its start on.
    fn note_flags(&mut self) {
        let has_loaded = self.d.has_loaded_flag.take();
        if has_loaded && self.before.has_first_flags {
            self.needs[self.run] = Need::Bits;
        }
    }

    /// Goes to `to` if `taken`, else on.
    fn write_branch(&mut self, taken: Bool, to: u64) {
        let taken = self.d.truth(taken);
        self.note_flags();
        let mut exit = self.new_exit(To::Known(to), Why::GoOn);
        exit.taken = 1;
        exit.conditionals += 1;
        self.passed += 1;
        let on = self.new_block();
        self.d.builder.borrow_mut().ins().brif(taken, exit.block, &[], on, &[]);
        self.exits.push(exit);
        self.begin(on);
    }

    /// Goes to `to`: straight to where a call of the region returns to, if it is that.
    fn write_jump(&mut self, to: Bv) {
        if let Bv::Value(to) = to {
            for known in self.region.returns.iter().take(MOST_RETURNS) {
                self.write_guess(to, *known);
            }
        }
        let to = match to {
            Bv::Known(to) => To::Known(to),
            Bv::Value(to) => To::Value(to),
        };
        let mut exit = self.new_exit(to, Why::GoOn);
        exit.taken = 1;
        self.leave(exit);
    }

    fn write_guess(&mut self, to: Value, known: u64) {
        let is = self.d.compare(IntCC::Equal, to, self.d.constant(64, known));
        let mut exit = self.new_exit(To::Known(known), Why::GoOn);
        exit.taken = 1;
        let on = self.new_block();
        self.d.builder.borrow_mut().ins().brif(is, exit.block, &[], on, &[]);
        self.exits.push(exit);
        self.begin(on);
    }

    /// Leaves the code before this instruction if `c`.
    pub(crate) fn leave_if(&mut self, c: Value) {
        self.leave_if_absent(c, None);
    }

    /// The same where `c` says that what is `reached` for is not there, or has the end of a page in it.
    pub(crate) fn leave_if_absent(&mut self, c: Value, reached: Option<Reached>) {
        if self.has_stored {
            self.d.is_lacking.set(true);
            return;
        }
        let exit = Exit { reached, ..self.exit_before(Why::Interpret) };
        let on = self.new_block();
        {
            let mut builder = self.d.builder.borrow_mut();
            builder.set_cold_block(exit.block);
            builder.ins().brif(c, exit.block, &[], on, &[]);
        }
        self.exits.push(exit);
        self.begin(on);
    }

    /// At the start of a run: leaves the code if it is there that a state is searched for, and the registers are those.
    fn leave_if_found(&mut self) {
        let Some(sought) = self.region.sought.filter(|sought| sought.rip == self.rip) else { return };
        let differing = (0..).step_by(8).zip(sought.gpr).map(|(offset, wanted)| {
            let now = self.d.builder.borrow_mut().ins().load(types::I64, own(), self.gpr, offset);
            self.d.two_known(Two::Xor, 64, now, wanted)
        });
        let differing =
            differing.reduce(|all, one| self.d.two(Two::Or, all, one)).expect("sixteen registers");
        let is_there = self.d.compare(IntCC::Equal, differing, self.d.constant(64, 0));
        self.leave_if(is_there);
    }

    /// The way out from before this instruction.
    fn exit_before(&mut self, why: Why) -> Exit {
        let now = self.state.replace(self.before);
        let exit = self.new_exit(To::Known(self.rip), why);
        *self.state.borrow_mut() = now;
        exit
    }

    /// A way out with the state of now.
    fn new_exit(&mut self, to: To, why: Why) -> Exit {
        let state = *self.state.borrow();
        if state.has_first_flags && state.flags.as_ref().is_some_and(mention_stored) {
            self.needs[self.run] = Need::Bits;
        }
        let block = self.new_block();
        Exit {
            block,
            reached: None,
            from: self.run,
            state,
            to,
            why,
            behind: self.behind,
            taken: 0,
            conditionals: self.passed,
        }
    }

    /// Goes out for good.
    fn leave(&mut self, exit: Exit) {
        self.jump(exit.block);
        self.exits.push(exit);
    }

    pub(crate) fn new_block(&self) -> Block {
        self.d.builder.borrow_mut().create_block()
    }

    pub(crate) fn jump(&self, to: Block) {
        self.d.builder.borrow_mut().ins().jump(to, &[]);
    }

    /// Goes on writing in a block that one other leads to, which is written.
    pub(crate) fn begin(&self, block: Block) {
        let mut builder = self.d.builder.borrow_mut();
        builder.seal_block(block);
        builder.switch_to_block(block);
    }

    /// Gives the registers that are only values to the CPU.
    pub(crate) fn store_registers(&self, state: &State) {
        for (offset, (n, v)) in (0..).step_by(8).zip(state.registers.iter().enumerate()) {
            if let Some(v) = v
                && state.changed >> n & 1 != 0
            {
                let v = self.d.value(64, *v);
                self.d.builder.borrow_mut().ins().store(own(), v, self.gpr, offset);
            }
        }
        self.store_vectors(state);
    }

    /// Has the CPU run the description of an instruction; leaves the code before it where that traps.
    fn call_out(&mut self, number: u32, i: &Instruction) {
        let touches_flags = outcall::touches_flags(i);
        let mut state = *self.state.borrow();
        self.store_registers(&state);
        state.changed = 0;
        state.vectors = State::START.vectors;
        if touches_flags {
            self.give_flags(&mut state);
        }
        self.before = state;
        let trapped = outcall::write(&self.d, number);
        self.leave_if(trapped);
        self.has_default_modes = false;
        let written = outcall::written_registers(i);
        for (n, register) in state.registers.iter_mut().enumerate() {
            if written >> n & 1 != 0 {
                *register = None;
            }
        }
        if touches_flags {
            state.has_first_flags = false;
            self.d.forget_stored();
        }
        *self.state.borrow_mut() = state;
    }

    /// Has the flags lie in the context.
    fn give_flags(&mut self, state: &mut State) {
        if let Some(flags) = state.flags.take() {
            self.d.store_flags(&flags, false);
            self.note_flags();
            state.has_first_flags = false;
        } else if state.has_first_flags {
            let need = &mut self.needs[self.run];
            *need = (*need).max(Need::Any);
        }
    }
}

/// Returns that are guessed at most.
const MOST_RETURNS: usize = 4;

/// The description of an instruction as this machine runs it.
fn lookup<'a>(i: &Instruction) -> Option<(Handler<Translator<'a>>, x86::op::Op)> {
    x86::table::lookup_integer(i)
}
