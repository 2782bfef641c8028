//! An engine that faults for ever for memory that it has: the program ends with an error, not never.

use crate::hostile::program;
use vmm::cpu_model::Model;
use vmm::engine::soft::SoftCpu;
use vmm::engine::{
    Counters, Cpu, EngineError, EngineKind, Exception, Exit, Interrupter, Machine, Phys, Until,
};
use vmm::gate::{Event, Gate, GateError, Input, Time};
use vmm::process::{Capabilities, Launch, Process, ProcessError, Step};
use vmm::ram::Memory;
use x86::state::{Fpu, Regs};

/// The software CPU until it is to get past `at`.
struct Stuck {
    inner: SoftCpu,
    at: u64,
}

impl Cpu for Stuck {
    fn run(&mut self, memory: &mut Memory, until: Until) -> Result<Exit, EngineError> {
        if self.inner.regs().rip == self.at {
            return Ok(Exit::Exception(Exception { vector: 14, error_code: 0x14, address: self.at }));
        }
        self.inner.run(memory, until)
    }

    fn kind(&self) -> EngineKind {
        self.inner.kind()
    }
    fn set_page_table(&mut self, root: Phys) {
        self.inner.set_page_table(root);
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
    fn set_interrupter(&mut self, _interrupter: Interrupter) {}

    fn interrupter(&self) -> Interrupter {
        self.inner.interrupter()
    }
}

/// Nothing comes in.
struct Nothing;

impl Gate for Nothing {
    fn begin(&mut self, _: Event, _: i32, _: &Regs) -> Result<(), GateError> {
        Ok(())
    }
    fn input(&mut self, _: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        Ok(Input::Result(0))
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
        argv: vec![b"stuck".to_vec()],
        cwd: b"/".to_vec(),
        pid: 1000,
        cpu: Model::V2,
        capabilities: Capabilities::usual(true),
        ..Launch::default()
    };
    // The program is a system call in a loop; the engine sticks at the jump behind the first.
    let memory = Memory::new(64 << 20).expect("memory");
    let cpu = Box::new(Stuck { inner: SoftCpu::new().expect("a processor"), at: 0x40_0102 });
    let mut process =
        Process::start(Machine { memory, cpu, kvm: None }, Box::new(Nothing), &launch).expect("it starts");
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
