//! Runs `x86/golden/*.txt` on the concrete machine.
//!
//! With `GRETEL_BLESS=1` the text and the outcome of each line are written anew from what the machine does. Read
//! the difference against the manual before you keep it: a bless turns a bug into a law.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions};
use x86::bus::Bus;
use x86::cpu::Cpu;
use x86::flags::Flag;
use x86::flat::{Flat, Protection};
use x86::golden::{CODE, Case, DATA, DATA_END, Situation, difference, disassemble, parse};
use x86::interpreter::{Interpreter, Stop, Until};
use x86::machine::Trap;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs the instructions of a case, several of them as a block; gives what came of it, or what stopped it.
fn execute(case: &Case) -> Result<(Option<Trap>, Situation), String> {
    let mut memory = Flat::new();
    let size = usize::try_from(DATA_END - DATA).unwrap();
    memory.map(DATA, &vec![0; size], Protection::DATA);
    memory.map(CODE, &case.bytes, Protection::CODE);
    for (&at, &byte) in &case.before.memory {
        assert!(memory.set_byte(at, byte), "line {}: {at:#x} is not mapped", case.line);
    }
    let mut cpu = Cpu::new(memory);
    cpu.load_state(&case.before.state);
    let mut interpreter = Interpreter::new(cpu);
    let instructions = Decoder::new(64, &case.bytes, DecoderOptions::NONE).into_iter().count() as u64;
    let stop = match instructions {
        0 | 1 => interpreter.step(&mut ()),
        _ => Some(interpreter.run(Until::retired(instructions), &mut ())),
    };
    let trap = match stop {
        None | Some(Stop::Budget) => None,
        Some(Stop::Trap { trap, .. }) => Some(trap),
        Some(stop) => return Err(format!("{stop:?}")),
    };
    let cpu = interpreter.cpu();
    let bytes = (DATA..DATA_END).zip(cpu.bus().ram());
    let memory = bytes.filter(|(_, b)| **b != 0).map(|(at, b)| (at, *b)).collect();
    Ok((trap, Situation { state: cpu.state(), memory }))
}

#[test]
fn the_concrete_machine_does_what_the_golden_cases_say() {
    if std::env::var_os("GRETEL_BLESS").is_some() {
        files().iter().for_each(|file| bless(file));
    }
    let mut failures = String::new();
    let mut count = 0;
    for file in files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        for case in parse(&fs::read_to_string(&file).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}")) {
            count += 1;
            assert_eq!(disassemble(&case.bytes), case.text, "{name}, line {}", case.line);
            let (trap, mut after) = match execute(&case) {
                Ok(done) => done,
                Err(stop) => {
                    writeln!(failures, "{name}:{}: {}: {stop}", case.line, case.text).unwrap();
                    continue;
                }
            };
            after.state.regs.rflags &= !case.undefined;
            let wrong = difference(&case.after, &after);
            if trap != case.trap || !wrong.is_empty() {
                writeln!(failures, "{name}:{}: {}: {trap:?} {wrong}", case.line, case.text).unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(count > 100, "only {count} golden cases");
}

/// Rewrites the text and the outcome of each case; flags that were `?` stay so.
fn bless(file: &Path) {
    let old = fs::read_to_string(file).unwrap();
    let cases = parse(&old).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut lines: Vec<String> = old.lines().map(str::to_owned).collect();
    for case in cases {
        let line = &mut lines[case.line - 1];
        let given = line.split_once("=>").unwrap().0.rsplit_once('|').unwrap().1.trim().to_owned();
        let hex: Vec<_> = case.bytes.iter().map(|b| format!("{b:02x}")).collect();
        let Ok((trap, mut after)) = execute(&case) else { continue };
        after.state.regs.rflags =
            after.state.regs.rflags & !case.undefined | case.before.state.regs.rflags & case.undefined;
        let falls_through = CODE + case.bytes.len() as u64;
        let mut before = case.before.clone();
        if trap.is_none() || matches!(trap, Some(Trap::Breakpoint | Trap::Debug)) {
            before.state.regs.rip = falls_through;
        }
        let mut words: Vec<String> = trap.iter().map(|t| trap_name(*t).to_owned()).collect();
        words.push(difference(&before, &after));
        let undefined = Flag::ALL.iter().zip(["cf", "pf", "af", "zf", "sf", "of"]);
        words.extend(
            undefined
                .filter(|(f, _)| case.undefined >> f.bit() & 1 != 0)
                .map(|(_, name)| format!("{name}=?")),
        );
        words.retain(|w| !w.is_empty());
        let given = if given.is_empty() { given } else { given + " " };
        *line = format!("{} | {} | {given}=> {}", hex.join(" "), disassemble(&case.bytes), words.join(" "));
        line.truncate(line.trim_end().len());
    }
    fs::write(file, lines.join("\n") + "\n").unwrap();
}

fn trap_name(trap: Trap) -> &'static str {
    match trap {
        Trap::Page => "#PF",
        Trap::Divide => "#DE",
        Trap::Undefined => "#UD",
        Trap::General => "#GP",
        Trap::Stack => "#SS",
        Trap::Breakpoint => "#BP",
        Trap::Debug => "#DB",
        Trap::X87 => "#MF",
        Trap::Simd => "#XM",
        Trap::Infeasible => "infeasible",
    }
}
