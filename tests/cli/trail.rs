//! `gretel trail`, and the branches of a core as perf prints them.

use crate::{DAMAGED, Place, USAGE};
use serde_json::Value;

const DUMP: &str = "\
# a processor of format 5
0x1c8 0x1
0x1c9 0x1
0x680 0x401136
0x6c0 0x401140
0xdc0 0x5
0x681 0x401158
0x6c1 0x401120
0xdc1 0x8000000000000007
";

#[test]
fn a_dump_of_registers_is_shown_in_every_form() {
    let place = Place::new();
    place.write("registers", DUMP);
    let text = place.gretel(&["trail", "registers"]);
    assert_eq!((text.code, text.err.as_str()), (0, ""));
    let expected = "\
last branches, newest first (depth 2, filter 0x1, intel-legacy:5, hardware):
  0x000000401158  [mispredicted, 7 cycles]
      -> 0x000000401120
  0x000000401136  [5 cycles]
      -> 0x000000401140
";
    assert_eq!(text.out(), expected);
    let shown: Value = serde_json::from_str(&place.gretel(&["trail", "--json", "registers"]).out()).unwrap();
    let trail = &shown["trails"][0];
    assert_eq!((&trail["family"], &trail["filter"]), (&"intel-legacy:5".into(), &"0x1".into()));
    assert_eq!(trail["records"][1]["from"], "0x401158", "oldest first");
    assert_eq!(trail["records"][1]["mispredicted"], true);
    let line = place.gretel(&["trail", "--format", "perf-script", "registers"]).out();
    assert_eq!(line, " 0x401158/0x401120/M/-/-/7//-  0x401136/0x401140/P/-/-/5//- \n");
    // What perf script prints is read again.
    place.write("script", &line);
    assert_eq!(place.gretel(&["trail", "--format", "perf-script", "script"]).out(), line);
    // An option goes before what the registers say.
    let other = place.gretel(&["trail", "--json", "--family", "intel-legacy:1", "--top", "0", "registers"]);
    let shown: Value = serde_json::from_str(&other.out()).unwrap();
    assert_eq!(shown["trails"][0]["records"][1]["from"], "0x401136");
    assert_eq!(shown["trails"][0]["records"][1]["mispredicted"], Value::Null);
}

#[test]
fn every_sample_has_its_trail() {
    let place = Place::new();
    let sample = |from: u64| {
        let words = [1, from, from + 8, 2].map(u64::to_le_bytes).concat();
        [&[9, 0, 0, 0, 2, 0, 40, 0][..], &words].concat()
    };
    place.write("samples", [sample(0x40_1000), sample(0x40_2000)].concat());
    let all = place.gretel(&["trail", "--format", "perf-script", "samples"]).out();
    assert_eq!(all, " 0x401000/0x401008/P/-/-/0//- \n 0x402000/0x402008/P/-/-/0//- \n");
    let last = place.gretel(&["trail", "--last", "--format", "perf-script", "samples"]).out();
    assert_eq!(last, " 0x402000/0x402008/P/-/-/0//- \n");
}

#[test]
fn what_is_no_branch_records_is_refused_with_its_place() {
    let place = Place::new();
    for (name, bytes, message) in [
        ("empty", &b""[..], "it is empty"),
        ("elf", b"\x7fELF\x02\x01\x01", "gretel core shows"),
        ("text", b"0x680 1\nhello\n", "line 2: 'hello': expected a register and its value"),
        ("none", b"0x10 1\n", "no branch records"),
        ("unknown", b"0x680 1\n0x6c0 2\n0x1c9 0\n", "give the record format, as in intel-legacy:5"),
        ("deep", b"0x345 0x5\n0x680 1\n0x681 1\n0x682 1\n0x1c9 0\n", "3 records: this family has"),
        ("cut", b"\x02\0\0\0\0\0\0\0\x01", "offset 0x8: a branch stack is cut"),
        ("trail", b"gtrtrail\x07\0", "branch trail"),
        ("picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "its format is not known"),
        ("packed", b"\x28\xb5\x2f\xfd\0\0\0\0", "its format is not known"),
    ] {
        place.write(name, bytes);
        let ran = place.gretel(&["trail", name]);
        assert_eq!(ran.code, DAMAGED, "{name}: {}", ran.err);
        assert!(ran.err.contains(message), "{name}: {}", ran.err);
    }
    assert_eq!(place.gretel(&["trail", "missing"]).code, DAMAGED);
    for arguments in [
        &["trail"][..],
        &["trail", "--family", "intel", "elf"],
        &["trail", "--json", "--format", "text", "elf"],
        &["trail", "--bias", "0", "elf"],
        &["trail", "--sample-type", "x", "elf"],
    ] {
        assert_eq!(place.gretel(arguments).code, USAGE, "{arguments:?}");
    }
}

const CRASH: &str = "
__attribute__((noinline)) static int sum(int *p) { int s = 0; for (int i = 0; i < 4; i++) s += p[i]; return s; }
int main(int argc, char **argv) { return sum((int *)(long)(argc * 8)); }
";

#[test]
fn the_branches_of_a_core_are_printed_as_perf_prints_them() {
    let place = Place::new();
    let Some(_program) = place.compile("crash", CRASH) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./crash"]);
    let shown: Value = serde_json::from_str(&place.gretel(&["core", "--json", "rec"]).out()).unwrap();
    let line = place.gretel(&["core", "--format", "perf-script", "rec"]).out();
    let branches: Vec<&str> = line.split_whitespace().collect();
    let records = shown["trail"]["records"].as_array().unwrap();
    assert_eq!((branches.len(), records.len()), (16, 16));
    for (branch, record) in branches.iter().zip(records.iter().rev()) {
        let (from, to) = (record["from"].as_str().unwrap(), record["to"].as_str().unwrap());
        let kind = match record["kind"].as_str().unwrap() {
            "conditional" => "COND",
            "jump" => "UNCOND",
            "indirect jump" => "IND",
            "call" => "CALL",
            "indirect call" => "IND_CALL",
            "return" => "RET",
            other => panic!("{other}"),
        };
        // It is derived: nothing is known of predictions, cycles, speculation.
        assert_eq!(*branch, format!("{from}/{to}/-/-/-/0/{kind}/-"));
    }
    assert!(branches[0].ends_with("/CALL/-"), "the last branch is main's call: {line}");
    let none = place.gretel(&["record", "--engine", "soft", "--records", "0", "-o", "none", "--", "./crash"]);
    let refused = place.gretel(&["core", "--format", "perf-script", "none"]);
    assert_eq!(refused.code, USAGE, "{} {}", none.err, refused.err);
}
