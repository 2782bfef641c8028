//! The figures of random runs, one file for each run, so that those of several processors lie side by side.

use crate::campaign::{self, Summary};
use crate::host::{self, Processor};
use crate::page;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often each mnemonic passed, by family and mnemonic.
pub type Passed = BTreeMap<String, BTreeMap<String, u64>>;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Where.
    pub processor: Processor,
    /// The day on which it ended, in UTC: "2026-11-21".
    pub date: String,
    /// Where the random numbers started.
    pub seed: u64,
    /// How long it took.
    pub seconds: u64,
    /// Cases that were compared.
    pub cases: u64,
    /// Those that differed.
    pub different: u64,
    /// Those that did not, by what was in them: a block counts for each of its instructions.
    pub passed: Passed,
}

/// A folder or file of runs that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refuses it.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is there: the same day, processor and seed.
    #[error("{} is there already; run with another --seed", path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// It is not what [`save`] writes.
    #[error("{}: not the figures of a run ({source}); delete it or restore it", path.display())]
    Contents {
        /// Which.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
}

/// Writes the figures of a run on this host that has just ended, as a new file in `folder`.
///
/// # Errors
/// If the file is there already, or cannot be written.
pub fn save(folder: &Path, summary: &Summary, seed: u64) -> Result<(), Error> {
    let mut passed = Passed::new();
    for (&code, &count) in &summary.passed {
        if let Some(family) = page::family(code) {
            let mnemonics = passed.entry(family.name.to_owned()).or_default();
            *mnemonics.entry(campaign::name(code.mnemonic())).or_default() += count;
        }
    }
    let run = Run {
        processor: host::processor(),
        date: today(),
        seed,
        seconds: summary.elapsed.as_secs(),
        cases: summary.cases,
        different: summary.different,
        passed,
    };
    let Processor { vendor, family, model, .. } = &run.processor;
    let path = folder.join(format!("{}-{vendor}-{family}-{model}-seed-{seed}.json", run.date));
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AlreadyExists => Error::Exists { path: path.clone() },
        _ => Error::File { path: path.clone(), source },
    };
    let text = serde_json::to_string_pretty(&run)
        .map_err(|source| Error::Contents { path: path.clone(), source })?;
    let mut file = std::fs::File::create_new(&path).map_err(failed)?;
    file.write_all((text + "\n").as_bytes()).map_err(failed)
}

/// All runs in `folder`, in the order of their files' names.
///
/// # Errors
/// If the folder, or a file in it, cannot be read or is something else.
pub fn load(folder: &Path) -> Result<Vec<Run>, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    let mut paths = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>())
        .map_err(failed(folder))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
        serde_json::from_str(&text).map_err(|source| Error::Contents { path, source })
    };
    paths.into_iter().map(read).collect()
}

fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date(since.as_secs() / 86_400)
}

/// The date that is `days` after 1 January 1970.
fn date(days: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_become_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(59), "1970-03-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_453), "2025-12-31");
        assert_eq!(date(20_778), "2026-11-21");
    }
}
