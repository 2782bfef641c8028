//! Branch records of a crash: the options that ask for them, and the core that gets them.

use crate::exit::{Code, Failure};
use lbr::Filter;
use std::io::{self, IsTerminal};
use vmm::recording::Recording;
use vmm::trail::derive;

/// Which branch records a core is to have.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Wanted {
    /// How many of the last branches a core holds
    #[arg(long, value_name = "0|16|32", default_value = "16", value_parser = parse_records)]
    records: u32,
    /// Which branches are recorded: any, no-jcc, calls, ret-ind, indirect, or a value of LBR_SELECT in hexadecimal
    #[arg(long, value_name = "FILTER", default_value_t = Filter::ANY)]
    filter: Filter,
}

pub(crate) fn parse_records(text: &str) -> Result<u32, String> {
    match text {
        "0" => Ok(0),
        "16" => Ok(16),
        "32" => Ok(32),
        _ => Err("hardware has 16 or 32 of them; 0 asks for none".to_owned()),
    }
}

/// Runs the crash again on the software CPU, and writes the core anew with the branches that it recorded. If the crash
/// does not run there, the core stays without them, and stderr says why.
pub(crate) fn add_to_core(recording: &Recording, args: &Wanted, origin: &str) -> Result<(), Failure> {
    if args.records == 0 {
        return Ok(());
    }
    if io::stderr().is_terminal() {
        eprintln!("gretel: running the crash again on the software CPU, for its last branches");
    }
    match derive(recording, args.records, args.filter) {
        Ok(mut derived) => {
            let origin = format!("{origin}branch records: derived on the software CPU\n");
            derived.write_core(recording, &origin).map_err(|e| Failure::new(Code::Write, e))
        }
        Err(error) => {
            eprintln!("gretel: the core has no branch records: {error}");
            Ok(())
        }
    }
}
