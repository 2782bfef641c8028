//! Findings and summaries as text.

use crate::campaign::{Finding, Summary};
use crate::case::Case;
use crate::generate;
use crate::golden;
use crate::layout::data_address;
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
use serde_json::{Value, json};
use std::fmt::Write as _;
use x86::op::Gpr;
use x86::state::{Fpu, RFLAGS_FIXED, RFLAGS_IF};

/// The most words of memory that a finding shows.
const WORDS: usize = 16;

/// A finding as a few lines: the code, the state before, and where this processor and the semantics differ.
#[must_use]
pub fn finding(finding: &Finding) -> String {
    let case = &finding.case;
    let bytes: Vec<String> = case.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut text = format!("{}  ; {}\n  before: {}", bytes.join(" "), disassembly(case), before(case));
    for (at, value) in memory(finding).take(WORDS) {
        let _ = write!(text, " [{at:#x}]={value:#x}");
    }
    let hidden = memory(finding).skip(WORDS).count();
    if hidden > 0 {
        let _ = write!(text, " and {hidden} more words of memory");
    }
    let _ = writeln!(text, "\n  native: {:x?}", finding.native.ending);
    for difference in &finding.differences {
        let _ = writeln!(
            text,
            "  {}: native {}, found {}",
            difference.place, difference.native, difference.found
        );
    }
    if let Some(line) = golden::line(finding) {
        let _ = writeln!(text, "  golden: {line}");
    }
    text
}

/// The code in Intel's syntax.
#[must_use]
pub fn disassembly(case: &Case) -> String {
    let mut formatter = IntelFormatter::new();
    let decoder = Decoder::with_ip(64, case.bytes(), case.state.regs.rip, DecoderOptions::NONE);
    let lines: Vec<String> = decoder
        .into_iter()
        .map(|i: Instruction| {
            let mut line = String::new();
            formatter.format(&i, &mut line);
            line
        })
        .collect();
    lines.join("; ")
}

/// The registers that are not as at reset.
fn before(case: &Case) -> String {
    let (regs, fpu, reset) = (&case.state.regs, &case.state.fpu, Fpu::default());
    let mut parts = vec![format!("rip={:#x}", regs.rip)];
    let mut number = |name: &str, value: u64, usual: u64| {
        if value != usual {
            parts.push(format!("{name}={value:#x}"));
        }
    };
    for (name, value) in Gpr::NAMES.iter().zip(regs.gpr) {
        number(name, value, 0);
    }
    number("rflags", regs.rflags, RFLAGS_FIXED | RFLAGS_IF);
    number("fs_base", regs.fs_base, 0);
    number("gs_base", regs.gs_base, 0);
    number("mxcsr", fpu.mxcsr.into(), reset.mxcsr.into());
    number("x87_control", fpu.control.into(), reset.control.into());
    number("x87_status", fpu.status.into(), reset.status.into());
    number("x87_tag", fpu.tag.into(), reset.tag.into());
    for (n, register) in fpu.vector.iter().enumerate().filter(|(_, register)| **register != [0; 8]) {
        let words: Vec<String> = register.iter().rev().map(|part| format!("{part:016x}")).collect();
        parts.push(format!("zmm{n}={}", words.join("_")));
    }
    for (n, mask) in fpu.opmask.iter().enumerate().filter(|(_, mask)| **mask != 0) {
        parts.push(format!("k{n}={mask:x}"));
    }
    for (n, (significand, sign_exponent)) in fpu.st.iter().enumerate().filter(|(_, st)| **st != (0, 0)) {
        parts.push(format!("x87_{n}={sign_exponent:04x}_{significand:016x}"));
    }
    parts.join(" ")
}

/// The 8-byte words of memory that are not zero.
fn memory(finding: &Finding) -> impl Iterator<Item = (u64, u64)> + '_ {
    let words = finding.image.chunks_exact(8).enumerate();
    words.filter_map(|(n, word)| {
        let value = word.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        (value != 0).then_some((data_address(8 * n), value))
    })
}

/// The counts, one line per mnemonic, and the total.
#[must_use]
pub fn summary(summary: &Summary) -> String {
    let mut text = String::new();
    for (name, count) in &summary.mnemonics {
        let _ = write!(text, "{name:<12} {:>10} cases {:>9} faults", count.cases, count.faults);
        let _ = writeln!(text, "{}", if count.findings == 0 { "" } else { "  DIFFERS" });
    }
    let seconds = summary.elapsed.as_secs_f64();
    let _ = writeln!(
        text,
        "{} cases of {} mnemonics in {seconds:.1} s, {} not comparable, {} differ",
        summary.cases,
        summary.mnemonics.len(),
        summary.skipped,
        summary.different,
    );
    text
}

/// The encodings without semantics, one line per feature.
#[must_use]
pub fn missing() -> String {
    let lines = generate::missing().into_iter().map(|(features, codes)| {
        let codes: Vec<String> = codes.iter().map(|code| format!("{code:?}")).collect();
        format!("{features}: {}\n", codes.join(" "))
    });
    lines.collect()
}

/// The summary as JSON.
#[must_use]
pub fn json(summary: &Summary, seed: u64) -> String {
    let mnemonics: serde_json::Map<String, Value> = summary
        .mnemonics
        .iter()
        .map(|(name, count)| {
            let numbers = json!({
                "cases": count.cases,
                "faults": count.faults,
                "different": count.findings,
            });
            (name.clone(), numbers)
        })
        .collect();
    json!({
        "seed": seed,
        "cases": summary.cases,
        "skipped": summary.skipped,
        "different": summary.different,
        "seconds": summary.elapsed.as_secs_f64(),
        "mnemonics": mnemonics,
        "findings": summary.findings.iter().map(finding).collect::<Vec<_>>(),
    })
    .to_string()
}
