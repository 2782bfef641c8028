//! The ways out of a run: to another run of the region, to other code, to the interpreter.
//!
//! Each is written when all runs are. Between runs the registers lie in the CPU, and the flags in the context as far as the next run
//! needs them there ([`Need`]); what only a way out of the code itself needs is left to that.
//!
//! A run is paid for when control enters it: its whole length is taken from what may still run, and given back by whatever leaves
//! it early. Where too little is left, the code is left before the run.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, Block, BlockArg, InstBuilder, Signature, Value, types};
use cranelift_codegen::isa::CallConv;

use crate::clif::{Two, own};
use crate::context::{Counts, Why, at};
use crate::flags::BITS;
use crate::links;
use crate::memory::{PAGE_BITS, Reached};
use crate::translator::{State, Translator, signature};

/// What a run needs of the flags in the context when it is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// It computes them before anybody can see them.
    Nothing,
    /// They must be right, in whatever form.
    Any,
    /// They must be bits: it reads some of them.
    Bits,
}

/// Where control goes.
#[derive(Clone, Copy)]
pub(crate) enum To {
    Known(u64),
    Value(Value),
}

/// A way out of a run.
pub(crate) struct Exit {
    /// Where it is written; one block leads there.
    pub(crate) block: Block,
    /// The index of the run.
    pub(crate) from: usize,
    pub(crate) state: State,
    pub(crate) to: To,
    pub(crate) why: Why,
    /// What was looked up together, if it is left since that is not there.
    pub(crate) reached: Option<Reached>,
    /// Instructions that are counted and have not run.
    pub(crate) behind: u64,
    /// Branches that have been taken: one or none.
    pub(crate) taken: u64,
    /// Conditional branches that have run.
    pub(crate) conditionals: u64,
}

/// How the function ends: each end is written once, and its parameters are what it stores.
struct Ends {
    /// Returns to the driver: rip, counts, why.
    back: Block,
    /// Goes on as other code, if there is some: rip, counts.
    on: Block,
}

