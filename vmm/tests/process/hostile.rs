//! A guest that makes every system call with every kind of bad argument, and a journal that lies: neither may
//! make the personality panic. The gate replays, so the host is never called.

use std::collections::BTreeSet;
use std::sync::Arc;
use vmm::cpu_model::Model;
use vmm::engine::soft::SoftCpu;
use vmm::gate::{Event, FileContent, Gate, GateError, Input, MemoryWrite, Time};
use vmm::process::{Capabilities, Launch, Process, ProcessError, Step};
use x86::state::Regs;

/// Reproducible numbers (xorshift64).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An argument of the kinds that go wrong: pointers good and bad, lengths, flags, descriptors.
    fn argument(&mut self) -> u64 {
        const EDGES: [u64; 14] = [
            0,
            1,
            3,
            0x40_0000,
            0x40_0ff8,
            0x40_1000,
            0x7fff_ffff_e000,
            0x7fff_ffff_eff9,
            0x7fff_ffff_f000,
            0x7fff_f7ff_c000,
            1 << 47,
            u64::MAX,
            u64::MAX - 4095,
            i64::MAX.unsigned_abs(),
        ];
        match self.below(4) {
            0 => self.below(64),
            1 => 1 << self.below(64),
            2 => self.next(),
            _ => EDGES[usize::try_from(self.below(14)).expect("an index")],
        }
    }
}

/// Says anything.
struct Liar(Random);

impl Gate for Liar {
    fn begin(&mut self, _: Event, _: i32, _: &Regs) -> Result<(), GateError> {
        Ok(())
    }

    fn input(&mut self, _: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        let random = &mut self.0;
        let result = i64::from_le_bytes(random.argument().to_le_bytes());
        let write = |random: &mut Random| MemoryWrite { address: random.argument(), bytes: vec![7; 9] };
        Ok(match random.below(8) {
            0 => Input::Ready {
                result,
                tasks: vec![1000, 1001, random.below(2000).try_into().expect("small")],
            },
            1 => Input::Result(result),
            2 => Input::File(Err(result)),
            3 => {
                let bytes = Arc::new(vec![7; usize::try_from(random.below(9000)).expect("small")]);
                Input::File(Ok(Arc::new(FileContent { name: b"/x".to_vec(), bytes })))
            }
            4 => Input::File(Ok(Arc::new(FileContent { name: b"/x".to_vec(), bytes: Arc::new(program()) }))),
            _ => Input::Bytes { result, writes: (0..random.below(3)).map(|_| write(random)).collect() },
        })
    }

    fn time(&mut self) -> Result<Time, GateError> {
        Ok(Time { real: self.0.next(), monotonic: self.0.next() })
    }

    fn output(&mut self, _: i32, _: &[u8]) {}

    fn replaying(&self) -> bool {
        true
    }
}

/// One page with a system call and a jump back to it.
pub(crate) fn program() -> Vec<u8> {
    let mut file = vec![0; 0x1000];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    put(16, &[2, 0, 62, 0, 1]);
    put(24, &0x40_0100_u64.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    put(52, &[64, 0, 56, 0, 1]);
    put(64, &[1, 0, 0, 0, 7]);
    put(80, &0x40_0000_u64.to_le_bytes());
    put(96, &0x1000_u64.to_le_bytes());
    put(104, &0x3000_u64.to_le_bytes());
    put(0x100, &[0x0f, 0x05, 0xeb, 0xfc]);
    file
}

fn start(seed: u64) -> Process {
    let launch = Launch {
        executable: program(),
        path: "/hostile".to_owned(),
        name: b"/hostile".to_vec(),
        argv: vec![b"hostile".to_vec()],
        cwd: b"/".to_vec(),
        pid: 1000,
        cpu: Model::V2,
        capabilities: Capabilities::usual(true),
        ..Launch::default()
    };
    let machine = SoftCpu::machine(64 << 20).expect("memory").any();
    Process::start(machine, Box::new(Liar(Random(seed))), &launch).expect("it starts")
}

#[test]
fn no_call_with_any_argument_panics() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut process = start(1);
    let mut served = BTreeSet::new();
    for round in 0..30_000 {
        let mut regs = *process.cpu().regs();
        let number = random.below(460);
        regs.rip = 0x40_0100;
        for register in [0, 2, 6, 7, 8, 9, 10] {
            regs.gpr[register] = random.argument();
        }
        regs.gpr[0] = number;
        process.cpu_mut().set_regs(&regs).expect("registers");
        // Twice, in case the code page was not resident.
        let ended = (0..2).any(|_| match process.step() {
            Ok(Step::Running) => false,
            // A journal with another kind of input is not of this program, and that is said.
            Ok(_) | Err(ProcessError::Memory(_) | ProcessError::Gate(GateError::OtherInput(_))) => true,
            Err(error) => panic!("call {number}: {error}"),
        });
        if *process.cpu().regs() != regs {
            served.insert(number);
        }
        // Threads that all wait may do so for ever.
        if ended || process.waits() {
            process = start(round + 2);
        }
    }
    assert!(served.len() > 450, "{} calls were made", served.len());
}
