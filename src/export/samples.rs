//! `gretel export --samples`: what `perf record -b` would have sampled of a recorded program, as `perf script` prints it.

use super::{Args, is_stdout, unwritable, wrote};
use crate::Outcome;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::output::Printed;
use crate::samples::{Pace, Sample, take};
use lbr::format::brstack;
use lbr::format::perf::Stack;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

pub(super) fn run(args: &Args) -> Outcome {
    let mut out: Box<dyn Write> = match is_stdout(&args.output) {
        true => Box::new(BufWriter::new(io::stdout().lock())),
        false => Box::new(BufWriter::new(File::create(&args.output).map_err(|e| unwritable(args, &e))?)),
    };
    let mut samples = 0u64;
    let period = args.period.unwrap_or(vmm::samples::PERIOD);
    let damage = take(&args.dir, Pace::Every(period), &mut |taken| {
        let line = match taken {
            Sample::Mapped(mapping, pid) => mapping.print(pid),
            Sample::Branches(trail) => {
                samples += 1;
                brstack::print(&Stack::from(trail))
            }
        };
        Ok(wrote(args, writeln!(out, "{line}"))? == Printed::Yes)
    })?;
    if wrote(args, out.flush())? == Printed::Closed {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(damage) = damage {
        say!("gretel: {damage}");
        say!("gretel: {samples} samples were taken before it");
        return Ok(Code::Damaged.into());
    }
    if samples == 0 {
        let why = format!(
            "{}: the program ran for less than two periods of {period} instructions: give a shorter --period",
            args.dir.display()
        );
        return Err(Failure::new(Code::Other, why));
    }
    say!("gretel: {samples} samples, one every {period} instructions");
    Ok(ExitCode::SUCCESS)
}
