//! Calling contexts of crumbs, decoded back to stacks.

use crate::core_file::place_of_call;
use lbr::Crumb;
use lbr::context::{Decoder, Table, Undecoded};
use serde_json::{Value, json};
use std::collections::HashMap;
use synth::program::Program;
use synth::program::cfg::{Callers, Cfg};

/// How many possible calls the search looks at for one context.
const LIMIT: usize = 100_000;

/// Decodes contexts; each word once.
pub(crate) struct Contexts<'c> {
    decoder: Decoder<'c, Callers<'c>>,
    program: &'c Program,
    known: HashMap<(u64, u64), Decoded>,
}

/// The call sites, the innermost first, or why they are not known.
type Decoded = Result<Vec<u64>, Undecoded>;

impl<'c> Contexts<'c> {
    pub(crate) fn new(table: &'c Table, cfg: &'c Cfg<'c>, program: &'c Program) -> Contexts<'c> {
        Contexts { decoder: Decoder::new(Callers::new(cfg), table), program, known: HashMap::new() }
    }

    fn decoded(&mut self, word: u64, at: u64) -> &Decoded {
        let Contexts { decoder, known, .. } = self;
        known.entry((word, at)).or_insert_with(|| decoder.decode(word, at, LIMIT))
    }

    /// The functions that were on the stack, the innermost first; nothing for a crumb without a context.
    pub(crate) fn line(&mut self, crumb: &Crumb) -> Option<String> {
        let word = crumb.context?;
        let program = self.program;
        Some(match self.decoded(word, crumb.rip) {
            Err(why) => format!("context {word:#018x}: {why}"),
            Ok(sites) => {
                let name =
                    |at: u64| program.function_at(at).map_or_else(|| format!("{at:#x}"), |f| f.name.clone());
                let names: Vec<_> = sites.iter().map(|site| name(site.wrapping_sub(1))).collect();
                format!(
                    "called by {}",
                    if names.is_empty() { "nobody".to_owned() } else { names.join(" < ") }
                )
            }
        })
    }

    /// The call sites as JSON, the innermost first: null where they are not known.
    pub(crate) fn json(&mut self, crumb: &Crumb) -> Value {
        let Some(word) = crumb.context else { return Value::Null };
        let program = self.program;
        match self.decoded(word, crumb.rip) {
            Err(why) => json!({ "undecoded": why.to_string() }),
            Ok(sites) => {
                let site =
                    |at: &u64| json!({ "rip": format!("{at:#x}"), "place": place_of_call(program, *at) });
                sites.iter().map(site).collect()
            }
        }
    }
}
