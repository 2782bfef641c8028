//! `gretel bench`: what gretel costs on this machine, and what it finds.

mod bare;
mod costs;
mod measure;
mod plots;
mod programs;
mod reach;
mod record;
mod resident;
mod synth;
mod table;

use crate::Outcome;

/// Measure what recording costs on this machine, and what branch records buy
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Record(record::Args),
    Synth(synth::Args),
    Bare(bare::Args),
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.what {
        What::Record(args) => record::run(args),
        What::Synth(args) => synth::run(args),
        What::Bare(args) => bare::run(args),
    }
}
