//! `gretel trail`: shows the branch records of a file.

use crate::Outcome;
use crate::core_file::place;
use crate::exit::{Code, Failure};
use crate::output::written;
use crate::shown_trail::{self, Format, FormatArgs};
use lbr::code::{correct_fusion, name_kinds};
use lbr::file::{Known, trails};
use lbr::format::perf_sample::{BRANCH_STACK, SampleLayout};
use lbr::{Dump, Family, Filter, Trail};
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synth::program::Program;

/// Show the branch records of a file: a dump of a processor's registers, samples of perf, or what perf script prints
///
/// What the file is, and of which processor, is told from its content. docs/formats.md has the forms.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel trail registers.txt                          lines of a register and its value, as rdmsr and debuggers print them
  gretel trail --family intel-legacy:4 registers.txt  where the dump lacks IA32_PERF_CAPABILITIES
  gretel trail --exe ./prog perf.data                 every sample of perf record -b, with the program's functions
  perf script -F brstack | gretel trail --json /dev/stdin")]
pub(crate) struct Args {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    format: FormatArgs,
    /// Only the last sample of a file with several
    #[arg(long)]
    last: bool,
    /// A static executable (or one with --bias): names of functions, kinds of branches, branches that AMD fused with
    /// the instruction before them
    #[arg(long, value_name = "PROG")]
    exe: Option<PathBuf>,
    /// Where the executable is loaded, less the address that it has in its file
    #[arg(long, value_name = "HEX", value_parser = hexadecimal, default_value = "0", requires = "exe")]
    bias: u64,
    #[command(flatten, next_help_heading = "Of a dump of registers")]
    dump: DumpArgs,
    #[command(flatten, next_help_heading = "Of records of perf's ring buffer")]
    sample: SampleArgs,
}

#[derive(clap::Args)]
struct DumpArgs {
    /// Whose registers: intel-legacy:N (N is the record format), intel-arch, amd-v2, amd-single
    #[arg(long, value_name = "FAMILY")]
    family: Option<Family>,
    /// How many records there are
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// The index of the newest record (MSR_LASTBRANCH_TOS)
    #[arg(long, value_name = "N")]
    top: Option<u32>,
    /// Which branches were recorded (also of perf's forms): a name as for record, or LBR_SELECT in hexadecimal
    #[arg(long, value_name = "FILTER")]
    filter: Option<Filter>,
    /// The processor has no transactions (neither HLE nor RTM)
    #[arg(long)]
    no_tsx: bool,
    /// The width of its virtual addresses
    #[arg(long, value_name = "48|57")]
    address_bits: Option<u32>,
}

#[derive(clap::Args)]
struct SampleArgs {
    /// perf_event_attr.sample_type, where a sample is more than its branch stack
    #[arg(long, value_name = "HEX", value_parser = hexadecimal)]
    sample_type: Option<u64>,
    /// perf_event_attr.branch_sample_type
    #[arg(long, value_name = "HEX", value_parser = hexadecimal)]
    branch_sample_type: Option<u64>,
    /// perf_event_attr.read_format
    #[arg(long, value_name = "HEX", value_parser = hexadecimal)]
    read_format: Option<u64>,
}

impl SampleArgs {
    /// The layout, if anything was said of it.
    fn layout(&self) -> Option<SampleLayout> {
        let Self { sample_type, branch_sample_type, read_format } = *self;
        sample_type.or(branch_sample_type).or(read_format)?;
        Some(SampleLayout {
            sample_type: sample_type.unwrap_or(BRANCH_STACK),
            branch_sample_type: branch_sample_type.unwrap_or(0),
            read_format: read_format.unwrap_or(0),
        })
    }
}

fn hexadecimal(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| format!("{text} is not a hexadecimal number"))
}

pub(crate) fn run(args: &Args) -> Outcome {
    let damaged = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::new(Code::Damaged, format!("{}: {error}", path.display()))
    };
    let read = |path: &Path| {
        fs::read(path)
            .map_err(|e| Failure::new(Code::Damaged, format!("cannot read {}: {e}", path.display())))
    };
    let DumpArgs { family, depth, top, filter, no_tsx, address_bits } = args.dump;
    let dump = Dump { family, depth, top, filter, tsx: no_tsx.then_some(false), address_bits };
    let layout = args.sample.layout();
    let bytes = read(&args.file)?;
    let mut found = trails(&bytes, &Known { dump, layout }).map_err(|error| damaged(&args.file, &error))?;
    if args.last {
        found.drain(..found.len().saturating_sub(1));
    }
    let program = match &args.exe {
        Some(exe) => Some(Program::from_bytes(&read(exe)?, args.bias).map_err(|error| damaged(exe, &error))?),
        None => None,
    };
    if let Some(program) = &program {
        found.iter_mut().for_each(|trail| complete(trail, program));
    }
    written(print(&found, program.as_ref(), args.format.get()))?;
    Ok(ExitCode::SUCCESS)
}

/// Adds what the program's code tells.
fn complete(trail: &mut Trail, program: &Program) {
    let code = |address: u64, bytes: &mut [u8]| {
        let known = (1..=bytes.len()).rev().find_map(|len| program.code(address, len));
        known.map_or(0, |known| {
            bytes[..known.len()].copy_from_slice(known);
            known.len()
        })
    };
    if trail.family == Family::AmdV2 {
        correct_fusion(trail, code);
    }
    name_kinds(trail, code);
}

fn print(trails: &[Trail], program: Option<&Program>, format: Format) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let places = |trail: &Trail| -> Vec<(String, String)> {
        trail.records.iter().map(|r| (place(program, r.from), place(program, r.to))).collect()
    };
    match format {
        Format::Text => {
            for (n, trail) in trails.iter().enumerate() {
                if n > 0 {
                    writeln!(out)?;
                }
                shown_trail::print(&mut out, trail, &places(trail))?;
            }
        }
        Format::Json => {
            let trails: Vec<Value> =
                trails.iter().map(|trail| shown_trail::as_json(trail, &places(trail))).collect();
            writeln!(out, "{}", serde_json::json!({ "trails": trails }))?;
        }
        Format::PerfScript => {
            for trail in trails {
                writeln!(out, "{}", shown_trail::perf_script(trail))?;
            }
        }
    }
    out.flush()
}
