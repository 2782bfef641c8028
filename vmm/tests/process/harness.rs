//! Builds programs, runs them on each engine under a gate that keeps its journal in memory, and replays them.

use std::cell::RefCell;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use vmm::cpu_model::Model;
use vmm::engine::kvm::Waiting;
use vmm::engine::soft::SoftCpu;
use vmm::engine::{self, EngineError, EngineKind, Machine};
use vmm::gate::{Event, Gate, GateError, Input, Preemption, Time};
use vmm::launch::launch_here;
use vmm::position::Offset;
use vmm::process::{Capabilities, Launch, Parents, Process, Step, Streams, comparable};
use vmm::ram::Memory;
use x86::state::Regs;
use x86_jit::Tuning;

/// Guest memory: much more than any of the programs touches.
const MEMORY: u64 = 512 << 20;

/// Says that something is skipped and why: past the capture of test output, so that it is seen.
pub(crate) fn skipped(what: &str, why: &dyn Display) {
    // Where stderr is closed nobody can be told.
    let _ = writeln!(std::io::stderr(), "skipped: {what}, since {why}");
}

/// What runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Soft,
    Kvm,
    /// Both, which take turns much more often than pays.
    Turns,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::Soft => "soft",
            Engine::Kvm => "kvm",
            Engine::Turns => "kvm and soft in turns",
        }
    }
}

/// After so many exits the processors take turns; it divides no common number of exits.
const TURNS: u32 = 7;

/// The engines that this host has, each alone; KVM alone where GRETEL_TEST_KVM_ALONE is set, since an emulated host is slow.
pub(crate) fn engines() -> Vec<Engine> {
    match engine::open(EngineKind::Kvm, MEMORY) {
        Ok(_) if std::env::var_os("GRETEL_TEST_KVM_ALONE").is_some() => vec![Engine::Kvm],
        Ok(_) => vec![Engine::Soft, Engine::Kvm],
        Err(error @ EngineError::KvmUnavailable { .. }) => {
            skipped("engine kvm", &error);
            vec![Engine::Soft]
        }
        Err(error) => panic!("{error}"),
    }
}

fn machine(engine: Engine) -> Machine {
    let machine = match engine {
        Engine::Soft => engine::open(EngineKind::Soft, MEMORY),
        Engine::Kvm => engine::open(EngineKind::Kvm, MEMORY),
        Engine::Turns => Waiting::open().and_then(|waiting| engine::open_both(waiting.every(TURNS), MEMORY)),
    };
    machine.expect("it was there before")
}

/// A machine whose software CPU compiles as `tuning` says.
pub(crate) fn tuned(tuning: Option<Tuning>) -> Machine {
    let memory = Memory::new(MEMORY).expect("memory");
    Machine { memory, cpu: Box::new(SoftCpu::tuned(tuning).expect("a processor")), kvm: None }
}

/// The process id of every program.
pub(crate) const PID: i32 = 1000;

/// What a gate was asked, in order.
#[derive(Clone, Debug, PartialEq)]
enum Entry {
    Begin(Event, i32, Box<Regs>),
    Input(Input),
    Time(Time),
}

/// The journal, and what the program wrote to its standard output and error.
#[derive(Default)]
struct Shared {
    journal: Vec<Entry>,
    output: Vec<u8>,
}

/// Records into memory, or replays from there when `next` says how far it came.
struct MemoryGate {
    shared: Rc<RefCell<Shared>>,
    next: Option<usize>,
}

impl MemoryGate {
    fn entry(&mut self) -> Entry {
        let next = self.next.as_mut().expect("a replay");
        *next += 1;
        self.shared.borrow().journal.get(*next - 1).expect("the recording goes on").clone()
    }

    fn record(&self, entry: Entry) {
        self.shared.borrow_mut().journal.push(entry);
    }
}

impl Gate for MemoryGate {
    fn begin(&mut self, event: Event, task: i32, regs: &Regs) -> Result<(), GateError> {
        if self.next.is_none() {
            self.record(Entry::Begin(event, task, Box::new(comparable(regs))));
        } else {
            assert_eq!(
                self.entry(),
                Entry::Begin(event, task, Box::new(comparable(regs))),
                "the replay diverged"
            );
        }
        Ok(())
    }

    fn input(&mut self, produce: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        if self.next.is_some() {
            let Entry::Input(input) = self.entry() else { panic!("the recording has no input here") };
            return Ok(input);
        }
        let input = produce();
        self.record(Entry::Input(input.clone()));
        Ok(input)
    }

    fn time(&mut self) -> Result<Time, GateError> {
        if self.next.is_some() {
            let Entry::Time(time) = self.entry() else { panic!("the recording has no time here") };
            return Ok(time);
        }
        let time = Time::now();
        self.record(Entry::Time(time));
        Ok(time)
    }

