//! `gretel bench`: what it measures and what it says of what is not there. Not how long anything takes.

use crate::{HOST, OTHER, PROGRAM, Place, Ran, USAGE, engines, ran};
use serde_json::Value;

/// Reads its input, writes, and ends with the number of bytes that it has read.
const READS: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(void) { char bytes[100]; int n = read(0, bytes, 100); printf("%d bytes\n", n); return n; }"#;

/// What is recorded, in the order of the table.
const RECORDED: [&str; 9] = [
    "without gretel",
    "nothing",
    "journal",
    "+ crumbs",
    "+ crumbs, counters",
    "+ crumbs, branch records (kvm)",
    "+ crumbs, branch records (perf)",
    "+ crumbs, branch records (derived)",
    "+ crumbs, contexts",
];

fn measured(run: &Ran) -> Value {
    serde_json::from_str(&run.out()).unwrap_or_else(|_| panic!("--json prints JSON: {}", run.err))
}

/// Each cost is there with figures that can be, or is said not to be there, with the reason.
fn check_costs(costs: &Value) {
    let costs = costs.as_array().unwrap();
    let names: Vec<_> = costs.iter().map(|cost| cost["recorded"].as_str().unwrap()).collect();
    assert_eq!(names, RECORDED);
    for cost in costs {
        let name = cost["recorded"].as_str().unwrap();
        if cost["available"] == false {
            assert!(name.contains("counters") || name.contains("kvm") || name.contains("perf"), "{cost}");
            assert!(cost["reason"].as_str().unwrap().starts_with("not here: "), "{cost}");
            assert!(cost["seconds"].is_null() && cost["ratio"].is_null(), "nothing is made up: {cost}");
            continue;
        }
        for what in ["seconds", "ratio"] {
            let of = |which: &str| cost[what][which].as_f64().unwrap();
            assert!(0.0 < of("least") && of("least") <= of("median") && of("median") <= of("most"), "{cost}");
        }
        let recorded = !["without gretel", "nothing"].contains(&name);
        assert_eq!(cost["journal_bytes"].as_u64().is_some_and(|bytes| bytes > 0), recorded, "{cost}");
        assert_eq!(cost["journal_bytes_per_second"].is_null(), !recorded, "{cost}");
    }
    assert_eq!(costs[0]["ratio"]["median"], 1.0, "the program against itself");
}

