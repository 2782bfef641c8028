//! Bytes that are asked for by an expression of the source: of `last-write`, `memory`, `heap`, `why`, and in gdb.

use crate::{Place, USAGE, skipped};
use serde_json::Value;

/// A list of three orders, whose last is spoiled before it crashes two calls below `main`, in a function without debug information.
const ORDERS: &str = r#"
    #include <stdlib.h>
    struct order { char name[16]; long amount; struct order *next; unsigned open : 3, kind : 5; };
    struct order *all;
    static long total[4];
    long crash(const void *at);
    __attribute__((noinline)) static long spoil(struct order *order, long amount) {
        order->amount = amount;
        total[2] += amount;
        order->kind = 9;
        order->next = (struct order *)0x726564;
        return crash(order->next);
    }
    int main(void) {
        int count = 0;
        for (; count < 3; count++) {
            struct order *order = calloc(1, sizeof *order);
            order->next = all;
            all = order;
        }
        return spoil(all->next, 70 + count);
    }"#;

/// It has a variable of its own by the name of another file's, and one that no debug information has.
const CRASH: &str = r"
    static long total = 5;
    long unseen[2];
    long crash(const long *at) { unseen[1] = total; return *at + unseen[1]; }";

fn recorded() -> Option<Place> {
    let place = Place::new();
    place.write("orders.c", ORDERS);
    place.write("crash.c", CRASH);
    let made = place
        .sh("gcc -O1 -fno-omit-frame-pointer -c crash.c && gcc -g -O0 -static -o orders orders.c crash.o");
    if made.code != 0 {
        skipped("orders", "gcc cannot make a static program here");
        return None;
    }
    let ran = place.gretel(&["record", "-o", "rec", "--", "./orders"]);
    assert!(ran.err.contains("SIGSEGV"), "{}", ran.err);
    Some(place)
}

/// What gretel prints of such a question as JSON, and says besides.
fn asked(place: &Place, question: &[&str]) -> (Value, String) {
    let ran = place.gretel(&[question, &["--json"]].concat());
    assert_eq!(ran.code, 0, "{question:?}: {}", ran.err);
    let last = ran.out().lines().last().map(str::to_owned).expect("a line");
    (serde_json::from_str(&last).expect("JSON"), ran.err)
}

#[test]
fn names_are_those_of_the_innermost_call_that_knows_them() {
    let Some(place) = recorded() else { return };
    let symbol = |name: &str| {
        let found =
            place.sh(&format!("nm orders | sed -n 's/^0*\\([0-9a-f]*\\) . {name}$/0x\\1/p' | head -1"));
        found.out().trim().to_owned()
    };
    for (expression, says, length, after) in [
        ("order->amount", "as spoil sees it is 8 bytes", 8, "4900000000000000"),
        ("all->next->next", "is 8 bytes", 8, "6465720000000000"),
        ("spoil::amount", "as spoil sees it is 8 bytes", 8, "4900000000000000"),
        ("count", "as main sees it is 4 bytes", 4, "03000000"),
        ("total[2]", "is 8 bytes", 8, "4900000000000000"),
        ("order->kind", "as spoil sees it is 1 byte ", 1, "48"),
        ("unseen", "is 16 bytes", 16, "00000000000000000500000000000000"),
    ] {
        let (found, err) = asked(&place, &["last-write", "rec", expression]);
        assert!(err.contains(&format!("`{expression}` {says}")), "{err}");
        assert_eq!(
            (&found["length"], &found["after"]),
            (&length.into(), &after.into()),
            "{expression}: {found}"
        );
    }
    let (found, _) = asked(&place, &["last-write", "rec", "all", "4"]);
    assert_eq!((&found["address"], &found["length"]), (&symbol("all").into(), &4.into()));
    let (found, _) = asked(&place, &["memory", "rec", "order->next", "--writes"]);
    assert_eq!(found["after"], "6465720000000000");
    let (found, err) = asked(&place, &["heap", "rec", "order"]);
    assert!(err.contains("`order` as spoil sees it") && err.contains(" is looked at"), "{err}");
    assert_eq!((&found["verdict"], &found["events"][0]["size"]), (&"live".into(), &40.into()), "{found}");
}

#[test]
fn before_a_position_names_are_those_of_that_position() {
    let Some(place) = recorded() else { return };
    let (whole, _) = asked(&place, &["last-write", "rec", "all"]);
    let at = whole["position"].as_str().expect("a position");
    let (before, err) = asked(&place, &["last-write", "rec", "count", "--before", at]);
    assert!(err.contains("`count` as main sees it"), "{err}");
    assert_eq!(before["after"], "02000000", "{before}");
    // The function is left there, so that its variables are not known.
    let early = place.gretel(&["last-write", "rec", "amount", "--before", at]);
    assert!(early.code == USAGE && early.err.contains("there is no variable `amount` here"), "{}", early.err);
}

#[test]
fn why_and_gdb_take_expressions_too() {
    let Some(place) = recorded() else { return };
    let ran = place.gretel(&["why", "rec", "--of", "order->amount"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out().starts_with("`order->amount` as spoil sees it is 8 bytes"), "{}", ran.out());
    assert!(ran.out().contains("in spoil, orders.c:"), "{}", ran.out());
    if place.sh("gdb --version").code != 0 {
        skipped("gdb", "there is none");
        return;
    }
    let gdb = place.sh(&format!(
        "{} gdb rec -- -batch -ex 'monitor memory all->next->amount --writes' -ex 'monitor heap order' \
         -ex 'monitor last-write total + 2' -ex 'monitor last-write order->next 4' -ex 'info symbol $pc' 2>&1",
        env!("CARGO_BIN_EXE_gretel")
    ));
    let out = gdb.out();
    assert!(out.contains("0x0 -> ") || out.contains("write       0x49"), "{out}");
    assert!(out.contains("live: allocated at"), "{out}");
    assert!(out.contains("which is taken for an address: say LENGTH"), "{out}");
    assert!(out.contains("`order->next` as spoil sees it is 8 bytes") && out.contains("spoil + "), "{out}");
}

#[test]
fn what_has_no_bytes_is_refused_with_the_reason() {
    let Some(place) = recorded() else { return };
    for (question, why) in [
        (&["last-write", "rec", "0x1000"][..], "say LENGTH"),
        (&["last-write", "rec", "nothing"], "there is no variable `nothing` here"),
        (&["last-write", "rec", "order->nothing"], "has no member `nothing`"),
        (&["last-write", "rec", "order->"], "is missing at the end"),
        (&["last-write", "rec", "&order->amount"], "is taken for an address: say LENGTH"),
        (&["last-write", "rec", "total", "70000"], "LENGTH is 1 to 65536 bytes"),
        (&["last-write", "rec", "*(long *)order"], "casts and sizeof are not served"),
        (&["why", "rec", "--of", "nothing"], "there is no variable `nothing` here"),
        (&["why", "rec", "--of", "12x"], "nor an expression"),
    ] {
        let ran = place.gretel(question);
        assert!(ran.code != 0 && ran.err.contains(why), "{question:?}: {} {}", ran.code, ran.err);
    }
}