    fn output(&mut self, descriptor: i32, bytes: &[u8]) {
        if descriptor > 0 {
            self.shared.borrow_mut().output.extend_from_slice(bytes);
        }
    }

    fn replaying(&self) -> bool {
        self.next.is_some()
    }

    fn victim(&mut self, worst: Option<i32>) -> Result<Option<i32>, GateError> {
        let Some(next) = self.next else { return Ok(worst) };
        Ok(match self.shared.borrow().journal.get(next) {
            Some(Entry::Begin(Event::OutOfMemory(pid), ..)) => Some(*pid),
            _ => None,
        })
    }

    fn clock(&mut self) -> Result<Option<u64>, GateError> {
        let Some(next) = self.next else { return Ok(None) };
        Ok(match self.shared.borrow().journal.get(next) {
            Some(Entry::Begin(Event::Clock(tick), ..)) => Some(*tick),
            _ => None,
        })
    }

    fn preemption(&mut self) -> Result<Option<Preemption>, GateError> {
        let Some(next) = self.next else { return Ok(None) };
        Ok(match self.shared.borrow().journal.get(next) {
            Some(Entry::Begin(Event::Preempt(offset), ..)) => {
                Some(Preemption { offset: offset.clone(), count: None, time: None })
            }
            _ => None,
        })
    }
}

/// A program that ran to its end.
pub(crate) struct Ran {
    /// How it ended.
    pub(crate) end: Step,
    /// Its standard output, as the host saw it.
    pub(crate) stdout: Vec<u8>,
    /// Its standard output and error, as the gate was told.
    pub(crate) told: Vec<u8>,
    /// Its memory at the end.
    pub(crate) digest: u64,
    /// The process.
    pub(crate) process: Process,
    launch: Launch,
    shared: Rc<RefCell<Shared>>,
}

/// A program to run.
pub(crate) struct Run {
    /// The file.
    pub(crate) program: PathBuf,
    /// All arguments.
    pub(crate) argv: Vec<String>,
    /// What it reads.
    pub(crate) stdin: Vec<u8>,
    /// Where it runs.
    pub(crate) directory: PathBuf,
    /// The processor that it sees.
    pub(crate) cpu: Model,
    /// How much memory it may use; zero for all that there is.
    pub(crate) memory: u64,
    /// It has root's capabilities, whoever runs the tests.
    pub(crate) privileged: bool,
}

impl Run {
    /// A program with its arguments.
    pub(crate) fn new(program: &Path, arguments: &[&str]) -> Run {
        let name = program.file_name().expect("a file").to_string_lossy().into_owned();
        let argv = std::iter::once(name).chain(arguments.iter().map(|text| (*text).to_owned())).collect();
        let directory = std::env::temp_dir();
        let program = program.to_owned();
        let stdin = Vec::new();
        Run { program, argv, stdin, directory, cpu: Model::V2, memory: 0, privileged: false }
    }

    fn launch(&self) -> Launch {
        let here = launch_here(self.program.as_os_str(), &[], self.cpu).expect("the program is there");
        Launch {
            executable: fs::read(&self.program).expect("the program is there"),
            path: self.program.to_string_lossy().into_owned(),
            name: self.program.to_string_lossy().into_owned().into_bytes(),
            argv: self.argv.iter().map(|text| text.as_bytes().to_vec()).collect(),
            envp: vec![b"PATH=/usr/bin:/bin".to_vec(), b"LC_ALL=C".to_vec()],
            random: *b"not so random...",
            cwd: self.directory.to_string_lossy().into_owned().into_bytes(),
            pid: PID,
            parents: Parents { parent: PID - 1, group: PID, session: PID },
            terminal: None,
            umask: 0o22,
            cpu: self.cpu,
            ids: here.ids,
            groups: here.groups,
            capabilities: if self.privileged { Capabilities::usual(true) } else { here.capabilities },
            memory: self.memory,
            mxcsr_mask: here.mxcsr_mask,
            interpreter: here.interpreter,
            ..Launch::default()
        }
    }

    /// Records it.
    pub(crate) fn on(&self, kind: Engine) -> Ran {
        self.on_machine(machine(kind))
    }

    /// The same on a machine of one's own.
    pub(crate) fn on_machine(&self, machine: Machine) -> Ran {
        let mut stdin = tempfile::tempfile().expect("a file");
        stdin.write_all(&self.stdin).and_then(|()| stdin.rewind()).expect("a file");
        let mut stdout = tempfile::tempfile().expect("a file");
        let copy = |file: &File| file.try_clone().expect("a descriptor").into();
        let streams = Streams::Given([copy(&stdin), copy(&stdout), copy(&stdout)]);
        let shared = Rc::default();
        let launch = self.launch();
        let mut ran = run(machine, launch, streams, shared, None);
        stdout.rewind().and_then(|()| stdout.read_to_end(&mut ran.stdout)).expect("a file");
        ran
    }

