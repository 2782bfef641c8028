//! `gretel doctor`: what this host offers, what it does not, and what follows.

use crate::Outcome;
use crate::output::print;
use lbr::Provenance;
use lbr::perf::retired::Counted;
use serde_json::{Value, json};
use std::process::ExitCode;
use vmm::confine::{Confined, offered};
use vmm::cpu_model::Model;
use vmm::engine::kvm::Landing;
use vmm::probe::{Kvm, Report};

/// Show what this host offers: KVM, traps, branch records, performance counters, and what will be used
///
/// Finds out by trying, in a virtual machine of its own. What is missing is no failure: the exit code is 0.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel doctor
  gretel doctor --json | jq .engine")]
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

/// What follows where an instruction that reads the machine does not trap (docs/quirks.md).
const REWRITTEN: &str = "rewritten before it is executed, also in code made at run time; code in shared memory, in a written mapping \
                         of a file, or in a page written again four times after it ran sees the host's";

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
    findings.extend(perf_findings(report));
    findings.extend(sandbox_findings());
    let mut text = String::new();
    for Finding { name, found, follows } in findings {
        text.push_str(&format!("{name:<16} {found}\n"));
        if !follows.is_empty() {
            text.push_str(&format!("{:<16}   {follows}\n", ""));
        }
    }
    text.push_str(&format!("\nengine           {}\n", engines_text(report.engines())));
    text.push_str(&format!("branch records   {}\n", source_text(report.branch_records())));
    text.push_str(&format!("counts           {}\n", counts_text(report)));
    text.push_str(
        "kernels          soft: record --kernel does not run them under KVM, also where ring 0 is native\n",
    );
    text
}

/// What is used unless an engine is asked for.
fn engines_text(name: &str) -> &str {
    match name {
        "both" => "both: kvm and soft in turns, each task on the one that costs less",
        alone => alone,
    }
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
        finding("cpuid", trapped(kvm.traps_cpuid), unless(kvm.traps_cpuid, REWRITTEN)),
        finding("rdtsc", trapped(kvm.traps_tsc), unless(kvm.traps_tsc, REWRITTEN)),
        finding(
            "cpu models",
            models(&kvm.models),
            unless(kvm.models.len() == Model::ALL.len(), "the software CPU shows programs the others"),
        ),
        finding(
            "dirty log",
            if kvm.dirty_log { "yes" } else { "no" }.to_owned(),
            unless(kvm.dirty_log, "written pages are found by comparing them"),
        ),
        match &kvm.counters {
            Ok(counted) => finding("guest counters", format!("yes: {}", names(counted)), ""),
            Err(why) => finding(
                "guest counters",
                format!("no: {why}"),
                "crumbs have no counts; they are exact on the software CPU, and in the core of a crash that is derived",
            ),
        },
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

fn models(models: &[Model]) -> String {
    models.iter().map(|model| model.name()).collect::<Vec<_>>().join(", ")
}

fn perf_findings(report: &Report) -> [Finding; 5] {
    let perf = &report.perf;
    let finding = |name, result: Result<String, &String>, follows| match result {
        Ok(found) => Finding { name, found, follows: "" },
        Err(why) => Finding { name, found: format!("no: {why}"), follows },
    };
    let counted = perf.counters.as_ref().map(|counted| format!("yes: {}", names(counted)));
    let depth = perf.branch_stack.as_ref().map(|depth| format!("yes: {depth} in a sample of this process"));
    let samples = perf.flight_recorder.as_ref().map(|n| format!("yes: {n} samples of 5 ms of this process"));
    [
        finding("perf counters", counted, "nothing of this host counts branches or instructions"),
        finding(
            "perf rdpmc",
            perf.rdpmc.as_ref().map(|()| "yes: counters are read without a system call".to_owned()),
            "counters, where there are any, are read by a system call",
        ),
        finding("perf branches", depth, "no branch records from the host's kernel"),
        Finding {
            name: "",
            found: format!("of a guest: no: {}", report.guest_stacks),
            follows: "--branch-records perf is refused",
        },
        finding("perf samples", samples, "no flight recorder by the kernel's clock"),
    ]
}

fn sandbox_findings() -> [Finding; 2] {
    let Confined { calls, files } = offered();
    let finding = |name, layer: Result<(), String>, takes, follows| match layer {
        Ok(()) => Finding { name, found: format!("yes: {takes}"), follows: "" },
        Err(why) => Finding { name, found: format!("no: {why}"), follows },
    };
    [
        finding(
            "sandbox calls",
            calls,
            "gretel may not start programs, trace processes, mount or the like while a program runs (seccomp)",
            "a program that breaks out into gretel could make all system calls",
        ),
        finding(
            "sandbox files",
            files,
            "gretel may execute no file while a program runs (landlock)",
            "that gretel starts no program rests on the filter of system calls alone",
        ),
    ]
}

fn names(counted: &[Counted]) -> String {
    counted.iter().map(|counted| counted.name()).collect::<Vec<_>>().join(", ")
}

fn source_text(source: Provenance) -> &'static str {
    match source {
        Provenance::Hardware => "the processor's, through KVM",
        Provenance::Perf => "of perf",
        Provenance::Derived => "derived (the crash runs again on the software CPU)",
    }
}

/// Who counts what a program retires, on the engine that is used.
fn counts_text(report: &Report) -> &'static str {
    match &report.kvm {
        Err(_) => "exact, by the software CPU",
        Ok(kvm) if kvm.counters.is_ok() => {
            "by the processor while it is recorded; exact when a crash is derived"
        }
        Ok(_) => "none while it is recorded; exact when a crash is derived",
    }
}

fn as_json(report: &Report) -> Value {
    let result = |result: Result<(&str, Value), &String>| match result {
        Ok((name, found)) => json!({ "available": true, name: found }),
        Err(why) => json!({ "available": false, "reason": why }),
    };
    let names =
        |counted: &Vec<Counted>| json!(counted.iter().map(|counted| counted.name()).collect::<Vec<_>>());
    let available = |layer: Result<(), String>| match layer {
        Ok(()) => json!({ "available": true }),
        Err(why) => json!({ "available": false, "reason": why }),
    };
    let (perf, sandbox) = (&report.perf, offered());
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
            "cpu_models": kvm.models.iter().map(|model| model.name()).collect::<Vec<_>>(),
            "dirty_log": kvm.dirty_log,
            "branch_records": result(kvm.branch_records.as_ref().map(|depth| ("depth", json!(depth)))),
            "counters": result(kvm.counters.as_ref().map(|counted| ("counted", names(counted)))),
        }),
    };
    json!({
        "kvm": kvm,
        "perf": {
            "counters": result(perf.counters.as_ref().map(|counted| ("counted", names(counted)))),
            "rdpmc": result(perf.rdpmc.as_ref().map(|()| ("without_system_call", json!(true)))),
            "branch_stack": result(perf.branch_stack.as_ref().map(|depth| ("depth", json!(depth)))),
            "guest_branch_stack": { "available": false, "reason": report.guest_stacks.to_string() },
            "flight_recorder": result(perf.flight_recorder.as_ref().map(|n| ("samples", json!(n)))),
            "paranoid": perf.paranoid,
        },
        "sandbox": { "seccomp": available(sandbox.calls), "landlock": available(sandbox.files) },
        "use": { "engine": report.engines(), "branch_records": report.branch_records().name() },
    })
}
