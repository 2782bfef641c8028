//! `gretel bench`: what gretel costs on this machine.

mod bare;
mod measure;
mod programs;
mod record;
mod table;

use crate::Outcome;

/// Measure what recording costs on this machine
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Record(record::Args),
    Bare(bare::Args),
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.what {
        What::Record(args) => record::run(args),
        What::Bare(args) => bare::run(args),
    }
}
