//! Values that are constants of the code: what chose them; and what a program that gave up had said.

use super::{record, whats, why};
use crate::{Place, skipped};
use serde_json::Value;

/// The steps of an answer, one a line.
fn steps(answer: &Value) -> String {
    let of = |step: &Value| {
        let from: Vec<String> = step["from"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| format!("{} {}", it["role"], it["step"]))
            .collect();
        format!("{} from {} by {}\n", step["what"], step["caller"], from.join(", "))
    };
    answer["steps"].as_array().unwrap().iter().map(of).collect()
}

fn words(answer: &Value) -> String {
    let words = answer["question"]["words"].as_array().unwrap().iter();
    words.map(|it| it.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// A null pointer, since a function found nothing: by branches at -O0, by a conditional move at -O2.
const NOTHING: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    static int known[3] = {3, 5, 7};
    __attribute__((noinline)) static int *find(int key) {
        if (key > 8) return 0;
        return &known[key % 3];
    }
    __attribute__((noinline)) static int has(int key) { return key < 50 ? 1 : 0; }
    int main(void) {
        char line[16] = "";
        fgets(line, sizeof line, stdin);
        int key = atoi(line);
        int *found = has(key) ? find(key) : known;
        printf("looking\n");
        return *found;
    }"#;

#[test]
fn a_constant_is_followed_to_what_chose_it() {
    let place = Place::new();
    place.write("prog.c", NOTHING);
    place.write("input", "42\n");
    for level in ["-O0", "-O2"] {
        if place.sh(&format!("rm -rf rec; gcc -g {level} -w -o prog prog.c")).code != 0 {
            return skipped("constants that were chosen", "gcc cannot make it here");
        }
        record(&place, "soft", "./prog <input");
        let answer = why(&place, &[]);
        let steps = steps(&answer);
        assert!(steps.contains("condition") && steps.contains("in find"), "{level}: {steps}");
        assert!(steps.contains("read(0, \\\"42"), "{level}: {steps}");
        // Who asks for a value is shown what it is made of, and no more.
        let asked = why(&place, &["--of", "rax"]);
        assert!(!whats(&asked).iter().any(|it| it.contains("read(0")), "{asked}");
    }
}

const SMASHED: &str = r#"
    #include <stdio.h>
    __attribute__((noinline)) static int copy(const char *from) {
        char into[16];
        int n;
        for (n = 0; from[n] != '\n'; n++) into[n] = from[n];
        return into[3];
    }
    int main(void) {
        char line[100] = "";
        fgets(line, sizeof line, stdin);
        return copy(line);
    }"#;

/// The store that wrote over the stack's guard copies within its own function, and is what is asked for.
#[test]
fn a_stack_that_was_smashed_leads_to_the_store() {
    let place = Place::new();
    place.write("prog.c", SMASHED);
    place.write("input", format!("{}\n", "a".repeat(40)));
    if place.sh("gcc -g -O0 -fstack-protector-all -w -o prog prog.c").code != 0 {
        return skipped("a smashed stack", "gcc cannot make it here");
    }
    record(&place, "soft", "./prog <input");
    let answer = why(&place, &[]);
    assert!(words(&answer).contains("stack smashing detected"), "{answer}");
    let steps = steps(&answer);
    let store = steps.lines().find(|it| it.contains("in copy, prog.c:6"));
    assert!(store.is_some_and(|it| it.starts_with("\"mov [")), "{steps}");
    assert!(steps.contains("read(0, "), "{steps}");
}

const THROWN: &str = r#"
    #include <cstdio>
    #include <cstdlib>
    #include <stdexcept>
    #include <string>
    static int checked(const char *text) {
        int number = atoi(text);
        if (number < 0) throw std::runtime_error(std::string("negative: ") + text);
        return number;
    }
    int main() {
        char line[16] = "";
        fgets(line, sizeof line, stdin);
        printf("%d\n", checked(line));
    }"#;

/// At -O2 it is thrown in the part of `main` that seldom runs, and decided in the other.
#[test]
fn an_exception_that_nobody_caught_is_said_and_led_back() {
    let place = Place::new();
    place.write("prog.cc", THROWN);
    place.write("input", "-7\n");
    for level in ["-O0", "-O2"] {
        if place.sh(&format!("rm -rf rec; g++ -g {level} -w -o prog prog.cc")).code != 0 {
            return skipped("an exception", "g++ is not here");
        }
        record(&place, "soft", "./prog <input");
        let answer = why(&place, &[]);
        let said = "it said: terminate called after throwing an instance of 'std::runtime_error'   what():  negative: -7";
        assert!(words(&answer).contains(said), "{level}: {}", words(&answer));
        assert!(words(&answer).contains("prog.cc:8"), "{level}: {}", words(&answer));
        assert!(steps(&answer).contains("read(0, "), "{level}: {}", steps(&answer));
    }
}

const PANICS: &str = r#"
    use std::collections::HashMap;
    struct Prices { all: HashMap<String, u32> }
    impl Prices {
        fn price(&self, name: &str) -> Option<u32> { self.all.get(name).copied() }
    }
    fn charge(prices: &Prices, name: &str) -> u32 {
        let price = prices.price(name);
        println!("charging {name}");
        price.unwrap()
    }
    fn main() {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        let prices = Prices { all: HashMap::from([("tea".to_string(), 3), ("milk".to_string(), 2)]) };
        println!("{}", charge(&prices, line.trim()));
    }"#;

/// A program that unwinds and exits has not crashed for Linux, and has for who runs it.
#[test]
fn a_panic_leads_to_who_found_nothing() {
    let place = Place::new();
    place.write("prog.rs", PANICS);
    place.write("input", "coffee\n");
    for how in ["", "-C panic=abort"] {
        if place.sh(&format!("rm -rf rec; rustc -g {how} -o prog prog.rs")).code != 0 {
            return skipped("a panic", "rustc is not here");
        }
        // What panics here is the program.
        let gretel = env!("CARGO_BIN_EXE_gretel");
        let ran = place.sh(&format!("{gretel} record --engine soft -o rec -- ./prog <input 2>/dev/null"));
        assert_eq!(ran.code, if how.is_empty() { 101 } else { 128 + 6 }, "{}", ran.err);
        let answer = why(&place, &[]);
        let words = words(&answer);
        assert!(words.contains("panicked at prog.rs:10:15"), "{words}");
        assert!(words.contains("called `Option::unwrap()` on a `None` value"), "{words}");
        let steps = steps(&answer);
        assert!(steps.contains("from \"prog::charge, prog.rs:10\""), "{steps}");
        assert!(steps.contains("from \"prog::Prices::price, prog.rs:5\""), "{steps}");
    }
}
