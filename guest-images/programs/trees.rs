//! Rust's own collections, formatting, strings, iterators, overflow checks, closures, traits and floats, over the words of
//! standard input.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::io::Read;
use std::rc::Rc;

#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Leaf,
    Node(Rc<Tree>, String, Rc<Tree>),
}

impl Tree {
    fn insert(self: &Rc<Tree>, word: &str) -> Rc<Tree> {
        match &**self {
            Tree::Leaf => Rc::new(Tree::Node(Rc::new(Tree::Leaf), word.to_owned(), Rc::new(Tree::Leaf))),
            Tree::Node(left, own, right) => Rc::new(match word.cmp(own) {
                std::cmp::Ordering::Less => Tree::Node(left.insert(word), own.clone(), right.clone()),
                std::cmp::Ordering::Equal => return self.clone(),
                std::cmp::Ordering::Greater => Tree::Node(left.clone(), own.clone(), right.insert(word)),
            }),
        }
    }

    fn depth(&self) -> usize {
        match self {
            Tree::Leaf => 0,
            Tree::Node(left, _, right) => 1 + left.depth().max(right.depth()),
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Leaf => Ok(()),
            Tree::Node(left, word, right) => write!(f, "{left}({word}){right}"),
        }
    }
}

fn numbers() {
    for v in [0.0, -0.0, 0.1, 1.0 / 3.0, 1e21, 5e-324, f64::MAX, f64::NAN, f64::INFINITY] {
        println!("{v} {v:?} {v:e} {v:+.3} {v:>12.2} {:#x} {}", v.to_bits(), v as f32);
    }
    for text in ["1e400", "0.30000000000000004", "-1.5e-7", "123456789012345678901234567890", "x"] {
        println!("{text}: {:?}", text.parse::<f64>());
    }
    println!("{:?} {:?}", i32::MAX.checked_add(1), u64::MAX.wrapping_mul(3));
    println!("{} {:#010b} {:o} {:x?}", u128::MAX, 37, 511, [1_u8, 254]);
    println!("{:?} {:?}", "12x".parse::<i32>(), "-128".parse::<i8>());
    println!("{} {}", (-7_i64).rem_euclid(3), 170141183460469231731687303715884105727_i128 / 12345678901234567);
    println!("{} {} {}", 300.7_f64 as u8, -1.0_f32 as u32, f64::NAN as i64);
}

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("text");
    let mut tree = Rc::new(Tree::Leaf);
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
        tree = tree.insert(word);
        *counts.entry(word).or_default() += 1;
    }
    println!("{tree} depth {}", tree.depth());
    let mut sorted: BTreeMap<_, usize> = BTreeMap::new();
    counts.iter().for_each(|(word, n)| *sorted.entry(word.to_lowercase()).or_default() += n);
    println!("{sorted:?}");
    let mut heap: BinaryHeap<_> = counts.iter().map(|(word, n)| (n * word.len(), *word)).collect();
    while let Some((weight, word)) = heap.pop().filter(|(weight, _)| *weight > 6) {
        print!("{word}:{weight} ");
    }
    println!();

    let mut queue: VecDeque<u64> = (1..50).collect();
    let mut seen = BTreeSet::new();
    while let Some(n) = queue.pop_front() {
        if n < 400 && seen.insert(n * 7 % 101) {
            queue.extend([n + 13, n * 2]);
        }
    }
    println!("{:?}", seen.iter().step_by(9).collect::<Vec<_>>());
    let unicode = "Größe żółć 漢字 🦀";
    println!("{} {} {:?} {}", unicode.len(), unicode.to_uppercase(), unicode.char_indices().nth(7), unicode.escape_unicode());
    println!("{:?}", unicode.bytes().rev().map(|b| format!("{b:02x}")).collect::<String>());
    numbers();
    let mut words: Vec<_> = text.split_whitespace().collect();
    words.sort_unstable_by_key(|w| (std::cmp::Reverse(w.len()), *w));
    words.dedup();
    println!("{}", words.join("/"));
}
