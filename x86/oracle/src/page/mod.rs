//! The page that shows which instructions there are: made from the table of the semantics, iced's list of all encodings,
//! and the kept figures of random runs. It is the same on every processor.

mod families;

use crate::campaign;
use crate::dont_care;
use crate::generate::{encodings, is_in_table};
use crate::host::Processor;
use crate::runs::Run;
pub use families::{Family, all as families, family_of as family};
use iced_x86::{Code, Instruction};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use x86::machine::Trap;
use x86::table::privileged;

const HEAD: &str = "# Instructions

What the software CPU, and with it the synthesis, has semantics for. `make page` writes this page from
the table in `x86/src/table`, the list of all 64-bit encodings in iced-x86, and the figures of random
runs in `x86/oracle/runs`; a test says when it is out of date.

| word | meaning |
| --- | --- |
| encoding | an opcode with its kinds of operands, as the processors' manuals list them; one that is WAIT and another instruction (FSTCW, FINIT) counts as two instructions |
| case | an instruction, alone or in a block, with random operands from a random state, which the processor and the software CPU run; a block counts once for each of its instructions |
| passed | registers, flags, memory and faults are the same, but for what `x86-oracle --print-dont-care` prints |

To add the figures of a processor, run `x86-oracle --seconds 1800 --seed N --save x86/oracle/runs` with a
new N, then `make page`.
";

/// What is known of one mnemonic in one family.
#[derive(Default)]
struct Row {
    /// Encodings with semantics.
    present: Vec<Code>,
    /// Encodings without.
    absent: Vec<Code>,
}

type Rows = BTreeMap<String, Row>;

/// The page, in Markdown.
#[must_use]
pub fn page(runs: &[Run]) -> String {
    let mut rows: BTreeMap<&str, Rows> = BTreeMap::new();
    for code in encodings() {
        let Some(family) = family(code) else { continue };
        let row = rows.entry(family.name).or_default().entry(campaign::name(code.mnemonic())).or_default();
        if is_in_table(code) { row.present.push(code) } else { row.absent.push(code) }
    }
    let processors = processors(runs);
    let parts: Vec<(&Family, &Rows)> =
        families().filter_map(|family| Some((family, rows.get(family.name)?))).collect();
    let (with, without): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|(_, rows)| rows.values().any(|row| !row.present.is_empty()));
    let mut text = HEAD.to_owned();
    text += &table_of_runs(runs);
    text += &table_of_families(&with, &processors, runs);
    text += &table_of_what_is_left_out(&without);
    for (family, rows) in with {
        text += &section(family, rows, &processors, runs);
    }
    text
}

/// The processors of the runs, each once.
fn processors(runs: &[Run]) -> Vec<&Processor> {
    let mut processors: Vec<&Processor> = runs.iter().map(|run| &run.processor).collect();
    processors.sort();
    processors.dedup();
    processors
}

/// "Intel 6/207": vendor, family and model.
fn short_name(processor: &Processor) -> String {
    let vendor = match processor.vendor.as_str() {
        "GenuineIntel" => "Intel",
        "AuthenticAMD" => "AMD",
        other => other,
    };
    format!("{vendor} {}/{}", processor.family, processor.model)
}

fn table_of_runs(runs: &[Run]) -> String {
    let mut text = String::from(
        "\n## Runs\n\nA processor is named by its family and model.\n\n\
         | processor | it calls itself | date | seed | seconds | cases | differ |\n\
         | --- | --- | --- | ---: | ---: | ---: | ---: |\n",
    );
    for Run { processor, date, seed, seconds, cases, different, .. } in runs {
        let (short, name) = (short_name(processor), &processor.name);
        let (cases, different) = (grouped(*cases), grouped(*different));
        let _ = writeln!(text, "| {short} | {name} | {date} | {seed} | {seconds} | {cases} | {different} |");
    }
    text
}

/// The cells that head the columns of the processors, and those below that align them.
fn columns(processors: &[&Processor]) -> (String, String) {
    let names = processors.iter().map(|processor| format!(" {} |", short_name(processor))).collect();
    (names, " ---: |".repeat(processors.len()))
}

