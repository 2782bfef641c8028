//! The direction of dependencies: `x86 → lbr → vmm → synth → gretel`, each crate using only those to its left, and the
//! crates that do without unsafe code. Read from `cargo metadata`, so that a new crate has to find its place here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates, lowest layer first.
const LAYERS: [&str; 5] = ["x86", "lbr", "vmm", "synth", "gretel"];

/// Checks `x86` against the processor. It stands beside the layers: it may use `x86`, and any crate's tests may use it.
const ORACLE: &str = "x86-oracle";

/// The crates that forbid unsafe code, and where they say so.
const SAFE: [(&str, &str); 2] = [("x86", "x86/src/lib.rs"), ("gretel", "src/main.rs")];

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