impl Translator<'_> {
    /// Finds what each run needs: as much as those it passes the flags on to.
    pub(crate) fn settle_needs(&mut self) {
        let mut is_settled = false;
        while !is_settled {
            is_settled = true;
            for exit in &self.exits {
                if exit.state.flags.is_none() && exit.state.has_first_flags {
                    let passed_on = self.run_of(exit).map_or(Need::Any, |n| self.needs[n].max(Need::Any));
                    let need = &mut self.needs[exit.from];
                    is_settled &= *need >= passed_on;
                    *need = (*need).max(passed_on);
                }
            }
        }
    }

    /// Has the flags in the context be bits on this way, whatever form they have.
    pub(crate) fn make_flags_bits(&self, way: &mut Exit) {
        self.begin(way.block);
        way.block = self.new_block();
        let make = self.new_block();
        let kind = self.d.load_context(types::I64, at!(flags.kind));
        let are_bits = self.d.compare(IntCC::Equal, kind, self.d.constant(64, BITS));
        {
            let mut builder = self.d.builder.borrow_mut();
            builder.set_cold_block(make);
            builder.ins().brif(are_bits, way.block, &[], make, &[]);
        }
        self.begin(make);
        let function = self.d.load_context(types::I64, at!(make_bits));
        {
            let mut builder = self.d.builder.borrow_mut();
            let mut signature = Signature::new(CallConv::SystemV);
            signature.params.push(AbiParam::new(types::I64));
            let signature = builder.import_signature(signature);
            builder.ins().call_indirect(signature, function, &[self.d.context]);
        }
        self.jump(way.block);
        self.d.forget();
    }

    /// The run that a way out leads to, if it stays in the region.
    fn run_of(&self, exit: &Exit) -> Option<usize> {
        match (exit.to, exit.why) {
            (To::Known(to), Why::GoOn) => self.region.by_start.get(&to).copied(),
            _ => None,
        }
    }

    /// Writes all ways out, and the ends of the function.
    pub(crate) fn write_exits(&mut self) {
        let ends = Ends { back: self.end_block(3), on: self.end_block(2) };
        for exit in std::mem::take(&mut self.exits) {
            self.begin(exit.block);
            self.d.forget();
            self.store_registers(&exit.state);
            match self.run_of(&exit) {
                Some(run) => self.write_inner(&exit, run, &ends),
                None => self.write_outer(&exit, &ends),
            }
        }
        self.write_ends(&ends);
    }

    fn end_block(&self, parameters: usize) -> Block {
        let mut builder = self.d.builder.borrow_mut();
        let block = builder.create_block();
        for _ in 0..parameters {
            builder.append_block_param(block, types::I64);
        }
        block
    }

    /// To another run, or the same.
    fn write_inner(&mut self, exit: &Exit, run: usize, ends: &Ends) {
        let (need, to) = (self.needs[run], &self.region.runs[run]);
        let mut flags = exit.state.flags;
        if need > Need::Nothing
            && let Some(flags) = flags.take()
        {
            self.d.store_flags(&flags, need == Need::Bits);
        }
        let cost = to.steps.len() as u64;
        let counts = self.counted(exit, cost);
        let too_long = self.new_block();
        {
            let is_short = self.d.compare(IntCC::SignedLessThan, counts, self.d.constant(64, 0));
            let mut builder = self.d.builder.borrow_mut();
            builder.def_var(self.counts, counts);
            builder.set_cold_block(too_long);
            builder.ins().brif(is_short, too_long, &[], self.heads[run], &[]);
        }
        self.begin(too_long);
        if let Some(flags) = flags {
            self.d.store_flags(&flags, false);
        }
        let counts = self.added(counts, Counts::added(cost, 0, 0));
        self.go_back(ends, self.d.constant(64, to.start), counts, Why::Budget);
    }

    /// Out of the region.
    fn write_outer(&mut self, exit: &Exit, ends: &Ends) {
        if let Some(flags) = &exit.state.flags {
            self.d.store_flags(flags, false);
        }
        let rip = match exit.to {
            To::Known(to) => self.d.constant(64, to),
            To::Value(to) => to,
        };
        let counts = self.counted(exit, 0);
        match exit.why {
            Why::GoOn => {
                let arguments = [rip, counts].map(BlockArg::from);
                self.d.builder.borrow_mut().ins().jump(ends.on, &arguments);
            }
            why => {
                let why = self.why(why, exit.reached);
                self.jump_back(ends, [rip, counts, why]);
            }
        }
    }

    /// The counts behind a way out to what costs so much.
    fn counted(&self, exit: &Exit, cost: u64) -> Value {
        let counts = self.d.builder.borrow_mut().use_var(self.counts);
        let left = exit.behind.wrapping_sub(cost);
        self.added(counts, Counts::added(left, exit.taken, exit.conditionals))
    }

    /// Not as a sum of what the counts were before: that would have to be kept.
    fn added(&self, counts: Value, n: u64) -> Value {
        let n = self.d.constant(64, n);
        self.d.builder.borrow_mut().ins().iadd(counts, n)
    }

    /// Why the code is left: for `why`, or since what was looked up together has the end of a page in it.
    fn why(&self, why: Why, reached: Option<Reached>) -> Value {
        let number = |why: Why| self.d.constant(64, why as u64);
        let Some(Reached { first, last }) = reached else { return number(why) };
        self.d.store_context(first, at!(reached));
        let [first, last] = [first, last].map(|at| self.d.two_known(Two::Shr, 64, at, PAGE_BITS));
        let is_spread = self.d.compare(IntCC::NotEqual, first, last);
        self.d.choose_value(is_spread, number(Why::Spread), number(why))
    }

    fn go_back(&self, ends: &Ends, rip: Value, counts: Value, why: Why) {
        let why = self.d.constant(64, why as u64);
        self.jump_back(ends, [rip, counts, why]);
    }

    fn jump_back(&self, ends: &Ends, arguments: [Value; 3]) {
        let arguments = arguments.map(BlockArg::from);
        self.d.builder.borrow_mut().ins().jump(ends.back, &arguments);
    }

    fn write_ends(&mut self, ends: &Ends) {
        self.begin_end(ends.on);
        let [rip, counts] = self.parameters(ends.on);
        let (code, is_there) = links::write_look_up(&self.d, rip);
        let (go, none) = (self.new_block(), self.new_block());
        self.d.builder.borrow_mut().ins().brif(is_there, go, &[], none, &[]);
        self.begin(none);
        self.go_back(ends, rip, counts, Why::GoOn);
        self.begin(go);
        self.d.store_context(counts, at!(counts));
        {
            let mut builder = self.d.builder.borrow_mut();
            let signature = builder.import_signature(signature());
            let code = builder.ins().load(types::I64, own(), code, 0);
            builder.ins().return_call_indirect(signature, code, &[self.d.context]);
        }
        self.begin_end(ends.back);
        let [rip, counts, why] = self.parameters(ends.back);
        self.d.store_context(counts, at!(counts));
        self.d.store_context(rip, at!(rip));
        self.d.builder.borrow_mut().ins().return_(&[why]);
    }

    fn begin_end(&self, block: Block) {
        self.d.builder.borrow_mut().switch_to_block(block);
        self.d.forget();
    }

    fn parameters<const N: usize>(&self, block: Block) -> [Value; N] {
        let builder = self.d.builder.borrow();
        std::array::from_fn(|n| builder.block_params(block)[n])
    }
}
