//! Values of types that C++'s and Rust's standard libraries define, and of programs whose debug information is in other files: as an
//! editor is shown them.

use crate::editor::Editor;
use crate::{Place, skipped};
use serde_json::json;

const CPP: &str = r#"
    #include <map>
    #include <memory>
    #include <optional>
    #include <set>
    #include <string>
    #include <string_view>
    #include <unordered_map>
    #include <vector>
    struct point { int x, y; };
    int main() {
        std::string name = "short", text(300, 'a'), empty;
        std::string_view view = "seen";
        std::vector<int> numbers = {3, 1, 4}, none;
        std::vector<point> points = {{1, 2}, {3, 4}};
        std::map<int, std::string> map = {{5, "five"}, {1, "one"}, {3, "three"}};
        std::set<int> set = {9, 7, 8};
        std::unordered_map<int, int> table = {{6, 36}};
        std::shared_ptr<point> shared = std::make_shared<point>(point{7, 8}), other = shared, nothing;
        std::unique_ptr<int> unique = std::make_unique<int>(11);
        std::optional<int> some = 5, no;
        struct { struct { std::vector<std::string> words; } in; } deep = {{{"deep"}}};
        volatile int *crash = (int *)8;
        return *crash + numbers[0] + name[0] + view[0];
    }"#;

const CPP_VALUES: [(&str, &str); 19] = [
    ("name", "\"short\""),
    ("empty", "\"\""),
    ("view", "\"seen\""),
    ("numbers", "std::vector of length 3 = {3, 1, 4}"),
    ("none", "std::vector of length 0 = {}"),
    ("points", "std::vector of length 2 = {{x = 1, y = 2}, {x = 3, y = 4}}"),
    ("map", "std::map with 3 elements = {[1] = \"one\", [3] = \"three\", [5] = \"five\"}"),
    ("set", "std::set with 3 elements = {7, 8, 9}"),
    ("table", "std::unordered_map with 1 element = {[6] = 36}"),
    ("nothing", "std::shared_ptr (empty) = 0x0"),
    ("some", "std::optional = 5"),
    ("no", "std::optional without a value"),
    ("deep", "{in = {words = std::vector of length 1 = {\"deep\"}}}"),
    // By what they begin with: an address follows.
    ("shared", "std::shared_ptr (use count 2) = 0x"),
    ("unique", "std::unique_ptr = 0x"),
    ("text", "\"aaaaaaaaaa"),
    // What is in them is there as before.
    ("*shared._M_ptr", "{x = 7, y = 8}"),
    ("numbers._M_impl._M_start[2]", "4"),
    ("name._M_string_length", "5"),
];

const RUST: &str = r#"
    use std::rc::Rc;
    use std::sync::Arc;
    #[allow(dead_code)]
    enum Shape { Circle(f64), Named { x: i32 }, Nothing }
    #[inline(never)]
    fn crash(name: &String, numbers: &Vec<i32>, some: &Option<u32>, none: &Option<u32>, shared: &Rc<i32>, arc: &Arc<i32>, shapes: &[Shape; 3]) -> u8 {
        std::hint::black_box((name, numbers, some, none, shared, arc, shapes));
        unsafe { *std::hint::black_box(8 as *const u8) }
    }
    fn main() {
        let rc = Rc::new(41);
        let arc = Arc::new(42);
        let (_other, _weak) = (Rc::clone(&rc), Arc::downgrade(&arc));
        let shapes = [Shape::Circle(1.5), Shape::Named { x: 3 }, Shape::Nothing];
        std::process::exit(crash(&"text".to_owned(), &vec![1, 2, 3], &Some(7), &None, &rc, &arc, &shapes) as i32);
    }"#;

