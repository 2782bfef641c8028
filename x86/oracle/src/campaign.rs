//! Runs batches on both halves and collects what differs.

use crate::case::{Case, Ending, Image, Outcome};
use crate::compare::{self, Difference};
use crate::generate::{Batch, Directed, Generator, STATES};
use crate::interpreter::Soft;
use crate::native::{BATCH, Error, Worker};
use crate::shrink;
use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Mnemonics to generate; all that have semantics, if empty.
    pub mnemonics: Vec<Mnemonic>,
    /// The most instructions in a block.
    pub block_max: usize,
    /// Directed cases instead of random ones: of so many groups one.
    pub directed: Option<u64>,
    /// Where the random numbers start.
    pub seed: u64,
    /// Stop after this many cases.
    pub cases: u64,
    /// Stop after this time.
    pub time: Option<Duration>,
    /// Stop after this many findings.
    pub findings: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mnemonics: Vec::new(),
            block_max: 16,
            directed: None,
            seed: 1,
            cases: 200_000,
            time: None,
            findings: 10,
        }
    }
}

/// A case that differs, as small as it could be made.
#[derive(Debug)]
pub struct Finding {
    /// The case.
    pub case: Case,
    /// The data pages before it.
    pub image: Box<Image>,
    /// What this processor does.
    pub native: Outcome,
    /// Where the semantics differs.
    pub differences: Vec<Difference>,
    /// The kinds of places where it differed before it was made small.
    pub kinds: Vec<String>,
}

/// How often a mnemonic was run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Cases with it.
    pub cases: u64,
    /// Those that ended in a fault.
    pub faults: u64,
    /// Cases that differ and still do with nothing but it and others counted here.
    pub findings: u64,
}

/// What a campaign did.
#[derive(Debug, Default)]
pub struct Summary {
    /// Cases that were run and compared.
    pub cases: u64,
    /// Cases that could not be compared: lost, or ended in a system call, or with something in them that
    /// processors do differently.
    pub skipped: u64,
    /// By mnemonic; a block counts for each of its instructions.
    pub mnemonics: BTreeMap<String, Count>,
    /// How often an encoding was in a case that did not differ.
    pub passed: BTreeMap<Code, u64>,
    /// How many differed.
    pub different: u64,
    /// What differed, once for each sequence of mnemonics that is left after shrinking, and kind of difference.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Runs cases until a bound of `options` is reached, calling `progress` after each batch.
///
/// # Errors
/// If there is no native half on this host.
pub fn run(options: &Options, mut progress: impl FnMut(&Summary)) -> Result<Summary, Error> {
    let begin = Instant::now();
    let mut source = match options.directed {
        Some(every) => Source::Directed(Directed::new(&options.mnemonics, every)),
        None => Source::Random(Generator::new(&options.mnemonics, options.block_max)),
    };
    let (mut worker, mut soft) = (Worker::start()?, Soft::new());
    let mut summary = Summary::default();
    for mnemonic in source.mnemonics() {
        summary.mnemonics.insert(name(mnemonic), Count::default());
    }
    for number in 0.. {
        let left = options.cases.saturating_sub(summary.cases + summary.skipped);
        let late = options.time.is_some_and(|time| begin.elapsed() >= time);
        let size = usize::try_from(left).map_or(BATCH, |left| left.min(BATCH));
        if size < STATES || late || summary.findings.len() >= options.findings {
            break;
        }
        let batch = source.batch(options.seed, number, size);
        if batch.cases.is_empty() {
            break;
        }
        run_batch(&mut worker, &mut soft, &batch, &mut summary)?;
        summary.elapsed = begin.elapsed();
        progress(&summary);
    }
    Ok(summary)
}

/// Where cases come from.
enum Source {
    Random(Generator),
    Directed(Directed),
}

impl Source {
    fn mnemonics(&self) -> Vec<Mnemonic> {
        match self {
            Source::Random(generator) => generator.mnemonics().collect(),
            Source::Directed(directed) => directed.mnemonics().collect(),
        }
    }

    fn batch(&mut self, seed: u64, number: u64, size: usize) -> Batch {
        match self {
            Source::Random(generator) => generator.batch(seed, number, size),
            Source::Directed(directed) => directed.batch(seed),
        }
    }
}

/// The name of a mnemonic as it is written.
#[must_use]
pub fn name(mnemonic: Mnemonic) -> String {
    format!("{mnemonic:?}").to_lowercase()
}

fn run_batch(
    worker: &mut Worker,
    soft: &mut Soft,
    batch: &Batch,
    summary: &mut Summary,
) -> Result<(), Error> {
    soft.load_image(&batch.image);
    let mut found = Vec::with_capacity(batch.cases.len());
    let native = worker.run(&batch.image, &batch.cases, || {
        found.extend(batch.cases.iter().map(|case| soft.run(case)));
    })?;
    let outcomes = native.iter().zip(&found).zip(&batch.cases);
    for (n, ((native, found), case)) in outcomes.enumerate() {
        if !compare::is_comparable(native, found) {
            summary.skipped += 1;
            continue;
        }
        summary.cases += 1;
        let encodings = &batch.encodings[n / STATES];
        for code in encodings {
            let count = summary.mnemonics.entry(name(code.mnemonic())).or_default();
            count.cases += 1;
            count.faults += u64::from(native.ending != Ending::Completed);
        }
        if compare::is_same(native, found) || compare::differences(soft, case, native, found).is_empty() {
            encodings.iter().for_each(|code| *summary.passed.entry(*code).or_default() += 1);
        } else {
            report(worker, soft, batch, case, summary)?;
        }
    }
    Ok(())
}

/// Notes a difference; shrinks it all the way if it is one of a new kind.
fn report(
    worker: &mut Worker,
    soft: &mut Soft,
    batch: &Batch,
    case: &Case,
    summary: &mut Summary,
) -> Result<(), Error> {
    let Some((short, image)) = shrink::shorten(worker, soft, &batch.image, case)? else {
        soft.load_image(&batch.image);
        summary.cases -= 1;
        summary.skipped += 1;
        return Ok(());
    };
    summary.different += 1;
    let culprits = mnemonics(&short);
    let kinds = shrink::kinds(worker, soft, &image, &short)?;
    let is_known = |known: &Finding| mnemonics(&known.case) == culprits && known.kinds == kinds;
    let is_known = summary.findings.iter().any(is_known);
    for mnemonic in culprits {
        summary.mnemonics.entry(name(mnemonic)).or_default().findings += 1;
    }
    if !is_known {
        summary.findings.push(shrink::simplify(worker, soft, &image, &short, kinds)?);
    }
    soft.load_image(&batch.image);
    Ok(())
}

fn mnemonics(case: &Case) -> Vec<Mnemonic> {
    Decoder::new(64, case.bytes(), DecoderOptions::NONE).into_iter().map(|i| i.mnemonic()).collect()
}
