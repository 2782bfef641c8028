//! An engine that faults for ever for memory that it has: the program ends with an error, not never.

use crate::hostile::program;
use vmm::cpu_model::Model;
use vmm::engine::soft::SoftEngine;
use vmm::engine::{
    Counters, Engine, EngineError, EngineKind, Exception, Exit, Interrupter, Phys, StalePage, Until,
};
use vmm::gate::{Event, Gate, GateError, Input, Time};
use vmm::process::{Ids, Launch, Process, ProcessError, Step};
use vmm::ram::Ram;
use x86::state::{Fpu, Regs};

/// The software CPU until it is to get past `at`.
struct Stuck {
    inner: SoftEngine,
    at: u64,
}

impl Engine for Stuck {
    fn run(&mut self, until: Until) -> Result<Exit, EngineError> {
        if self.inner.regs().rip == self.at {
            return Ok(Exit::Exception(Exception { vector: 14, error_code: 0x14, address: self.at }));
        }
        self.inner.run(until)
    }

    fn kind(&self) -> EngineKind {
        self.inner.kind()
    }
    fn ram(&self) -> &Ram {
        self.inner.ram()
    }
    fn ram_mut(&mut self) -> &mut Ram {
        self.inner.ram_mut()
    }
    fn first_free_frame(&self) -> Phys {
        self.inner.first_free_frame()
    }
    fn kernel_entry(&self) -> u64 {
        self.inner.kernel_entry()
    }
    fn set_page_table(&mut self, root: Phys) -> Result<(), EngineError> {
        self.inner.set_page_table(root)
    }
    fn invalidate(&mut self, stale: &[StalePage]) -> Result<(), EngineError> {
        self.inner.invalidate(stale)
    }
    fn regs(&self) -> &Regs {
        self.inner.regs()
    }
    fn set_regs(&mut self, regs: &Regs) -> Result<(), EngineError> {
        self.inner.set_regs(regs)
    }
    fn fpu(&mut self) -> Result<Fpu, EngineError> {
        self.inner.fpu()
    }
    fn require(&self, model: Model) -> Result<(), EngineError> {
        self.inner.require(model)
    }
    fn set_fpu(&mut self, fpu: &Fpu) -> Result<(), EngineError> {
        self.inner.set_fpu(fpu)
    }
    fn counters(&self) -> Option<Counters> {
        self.inner.counters()
    }
    fn read_msrs(&mut self, indices: &[u32]) -> Result<Vec<u64>, EngineError> {
        self.inner.read_msrs(indices)
    }
    fn write_msrs(&mut self, entries: &[(u32, u64)]) -> Result<usize, EngineError> {
        self.inner.write_msrs(entries)
    }
    fn interrupter(&self) -> Interrupter {
        self.inner.interrupter()
    }
}

/// Nothing comes in.
struct Nothing;

impl Gate for Nothing {
    fn begin(&mut self, _: Event, _: &Regs) -> Result<(), GateError> {
        Ok(())
    }
    fn input(&mut self, _: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        Ok(Input::default())
    }
    fn time(&mut self) -> Result<Time, GateError> {
        Ok(Time::default())
    }
    fn output(&mut self, _: i32, _: &[u8]) {}
    fn replaying(&self) -> bool {
        true
    }
}

#[test]
fn an_engine_that_faults_for_ever_is_given_up() {
    let launch = Launch {
        executable: program(),
        path: "/stuck".to_owned(),
        interpreter: None,
        argv: vec![b"stuck".to_vec()],
        envp: Vec::new(),
        random: [0; 16],
        cwd: b"/".to_vec(),
        ids: Ids::default(),
        cpu: Model::V2,
    };
    // The program is a system call in a loop; the engine sticks at the jump behind the first.
    let engine = Stuck { inner: SoftEngine::new(64 << 20).expect("memory"), at: 0x40_0102 };
    let mut process = Process::start(Box::new(engine), Box::new(Nothing), &launch).expect("it starts");
    let error = (0..1000).find_map(|_| match process.step() {
        Ok(Step::Running) => None,
        Ok(other) => panic!("{other:?}"),
        Err(error) => Some(error),
    });
    let error = error.expect("it is given up");
    assert!(matches!(error, ProcessError::NoProgress { rip: 0x40_0102, address: 0x40_0102, .. }), "{error}");
    assert!(
        error.to_string().contains("engine soft does not get past the instruction at 0x400102"),
        "{error}"
    );
}