const RUST_VALUES: [(&str, &str); 9] = [
    ("*name", "\"text\""),
    ("*numbers", "Vec of length 3 = {1, 2, 3}"),
    ("*some", "Some(7)"),
    ("*none", "None"),
    ("*shared", "Rc (strong 2, weak 0) = 41"),
    ("*arc", "Arc (strong 1, weak 1) = 42"),
    ("(*shapes)[0]", "Circle(1.5)"),
    ("(*shapes)[1]", "Named {x = 3}"),
    ("(*shapes)[2]", "Nothing"),
];

/// Compiles and records a program, and stands at its crash.
fn at_crash(place: &Place, source: (&str, &str), compile: &str) -> Option<Editor> {
    place.write(source.0, source.1);
    if place.sh(compile).code != 0 {
        skipped(source.0, "there is no compiler for it");
        return None;
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./prog"]);
    assert!(ran.code > 128, "{}", ran.err);
    let mut editor = Editor::launch(place, &json!({ "recording": "rec" }));
    editor.begin();
    Some(editor)
}

fn check(editor: &mut Editor, frame: usize, values: &[(&str, &str)]) {
    for (expression, expected) in values {
        let shown = editor.value_in(frame, expression).unwrap_or_else(|why| panic!("{expression}: {why}"));
        let is_it = if expected.ends_with("0x") || expected.ends_with('a') {
            shown.starts_with(expected)
        } else {
            shown == *expected
        };
        assert!(is_it, "{expression}: {shown}");
    }
}

#[test]
fn containers_of_cpp_are_shown_as_what_they_hold() {
    let place = Place::new();
    let Some(mut editor) = at_crash(&place, ("prog.cc", CPP), "g++ -std=c++17 -g -O0 -o prog prog.cc") else {
        return;
    };
    check(&mut editor, 0, &CPP_VALUES);
    // As in stacks, without what templates have by default.
    for (expression, kind) in [("map", "map<int, std::string>"), ("&points", "vector<point> *")] {
        assert_eq!(editor.type_in(0, expression), kind);
    }
    assert_eq!(editor.leave(), 0);
}

#[test]
fn values_of_rust_are_shown_as_they_are_written() {
    let place = Place::new();
    let Some(mut editor) = at_crash(&place, ("prog.rs", RUST), "rustc -g -o prog prog.rs") else { return };
    check(&mut editor, 0, &RUST_VALUES);
    assert_eq!(editor.leave(), 0);
}

#[test]
fn variables_are_found_in_files_beside_the_program_or_said_to_be_missing() {
    let source = "struct pair { int a, b; };\n__attribute__((noinline)) int crash(struct pair *at) { struct pair own = *at; return own.a + *(volatile int \
                  *)8L; }\nint main(void) { struct pair there = { 4, 5 }; return crash(&there); }\n";
    let place = Place::new();
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        let compile = format!("rm -rf rec; gcc -gsplit-dwarf {version} -O0 -o prog prog.c && ls *.dwo");
        let Some(mut editor) = at_crash(&place, ("prog.c", source), &compile) else { return };
        check(&mut editor, 0, &[("own", "{a = 4, b = 5}"), ("at->b", "5")]);
        check(&mut editor, 1, &[("there", "{a = 4, b = 5}")]);
        assert_eq!(editor.leave(), 0);
        // All in one package.
        if place.sh("dwp -e prog -o prog.dwp 2>/dev/null && rm -f *.dwo").code == 0 {
            let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
            editor.begin();
            check(&mut editor, 0, &[("own", "{a = 4, b = 5}")]);
            assert_eq!(editor.leave(), 0);
        }
        assert_eq!(place.sh("rm -f *.dwo *.dwp").code, 0);
        let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
        editor.begin();
        assert!(editor.value_in(0, "own").is_err());
        assert_eq!(editor.leave(), 0);
        // Its lines are the program's own; what is missing is named.
        let ran = place.gretel(&["calls", "rec", "prog.c:2"]);
        assert!(ran.err.contains(".dwo, which is not there"), "{}", ran.err);
    }
}
