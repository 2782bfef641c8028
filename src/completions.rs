//! `gretel completions`: what a shell needs to complete gretel's command line.

use crate::output::print;
use crate::{Cli, Outcome};
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

/// Print the completions of the command line for a shell
///
/// `make install` and the Debian package put them where bash, zsh and fish look.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  source <(gretel completions bash)
  gretel completions zsh > ~/.zfunc/_gretel
  gretel completions fish > ~/.config/fish/completions/gretel.fish
  gretel completions elvish >> ~/.config/elvish/rc.elv
  gretel completions powershell >> $PROFILE")]
pub(crate) struct Args {
    /// Which shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Outcome {
    // The generator panics where it cannot write: a closed pipe is none of its cases.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gretel", &mut script);
    print(format_args!("{}", String::from_utf8_lossy(&script)))?;
    Ok(ExitCode::SUCCESS)
}
