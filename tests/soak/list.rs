//! `list.toml`: the commands, and the folder in which each runs.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Deserialize;

/// Where commands are looked for. The caller's own path may have wrappers before them.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// All of coreutils.
    pub(crate) coreutils: Vec<Entry>,
    /// Other ordinary commands.
    pub(crate) others: Vec<Entry>,
}

/// A command and what is known of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// The command and its arguments.
    pub(crate) run: Vec<String>,
    /// The prepared file that is its standard input; nothing when absent.
    pub(crate) stdin: Option<String>,
    /// What a shell does in the folder before the command runs.
    pub(crate) prepare: Option<String>,
    /// Other commands that it runs.
    #[serde(default)]
    pub(crate) with: Vec<String>,
    /// Why its output is not compared: it differs from run to run, or under gretel on purpose.
    pub(crate) output_differs: Option<String>,
    /// Why the files that it makes are not compared.
    pub(crate) files_differ: Option<String>,
    /// What gretel lacks for it: it is known to fail today, and the test fails when it no longer does.
    pub(crate) needs: Option<String>,
}

impl List {
    pub(crate) fn read() -> List {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/soak/list.toml");
        let text = fs::read_to_string(&path).expect("the list of commands can be read");
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Entry {
    /// What it is called in messages.
    pub(crate) fn name(&self) -> String {
        self.run.join(" ").replace('\n', " ")
    }

    /// The commands that must be there and are not.
    pub(crate) fn missing(&self) -> Vec<&str> {
        let commands = self.run.iter().take(1).chain(&self.with);
        commands.map(String::as_str).filter(|command| in_path(command).is_none()).collect()
    }

    /// The file that is run.
    pub(crate) fn program(&self) -> PathBuf {
        in_path(&self.run[0]).expect("a command that is missing is not run")
    }
}

/// The file that a shell would run for `command`.
fn in_path(command: &str) -> Option<PathBuf> {
    env::split_paths(PATH).map(|dir| dir.join(command)).find(|file| file.is_file())
}

/// Makes an empty folder and the files that every command finds there, all of the same age.
pub(crate) fn make_folder(folder: &Path) -> std::io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder.join("folder/below"))?;
    for (name, content) in files() {
        let path = folder.join(name);
        fs::write(&path, content)?;
        File::options().write(true).open(&path)?.set_modified(age())?;
    }
    for name in ["folder/below", "folder"] {
        File::open(folder.join(name))?.set_modified(age())?;
    }
    Ok(())
}

/// A day in 2001.
fn age() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let words: String =
        (0..60_u32).map(|n| format!("{} {}\n", WORDS[n as usize % WORDS.len()], n * n % 61)).collect();
    let numbers: String = (0..200_u32).map(|n| format!("{}\n", n * 7919 % 1009)).collect();
    let table = "name\tsize\tcolour\nant\t3\tred\nbear\t900\tbrown\ncat\t40\tgrey\ndog\t95\tbrown\n";
    let changed = words.replace("linden 4\n", "LINDEN 4\n").replace("oak 20\n", "oak 20\noak again\n");
    let binary: Vec<u8> = (0..5000_u32).map(|n| (n * n * 31 / 7).to_le_bytes()[0]).collect();
    let text = [
        ("words", words),
        ("changed", changed),
        ("numbers", numbers),
        ("table", table.to_owned()),
        ("data.json", "{\"list\": [1, 2.5, \"three\"], \"deep\": {\"er\": null}}\n".to_owned()),
        ("hello.c", include_str!("hello.c").to_owned()),
        ("Makefile", "all: one two\n\t@echo all of $^\n%: %.in\n\tcp $< $@\n".to_owned()),
        ("one.in", "the first\n".to_owned()),
        ("two.in", "the second\n".to_owned()),
        ("folder/inner", "in a folder\n".to_owned()),
        ("folder/below/deep", "deep down\n".to_owned()),
    ];
    text.into_iter().map(|(name, text)| (name, text.into_bytes())).chain([("binary", binary)]).collect()
}

const WORDS: [&str; 9] = ["oak", "ash", "linden", "birch", "alder", "elm", "yew", "rowan", "hazel"];
