//! From a core to a verdict: search, realize, certify, and never more than what was certified.

mod depths;
mod rebuild;
mod unmapped;

use crate::certificate::{self, Certificate, CertificateError, Difference};
use crate::core_image::CoreImage;
use crate::evidence::{Anchors, Samples};
use crate::flips::{Flips, Turner};
use crate::fuel::{Fuel, UNITS_A_SECOND, Until};
use crate::origins;
use crate::past::deferred::{Early, Waiting};
use crate::past::hypothesis::{Hypothesis, Kernel, PathStep};
use crate::past::image::Image;
use crate::phases::{Phase, Phases, during};
use crate::program::Program;
use crate::program::cfg::Cfg;
use crate::realize::{Unrealizable, realize};
use crate::search::{Found, Limits, Records, Search, Statistics, Stop};
use crate::shares;
use crate::suffix::{Coverage, Suffix};
use depths::between;
use std::cell::RefCell;
use std::time::Duration;
pub(crate) use unmapped::Unmapped;
use vmm::elfcore::Core;
use vmm::engine::Interrupter;
use x86::op::BranchKind;

/// The stack that synthesis needs: terms are as deep as the computations that they describe.
pub const STACK_BYTES: usize = 1 << 30;

/// What to synthesize, and how far.
pub struct Request<'a> {
    /// Where it must end.
    pub core: &'a Core,
    /// The program that ran.
    pub program: &'a Program,
    /// The branch records that may be used: (from, to), newest first.
    pub records: &'a [(u64, u64)],
    /// The kinds of branches that the records' filter lets through.
    pub recorded: &'a [BranchKind],
    /// The system calls that the thread made, as far as they may be used.
    pub anchors: &'a Anchors,
    /// Branches that were sampled while the program ran, this time or another.
    pub samples: &'a Samples,
    /// Where to stop.
    pub limits: Limits,
    /// Whether KVM may be used for the certificate.
    pub kvm: bool,
    /// Interrupted once, the search ends, and what it found is certified; once more, no further certificate is tried.
    pub interrupter: &'a Interrupter,
}

/// What came out.
pub struct Synthesis {
    /// The verdict.
    pub verdict: Verdict,
    /// Which bits, turned, would explain a core that the search found no way to; `None` where they were not tried.
    pub flips: Option<Flips>,
    /// How many instructions back the search came: what is certified may be shorter.
    pub searched: usize,
    /// The certificates that were tried, in order.
    pub cuts: Vec<Cut>,
    /// The longest path that was found: the addresses of its instructions, newest first.
    pub path: Vec<u64>,
    /// Where the time went.
    pub phases: Phases,
    /// Why the search stopped.
    pub stop: Stop,
    /// What the search did.
    pub statistics: Statistics,
    /// The work that it took, in units of [`crate::fuel`].
    pub fuel: u64,
}

/// Three verdicts, never blurred.
pub enum Verdict {
    /// This suffix ends in the core, bit for bit.
    Certified(Box<Suffix>, Certificate),
    /// No execution of the program ends in the core: every way back died by a sound rule.
    Infeasible {
        /// The longest path that did not contradict the core yet, in instructions.
        depth: usize,
    },
    /// Neither was shown.
    Inconclusive {
        /// Why not, in words.
        why: String,
    },
}

