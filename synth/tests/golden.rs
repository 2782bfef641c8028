//! The golden cases of the one semantics, in the symbolic domain: forward on constants, where the outcome must
//! be the case's, and backward from the outcome, where the case's start must be among the possible pasts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use iced_x86::{Decoder, DecoderOptions};
use synth::facts::Facts;
use synth::past::hypothesis::{Hypothesis, Kernel, Refusal};
use synth::past::image::Image;
use synth::past::machine::StepMachine;
use synth::past::prepared::{Effect, Prepared, restores_x87};
use synth::past::snapshot::Snapshot;
use synth::term::{Term, Terms};
use x86::golden::{CODE, Case, DATA, DATA_END, Situation, parse};
use x86::op::Rep;

/// The memory of a situation: zero where nothing is said.
struct Memory(Vec<u8>);

impl Memory {
    fn new(said: &BTreeMap<u64, u8>) -> Memory {
        Memory((DATA..DATA_END).map(|va| said.get(&va).copied().unwrap_or(0)).collect())
    }
}

impl Image for Memory {
    fn bytes(&self, va: u64) -> &[u8] {
        let at = va.checked_sub(DATA).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.0.get(at..)).unwrap_or_default()
    }
    fn is_mapped(&self, va: u64) -> bool {
        self.is_writable(va)
    }
    fn is_writable(&self, va: u64) -> bool {
        (DATA..DATA_END).contains(&va)
    }
    fn regions(&self) -> Vec<Range<u64>> {
        std::iter::once(DATA..DATA_END).collect()
    }
}

/// The cases that do not trap.
fn cases() -> Vec<(String, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../x86/golden");
    let mut all = Vec::new();
    for file in std::fs::read_dir(folder).expect("the golden cases") {
        let path = file.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let cases = parse(&std::fs::read_to_string(&path).expect("text")).expect("golden cases");
        all.extend(cases.into_iter().filter(|c| c.trap.is_none()).map(|c| (format!("{name}:{}", c.line), c)));
    }
    assert!(all.len() > 100, "only {} golden cases", all.len());
    all
}

/// The instructions of a case, if each of them retires in one step. That a restored x87 TOP is what it was is assumed, and not so
/// in these cases.
fn prepare(terms: &Rc<Terms>, case: &Case) -> Option<Vec<Prepared>> {
    let instructions = Decoder::with_ip(64, &case.bytes, CODE, DecoderOptions::NONE).into_iter();
    let steps: Vec<Prepared> = instructions.map(|instruction| Prepared::new(terms, instruction)).collect();
    let is_step = |prepared: &Prepared| {
        prepared.op.rep == Rep::None
            && !restores_x87(&prepared.instruction)
            && !matches!(prepared.effect, Effect::Barrier(_) | Effect::Syscall)
    };
    steps.iter().all(is_step).then_some(steps)
}

fn value(facts: &mut Facts, terms: &Terms, t: Term) -> Option<u64> {
    let t = facts.resolve(terms, t);
    terms.value(t).or_else(|| terms.truth(t).map(u64::from))
}

/// Where the registers of `now` differ from those of `expected`.
fn differences(
    facts: &mut Facts,
    terms: &Terms,
    now: &Snapshot,
    expected: &Situation,
    undefined: u64,
) -> Vec<String> {
    let expected = Snapshot::of_state(terms, &expected.state);
    let flags = 16..22;
    let mut wrong = Vec::new();
    for (n, (now, expected)) in now.values().into_iter().zip(expected.values()).enumerate() {
        let is_undefined = flags.contains(&n) && undefined >> x86::flags::Flag::ALL[n - 16].bit() & 1 == 1;
        let (now, expected) = (value(facts, terms, now), value(facts, terms, expected));
        if now != expected && !is_undefined {
            wrong.push(format!("value {n}: {now:x?} instead of {expected:x?}"));
        }
    }
    wrong
}

/// Runs `test` on every case that can be prepared; each of its errors fails them all.
fn each_case(test: impl Fn(&Rc<Terms>, &[Prepared], &Case) -> Result<(), String>) {
    let terms = Rc::new(Terms::new());
    let (mut failures, mut run) = (Vec::new(), 0);
    for (name, case) in cases() {
        let Some(steps) = prepare(&terms, &case) else { continue };
        run += 1;
        if let Err(why) = test(&terms, &steps, &case) {
            failures.push(format!("{name}: {}: {why}", case.text));
        }
    }
    assert!(run > 100, "only {run} cases were run");
    assert!(failures.is_empty(), "{} of {run}:\n{}", failures.len(), failures.join("\n"));
}

/// The memory of a run; `None` is a byte that is not known, as the system flags that PUSHF stores are not.
type Bytes = BTreeMap<u64, Option<u8>>;

