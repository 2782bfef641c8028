//! Words of calling contexts: they are decoded to the stack that made them, or not at all.

use lbr::context::word::{ROOT, called, caller, id};
use lbr::context::{CallGraph, Decoder, Policy, Site, Table, TableError, TableWriter, Tracker, Undecoded};
use proptest::prelude::*;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;

const LIMIT: usize = 200_000;
/// Where functions begin, and how far apart.
const BASE: u64 = 0x40_1000;
const STRIDE: u64 = 0x100;

/// Functions that call each other: of each, whom it calls, one call site after the other. Function 0 is the outermost.
#[derive(Clone, Debug)]
struct Program {
    calls: Vec<Vec<usize>>,
    /// The call sites by the function that they call.
    callers: Vec<Vec<u64>>,
}

impl Program {
    fn new(calls: Vec<Vec<usize>>) -> Program {
        let mut callers = vec![Vec::new(); calls.len()];
        for (function, calls) in calls.iter().enumerate() {
            for (n, callee) in calls.iter().enumerate() {
                callers[*callee].push(site(function, n));
            }
        }
        Program { calls, callers }
    }

    /// The stack after these choices of calls, the innermost call first; recursion goes as deep as there are choices.
    fn stack(&self, choices: &[usize]) -> Vec<Site> {
        let mut function = 0;
        let mut stack = Vec::new();
        for (depth, choice) in choices.iter().enumerate() {
            let calls = &self.calls[function];
            let Some(n) = choice.checked_rem(calls.len()) else { break };
            let address = site(function, n);
            stack.push(Site { address, id: id(address), slot: 0x7fff_0000 - 32 * depth as u64 });
            function = calls[n];
        }
        stack.reverse();
        stack
    }

    fn standing(&self, stack: &[Site]) -> u64 {
        let function = stack.first().map_or(0, |site| {
            let (function, n) = place(site.address);
            self.calls[function][n]
        });
        BASE + STRIDE * function as u64 + 0x80
    }
}

fn site(function: usize, n: usize) -> u64 {
    BASE + STRIDE * function as u64 + 5 * (n as u64 + 1)
}

fn place(address: u64) -> (usize, usize) {
    let at = usize::try_from(address - BASE).unwrap();
    let stride = usize::try_from(STRIDE).unwrap();
    (at / stride, (at % stride / 5).saturating_sub(1))
}

impl CallGraph for &Program {
    fn callers(&mut self, at: u64) -> &[u64] {
        self.callers.get(place(at).0).map_or(&[], Vec::as_slice)
    }
}

/// A run: tracks the stacks, writes the table, and gives the words.
struct Run {
    _dir: tempfile::TempDir,
    path: PathBuf,
    words: Vec<u64>,
}

fn run(program: &Program, stacks: &[Vec<Site>], policy: Policy) -> Run {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("contexts-0");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a new file");
    let mut table = TableWriter::create(file, policy).expect("a table");
    let mut tracker = Tracker::new(policy);
    let words = stacks
        .iter()
        .map(|stack| tracker.word(program.standing(stack), stack, &mut |news| table.append(news)));
    let words = words.collect();
    Run { _dir: dir, path, words }
}

fn addresses(stack: &[Site]) -> Vec<u64> {
    stack.iter().map(|site| site.address).collect()
}

fn any_program() -> impl Strategy<Value = Program> {
    (2_usize..12).prop_flat_map(|functions| {
        let calls = prop::collection::vec(0..functions, 0..5);
        prop::collection::vec(calls, functions).prop_map(Program::new)
    })
}

