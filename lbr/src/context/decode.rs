//! From a word back to the stack: the hybrid search of the Breadcrumbs paper.
//!
//! A word that the sets know was made by one call site, and peeling that off gives its caller's word: no search. At a
//! hot site the sets may know nothing. Then all hot sites that can have called are tried, breadth first, until a word is
//! met that is known, or is that of the outermost function. Either is certain: by chance it would happen once in 2^64.

use super::table::Table;
use super::word::{ROOT, caller, id};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::rc::Rc;

/// Who can have called whom.
pub trait CallGraph {
    /// The return addresses of the calls that can have led into the function around `at`, through tail jumps too.
    fn callers(&mut self, at: u64) -> &[u64];
}

/// Why a word was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecoded {
    /// No stack that the call graph and the sets allow has this word.
    #[error("no stack has this word")]
    NoStack,
    /// There were too many ways.
    #[error("not found among {0} possible calls")]
    Limit(usize),
}

/// A point of the search: the calls from here inwards are decided.
struct Point {
    /// In the function that is to be called from somewhere.
    at: u64,
    /// Its word.
    word: u64,
    /// The point that this one called.
    callee: Option<usize>,
}

/// Decodes the words of one table.
pub struct Decoder<'t, G> {
    graph: G,
    table: &'t Table,
    /// Of places: the call sites whose words may be missing that can have led there, each with its number: those that
    /// were seen to, else those that can have by the call graph.
    possible: FxHashMap<u64, Rc<[(u64, u64)]>>,
}

impl<'t, G: CallGraph> Decoder<'t, G> {
    /// A decoder that has found nothing out yet.
    pub fn new(graph: G, table: &'t Table) -> Decoder<'t, G> {
        Decoder { graph, table, possible: FxHashMap::default() }
    }

    /// The call sites of the stack with `word` that the program had when it stood at `at`, by their return addresses, the
    /// innermost first. Looks at `limit` possible calls at most.
    ///
    /// # Errors
    /// When there is no such stack, or none was found in time.
    pub fn decode(&mut self, word: u64, at: u64, limit: usize) -> Result<Vec<u64>, Undecoded> {
        let mut points = vec![Point { at, word, callee: None }];
        // A certain point stands alone; of the others those come first that are the fewest steps from one.
        let mut open = VecDeque::from([0]);
        while let Some(current) = open.pop_front() {
            let Point { at, word, .. } = points[current];
            if word == ROOT {
                return Ok(sites(&points, current));
            }
            let ways = match self.table.caller(word) {
                Some(site) => Rc::from([(site, id(site))]),
                None => self.possible(at),
            };
            for (site, id) in ways.iter() {
                if points.len() > limit {
                    return Err(Undecoded::Limit(limit));
                }
                let point = Point { at: *site, word: caller(word, *id), callee: Some(current) };
                let certain = point.word == ROOT || self.table.caller(point.word).is_some();
                if certain {
                    open.clear();
                }
                open.push_back(points.len());
                points.push(point);
                if certain {
                    break;
                }
            }
        }
        Err(Undecoded::NoStack)
    }

    fn possible(&mut self, at: u64) -> Rc<[(u64, u64)]> {
        let Decoder { graph, table, possible } = self;
        let find = || {
            let callers = table.seen_callers(at).unwrap_or_else(|| graph.callers(at)).iter();
            callers.filter(|site| table.may_miss(**site)).map(|site| (*site, id(*site))).collect()
        };
        Rc::clone(possible.entry(at).or_insert_with(find))
    }
}

/// The call sites from the innermost to `outermost`.
fn sites(points: &[Point], outermost: usize) -> Vec<u64> {
    let mut found = Vec::new();
    let mut current = outermost;
    while let Some(callee) = points[current].callee {
        found.push(points[current].at);
        current = callee;
    }
    found.reverse();
    found
}
