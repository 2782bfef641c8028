//! `gretel why`: where a value comes from, back to where it entered the program.
//!
//! [`question`] is what is asked for, [`blamed`] says what made a program crash, [`decided`] what made it abort, [`caught`] which fault
//! its handler was called for before that, [`chosen`] what to ask next where it is a constant, [`said`] what it said then, [`sender`] who
//! else sent the signal, [`table`] what to ask next where the value is a table's. [`shown`] is how a slice ([`vmm::slice`]) is printed;
//! [`folded`] leaves out the copies that say nothing, [`callers`] says for whom a library did what it did. [`suffix`] asks a synthesized
//! execution the same, and [`gave_up`] what made it abort. [`freed`] is what `free` was given that made it abort.

mod blamed;
mod callers;
mod caught;
mod chosen;
mod decided;
mod folded;
mod freed;
mod gave_up;
mod question;
mod said;
mod sender;
mod shown;
mod suffix;
mod table;

use crate::Outcome;
use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::followed::{self, Subject};
use crate::index;
use crate::kernel;
use crate::log::{say, spinner};
use crate::replay::failure;
use crate::sandbox;
use crate::shell;
use crate::symbols::Symbols;
use chosen::slice_with_choices;
pub(crate) use folded::LeftOut;
use question::{Asked, Expression, Question};
use shown::View;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use vmm::engine::Interrupter;
use vmm::interrupt;
use vmm::position::Position;
use vmm::ram::for_replay;
use vmm::recording::Recording;
use vmm::slice::recorded::Recorded;
use vmm::slice::{Cut, Follow, slice};
use vmm::travel::Travel;

/// Show where a value comes from: who wrote it, and what that was made of, back to the input
///
/// Goes back from the crash, or from any position, over the instructions that made the value: through registers,
/// memory, threads and system calls, exact to the byte. By default it is the value that made the program crash: the
/// registers of the address that could not be accessed, the divisor that was zero, the pointer that was jumped to; of an
/// abort, the last decision of the function that called for it; where a handler of signals gave up, or runs at the
/// position, the fault that it was called for. What told where a value was found (the address of a load) is followed
/// only with --addresses, and what chose it with --conditions.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel why rec                              why it crashed
  gretel why rec --of rax --at 120+5000       why rax is what it is there
  gretel why rec --of 'order->amount'         a variable, by its name in the source
  gretel why rec --of 0x55555555a2c8:8        who made these eight bytes, at the end
  gretel why rec --addresses                  and why it looked there
  gretel why --exe ./prog core.1234           of a core alone, over a suffix that is searched first
  gretel why kernel-rec                       of a machine with a kernel, over the same
  gretel why --suffix suffix.json rec         over a suffix that was kept: what is forced, and what one possibility
  gretel why rec --json | jq '.nodes[-1]'

The newest step comes first. Copies within a function are left out, and what moves the stack pointer by a constant
(--all shows both). A position that is shown is one before the step: `gretel gdb rec --at POSITION` goes there. Ctrl-C
ends the search, and what was found is shown.")]
pub(crate) struct Args {
    /// A recording's folder, or a core file
    #[arg(value_name = "DIR|CORE")]
    input: PathBuf,
    /// Go back over this suffix, as `gretel synth -o` kept it, instead of the recording; of a core alone one is searched
    #[arg(long, value_name = "SUFFIX", conflicts_with_all = ["at", "pid", "thread"])]
    suffix: Option<PathBuf>,
    /// The executable of a core (default: the one in the recording, or where the core says that it was)
    #[arg(long, value_name = "PROG")]
    exe: Option<PathBuf>,
    /// A register (rax, eax, xmm0, rip), memory as ADDRESS:LENGTH, or of a recording an expression of the source, as order->amount
    /// (default: what made the program crash)
    #[arg(long, value_name = "EXPR")]
    of: Option<Expression>,
    /// When: an event by its number, or EVENT+INSTRUCTIONS (default: the end)
    #[arg(long, value_name = "POSITION")]
    at: Option<Position>,
    /// A process, by its number in the recording: where it ended, instead of the end
    #[arg(long, value_name = "PID", conflicts_with = "at")]
    pid: Option<i32>,
    /// Whose registers and memory, by its number in the recording (default: the task that is loaded there)
    #[arg(long, value_name = "TASK")]
    thread: Option<i32>,
    /// Follow also what told where in memory a value was found
    #[arg(long)]
    addresses: bool,
    /// Follow also what chose a value among several
    #[arg(long)]
    conditions: bool,
    /// At most so many steps, copies included, and as many moves of the stack pointer
    #[arg(long, value_name = "N", default_value_t = 300)]
    steps: usize,
    /// Show copies and moves of the stack pointer, too
    #[arg(long)]
    all: bool,
    /// What runs the program: where single instructions count, it is the software CPU
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let is_kernels = kernel::Source::of(&args.input).is_some();
    if is_kernels && (args.at.is_some() || args.pid.is_some() || args.thread.is_some()) {
        let why = "of a kernel it goes back over the suffix that `gretel synth` finds from its crash: leave --at, --pid and --thread out";
        return Err(Failure::new(Code::Usage, format!("{}: {why}", args.input.display())));
    }
    let is_over_suffix = args.suffix.is_some() || args.input.is_file() || is_kernels;
    if is_over_suffix { suffix::run(args) } else { of_recording(args) }
}