proptest! {
    #[test]
    fn the_step_is_turned_around(word in any::<u64>(), address in any::<u64>()) {
        prop_assert_eq!(caller(called(word, id(address)), id(address)), word);
    }

    /// With every set kept there is nothing to search: each word is its stack's.
    #[test]
    fn cold_sites_decode_every_word(
        program in any_program(),
        choices in prop::collection::vec(prop::collection::vec(0_usize..5, 0..40), 1..60),
    ) {
        let stacks: Vec<_> = choices.iter().map(|choices| program.stack(choices)).collect();
        let run = run(&program, &stacks, Policy { threshold: u32::MAX, every: 0, room: 1 << 14 });
        let table = Table::open(&run.path).unwrap();
        prop_assert!(table.is_complete());
        let mut decoder = Decoder::new(&program, &table);
        for (stack, word) in stacks.iter().zip(&run.words) {
            let decoded = decoder.decode(*word, program.standing(stack), stack.len() + 1);
            prop_assert_eq!(decoded, Ok(addresses(stack)));
        }
    }

    /// Whatever is hot, and whatever found no room: a stack that is decoded is the right one.
    #[test]
    fn hot_sites_cost_success_and_never_truth(
        program in any_program(),
        choices in prop::collection::vec(prop::collection::vec(0_usize..5, 0..12), 1..60),
        threshold in 0_u32..6,
        every in 0_u32..4,
        room in 0_u32..200,
    ) {
        let stacks: Vec<_> = choices.iter().map(|choices| program.stack(choices)).collect();
        let run = run(&program, &stacks, Policy { threshold, every, room });
        let table = Table::open(&run.path).unwrap();
        prop_assert_eq!(&Table::from_bytes(&table.to_bytes()).unwrap(), &table);
        let mut decoder = Decoder::new(&program, &table);
        for (stack, word) in stacks.iter().zip(&run.words) {
            match decoder.decode(*word, program.standing(stack), LIMIT) {
                Ok(decoded) => prop_assert_eq!(decoded, addresses(stack)),
                Err(why) => prop_assert_eq!(why, Undecoded::Limit(LIMIT)),
            }
        }
    }

    /// Arbitrary bytes are never a panic, and a forged table never more than the limit allows.
    #[test]
    fn forged_tables_are_survived(
        program in any_program(),
        noise in prop::collection::vec(any::<u8>(), 0..200),
        entries in prop::collection::vec(any::<(u64, u64)>(), 0..8),
        word in any::<u64>(),
    ) {
        prop_assert!(Table::from_bytes(&noise).is_err());
        let mut bytes = Table::open(&run(&program, &[], Policy { room: 8, ..Policy::default() }).path).unwrap().to_bytes();
        bytes.extend(entries.iter().flat_map(|(site, word)| [site.to_le_bytes(), word.to_le_bytes()]).flatten());
        bytes.extend(noise);
        let table = Table::from_bytes(&bytes).unwrap();
        for limit in [0, 1, 1000] {
            let decoded = Decoder::new(&program, &table).decode(word, BASE, limit);
            prop_assert!(decoded.map_or(true, |sites| sites.len() <= limit));
        }
    }
}

#[test]
fn the_same_calls_are_looked_at_once() {
    let program = Program::new(vec![vec![1], vec![2, 2], vec![]]);
    let mut tracker = Tracker::new(Policy { threshold: 100, every: 0, room: 100 });
    let (one, other) = (program.stack(&[0, 0]), program.stack(&[0, 1]));
    let mut news = 0;
    let words: Vec<u64> =
        [&one, &one, &other, &one].iter().map(|stack| tracker.word(1, stack, &mut |_| news += 1)).collect();
    assert_eq!((words[0], words[3]), (words[1], words[1]));
    assert_ne!(words[0], words[2]);
    // Two calls, nothing, one call, one call that is known.
    assert_eq!((tracker.looks(), news), (4, 3));
    assert_eq!(tracker.word(1, &[], &mut |_| panic!("nothing is new")), ROOT);
}

/// One function that calls itself at two places: without words in between, a stack of forty calls is one of 2^40.
#[test]
fn words_in_between_bridge_hot_recursion() {
    let program = Program::new(vec![vec![0, 0]]);
    let choices = |n: u64| {
        (0..40).map(move |bit| usize::try_from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> bit & 1).unwrap())
    };
    let stacks: Vec<_> = (1..200).map(|n| program.stack(&choices(n).collect::<Vec<_>>())).collect();
    let decoded = |every| {
        let run = run(&program, &stacks, Policy { threshold: 10, every, room: 1 << 14 });
        let table = Table::open(&run.path).unwrap();
        let mut decoder = Decoder::new(&program, &table);
        let mut count = 0;
        for (stack, word) in stacks.iter().zip(&run.words) {
            if let Ok(sites) = decoder.decode(*word, program.standing(stack), 2000) {
                assert_eq!(sites, addresses(stack));
                count += 1;
            }
        }
        count
    };
    assert!(decoded(0) < 10, "only what was seen before the calls were hot: {}", decoded(0));
    assert_eq!(decoded(8), stacks.len());
}

#[test]
fn a_table_that_is_full_proves_nothing() {
    let program = Program::new(vec![vec![1, 1, 1], vec![]]);
    let stacks: Vec<_> = (0..3).map(|n| program.stack(&[n])).collect();
    let run = run(&program, &stacks, Policy { threshold: 10, every: 0, room: 2 });
    let table = Table::open(&run.path).unwrap();
    assert!(!table.is_complete());
    assert_eq!(table.sizes(), (2, 0));
    let mut decoder = Decoder::new(&program, &table);
    for (stack, word) in stacks.iter().zip(&run.words) {
        let decoded = decoder.decode(*word, program.standing(stack), LIMIT);
        assert_eq!(decoded, Ok(addresses(stack)), "found by the call graph");
    }
}

#[test]
fn other_files_and_versions_are_refused() {
    let run = run(&Program::new(Vec::new()), &[], Policy { room: 4, ..Policy::default() });
    let bytes = fs::read(&run.path).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&run.path, bytes).unwrap();
        Table::open(&run.path).unwrap_err()
    };
    assert!(matches!(refused(b"something else"), TableError::Magic));
    assert!(matches!(refused(&bytes[..100]), TableError::Header));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert!(matches!(refused(&newer), TableError::Version(2)));
    fs::remove_file(&run.path).unwrap();
    assert!(matches!(Table::open(&run.path), Err(TableError::Read { .. })));
}
