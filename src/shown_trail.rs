//! A branch trail as it is shown: text, JSON, and what perf prints.

use crate::core_file::hex;
use lbr::format::{brstack, perf};
use lbr::{BranchRecord, Family, Trail};
use serde_json::{Value, json};
use std::io::{self, Write};

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object
    Json,
    /// The branches alone, as `perf script -F brstack` prints them
    PerfScript,
}

/// `--format`, and `--json` for `--format json`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct FormatArgs {
    /// How to print it
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: Format,
    /// Print one JSON object (--format json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl FormatArgs {
    /// The format that was asked for.
    pub(crate) fn get(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// The branch records, newest first; `places` are the names of their two addresses, oldest first as the records are.
pub(crate) fn print(out: &mut impl Write, trail: &Trail, places: &[(String, String)]) -> io::Result<()> {
    let filter = filter_of(trail);
    let source = match trail.family {
        Family::Perf => trail.provenance.to_string(),
        family => format!("{family}, {}", trail.provenance),
    };
    writeln!(out, "last branches, newest first (depth {}, filter {filter}, {source}):", trail.depth)?;
    for (record, (from, to)) in trail.records.iter().zip(places).rev() {
        let said = said(record);
        let gap = if record.after_gap { "  (branches may be missing before this one)" } else { "" };
        match record.from_is_hidden() {
            true => writeln!(out, "  (not recorded: another ring){said}")?,
            false => writeln!(out, "  {:#014x}{}{from}{said}", record.from, blank(from))?,
        }
        writeln!(out, "      -> {:#014x}{}{to}{gap}", record.to, blank(to))?;
    }
    if trail.records.is_empty() {
        writeln!(
            out,
            "  none: it took no branch of that filter since it began, or since another task ran, which empties the records"
        )?;
    }
    Ok(())
}

/// The filter, by name.
pub(crate) fn filter_of(trail: &Trail) -> String {
    trail.filter.map_or_else(|| "not known".to_owned(), |filter| filter.to_string())
}

fn blank(place: &str) -> &'static str {
    if place.is_empty() { "" } else { " " }
}

/// What a record says besides its addresses.
fn said(record: &BranchRecord) -> String {
    let flags = [
        (record.mispredicted, "mispredicted"),
        (record.in_transaction, "in a transaction"),
        (record.aborted, "abort"),
        (record.speculative, "speculative"),
    ];
    let kind = record.kind.map(|kind| kind.name().to_owned());
    let flags = flags.iter().filter(|(flag, _)| *flag == Some(true)).map(|(_, name)| (*name).to_owned());
    let cycles = record.cycles.map(|n| format!("{n} {}", if n == 1 { "cycle" } else { "cycles" }));
    let said: Vec<String> = kind.into_iter().chain(flags).chain(cycles).collect();
    if said.is_empty() { String::new() } else { format!("  [{}]", said.join(", ")) }
}

/// The branches as `perf script -F brstack` prints them.
pub(crate) fn perf_script(trail: &Trail) -> String {
    brstack::print(&perf::Stack::from(trail))
}

/// The trail as JSON; what is not known is null.
pub(crate) fn as_json(trail: &Trail, places: &[(String, String)]) -> Value {
    let records = trail.records.iter().zip(places).map(|(r, (from, to))| {
        json!({
            "from": (!r.from_is_hidden()).then(|| hex(r.from)), "to": hex(r.to), "from_place": from,
            "to_place": to, "after_gap": r.after_gap, "kind": r.kind.map(|kind| kind.name()),
            "mispredicted": r.mispredicted, "in_transaction": r.in_transaction, "aborted": r.aborted,
            "cycles": r.cycles, "speculative": r.speculative,
        })
    });
    json!({
        "depth": trail.depth,
        "filter": trail.filter.map(|filter| filter.to_string()),
        "provenance": trail.provenance.name(),
        "family": trail.family.to_string(),
        "records": records.collect::<Vec<_>>(),
    })
}
