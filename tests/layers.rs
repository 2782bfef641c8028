//! The direction of dependencies: `x86 → x86-jit → x86-provenance → x86-system → lbr → vmm → board → synth → gretel`, each crate
//! using only those to its left, and the crates that do without unsafe code. Read from `cargo metadata`, so that a new crate has to
//! find its place here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates, lowest layer first.
const LAYERS: [&str; 9] =
    ["x86", "x86-jit", "x86-provenance", "x86-system", "lbr", "vmm", "board", "synth", "gretel"];

/// Checks `x86` against the processor. It stands beside the layers: it may use `x86`, and any crate's tests may use it.
const ORACLE: &str = "x86-oracle";

/// The crates that forbid unsafe code, and where they say so.
const SAFE: [(&str, &str); 4] = [
    ("x86", "x86/src/lib.rs"),
    ("x86-system", "x86/system/src/lib.rs"),
    ("board", "board/src/lib.rs"),
    ("gretel", "src/main.rs"),
];

/// A dependency of one workspace member on another.
#[derive(Debug, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    /// Only for tests and benchmarks.
    dev: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("cargo metadata has a string `{key}` in {value}"))
}

fn members(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    packages.iter().map(|package| text(package, "name").to_owned()).collect()
}

fn edges(metadata: &Value) -> Vec<Edge> {
    let names = members(metadata);
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    let mut edges = Vec::new();
    for package in packages {
        for dependency in package["dependencies"].as_array().expect("a package lists dependencies") {
            let to = text(dependency, "name");
            if names.iter().any(|name| name == to) {
                let from = text(package, "name").to_owned();
                edges.push(Edge { from, to: to.to_owned(), dev: dependency["kind"] == "dev" });
            }
        }
    }
    edges
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

fn allowed(edge: &Edge) -> bool {
    match (layer(&edge.from), layer(&edge.to)) {
        (Some(from), Some(to)) => to < from,
        (None, Some(to)) => edge.from == ORACLE && LAYERS[to] == "x86",
        (Some(_), None) => edge.to == ORACLE && edge.dev,
        (None, None) => false,
    }
}

#[test]
fn every_member_has_a_layer() {
    let mut names = members(&metadata());
    names.sort();
    let mut known: Vec<_> = LAYERS.iter().chain([&ORACLE]).map(ToString::to_string).collect();
    known.sort();
    assert_eq!(names, known, "a crate that is not in tests/layers.rs, or no longer there");
}

#[test]
fn dependencies_point_to_lower_layers_only() {
    let edges = edges(&metadata());
    assert!(edges.iter().any(|edge| edge.from == "gretel"), "no edge was found at all: {edges:?}");
    let upward: Vec<_> = edges.iter().filter(|edge| !allowed(edge)).collect();
    assert!(upward.is_empty(), "dependencies against the layers: {upward:?}");
}

#[test]
fn the_rule_refuses_what_it_should() {
    let edge = |from: &str, to: &str, dev| Edge { from: from.into(), to: to.into(), dev };
    assert!(!allowed(&edge("x86", "lbr", false)), "upward");
    assert!(!allowed(&edge("lbr", "lbr", false)), "on itself");
    assert!(!allowed(&edge("vmm", ORACLE, false)), "the oracle outside tests");
    assert!(!allowed(&edge(ORACLE, "vmm", true)), "the oracle on more than x86");
    assert!(allowed(&edge("vmm", ORACLE, true)));
    assert!(allowed(&edge(ORACLE, "x86", false)));
}

#[test]
fn the_crates_that_forbid_unsafe_code_say_so() {
    for (name, path) in SAFE {
        let source = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(
            source.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]"),
            "{name} must have #![forbid(unsafe_code)] in {path}"
        );
    }
}

/// The modules of `vmm`, lowest first: each uses only those before it. So there is no circle but between a parent and its
/// children.
const VMM: [&str; 41] = [
    "plain",
    "cpu_model",
    "host",
    "tap",
    "confine",
    "ram",
    "engine",
    "memory",
    "elf",
    "stack",
    "position",
    "signal",
    "signal_frame",
    "gate",
    "interrupt",
    "program",
    "failure",
    "syscalls",
    "linux",
    "contents",
    "journal",
    "process",
    "recording",
    "pack",
    "checkpoints",
    "listing",
    "crumbs",
    "sandbox",
    "probe",
    "elfcore",
    "dump",
    "found",
    "tape",
    "replay",
    "timeline",
    "travel",
    "slice",
    "record",
    "trail",
    "samples",
    "launch",
];

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        match path.is_dir() {
            true => files.extend(sources(&path)),
            false if path.extension().is_some_and(|extension| extension == "rs") => files.push(path),
            false => {}
        }
    }
    files
}

/// The modules that a source file names as `crate::MODULE`, outside comments and its tests.
fn used(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    code.split("crate::").skip(1).map(name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn modules_of_vmm_use_only_those_below_them() {
    let root = root().join("vmm/src");
    let rank = |module: &str| VMM.iter().position(|known| *known == module);
    let mut upward = Vec::new();
    for file in sources(&root) {
        let below = file.strip_prefix(&root).expect("a file below vmm/src");
        let top = below.iter().next().expect("a name").to_string_lossy();
        let module = top.trim_end_matches(".rs");
        if module == "lib" || below.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        let own = rank(module).unwrap_or_else(|| panic!("{module} is not in the list of tests/layers.rs"));
        let text = fs::read_to_string(&file).expect("a source file");
        for name in used(&text).iter().filter(|name| *name != module) {
            // Names that are no module are items that lib.rs shows again.
            if rank(name).is_some_and(|rank| rank >= own) {
                upward.push(format!("{} uses {name}", below.display()));
            }
        }
    }
    assert!(upward.is_empty(), "against the order of the modules: {upward:#?}");
    assert_eq!(used("use crate::a::B; // crate::c\ncrate::d!()"), ["a", "d"]);
}

/// A machine with a kernel has nothing of the Linux personality: of `vmm` it uses how journals are framed, whose notes in cores are, what
/// a debugger looks for, what an instruction accesses, and where compiled code is kept.
#[test]
fn the_board_knows_no_personality() {
    const ALLOWED: [&str; 5] = [
        "journal::",
        "elfcore::notes::OWNER",
        "engine::lookout::",
        "engine::accessed::",
        "engine::soft::kept",
    ];
    let others = |source: &str| -> Vec<String> {
        let uses = source.split("vmm::").skip(1);
        let others = uses.filter(|rest| !ALLOWED.iter().any(|allowed| rest.starts_with(allowed)));
        others.map(|rest| rest.chars().take(24).collect()).collect()
    };
    assert_eq!(others("use vmm::journal::frame; use vmm::engine::soft;"), ["engine::soft;"]);
    for file in sources(&root().join("board/src")) {
        let text = fs::read_to_string(&file).expect("a source file");
        let other = others(&text);
        assert!(other.is_empty(), "{} uses {other:?} of vmm", file.display());
    }
}
