//! The ways out of a run: to another run of the region, to other code, to the interpreter.
//!
//! Each is written when all runs are. Between runs the registers lie in the CPU, and the flags in the context as far as the next run
//! needs them there ([`Need`]); what only a way out of the code itself needs is left to that.
//!
//! A run is paid for when control enters it: its whole length is taken from what may still run, and given back by whatever leaves
//! it early. Where too little is left, the code is left before the run.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value, types};

use crate::clif::own;
use crate::context::{Why, at};
use crate::links;
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
    /// Instructions that are counted and have not run.
    pub(crate) behind: u64,
    /// Branches that have been taken: one or none.
    pub(crate) taken: u64,
    /// Conditional branches that have run.
    pub(crate) conditionals: u64,
}

/// How the function ends: each end is written once, and its parameters are what it stores.
struct Ends {
    /// Returns to the driver: rip, left, branches, why.
    back: Block,
    /// Goes on as other code, if there is some: rip, left, branches.
    on: Block,
}

/// The most that counts may be added up to in one constant.
const CONDITIONAL: u32 = 32;

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

    /// The run that a way out leads to, if it stays in the region.
    fn run_of(&self, exit: &Exit) -> Option<usize> {
        match (exit.to, exit.why) {
            (To::Known(to), Why::GoOn) => self.region.by_start.get(&to).copied(),
            _ => None,
        }
    }

    /// Writes all ways out, and the ends of the function.
    pub(crate) fn write_exits(&mut self) {
        let ends = Ends { back: self.end_block(4), on: self.end_block(3) };
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
        let left = self.added(self.left_now(), exit.behind.wrapping_sub(cost));
        let branches = self.counted(exit);
        let too_long = self.new_block();
        {
            let is_short = self.d.compare(IntCC::SignedLessThan, left, self.d.constant(64, 0));
            let mut builder = self.d.builder.borrow_mut();
            builder.def_var(self.left, left);
            builder.def_var(self.branches, branches);
            builder.set_cold_block(too_long);
            builder.ins().brif(is_short, too_long, &[], self.heads[run], &[]);
        }
        self.begin(too_long);
        if let Some(flags) = flags {
            self.d.store_flags(&flags, false);
        }
        let left = self.added(left, cost);
        self.go_back(ends, self.d.constant(64, to.start), left, branches, Why::Budget);
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
        let (left, branches) = (self.added(self.left_now(), exit.behind), self.counted(exit));
        match exit.why {
            Why::GoOn => {
                let arguments = [rip, left, branches].map(BlockArg::from);
                self.d.builder.borrow_mut().ins().jump(ends.on, &arguments);
            }
            why => self.go_back(ends, rip, left, branches, why),
        }
    }

    fn left_now(&self) -> Value {
        self.d.builder.borrow_mut().use_var(self.left)
    }

    /// The branches so far and those of a way out.
    fn counted(&self, exit: &Exit) -> Value {
        let branches = self.d.builder.borrow_mut().use_var(self.branches);
        self.added(branches, exit.taken | exit.conditionals << CONDITIONAL)
    }

    fn added(&self, v: Value, n: u64) -> Value {
        if n == 0 { v } else { self.d.two_known(crate::clif::Two::Add, 64, v, n) }
    }

    fn go_back(&self, ends: &Ends, rip: Value, left: Value, branches: Value, why: Why) {
        let why = self.d.constant(64, why as u64);
        let arguments = [rip, left, branches, why].map(BlockArg::from);
        self.d.builder.borrow_mut().ins().jump(ends.back, &arguments);
    }

    fn write_ends(&mut self, ends: &Ends) {
        self.begin_end(ends.on);
        let [rip, left, branches] = self.parameters(ends.on);
        let (code, is_there) = links::write_look_up(&self.d, rip);
        let (go, none) = (self.new_block(), self.new_block());
        self.d.builder.borrow_mut().ins().brif(is_there, go, &[], none, &[]);
        self.begin(none);
        self.go_back(ends, rip, left, branches, Why::GoOn);
        self.begin(go);
        self.store_counts(left, branches);
        {
            let mut builder = self.d.builder.borrow_mut();
            let signature = builder.import_signature(signature());
            let code = builder.ins().load(types::I64, own(), code, 0);
            builder.ins().return_call_indirect(signature, code, &[self.d.context]);
        }
        self.begin_end(ends.back);
        let [rip, left, branches, why] = self.parameters(ends.back);
        self.store_counts(left, branches);
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

    fn store_counts(&self, left: Value, branches: Value) {
        self.d.store_context(left, at!(left));
        self.d.store_context(branches, at!(branches));
    }
}