fn of_recording(args: &Args) -> Outcome {
    let recording = Recording::open(&args.input).map_err(|e| Failure::new(Code::Damaged, e))?;
    let machine = engine::open(args.engine, for_replay())?;
    let mut symbols = Symbols::of(&args.input);
    sandbox::enter();
    let mut travel = followed::travel(&recording, machine)?;
    index::make(&mut travel, &recording)?;
    travel.seek_end().map_err(failure)?;
    let damage = travel.damage();
    if let Some(damage) = &damage
        && followed::say_damage(&args.input, damage)
    {
        say!("gretel: what comes before it is looked at");
    }
    // Where others went on, the end is not where it crashed.
    let is_asked = args.pid.is_none() && args.at.is_none();
    let subject = Subject::of(travel.process(), &recording).filter(|_| is_asked);
    if let Some(subject) = &subject {
        say!("gretel: {subject}; this is about {} (--pid asks for another)", subject.pid);
    }
    if let Some(pid) = args.pid.or_else(|| subject.map(|subject| subject.pid)) {
        followed::go_to_process(&mut travel, pid)?;
    }
    if let Some(at) = args.at {
        let arrived = travel.seek(at).map_err(failure)?;
        if arrived != at {
            say!("gretel: the program does not stand at {at}, but at {arrived}");
        }
    }
    symbols.look(travel.process());
    stop_on_signals(&travel)?;
    let sent = match args.of {
        None => sender::elsewhere(&mut travel).map_err(failure)?,
        Some(_) => None,
    };
    let mut history = Recorded::new(&mut travel);
    let asked = Asked { expression: args.of.as_ref(), thread: args.thread, sent };
    let question = Question::of(asked, &mut history, &symbols)?;
    let follow = Follow { addresses: args.addresses, conditions: args.conditions };
    let asked = (question.at, question.place);
    let bar = spinner();
    let mut told =
        |nodes: usize, at: Position| bar.set_message(format!("{nodes} steps; going back from {at}"));
    let how = (follow, args.steps);
    let slice = match args.of {
        None => slice_with_choices(&mut history, &mut symbols, asked, &question.bytes, how, &mut told),
        Some(_) => slice(&mut history, asked, &question.bytes, follow, args.steps, &mut told),
    };
    let slice = slice.map_err(failure)?;
    bar.finish_and_clear();
    let places = callers::places(&mut history, &slice, &mut symbols, (question.at, question.place.pid))?;
    let callers = callers::callers(&mut history, &slice, &mut symbols, &places)?;
    let travel = history.travel();
    travel.seek(question.at).map_err(failure)?;
    symbols.look(travel.process());
    let view = shown::View {
        question: &question,
        slice: &slice,
        names: &symbols,
        places: &places,
        is_sure: &|_| true,
        callers: &callers,
    };
    show(args, &view)?;
    let index = table::index(&slice, &travel.process().mappings());
    if let Some(table::Index { register, at, thread }) = index.filter(|_| !args.addresses) {
        let dir = shell::word(&args.input);
        let whose =
            if thread == travel.process().thread() { String::new() } else { format!(" --thread {thread}") };
        say!(
            "gretel: the value is from a table; what chose the entry: gretel why {dir} --of {register} --at {at}{whose}"
        );
    }
    if let Some(address) = freed::refused(travel, &symbols, &question).map_err(failure)? {
        let dir = shell::word(&args.input);
        say!("gretel: next: gretel heap {dir} {address:#x}, who allocated that memory and who freed it");
    }
    Ok(if damage.is_some() { Code::Damaged.into() } else { ExitCode::SUCCESS })
}

fn show<At: Copy + Ord + Display>(args: &Args, view: &View<'_, At>) -> Result<(), Failure> {
    if args.json {
        view.print_json()?;
    } else {
        view.print(args.all)?;
    }
    match view.slice.cut {
        Some(Cut::Nodes) => {
            say!("gretel: there is more: these are the last {} steps; --steps N shows more", args.steps);
        }
        Some(Cut::Asked) => say!("gretel: interrupted: what comes before is not shown"),
        None => {}
    }
    Ok(())
}

/// Ctrl-C ends the search, and what was found is shown.
fn stop_on_signals(travel: &Travel) -> Result<(), Failure> {
    let interrupter = Interrupter::new();
    interrupt::stop_on_signals(interrupter.clone())
        .map_err(|e| Failure::new(Code::Other, format!("cannot handle signals: {e}")))?;
    let asks = travel.asks();
    thread::spawn(move || {
        while !interrupter.is_raised() {
            thread::sleep(Duration::from_millis(50));
        }
        asks.store(true, Ordering::Relaxed);
    });
    Ok(())
}