/// Synthesizes the longest suffix that can be certified within the limits. Needs [`STACK_BYTES`] of stack.
/// `progress` is told the present and the longest length from time to time.
///
/// # Errors
/// When an engine for the certificate cannot be had.
pub fn synthesize(
    request: &Request<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Synthesis, CertificateError> {
    let image = CoreImage::new(request.core, request.anchors);
    let cfg = Cfg::build(request.program, &|va| request.core.word(va));
    let records = Records::new(request.records.to_vec(), request.recorded.to_vec())
        .behind_far(request.anchors.entered().back.is_some());
    let fuel = Fuel::default();
    let until = shares::whole(&request.limits, request.interrupter, &fuel);
    let unmapped = Unmapped::of(request);
    let search = search_of(request, unmapped, &cfg, &image, &records, &fuel);
    let before = Phases::so_far();
    let share = shares::of_search(&request.limits, &until);
    let found = during(Phase::Search, || search.run(request.limits.instructions, &share, progress));
    if found.stop == Stop::Interrupted {
        // It stays raised for the certificates only if somebody asks again.
        let _asked = request.interrupter.take();
    }
    let until = shares::of_certificates(&request.limits, &until, found.stop);
    let cuts = RefCell::default();
    let attempts = Attempts {
        request,
        unmapped,
        until,
        image: &image,
        cfg: &cfg,
        records: &records,
        found: &found,
        cuts,
    };
    let verdict = during(Phase::Certificates, || attempts.certify_longest())?;
    let cannot_be = matches!(verdict, Verdict::Infeasible { .. }) || found.is_dead_end();
    // A kernel's memory is too much to turn bit by bit.
    let flips = if cannot_be && request.core.machine.is_none() {
        Some(during(Phase::Flips, || attempts.flips())?)
    } else {
        None
    };
    Ok(Synthesis {
        verdict,
        flips,
        searched: found.instructions(),
        cuts: attempts.cuts.take(),
        path: found
            .path
            .iter()
            .map(|(step, _)| step)
            .filter(|it| it.is_instruction())
            .map(|it| it.address)
            .collect(),
        phases: Phases::so_far().since(before),
        stop: found.stop,
        statistics: found.statistics,
        fuel: fuel.burnt(),
    })
}

/// The search for the past of the request's core.
pub(crate) fn search_of<'a>(
    request: &Request<'a>,
    unmapped: Unmapped,
    cfg: &'a Cfg<'a>,
    image: &'a dyn Image,
    records: &'a Records,
    fuel: &Fuel,
) -> Search<'a> {
    let core = request.core;
    let search = Search::new(request.program, cfg, image, &core.state, records, Kernel::of(core), fuel);
    unmapped.told_to(search.with_samples(request.samples))
}

/// The search for the longest part of a path that a certificate holds for.
struct Attempts<'a> {
    request: &'a Request<'a>,
    unmapped: Unmapped,
    /// Nothing is begun when this is over.
    until: Until,
    image: &'a dyn Image,
    cfg: &'a Cfg<'a>,
    records: &'a Records,
    found: &'a Found,
    cuts: RefCell<Vec<Cut>>,
}

/// An attempt to certify the newest part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// So many instructions.
    pub tried: usize,
    /// Addresses were chosen where nothing told them.
    pub choosing: bool,
    /// So many were left: those behind the newest access that had no address.
    pub reached: usize,
    /// That access.
    pub waiting: Option<Waiting>,
    /// Why they were not certified; `None` if they were.
    pub why: Option<String>,
}

/// Why a part of the path was not certified, and what to try next.
enum Failure {
    Unrealizable(Unrealizable),
    Rejected(Difference),
    /// It cannot be judged: the step that is why, and the reason.
    Refused(Option<usize>, String),
}

