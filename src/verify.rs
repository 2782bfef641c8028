//! `gretel verify`: checks a kept suffix again.

use crate::Outcome;
use crate::debug_files::DebugFiles;
use crate::exit::{Code, Failure};
use crate::kernel::{Source, Taken};
use crate::opened;
use crate::output::print;
use crate::synth::{Usable, Use, anchors, deep, usable};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use synth::certificate::{Certificate, CertificateError, Request, Verdict, certify};
use synth::evidence::Anchors;
use synth::program::Program;
use synth::report::Listing;
use synth::suffix::Suffix;
use vmm::elfcore::Core;

/// Check a kept suffix: run it forward, and compare where it ends with the core
///
/// The suffix is run on the software CPU, and under KVM where that can be used; every byte and register of the core, its branch
/// records and its crumbs are compared. What the suffix says of where its values come from (inferred, chosen) and of how
/// much is forced is not a matter of the run, and is not checked.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel synth -o suffix.json DIR && gretel verify suffix.json DIR
  gretel verify --json suffix.json --exe ./prog core.1234

Exit codes:
  0    the suffix ends in the core
  1    it does not
  2    it cannot be judged: it has an instruction that depends on more than its start
  120 and more: see gretel --help")]
pub(crate) struct Args {
    /// The suffix, as `gretel synth -o` kept it
    #[arg(value_name = "SUFFIX")]
    suffix: PathBuf,
    /// The recording's folder or the core file that it was made from
    #[arg(value_name = "DIR|CORE")]
    input: PathBuf,
    /// The executable of a core (default: the one in the recording, or where the core says that it was)
    #[arg(long, value_name = "PROG")]
    exe: Option<PathBuf>,
    /// Run it on the software CPU alone, even where KVM can be used
    #[arg(long)]
    no_kvm: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What one run may take under KVM.
const TIME: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args) -> Outcome {
    deep(|| run_deep(args))
}

fn run_deep(args: &Args) -> Outcome {
    let suffix = Suffix::load(&args.suffix).map_err(|e| Failure::new(Code::Damaged, e))?;
    let Crashed { core, program, usable: (records, recorded), anchors } = crashed(args)?;
    let verdict = certify(&Request {
        core: &core,
        suffix: &suffix,
        records: &records,
        recorded: &recorded,
        anchors: &anchors,
        time: TIME,
        kvm: !args.no_kvm,
    });
    let verdict = match verdict {
        // Such a suffix contradicts itself, or is another core's.
        Err(
            error @ (CertificateError::ConstantMemory { .. }
            | CertificateError::NoInput { .. }
            | CertificateError::NoThread { .. }),
        ) => {
            say(args, "rejected", &error.to_string())?;
            return Ok(ExitCode::from(1));
        }
        verdict => verdict.map_err(|e| Failure::new(Code::Host, e))?,
    };
    match verdict {
        Verdict::Certified(certificate) => {
            let listing = Listing::new(&program, &core, &suffix, &certificate);
            certified(args, &listing.map_err(|e| Failure::new(Code::Other, e))?, &certificate)
        }
        Verdict::Rejected(difference) => {
            say(args, "rejected", &difference.to_string())?;
            Ok(ExitCode::from(1))
        }
        Verdict::Refused { step, reason } => {
            say(args, "not judged", &format!("at instruction {step}: {reason}"))?;
            Ok(ExitCode::from(2))
        }
    }
}

/// The core that a suffix is of, with its program, its branch records and its crumbs.
struct Crashed {
    core: Core,
    program: Program,
    usable: Usable,
    anchors: Anchors,
}

fn crashed(args: &Args) -> Result<Crashed, Failure> {
    if let Some(source) = Source::of(&args.input) {
        let taken = Taken::of(&source, args.exe.as_deref())?;
        let (usable, anchors) = taken.evidence(Use::Counts)?;
        return Ok(Crashed { core: taken.core, program: taken.program, usable, anchors });
    }
    let opened = opened::open(&args.input, args.exe.as_deref(), &mut DebugFiles::none())?;
    opened::warn_of_damage(&opened.core);
    let (program, _) = opened.program().map_err(|why| Failure::new(Code::Damaged, why))?;
    let executable = opened.executable.as_ref().map(|(bytes, _)| bytes.as_slice());
    let anchors = anchors(&opened.core, executable, Use::Contexts)?;
    let core = opened.core;
    let damaged = |why| Failure::new(Code::Damaged, format!("{}: {why}", core.path.display()));
    let usable = usable(core.trail().map_err(damaged)?.as_ref())?;
    Ok(Crashed { core, program, usable, anchors })
}

fn certified(args: &Args, listing: &Listing, certificate: &Certificate) -> Outcome {
    if args.json {
        let summary = serde_json::to_value(&listing.summary).map_err(|e| Failure::new(Code::Other, e))?;
        print(format_args!("{}\n", json!({ "verdict": "certified", "summary": summary })))?;
    } else {
        print(format_args!("{}", listing.summary))?;
        if certificate.records > 0 {
            print(format_args!("{} branch records are reproduced\n", certificate.records))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn say(args: &Args, verdict: &str, why: &str) -> Result<(), Failure> {
    if args.json {
        print(format_args!("{}\n", json!({ "verdict": verdict, "why": why })))?;
    } else {
        print(format_args!("{verdict}: {why}\n"))?;
    }
    Ok(())
}
