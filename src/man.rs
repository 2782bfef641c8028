//! `gretel man`: the manual's pages, made of the same texts as `--help`.
//!
//! The generator fills all text into paragraphs, so what stands below the options is laid out here: a block whose first line ends
//! in a colon is a section of lines as they are, the rest is the section NOTES.

use crate::exit::{Code, Failure};
use crate::{Cli, Outcome};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the pages of the manual to a folder: gretel.1, and one for each command
///
/// `make install` and the Debian package do this; docs/install.md has more.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel man man1 && man ./man1/gretel-record.1")]
pub(crate) struct Args {
    /// The folder, which is made if it is not there; pages of these names in it are replaced
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let unwritable = |path: &Path, error: &io::Error| {
        Failure::new(Code::Write, format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir_all(&args.dir).map_err(|error| unwritable(&args.dir, &error))?;
    let mut gretel = Cli::command().disable_help_subcommand(true);
    gretel.build();
    for command in with_subcommands(&gretel) {
        let man = Man::new(command.clone()).source(concat!("gretel ", env!("CARGO_PKG_VERSION")));
        let path = args.dir.join(man.get_filename());
        let page = page(&man, command).map_err(|error| unwritable(&path, &error))?;
        fs::write(&path, page).map_err(|error| unwritable(&path, &error))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A command, its commands, and theirs: those that are not hidden.
fn with_subcommands(command: &Command) -> Vec<&Command> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    [command].into_iter().chain(shown.flat_map(with_subcommands)).collect()
}

/// A page.
fn page(man: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(below) = command.get_after_long_help() {
        laid_out(&below.to_string()).to_writer(&mut page)?;
    }
    Ok(page)
}

/// What stands below the options.
fn laid_out(text: &str) -> Roff {
    let (mut page, mut notes) = (Roff::new(), Vec::new());
    for block in text.split("\n\n") {
        match block.split_once('\n') {
            Some((first, lines)) if first.ends_with(':') => {
                page.control("SH", [first.trim_end_matches(':').to_uppercase().as_str()]);
                page.control("nf", []);
                for line in lines.lines() {
                    page.text([roman(line)]);
                }
                page.control("fi", []);
            }
            _ => notes.push(block),
        }
    }
    if !notes.is_empty() {
        page.control("SH", ["NOTES"]);
        for note in notes {
            page.control("PP", []);
            page.text([roman(note)]);
        }
    }
    page
}