impl Attempts<'_> {
    fn certify_longest(&self) -> Result<Verdict, CertificateError> {
        let refuted = self.found.stop == Stop::Exhausted && !self.found.statistics.is_incomplete();
        // What contradicts this thread's own past, another one may have stored meanwhile.
        if refuted && !self.request.core.had_parallel_threads() {
            return Ok(Verdict::Infeasible { depth: self.found.instructions() });
        }
        let (mut suffix, certificate) = match self.longest()? {
            Ok(best) => best,
            Err(why) => return Ok(Verdict::Inconclusive { why }),
        };
        during(Phase::Judging, || {
            let certified = self.steps_with(suffix.len());
            origins::judge(&mut self.forced_end(certified), self.request.core, &mut suffix)
        })?;
        Ok(Verdict::Certified(Box::new(suffix), certificate))
    }

    /// The longest suffix that a certificate was found for, or why there is none.
    fn longest(&self) -> Result<Result<(Suffix, Certificate), String>, CertificateError> {
        let before = self.until.fuel().burnt();
        let mut best = self.sure()?;
        let mut certified = best.as_ref().map_or(0, |(suffix, _)| self.steps_with(suffix.len()));
        let whole = self.found.path.len();
        let first = self.affordable(certified, self.until.fuel().burnt() - before).min(whole);
        let (mut depth, solved) = self.solved_depth(&self.found.path[..first]);
        if (certified + 1..depth).contains(&solved)
            && let Ok(found) = self.certify_at_most(solved)?
        {
            // Of more the solver may find nothing, and use up the fuel.
            let steps = self.steps_with(found.0.len());
            if steps > certified {
                (certified, best) = (steps, Ok(found));
            }
        }
        // No failure is known of.
        let unfailed = if first < whole { whole } else { depth } + 1;
        let mut failed = unfailed;
        while certified < depth && depth < failed && !self.is_over() {
            let before = self.until.fuel().burnt();
            match self.certify_at_most(depth)? {
                Ok(found) => {
                    let steps = self.steps_with(found.0.len());
                    if steps < depth {
                        failed = depth;
                    }
                    if steps > certified {
                        certified = steps;
                        best = Ok(found);
                    }
                    depth = match failed == unfailed {
                        true => {
                            self.affordable(certified, self.until.fuel().burnt() - before).min(unfailed - 1)
                        }
                        false => between(certified, failed),
                    };
                }
                Err((next, why)) => {
                    best = best.or(Err(why));
                    failed = depth;
                    depth = match next {
                        // What the solver gives up on begins where no solution was known any more.
                        _ if (certified + 1..next).contains(&solved) => solved,
                        _ if next > certified => next,
                        _ => between(certified, failed),
                    };
                }
            }
            if failed - certified <= STEP.max(certified / STEP) {
                break;
            }
        }
        Ok(best)
    }

    /// The suffix of what is surest: of what the records cover, or else of the last steps; a long path that used only some of the
    /// records is mostly made up, and may take all the time.
    fn sure(&self) -> Result<Result<(Suffix, Certificate), String>, CertificateError> {
        let depth = if self.found.covered > 0 { self.found.covered } else { SURE };
        if depth >= self.found.path.len() || self.is_over() {
            return Ok(Err("no instruction before the crash could be found".to_owned()));
        }
        Ok(self.certify_at_most(depth)?.map_err(|(_, why)| why))
    }

    /// The bits that, turned, would explain the core.
    fn flips(&self) -> Result<Flips, CertificateError> {
        let (request, cfg, image, records) = (self.request, self.cfg, self.image, self.records);
        let turner = Turner { request, cfg, image, records, until: self.until.clone() };
        turner.explain(self.found, &mut |core, found| {
            let image = CoreImage::new(core, request.anchors);
            let request = Request { core, ..*request };
            let (until, cuts) = (self.until.clone(), RefCell::default());
            let attempts = Attempts { request: &request, image: &image, found, until, cuts, ..*self };
            Ok(match attempts.certify_longest()? {
                Verdict::Certified(suffix, _) => suffix.len(),
                Verdict::Infeasible { .. } | Verdict::Inconclusive { .. } => 0,
            })
        })
    }

    /// Whether nothing more is to be begun.
    fn is_over(&self) -> bool {
        self.until.is_over()
    }

    /// Certifies the newest `depth` steps, or those of them whose addresses are known; else says how many to try next.
    #[expect(
        clippy::type_complexity,
        reason = "an error of ours around a failed attempt, each with its parts"
    )]
    fn certify_at_most(
        &self,
        depth: usize,
    ) -> Result<Result<(Suffix, Certificate), (usize, String)>, CertificateError> {
        let mut next = 0;
        let mut why = String::new();
        let path = &self.found.path[..depth];
        // With chosen addresses a longer part of the path can start; without, what is left is surer.
        for choose in [true, false] {
            let hypothesis = match choose {
                true => self.placed(path),
                false => self.rebuild(path, &self.found.early, &self.until).0,
            };
            if !choose && (hypothesis.newest_unresolved().is_none() || self.is_over()) {
                // Something tells the address of every access, so that it would be the same attempt; or there is no fuel for another.
                break;
            }
            let (reached, failure) = match self.attempt(path, hypothesis, choose)? {
                Ok(found) => return Ok(Ok(found)),
                Err(failed) => failed,
            };
            tracing::debug!(depth, reached, choose, why = %failure, "a path was not certified");
            (next, why) = (next.max(self.next_depth(&failure, reached, depth)), failure.to_string());
            if let Some(cut) = self.cuts.borrow_mut().last_mut() {
                cut.why = Some(why.clone());
            }
        }
        Ok(Err((next, why)))
    }

    /// Realizes and certifies these steps, of which this is the hypothesis, or those of them whose addresses are known.
    #[expect(
        clippy::type_complexity,
        reason = "an error of ours around a failed attempt, each with its parts"
    )]
    fn attempt(
        &self,
        path: &[(PathStep, Option<u64>)],
        mut hypothesis: Hypothesis<'_>,
        choose: bool,
    ) -> Result<Result<(Suffix, Certificate), (usize, Failure)>, CertificateError> {
        let mut depth = hypothesis.newest_unresolved().map_or(hypothesis.len(), |step| step as usize - 1);
        while depth > 0 && !path[depth - 1].0.is_instruction() {
            // A suffix begins with an instruction.
            depth -= 1;
        }
        let waiting = hypothesis.waiting();
        let [tried, reached] = [path.len(), depth].map(|steps| instructions_in(&path[..steps]));
        let cut = Cut { tried, choosing: choose, reached, waiting, why: None };
        self.cuts.borrow_mut().push(cut);
        let refused = |why: &str| Ok(Err((depth, Failure::Refused(None, why.to_owned()))));
        if let Some(end) = self.until.end()
            && hypothesis.len() < path.len()
            && depth < path.len() / FEW
        {
            return refused(Stop::from(end).text());
        }
        if depth == 0 {
            return refused("the last instruction's address is not known");
        }
        if depth < path.len() / FEW {
            // All that the others demand would be asked of these few: they alone are a smaller question.
            return refused("an older access has no address");
        }
        let covered = instructions_in(&path[..self.found.covered.min(depth)]);
        let coverage = Coverage { records: self.request.records.len(), instructions: covered };
        let core = &self.request.core.state;
        let suffix = match realize(&mut hypothesis, depth, core, coverage) {
            Ok(suffix) => suffix,
            Err(error) => return Ok(Err((depth, Failure::Unrealizable(error)))),
        };
        self.until.fuel().burn(FUEL_OF_A_CERTIFICATE + suffix.len() as u64 * FUEL_OF_A_CERTIFIED_STEP);
        let verdict = certificate::certify(&certificate::Request {
            core: self.request.core,
            suffix: &suffix,
            records: self.request.records,
            recorded: self.request.recorded,
            anchors: self.request.anchors,
            time: NATIVE_TIME,
            kvm: self.request.kvm,
        })?;
        Ok(match verdict {
            certificate::Verdict::Certified(certificate) => Ok((suffix, *certificate)),
            certificate::Verdict::Rejected(difference) => Err((depth, Failure::Rejected(difference))),
            certificate::Verdict::Refused { step, reason } => {
                Err((depth, Failure::Refused(Some(step), reason)))
            }
        })
    }

    /// The hypothesis of those of the newest `certified` steps that are forced, without any store whose address they do not tell.
    fn forced_end(&self, certified: usize) -> Hypothesis<'_> {
        let path = &self.found.path[..certified];
        let until = shares::of_judging(&self.request.limits, self.until.fuel());
        // Other processors may have stored at any moment.
        let mut steps = match self.request.core.had_parallel_threads() {
            true => 0,
            false => {
                search_of(self.request, self.unmapped, self.cfg, self.image, self.records, self.until.fuel())
                    .forced(path, &self.early_on(certified), &until)
            }
        };
        loop {
            let is_cut = |steps: usize| {
                let same = steps < certified && path[steps - 1].0.address == path[steps].0.address;
                same || !path[steps - 1].0.is_instruction()
            };
            while steps > 0 && is_cut(steps) {
                // The iterations of a repeated string instruction are one, and a suffix begins with an instruction.
                steps -= 1;
            }
            let (hypothesis, _) = self.rebuild(&path[..steps], &self.early_on(steps), &Until::default());
            let known =
                hypothesis.newest_unresolved_store().map_or(hypothesis.len(), |step| step as usize - 1);
            if known == steps {
                return hypothesis;
            }
            steps = known;
        }
    }

    /// The addresses that the newest `depth` steps tell.
    fn early_on(&self, depth: usize) -> Vec<Early> {
        let tell = |early: &Early| !early.assumed && (1..=depth).contains(&early.since);
        self.found.early.iter().copied().filter(tell).collect()
    }
}

/// How many of these steps are instructions.
fn instructions_in(steps: &[(PathStep, Option<u64>)]) -> usize {
    steps.iter().filter(|(step, _)| step.is_instruction()).count()
}

/// Where the certified length is known to within so many steps, or within one part in so many, it is long enough.
const STEP: usize = 16;

/// Of a path of which at most one part in so many has addresses, that part is certified by itself.
const FEW: usize = 4;

/// So many steps are certified first, where the records do not say how many are sure.
const SURE: usize = 64;

/// What it takes to have two engines ready for a certificate.
const FUEL_OF_A_CERTIFICATE: u64 = UNITS_A_SECOND / 20;
/// What it takes to run one instruction on each, and to compare.
const FUEL_OF_A_CERTIFIED_STEP: u64 = 100;

/// How long a suffix may run natively: it is thousands of instructions, so this is for one that runs wild.
const NATIVE_TIME: Duration = Duration::from_secs(2);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Unrealizable(error) => error.fmt(f),
            Failure::Rejected(difference) => write!(f, "the forward run differs: {difference}"),
            Failure::Refused(_, why) => f.write_str(why),
        }
    }
}
