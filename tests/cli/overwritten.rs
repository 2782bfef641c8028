//! `gretel synth` where a store through a lost register overwrote what older instructions found: nothing is refuted for that, and the
//! store goes where it explains memory.

use crate::Place;
use serde_json::Value;

/// A store through a register that was overwritten since: what was tested before it is not what the core holds. Either the comparison
/// contradicts the core, or it tells of a register what the instruction before it refuses, which finds nothing in memory itself.
#[test]
fn what_a_store_at_an_unknown_address_overwrote_refutes_nothing() {
    let cases = [
        ("0", "lea %0, %%rbx; cmpq $0, %0; jne 1f; movq $1, (%%rbx);", "cmp qword ptr"),
        (
            "5",
            "lea %0, %%rbx; mov $5, %%ecx; cmpq %%rcx, %0; jne 1f; movq $1, (%%rbx); mov $9, %%ecx;",
            "mov ecx, 5",
        ),
    ];
    for (before, instructions, refused) in cases {
        let place = Place::new();
        let source = format!(
            r#"
            static volatile long x = {before};
            int main(void) {{
                asm volatile("{instructions} xor %%ebx, %%ebx; mov 0x10, %%al; 1:"
                             : "+m"(x) :: "rax", "rbx", "rcx", "cc", "memory");
                return 0;
            }}"#
        );
        let Some(_program) = place.compile("overwrites", &source) else { return };
        let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./overwrites"]);
        assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
        for records in ["0", "16"] {
            let arguments = ["synth", "rec", "--json", "--no-kvm", "--records", records, "--crumbs", "none"];
            let ran = place.gretel(&arguments);
            assert_eq!(ran.code, 0, "it happened: {}{}", ran.out(), ran.err);
            let result: Value = serde_json::from_str(&ran.out()).unwrap();
            // It is refused, unless the store behind it went there.
            let steps = result["listing"]["steps"].as_array().unwrap();
            let is_refused = |step: &Value| step["text"].as_str().unwrap().starts_with(refused);
            let at = steps.iter().rposition(is_refused);
            assert!(at.is_some_and(|at| at + 7 > steps.len()), "{refused}, {records} records: {}", ran.out());
            let path = &result["metrics"]["path"];
            assert!(path["common"].as_u64() >= Some(6), "{path}");
            let uses = &result["metrics"]["uses"];
            assert_eq!(uses["wrong"], uses["chosen"], "{uses}");
        }
    }
}

/// Two stores through lost registers, and a load that contradicts what a comparison behind it found. The first store could have gone to
/// the load's place, by what is known of both, and no values do. What the comparison found was overwritten by the second.
#[test]
fn a_store_goes_where_values_exist_with_which_it_explains_memory() {
    let place = Place::new();
    let source = r#"
        static struct { int next, top; long log; } state = { 3, 2, 0 };
        int main(int argc, char **argv) {
            asm volatile("mov %0, %%rbx; lea 8(%0), %%r14; mov %1, %%rdx;"
                         "mov (%0), %%r15d; cmp %%r15d, 4(%0); jge 1f; mov %%rdx, (%%r14); mov %%r15d, 4(%%rbx);"
                         "xor %%ebx, %%ebx; xor %%r14d, %%r14d; xor %%edx, %%edx; xor %%r15d, %%r15d; mov 0x10, %%al; 1:"
                         :: "S"(&state), "r"(argv) : "rax", "rbx", "rdx", "r14", "r15", "cc", "memory");
            return argc;
        }"#;
    let Some(_program) = place.compile("logs", source) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./logs"]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    let ran = place.gretel(&["synth", "rec", "--json", "--no-kvm", "--records", "16", "--crumbs", "none"]);
    assert_eq!(ran.code, 0, "it happened: {}{}", ran.out(), ran.err);
    let result: Value = serde_json::from_str(&ran.out()).unwrap();
    let path = &result["metrics"]["path"];
    assert!(path["common"].as_u64() >= Some(12), "the load is on it, and what is before: {path}");
    let uses = &result["metrics"]["uses"];
    assert_eq!(uses["wrong"], uses["chosen"], "{uses}");
}
