//! `--samples`: branch records that were taken now and then while a program ran, in a file of perf's or of a recording.

use crate::exit::{Code, Failure};
use crate::kernel;
use crate::log::say;
use ::synth::evidence::{Samples, Taken};
use lbr::file::Known;
use lbr::format::mapping::Mapping;
use lbr::{Filter, Sampled};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use vmm::elfcore::Core;
use vmm::journal::Damage;
use vmm::process::MappingInfo;
use vmm::recording::Recording;
use vmm::samples::Sampler;
use x86::op::BranchKind;

/// The samples of these files and recordings, at the addresses of a core. Says what of them is of no use, and how many are left.
pub(crate) fn read(paths: &[PathBuf], core: &Core) -> Result<Samples, Failure> {
    if paths.is_empty() {
        return Ok(Samples::default());
    }
    let mut all = Sampled::default();
    for path in paths {
        let sampled = if path.is_dir() { of_recording(path)? } else { of_file(path)? };
        refuse_filtered(path, &sampled)?;
        if !sampled.has_mappings() {
            say!(
                "gretel: {} does not say where files were mapped: its addresses are taken for those of the core (perf script \
                 --show-mmap-events says it)",
                path.display()
            );
        }
        all.append(sampled);
    }
    let samples = Samples::of(&all, core);
    let Taken { samples: used, branches, elsewhere } = samples.taken();
    say!("gretel: {used} samples of {branches} branches say which way is tried first; they prove nothing");
    if elsewhere > 0 {
        say!(
            "gretel: {elsewhere} branches of samples are left out: the core does not have their files mapped"
        );
    }
    Ok(samples)
}

fn of_file(path: &Path) -> Result<Sampled, Failure> {
    let damaged =
        |why: &dyn std::fmt::Display| Failure::new(Code::Damaged, format!("{}: {why}", path.display()));
    let bytes = lbr::regular::read(path).map_err(|error| damaged(&error))?;
    Sampled::read(&bytes, &Known::default()).map_err(|error| damaged(&error))
}

/// What lies between two branches of a sample is known only where all were recorded.
fn refuse_filtered(path: &Path, sampled: &Sampled) -> Result<(), Failure> {
    let near = || BranchKind::ALL.into_iter().filter(|kind| *kind != BranchKind::Far);
    let hides = |filter: &Filter| near().any(|kind| !filter.records(kind, false));
    let mut filters = sampled.iter().filter_map(|sample| sample.trail.filter);
    let Some(filter) = filters.find(|filter| hides(filter)) else { return Ok(()) };
    let why = format!(
        "{}: its samples have only some branches ({filter}): take them of all, as perf record -b does",
        path.display()
    );
    Err(Failure::new(Code::Usage, why))
}

/// Those of a recording, which is run again.
fn of_recording(dir: &Path) -> Result<Sampled, Failure> {
    let mut sampled = Sampled::default();
    let damage = take(dir, Pace::Slowing, &mut |taken| {
        match taken {
            Sample::Mapped(mapping, _) => sampled.map(mapping),
            Sample::Branches(trail) => sampled.push(trail.clone()),
        }
        Ok(true)
    })?;
    if let Some(damage) = damage {
        say!("gretel: {}: {damage}; it is sampled up to there", dir.display());
    }
    if sampled.iter().len() == 0 {
        say!(
            "gretel: {}: the program ran for less than {} instructions, and has no samples",
            dir.display(),
            2 * FIRST_PERIOD
        );
    }
    Ok(sampled)
}

/// What is found while a recording is sampled.
pub(crate) enum Sample<'t> {
    /// A process has mapped a file with code; said before the first sample that may have addresses of it.
    Mapped(Mapping, i32),
    /// The last branches.
    Branches(&'t lbr::Trail),
}

/// How often a recording is sampled.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// Every so many instructions.
    Every(u64),
    /// Every [`FIRST_PERIOD`] instructions at first, and half as often after each [`MOST_AT_ONE_PACE`] samples: how long the program ran is
    /// known only at its end, and its last half has a thousand samples or more if it ran for a moment.
    Slowing,
}

const FIRST_PERIOD: u64 = 10_000;
const MOST_AT_ONE_PACE: u64 = 4096;

/// Runs a recording again, and tells `each` its samples until `each` has enough. What is wrong with the journal's end, if it was come to.
pub(crate) fn take(
    dir: &Path,
    pace: Pace,
    each: &mut dyn FnMut(Sample<'_>) -> Result<bool, Failure>,
) -> Result<Option<Damage>, Failure> {
    let damaged =
        |why: &dyn std::fmt::Display| Failure::new(Code::Damaged, format!("{}: {why}", dir.display()));
    let recording = Recording::open(dir).map_err(|error| damaged(&error))?;
    kernel::refuse(&recording)?;
    if io::stderr().is_terminal() {
        say!("gretel: running {} again on the software CPU, to sample its branches", dir.display());
    }
    let period = match pace {
        Pace::Every(period) => period,
        Pace::Slowing => FIRST_PERIOD,
    };
    let mut sampler = Sampler::open(&recording, period).map_err(|error| damaged(&error))?;
    let (mut known, mut samples) = (Vec::new(), 0_u64);
    while let Some(taken) = sampler.next_sample().map_err(|error| damaged(&error))? {
        let mapped = code_files(taken.mappings);
        if mapped != known {
            for mapping in mapped.iter().filter(|mapping| !known.contains(mapping)) {
                each(Sample::Mapped(mapping.clone(), taken.pid))?;
            }
            known = mapped;
        }
        if !each(Sample::Branches(&taken.trail))? {
            return Ok(None);
        }
        samples += 1;
        if matches!(pace, Pace::Slowing) && samples.is_multiple_of(MOST_AT_ONE_PACE) {
            sampler.slow_down();
        }
    }
    Ok(sampler.damage())
}

/// The files among mappings that a process runs code of.
fn code_files(mappings: Vec<MappingInfo>) -> Vec<Mapping> {
    let of_files =
        mappings.into_iter().filter(|mapping| mapping.rights.execute && mapping.name.starts_with('/'));
    of_files
        .map(|it| Mapping { start: it.start, end: it.end, offset: it.file_offset, file: it.name })
        .collect()
}
