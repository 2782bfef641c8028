//! The interpreter half: the same cases on the software CPU, over the same pages.

use crate::case::{Case, Ending, Image, Outcome, Writes};
use crate::layout::{CODE, CODE_MAX, DATA, DATA_SIZE, EXIT_JUMP, PAGE, READ_ONLY, WRITABLE, exit_jump};
use iced_x86::Instruction;
use x86::bus::{Access, Bus, PageFault, Translation};
use x86::cpu::Cpu;
use x86::interpreter::{Interpreter, Stop, Until};
use x86::machine::Trap;
use x86::state::State;

/// The most instructions that a case may retire.
const BUDGET: u64 = 1000;

/// The pages of [`crate::layout`]: frame 0 is the code page, the data pages follow.
struct Pages {
    ram: Box<[u8]>,
}

impl Pages {
    fn data(&mut self) -> &mut [u8] {
        &mut self.ram[PAGE..]
    }
}

impl Bus for Pages {
    fn ram(&self) -> &[u8] {
        &self.ram
    }

    fn ram_mut(&mut self) -> &mut [u8] {
        &mut self.ram
    }

    fn translate(&mut self, va: u64, access: Access) -> Result<Translation, PageFault> {
        let page = va & !(PAGE as u64 - 1);
        let in_data = page.wrapping_sub(DATA);
        let (frame, writable, executable) = match page {
            CODE => (0, false, true),
            READ_ONLY => ((PAGE + WRITABLE) as u64, false, false),
            _ if in_data < WRITABLE as u64 => (PAGE as u64 + in_data, true, false),
            _ => return Err(PageFault::new(va, access, false)),
        };
        match access {
            Access::Write if !writable => Err(PageFault::new(va, access, true)),
            Access::Execute if !executable => Err(PageFault::new(va, access, true)),
            _ => Ok(Translation { frame, writable, executable }),
        }
    }
}

/// Whether the table has semantics for `i`.
#[must_use]
pub fn has_semantics(i: &Instruction) -> bool {
    x86::table::lookup::<Cpu<Pages>>(i).is_some()
}

/// The state before an instruction.
#[derive(Debug)]
pub(crate) struct Step {
    /// Registers.
    pub(crate) state: State,
    /// The data pages.
    pub(crate) image: Box<Image>,
    /// Whether the instruction retired.
    pub(crate) retired: bool,
}

/// The software CPU with the pages of [`crate::layout`].
pub struct Soft {
    interpreter: Interpreter<Pages>,
    image: Box<Image>,
    /// The case whose code is in the code page.
    loaded: Option<Case>,
}

impl Default for Soft {
    fn default() -> Self {
        Soft::new()
    }
}

impl Soft {
    /// A CPU with INT3 in its code page and zeros in its data pages.
    #[must_use]
    pub fn new() -> Soft {
        let mut ram = vec![0xcc; PAGE + DATA_SIZE].into_boxed_slice();
        ram[PAGE..].fill(0);
        let cpu = Cpu::new(Pages { ram });
        Soft { interpreter: Interpreter::new(cpu), image: Box::new([0; DATA_SIZE]), loaded: None }
    }

    /// Fills the data pages for the cases to come.
    pub fn load_image(&mut self, image: &Image) {
        *self.image = *image;
        self.interpreter.cpu_mut().bus_mut().data().copy_from_slice(image);
    }

    /// Runs one case and puts the pages back.
    pub fn run(&mut self, case: &Case) -> Outcome {
        self.prepare(case);
        let budget = self.interpreter.counters().instructions + BUDGET;
        let stop = self.interpreter.run(Until::retired(budget), &mut ());
        self.finish(case, Some(stop))
    }

    /// Runs one case an instruction at a time, and gives the state before each.
    pub(crate) fn trace(&mut self, case: &Case) -> Vec<Step> {
        self.prepare(case);
        let mut steps = Vec::new();
        for _ in 0..BUDGET {
            let cpu = self.interpreter.cpu_mut();
            let state = cpu.state();
            if Some(state.regs.rip) == case.end() {
                break;
            }
            let mut image = self.image.clone();
            image.copy_from_slice(cpu.bus_mut().data());
            let retired = self.interpreter.step(&mut ()).is_none();
            steps.push(Step { state, image, retired });
            if !retired {
                break;
            }
        }
        self.finish(case, None);
        steps
    }

    fn prepare(&mut self, case: &Case) {
        // Several cases have the same code: it is decoded once.
        let key = |case: &Case| (case.offset(), case.code, case.len);
        if self.loaded.as_ref().map(key) != Some(key(case)) {
            if let Some(before) = self.loaded.replace(*case) {
                self.put_code(&before, &[0xcc; CODE_MAX + EXIT_JUMP]);
            }
            let exit_jump = exit_jump();
            let behind = if case.end().is_some() { &exit_jump[..] } else { &[] };
            self.put_code(case, &[case.bytes(), behind].concat());
        }
        self.interpreter.cpu_mut().load_state(&case.state);
    }

    /// Puts `bytes`, or as many as are left in the page, where the code of `case` is.
    fn put_code(&mut self, case: &Case, bytes: &[u8]) {
        let Some(offset) = case.offset() else { return };
        let bytes = &bytes[..bytes.len().min(PAGE - offset)];
        let cpu = self.interpreter.cpu_mut();
        cpu.bus_mut().ram[offset..offset + bytes.len()].copy_from_slice(bytes);
        cpu.written(offset as u64, bytes.len() as u64);
    }

    fn finish(&mut self, case: &Case, stop: Option<Stop>) -> Outcome {
        let cpu = self.interpreter.cpu_mut();
        let state = cpu.state();
        let fault = cpu.last_page_fault();
        let writes = Writes::take(&self.image, cpu.bus_mut().data());
        let ending = match stop {
            Some(Stop::Trap { at, .. }) if case.end() == Some(at) => Ending::Completed,
            Some(Stop::Trap { trap, .. }) => fault_of(trap, fault),
            Some(Stop::NoSemantics { .. } | Stop::Differing | Stop::System | Stop::Strings) => {
                Ending::Unsupported
            }
            Some(Stop::Syscall | Stop::MachineRead { .. }) => Ending::SystemCall,
            Some(Stop::Budget | Stop::At) | None => Ending::Lost,
        };
        Outcome { ending, state, writes }
    }
}

fn fault_of(trap: Trap, page_fault: Option<PageFault>) -> Ending {
    let vector = match trap {
        Trap::Divide => 0,
        Trap::Debug => 1,
        Trap::Breakpoint => 3,
        Trap::Undefined => 6,
        Trap::Stack => 12,
        Trap::General => 13,
        Trap::Page => 14,
        Trap::X87 => 16,
        Trap::Simd => 19,
        Trap::Infeasible => return Ending::Unsupported,
    };
    match page_fault {
        Some(PageFault { address, error_code }) if trap == Trap::Page => {
            Ending::Fault { vector, error: error_code, address }
        }
        _ => Ending::Fault { vector, error: 0, address: 0 },
    }
}
