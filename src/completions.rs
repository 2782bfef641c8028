//! `gretel completions`: what a shell needs to complete gretel's command line.

use crate::output::print;
use crate::{Cli, Outcome};
use clap::{Command, CommandFactory};
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
    clap_complete::generate(args.shell, &mut shown(), "gretel", &mut script);
    print(format_args!("{}", String::from_utf8_lossy(&script)))?;
    if args.shell == Shell::Fish {
        print(format_args!("{}", words_for_fish(&Cli::command())))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The command line without the commands that are hidden, which the generators do not leave out.
fn shown() -> Command {
    let all = Cli::command();
    let commands = all.get_subcommands().filter(|it| !it.is_hide_set());
    let shown = Command::new("gretel").version(env!("CARGO_PKG_VERSION"));
    shown.args(all.get_arguments()).subcommands(commands)
}

/// The words that an argument without a name can be, each a line for fish, whose generator leaves them out.
fn words_for_fish(gretel: &Command) -> String {
    let of_command = |command: &Command| {
        let positional = command.get_positionals().flat_map(|it| it.get_possible_values());
        let words: Vec<_> =
            positional.filter(|it| !it.is_hide_set()).map(|it| it.get_name().to_owned()).collect();
        let name = command.get_name();
        (!words.is_empty() && !command.is_hide_set()).then(|| {
            let words = words.join(" ");
            format!("complete -c gretel -n \"__fish_gretel_using_subcommand {name}\" -f -a \"{words}\"\n")
        })
    };
    gretel.get_subcommands().filter_map(of_command).collect()
}
