//! `gretel doctor`: what this host offers, what it does not, and what follows.

use crate::Outcome;
use crate::output::print;
use serde_json::{Value, json};
use std::process::ExitCode;
use vmm::engine::kvm::Landing;
use vmm::probe::{Kvm, Perf, Report};

/// Show what this host offers: KVM, traps, branch records, performance counters, and what will be used
///
/// Finds out by trying, in a virtual machine of its own. What is missing is no failure: the exit code is 0.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let report = Report::new();
    let text = if args.json { format!("{}\n", as_json(&report)) } else { as_text(&report) };
    print(format_args!("{text}"))?;
    Ok(ExitCode::SUCCESS)
}

/// A thing that was tried: its name, what was found, and what follows.
struct Finding {
    name: &'static str,
    found: String,
    follows: &'static str,
}

fn as_text(report: &Report) -> String {
    let mut findings = match &report.kvm {
        Ok(kvm) => kvm_findings(kvm),
        Err(why) => vec![Finding {
            name: "kvm",
            found: format!("no: {why}"),
            follows: "programs run on the software CPU: the same results, more slowly",
        }],
    };
    findings.extend(perf_findings(&report.perf));
    let mut text = String::new();
    for Finding { name, found, follows } in findings {
        text.push_str(&format!("{name:<16} {found}\n"));
        if !follows.is_empty() {
            text.push_str(&format!("{:<16}   {follows}\n", ""));
        }
    }
    text.push_str(&format!("\nengine           {}\n", report.engine().name()));
    text.push_str("branch records   derived (the crash runs again on the software CPU)\n");
    text
}

fn kvm_findings(kvm: &Kvm) -> Vec<Finding> {
    let cost = &kvm.cost;
    let finding = |name, found: String, follows| Finding { name, found, follows };
    let trapped = |yes| if yes { "trapped" } else { "not trapped" }.to_owned();
    let unless = |fine, follows| if fine { "" } else { follows };
    vec![
        match kvm.landing {
            Landing::Ring0 => {
                finding("kvm", "yes: SYSCALL enters ring 0 (hardware virtualization)".to_owned(), "")
            }
            Landing::Ring3 => finding(
                "kvm",
                "yes: SYSCALL stays in ring 3 (software virtualization, kvm_pvm)".to_owned(),
                "exits are dear; the program's own instructions run at full speed",
            ),
        },
        finding(
            "exits",
            format!(
                "system call {:.1} µs, page fault {:.1} µs (a system call of this process: {:.2} µs)",
                cost.syscall, cost.page_fault, cost.native_syscall
            ),
            unless(cost.syscall < 5.0, "programs that make many system calls are slowed down the most"),
        ),
        finding(
            "cpuid",
            trapped(kvm.traps_cpuid),
            unless(kvm.traps_cpuid, "rewritten in the program's code; code made at run time sees the host's"),
        ),
        finding(
            "rdtsc",
            trapped(kvm.traps_tsc),
            unless(kvm.traps_tsc, "rewritten in the program's code; code made at run time sees the host's"),
        ),
        finding(
            "avx",
            if kvm.withholds_avx { "withheld, as the CPU model says" } else { "cannot be withheld" }
                .to_owned(),
            unless(
                kvm.withholds_avx,
                "CPUID does not announce it; a program that uses it all the same is not replayed",
            ),
        ),
        finding(
            "dirty log",
            if kvm.dirty_log { "yes" } else { "no" }.to_owned(),
            unless(kvm.dirty_log, "written pages are found by comparing them"),
        ),
        match &kvm.branch_records {
            Ok(depth) => finding("branch records", format!("yes: the last {depth}, by the processor"), ""),
            Err(why) => finding(
                "branch records",
                format!("no: {why}"),
                "derived instead: the crash runs again on the software CPU, which records as the hardware would",
            ),
        },
    ]
}

fn perf_findings(perf: &Perf) -> [Finding; 3] {
    let say = |name, result: &Result<(), String>, follows| match result {
        Ok(()) => Finding { name, found: "yes".to_owned(), follows: "" },
        Err(why) => Finding { name, found: format!("no: {why}"), follows },
    };
    [
        say("perf counters", &perf.hardware, "nothing counts the program's branches but the software CPU"),
        say("perf branches", &perf.branch_stack, "no branch records from the host's kernel"),
        say("perf clock", &perf.software, "no sampling by the kernel's clock"),
    ]
}

fn as_json(report: &Report) -> Value {
    let result = |result: &Result<(), String>| match result {
        Ok(()) => json!({ "available": true }),
        Err(why) => json!({ "available": false, "reason": why }),
    };
    let kvm = match &report.kvm {
        Err(why) => json!({ "available": false, "reason": why }),
        Ok(kvm) => json!({
            "available": true,
            "syscall_lands_in_ring": match kvm.landing { Landing::Ring0 => 0, Landing::Ring3 => 3 },
            "exit_us": {
                "syscall": kvm.cost.syscall,
                "page_fault": kvm.cost.page_fault,
                "native_syscall": kvm.cost.native_syscall,
            },
            "traps_cpuid": kvm.traps_cpuid,
            "traps_rdtsc": kvm.traps_tsc,
            "withholds_avx": kvm.withholds_avx,
            "dirty_log": kvm.dirty_log,
            "branch_records": match &kvm.branch_records {
                Ok(depth) => json!({ "available": true, "depth": depth }),
                Err(why) => json!({ "available": false, "reason": why }),
            },
        }),
    };
    json!({
        "kvm": kvm,
        "perf": {
            "hardware_counters": result(&report.perf.hardware),
            "branch_stack": result(&report.perf.branch_stack),
            "software_events": result(&report.perf.software),
            "paranoid": report.perf.paranoid,
        },
        "use": { "engine": report.engine().name(), "branch_records": lbr::Provenance::Derived.name() },
    })
}
