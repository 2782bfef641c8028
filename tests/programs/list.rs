//! `guest-images/programs/list.toml`, and how a program of it is built (`guest-images/programs/README.md` explains the keys).

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// How programs are made, by name.
    pub(crate) languages: BTreeMap<String, Language>,
    /// The programs.
    pub(crate) programs: Vec<Program>,
}

/// A way to make a program from its source, or a program that is there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Language {
    /// The command that must be there.
    needs: String,
    /// The compiler and its options; without any, `needs` is the program itself.
    #[serde(default)]
    build: Vec<String>,
    /// What stands behind the source.
    #[serde(default)]
    libraries: Vec<String>,
}

/// A program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    name: String,
    /// Its source, in the folder of the list.
    pub(crate) source: Option<String>,
    /// The keys of `languages` that it is made with.
    pub(crate) languages: Vec<String>,
    /// Options of the compiler beside those of the language.
    #[serde(default)]
    flags: Vec<String>,
    /// The arguments after the program's name.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// The file that is standard input, in the folder of the list.
    stdin: Option<String>,
    /// The CPU models that it is shown, as `record --cpu` takes them.
    #[serde(default = "default_models")]
    pub(crate) models: Vec<String>,
    /// The engines that record it.
    #[serde(default = "default_engines")]
    pub(crate) engines: Vec<String>,
    /// Why it is known to fail today.
    pub(crate) pending: Option<String>,
}

/// A program made with one language.
pub(crate) struct Case<'a> {
    pub(crate) program: &'a Program,
    language_name: &'a str,
    language: &'a Language,
}

fn default_models() -> Vec<String> {
    vec!["v2".to_owned()]
}

fn default_engines() -> Vec<String> {
    vec!["soft".to_owned()]
}

/// Where the list and the sources are; programs run there, too.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guest-images/programs")
}

fn list_file() -> PathBuf {
    folder().join("list.toml")
}

/// The file that a shell would run for `command`.
fn in_path(command: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(command)).find(|file| file.is_file())
}

impl List {
    pub(crate) fn read() -> List {
        let path = list_file();
        let text = fs::read_to_string(&path).expect("the list of programs can be read");
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The programs that are made with a language.
    pub(crate) fn cases<'a>(
        &'a self,
        name: &'a str,
        language: &'a Language,
    ) -> impl Iterator<Item = Case<'a>> {
        let programs =
            self.programs.iter().filter(move |program| program.languages.iter().any(|l| l == name));
        programs.map(move |program| Case { program, language_name: name, language })
    }
}

impl Language {
    /// Why its programs cannot be made here.
    pub(crate) fn missing(&self) -> Option<String> {
        in_path(&self.needs).is_none().then(|| format!("{} is not installed", self.needs))
    }
}

impl Case<'_> {
    /// What it is called in messages.
    pub(crate) fn name(&self) -> String {
        format!("{} ({})", self.program.name, self.language_name)
    }

    /// The file to run.
    pub(crate) fn file(&self) -> PathBuf {
        match &self.program.source {
            Some(_) => folder().join("../build/programs").join(self.language_name).join(&self.program.name),
            None => in_path(&self.language.needs).expect("it was there a moment ago"),
        }
    }

    /// Its standard input, from the beginning.
    pub(crate) fn stdin(&self) -> Stdio {
        match &self.program.stdin {
            Some(file) => File::open(folder().join(file)).expect("the input can be read").into(),
            None => Stdio::null(),
        }
    }

    /// Makes the program if it is older than its source or the list.
    pub(crate) fn build(&self) -> Result<(), String> {
        let Some(source) = &self.program.source else { return Ok(()) };
        let (file, source) = (self.file(), folder().join(source));
        if headers(&source).chain([source.clone(), list_file()]).all(|part| is_newer(&file, &part)) {
            return Ok(());
        }
        let to = file.parent().expect("a program is in a folder");
        fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
        let (compiler, options) =
            self.language.build.split_first().ok_or("its language has no build line")?;
        let output = Command::new(compiler)
            .args(options)
            .args(&self.program.flags)
            .arg("-o")
            .arg(&file)
            .arg(&source)
            .args(&self.language.libraries)
            .output()
            .map_err(|error| format!("{compiler}: {error}"))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("does not build:\n{complaint}")) }
    }
}

/// The headers in the folder of a source, any of which it may include.
fn headers(source: &Path) -> impl Iterator<Item = PathBuf> {
    let folder = source.parent().expect("a source is in a folder");
    let files = fs::read_dir(folder).expect("the folder of a source can be read");
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    files.filter(|path| path.extension().is_some_and(|end| end == "h"))
}

fn is_newer(file: &Path, than: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    modified(file) > modified(than)
}