/// Runs an instruction on constants, with its loads from `memory` and its stores to it.
fn step(
    terms: &Rc<Terms>,
    facts: &mut Facts,
    memory: &mut Bytes,
    prepared: &Prepared,
    before: Snapshot,
) -> Result<Snapshot, String> {
    let mut machine = StepMachine::new(Rc::clone(terms), before);
    let ran = match prepared.effect {
        Effect::Body(body) => body(&mut machine, &prepared.op).is_ok(),
        Effect::Last(last) => last(&mut machine, &prepared.op).is_ok(),
        Effect::Skip
        | Effect::Syscall
        | Effect::Asks
        | Effect::Switch
        | Effect::Signal
        | Effect::Barrier(_) => false,
    };
    if !ran {
        return Err("it traps".to_owned());
    }
    for access in &machine.accesses {
        let va = value(facts, terms, access.address).ok_or("an address is not known")?;
        let addresses = va..va + u64::from(access.bytes);
        if access.store {
            let stored = value(facts, terms, access.value).map(u64::to_le_bytes);
            let bytes = (0..8).map(|n| stored.map(|bytes| bytes[n]));
            memory.extend(addresses.zip(bytes));
        } else {
            let byte = |at| memory.get(&at).copied().unwrap_or(Some(0)).ok_or("it loads what is not known");
            let loaded = addresses.rev().try_fold(0, |v, at| Ok::<_, &str>(v << 8 | u64::from(byte(at)?)))?;
            let known = terms.lit_term(8 * access.bytes, loaded);
            facts.equate(terms, access.value, known).map_err(|_| "it loads what it cannot")?;
        }
    }
    let mut after = machine.now.clone();
    after.flags = machine.lazy_flags.bits(&**terms);
    Ok(after)
}

#[test]
fn forward_on_constants_the_outcome_is_the_same() {
    each_case(|terms, steps, case| {
        let (mut facts, mut now) = (Facts::default(), Snapshot::of_state(terms, &case.before.state));
        let mut memory: Bytes = case.before.memory.iter().map(|(&at, &byte)| (at, Some(byte))).collect();
        for prepared in steps {
            now = step(terms, &mut facts, &mut memory, prepared, now)?;
        }
        let mut wrong = differences(&mut facts, terms, &now, &case.after, case.undefined);
        let expected = Memory::new(&case.after.memory);
        for (&at, &byte) in memory.iter().filter(|(at, byte)| byte.is_some() && expected.byte(**at) != **byte)
        {
            wrong.push(format!("byte {at:#x}: {byte:x?}"));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
    });
}

/// Every value of the flags in `mask`.
fn flag_values(mask: u64) -> impl Iterator<Item = u64> {
    (0..=mask).filter(move |value| value & !mask == 0)
}

#[test]
fn backward_the_start_is_a_possible_past() {
    each_case(|terms, steps, case| {
        let image = Memory::new(&case.after.memory);
        // Flags that are undefined may be anything, so one of their values must do.
        let outcomes = flag_values(case.undefined).map(|flags| {
            let mut after = case.after.state;
            after.regs.rflags = after.regs.rflags & !case.undefined | flags;
            let mut hypothesis = Hypothesis::new(Rc::clone(terms), &image, &after, Kernel::Linux);
            let mut backwards = steps.iter().rev();
            backwards.try_for_each(|prepared| hypothesis.prepend(prepared, None)).map(|()| hypothesis)
        });
        let mut outcomes: Vec<_> = outcomes.collect();
        outcomes.sort_by_key(Result::is_err);
        let mut hypothesis = match outcomes.swap_remove(0) {
            Ok(hypothesis) => hypothesis,
            // With unmasked exceptions an x87 instruction may stop halfway.
            Err(Refusal::Barrier(_)) if case.before.state.fpu.control != 0x37f => return Ok(()),
            // A gather overwrites its mask, so that which elements it loaded is lost.
            Err(Refusal::Barrier(_)) if steps.iter().any(|p| p.instruction.is_vsib()) => return Ok(()),
            Err(refusal) => return Err(format!("{refusal:?}")),
        };
        // Every register that was there is compatible with what is claimed of the past.
        let past = hypothesis.snapshot(steps.len()).clone();
        let before = Snapshot::of_state(terms, &case.before.state);
        let mut pairs = past.values().into_iter().zip(before.values()).enumerate();
        let contradicted =
            pairs.find(|(_, (claimed, truth))| hypothesis.facts().equate(terms, *claimed, *truth).is_err());
        contradicted.map_or(Ok(()), |(n, _)| Err(format!("value {n} contradicts the truth")))
    });
}