#[test]
fn each_kind_of_record_is_measured_or_said_not_to_be_there() {
    let place = Place::new();
    let Some(_program) = place.compile("reads", READS) else { return };
    place.write("input", "seven b");
    for engine in engines() {
        let options = ["--engine", engine, "--rounds", "1", "--stdin", "input"];
        let drawn = ["bench", "record", "--json", "--plots", "drawn"];
        let run = place.gretel(&[&drawn[..], &options[..], &["--", "./reads"]].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        let shown = measured(&run);
        assert_eq!((shown["engine"].as_str(), shown["rounds"].as_u64()), (Some(engine), Some(1)));
        assert_eq!(shown["programs"][0]["program"], "./reads");
        check_costs(&shown["programs"][0]["costs"]);
        let svg = std::fs::read_to_string(place.path("drawn/costs.svg")).unwrap();
        let costs = shown["programs"][0]["costs"].as_array().unwrap();
        let there = costs[1..].iter().filter(|cost| cost["available"] == true).count();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>") && svg.contains(">./reads<"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), there, "a point for each kind that was measured");

        let text = place.gretel(&[&["bench", "record"], &options[..], &["--", "./reads"]].concat());
        assert_eq!(text.code, 0, "{}", text.err);
        assert!(RECORDED.iter().all(|name| text.out().contains(&format!("\n  {name} "))), "{}", text.out());
    }
    let left: Vec<_> = std::fs::read_dir(place.path(".")).unwrap().collect();
    assert_eq!(left.len(), 4, "source, program, input and drawing, and nothing else: {left:?}");
}

/// The time of something else is not the cost of recording.
#[test]
fn a_program_that_ends_otherwise_is_not_measured() {
    let place = Place::new();
    let source = "#include <string.h>\n#include <sys/utsname.h>\n\
                  int main(void) { struct utsname u; uname(&u); return strcmp(u.nodename, \"gretel\") ? 5 : 6; }";
    let Some(_program) = place.compile("asks", source) else { return };
    let run =
        place.gretel(&["bench", "record", "--json", "--engine", "soft", "--rounds", "1", "--", "./asks"]);
    assert_eq!(run.code, OTHER, "{}", run.err);
    let shown = measured(&run);
    let journal = &shown["programs"][0]["costs"][2];
    assert_eq!((&journal["recorded"], &journal["available"]), (&"journal".into(), &false.into()));
    assert_eq!(journal["reason"], "it ended with 6, without gretel with 5");
}

#[test]
fn a_program_without_a_recording_does_what_it_does() {
    let place = Place::new();
    let Some(_program) = place.compile("reads", READS) else { return };
    for engine in engines() {
        let run = place.gretel(&["bench", "bare", "--engine", engine, "--", "./reads"]);
        assert_eq!((run.code, run.out().as_str()), (0, "0 bytes\n"), "{}", run.err);
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let place = Place::new();
    let code = |arguments: &[&str]| place.gretel(&[&["bench", "record"], arguments].concat()).code;
    assert_eq!(code(&["--rounds", "0"]), USAGE);
    assert_eq!(code(&["--stdin", "input"]), USAGE);
    assert_eq!(code(&["--stdin", "no-such-file", "--", "busybox"]), USAGE);
    assert_eq!(code(&["--engine", "soft", "--", "./no-such-program"]), PROGRAM);
    place.write("text", "no program");
    assert_eq!(code(&["--engine", "soft", "--", "./text"]), PROGRAM);
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &["bench", "record", "--engine", "kvm"]);
    let run = ran(command.env("GRETEL_KVM_DEVICE", "/no/such/device"));
    assert_eq!(run.code, HOST, "{}", run.err);
    assert!(run.out.is_empty());
}

/// Synthesis of a crash with several kinds of records: figures for each, and two drawings.
#[test]
fn what_each_kind_of_record_buys_is_measured_and_drawn() {
    let place = Place::new();
    let source = "int main(int argc, char **argv) { volatile int n = argc; \
                  for (int i = 0; i < 5; i++) n += i; volatile int zero = argc - 1; return n / zero; }";
    let Some(_program) = place.compile("divides", source) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./divides"]);
    assert_eq!(recorded.code, 128 + 8, "{}", recorded.err);
    let options = ["--records", "0,16:no-jcc", "--instructions", "40", "--fuel", "5"];
    let run =
        place.gretel(&[&["bench", "synth", "--json", "--plots", "drawn", "rec"], &options[..]].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let shown = measured(&run);
    for (kind, name) in shown["results"].as_array().unwrap().iter().zip(["none", "16 of no-jcc"]) {
        assert_eq!(kind["records"], name, "{shown}");
        let [fidelity, efficiency, utility] =
            ["fidelity", "efficiency", "utility"].map(|figure| kind[figure].as_f64().unwrap());
        assert!([0.5, 1.0].contains(&fidelity) && (utility - fidelity * efficiency).abs() < 1e-9, "{kind}");
        let crash = &kind["crashes"][0];
        let lengths = ["forced", "true", "certified"].map(|length| crash[length].as_u64().unwrap());
        assert!(lengths.is_sorted() && lengths[2] >= 40, "{crash}");
        let bands: Vec<u64> = crash["distances"]
            .as_array()
            .unwrap()
            .iter()
            .map(|band| band["upto"].as_u64().unwrap())
            .collect();
        assert_eq!(bands, [16, 32, 64], "{crash}");
    }
    for drawing in ["reach.svg", "values.svg"] {
        let svg = std::fs::read_to_string(place.path("drawn").join(drawing)).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"), "{drawing}");
        assert!(["none", "16 of no-jcc"].iter().all(|name| svg.contains(&format!(">{name}<"))), "{drawing}");
    }
}