    /// Starts it, with nothing to read, for whoever steps it.
    pub(crate) fn start(&self, kind: Engine) -> Process {
        let file = || tempfile::tempfile().expect("a file").into();
        let gate = MemoryGate { shared: Rc::default(), next: None };
        let streams = Streams::Given([file(), file(), file()]);
        Process::start_with(machine(kind), Box::new(gate), &self.launch(), streams)
            .expect("the program starts")
    }

    /// What the host itself makes of it: standard output and exit status.
    pub(crate) fn natively(&self) -> (Vec<u8>, Option<i32>) {
        use std::os::unix::process::CommandExt;
        let mut stdin = tempfile::tempfile().expect("a file");
        stdin.write_all(&self.stdin).and_then(|()| stdin.rewind()).expect("a file");
        let mut command = Command::new(&self.program);
        command.arg0(&self.argv[0]).args(&self.argv[1..]).current_dir(&self.directory).stdin(stdin);
        command.env_clear().envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C")]);
        let output = command.output().expect("it runs");
        ([output.stdout, output.stderr].concat(), output.status.code())
    }
}

impl Ran {
    /// Replays it, and checks every event, the output and the memory at the end.
    pub(crate) fn replay_on(&self, kind: Engine) {
        self.replay_on_machine(machine(kind));
    }

    /// The same on a machine of one's own.
    pub(crate) fn replay_on_machine(&self, machine: Machine) {
        let kind = machine.cpu.kind();
        let events = self.shared.borrow().journal.clone();
        let count = events.len();
        let shared = Rc::new(RefCell::new(Shared { journal: events, output: Vec::new() }));
        let again = run(machine, self.launch.clone(), Streams::Inherited, shared, Some(0));
        assert_eq!(again.end, self.end, "the end on {}", kind.name());
        assert_eq!(again.told, self.told, "the output on {}", kind.name());
        assert_eq!(again.digest, self.digest, "the memory on {}", kind.name());
        assert!(count > 0, "something was recorded");
    }

    /// How many system calls of this number it made.
    pub(crate) fn calls(&self, number: i64) -> usize {
        let wanted = Event::Syscall(u64::try_from(number).expect("a number"));
        let is_it = |entry: &&Entry| matches!(entry, Entry::Begin(event, ..) if *event == wanted);
        self.shared.borrow().journal.iter().filter(is_it).count()
    }

    /// How often the vDSO asked for the time before its turn.
    pub(crate) fn early_calls(&self) -> usize {
        let is_it = |entry: &&Entry| matches!(entry, Entry::Begin(Event::Clock(_), ..));
        self.shared.borrow().journal.iter().filter(is_it).count()
    }

    /// How often a task of it was preempted: at a count, and by a kick.
    pub(crate) fn preemptions(&self) -> [usize; 2] {
        let mut times = [0, 0];
        for entry in &self.shared.borrow().journal {
            if let Entry::Begin(Event::Preempt(offset), ..) = entry {
                times[usize::from(matches!(offset, Offset::State(_)))] += 1;
            }
        }
        times
    }
}

fn run(
    machine: Machine,
    launch: Launch,
    streams: Streams,
    shared: Rc<RefCell<Shared>>,
    next: Option<usize>,
) -> Ran {
    let kind = machine.cpu.kind();
    let gate = MemoryGate { shared: Rc::clone(&shared), next };
    let mut process =
        Process::start_with(machine, Box::new(gate), &launch, streams).expect("the program starts");
    let end = loop {
        match process.step() {
            Ok(Step::Running | Step::Died(_)) => {}
            Ok(end) => break end,
            Err(error) => panic!("{} on {}: {error}", launch.path, kind.name()),
        }
    };
    let (digest, told) = (process.memory_digest(), shared.borrow().output.clone());
    Ran { end, stdout: Vec::new(), told, digest, process, launch, shared }
}

/// Compiles a C program statically with each C library that is here, and runs `test` on each.
pub(crate) fn each_libc(name: &str, source: &str, flags: &[&str], test: impl Fn(&Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(format!("{name}.c"));
    fs::write(&file, source).expect("a file");
    let mut built = 0;
    // musl-gcc's specs make a dynamic program of a static-pie.
    let pie = flags.contains(&"-static-pie");
    let compilers: &[&str] = if pie { &["gcc"] } else { &["gcc", "musl-gcc"] };
    for compiler in compilers {
        let program = folder.path().join(format!("{name}-{compiler}"));
        let mut command = Command::new(compiler);
        let linking = if pie { "-static-pie" } else { "-static" };
        command.args([linking, "-O1", "-g", "-w", "-o"]).arg(&program).arg(&file).args(flags);
        match command.output() {
            Err(error) => skipped(compiler, &error),
            Ok(output) => {
                assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
                built += 1;
                test(&program);
            }
        }
    }
    assert!(built > 0, "there is a C compiler");
}