/// The cells with how many cases passed on each processor.
fn counts(processors: &[&Processor], runs: &[Run], count: impl Fn(&Run) -> u64) -> String {
    let of = |processor: &&Processor| {
        let sum = runs.iter().filter(|run| run.processor == **processor).map(&count).sum();
        format!(" {} |", if sum == 0 { "-".to_owned() } else { grouped(sum) })
    };
    processors.iter().map(of).collect()
}

fn table_of_families(families: &[(&Family, &Rows)], processors: &[&Processor], runs: &[Run]) -> String {
    let (names, lines) = columns(processors);
    let mut text = format!(
        "\n## Families\n\nRight of the encodings: the cases that passed on each processor.\n\n\
         | family | mnemonics | encodings | not implemented |{names}\n\
         | --- | ---: | ---: | ---: |{lines}\n",
    );
    for (family, rows) in families {
        let mnemonics = rows.values().filter(|row| !row.present.is_empty()).count();
        let encodings: usize = rows.values().map(|row| row.present.len()).sum();
        let absent: usize = rows.values().map(|row| row.absent.len()).sum();
        let absent = if absent == 0 { "-".to_owned() } else { absent.to_string() };
        let name = family.name;
        let passed = counts(processors, runs, |run| {
            run.passed.get(name).map_or(0, |mnemonics| mnemonics.values().sum())
        });
        let anchor = name.to_lowercase().replace(' ', "-").replace(['.', ','], "");
        let _ = writeln!(text, "| [{name}](#{anchor}) | {mnemonics} | {encodings} | {absent} |{passed}");
    }
    text
}

fn table_of_what_is_left_out(families: &[(&Family, &Rows)]) -> String {
    let mut text = String::from(
        "\n## Not implemented\n\nOf these there is nothing. The software CPU stops at such an instruction and names it.\n\n\
         | family | mnemonics | why |\n| --- | ---: | --- |\n",
    );
    for (family, rows) in families {
        let reason = family.left_out.unwrap_or("not yet");
        let _ = writeln!(text, "| {} | {} | {reason} |", family.name, rows.len());
    }
    text
}

fn section(family: &Family, rows: &Rows, processors: &[&Processor], runs: &[Run]) -> String {
    let (names, lines) = columns(processors);
    let mut text = format!(
        "\n## {}\n\n| mnemonic | encodings |{names} note |\n| --- | ---: |{lines} --- |\n",
        family.name
    );
    for (mnemonic, row) in rows.iter().filter(|(_, row)| !row.present.is_empty()) {
        let passed = counts(processors, runs, |run| {
            run.passed.get(family.name).and_then(|mnemonics| mnemonics.get(mnemonic)).copied().unwrap_or(0)
        });
        let note = note(row.present[0]).unwrap_or_default();
        let _ = writeln!(text, "| {mnemonic} | {} |{passed} {note} |", row.present.len());
    }
    text + &absent(family, rows)
}

/// What there is to know of an encoding: that it faults, or why no processor runs cases of it.
fn note(code: Code) -> Option<&'static str> {
    if families::is_privileged(code) {
        let mut i = Instruction::default();
        i.set_code(code);
        return match privileged::fault(&i) {
            Some(Trap::General) => Some("#GP outside of ring 0"),
            _ => Some("#UD outside of ring 0"),
        };
    }
    dont_care::EXCLUDED
        .iter()
        .find(|(mnemonics, _)| mnemonics.contains(&code.mnemonic()))
        .map(|(_, why)| *why)
}

/// What a family lacks, by the reason for it.
fn absent(family: &Family, rows: &Rows) -> String {
    let mut lists: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (mnemonic, row) in rows {
        let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for &code in &row.absent {
            let reason = families::reason(code).or(family.left_out).unwrap_or("not yet");
            reasons.entry(reason).or_default().push(format!("{code:?}"));
        }
        for (reason, codes) in reasons {
            let all = codes.len() == row.present.len() + row.absent.len();
            lists.entry(reason).or_default().push(if all { mnemonic.clone() } else { codes.join(" ") });
        }
    }
    let mut text = String::new();
    for (reason, names) in lists {
        let _ = writeln!(text, "\nNot implemented ({reason}): {}.", names.join(", "));
    }
    text
}

/// A number with commas between thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
