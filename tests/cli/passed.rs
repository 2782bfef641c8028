//! What C++ and Rust pass and return, by the conventions of their calls: the values that the source says, or none.

use crate::{Place, USAGE, skipped};

const CPP: &str = r#"
    #include <map>
    #include <memory>
    #include <optional>
    #include <string>
    #include <string_view>
    #include <vector>
    #define FUNCTION __attribute__((noinline, noclone))
    struct point { double x, y; };
    struct named { int id; const char *name; };
    struct moved { int id; moved(int id) : id(id) {} moved(moved &&other) : id(other.id) {} };
    struct large { long words[4]; int last; };
    struct defaulted { int id; defaulted(int id) : id(id) {} defaulted(const defaulted &) = default; ~defaulted() = default; };
    FUNCTION std::string text(std::string name, int n) { return name + std::to_string(n); }
    FUNCTION std::string_view view(std::string_view of, const std::string &other) { return of.substr(other.size()); }
    FUNCTION std::vector<int> vector(std::vector<int> of, const std::vector<std::string> &more) { of.push_back(more.size()); return of; }
    FUNCTION std::unique_ptr<point> unique(std::unique_ptr<point> of, long after) { of->x += after; return of; }
    FUNCTION std::shared_ptr<point> shared(std::shared_ptr<point> of, double after) { of->y += after; return of; }
    FUNCTION std::optional<int> optional(std::optional<int> of, std::map<std::string, int> map) { return of ? *of + map.size() : of; }
    FUNCTION point scaled(point of, double by) { return {of.x * by, of.y * by}; }
    FUNCTION named renamed(named of, int by) { of.id += by; return of; }
    FUNCTION int taken(moved of, int after) { return of.id + after; }
    FUNCTION large larger(large of, int by) { of.last += by; return of; }
    FUNCTION defaulted plain(defaulted of, int by) { return defaulted(of.id + by); }
    int main() {
        long sum = text("a name that is too long to be kept in it", 3).size() + view("windows", std::string("win")).size();
        sum += vector({1, 2}, {"a", "b", "c"}).size();
        auto one = unique(std::make_unique<point>(point{1, 2}), 4);
        auto other = shared(std::make_shared<point>(point{3, 4}), 1.5);
        sum += *optional(4, {{"k", 1}, {"l", 2}}) + one->x + other->y + scaled({1.5, 2.5}, 2).y + renamed({1, "one"}, 4).id;
        return sum + taken(moved(5), 6) + larger({{1, 2, 3, 4}, 5}, 6).last + plain(7, 8).id == 0;
    }"#;

/// Function, arguments and result; `*` is an address.
const CPP_CALLS: [(&str, &str); 11] = [
    (
        "text",
        "(name=\"a name that is too long to be kept in it\", n=3) = \"a name that is too long to be kept in it3\"",
    ),
    ("view", "(of=\"windows\", other=@*: \"win\") = \"dows\""),
    (
        "vector",
        "(of=std::vector of length 2 = {1, 2}, more=@*: std::vector of length 3 = {\"a\", \"b\", \"c\"}) = std::vector of length 3 = {1, 2, 3}",
    ),
    ("unique", "(of=std::unique_ptr = *, after=4) = std::unique_ptr = *"),
    ("shared", "(of=std::shared_ptr (use count 1) = *, after=1.5) = std::shared_ptr (use count 1) = *"),
    (
        "optional",
        "(of=std::optional = 4, map=std::map with 2 elements = {[\"k\"] = 1, [\"l\"] = 2}) = std::optional = 6",
    ),
    ("scaled", "(of={x = 1.5, y = 2.5}, by=2) = {x = 3, y = 5}"),
    ("renamed", "(of={id = 1, name = * \"one\"}, by=4) = {id = 5, name = * \"one\"}"),
    ("taken", "(of={id = 5}, after=6) = 11"),
    ("larger", "(of={words = {1, 2, 3, 4}, last = 5}, by=6) = {words = {1, 2, 3, 4}, last = 11}"),
    ("plain", "(of={id = 7}, by=8) = {id = 15}"),
];

/// The first call of a function as it is shown, with `*` for addresses; `None` where the compiler left none of it.
fn call(place: &Place, function: &str) -> Option<String> {
    let ran = place.gretel(&["calls", "rec", function, "--limit", "1"]);
    if ran.code == USAGE {
        return None;
    }
    assert_eq!(ran.code, 0, "{function}: {}", ran.err);
    let line = ran.out();
    let shown =
        line.split_once('(').map_or("", |(_, rest)| rest).split("  until ").next().unwrap_or_default();
    let mut parts = shown.split("0x");
    let mut text = format!("({}", parts.next().unwrap_or_default());
    for part in parts {
        text.push('*');
        text.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    Some(text)
}

fn record(place: &Place, compile: &str) -> bool {
    if place.sh(&format!("rm -rf rec; {compile} -o prog")).code != 0 {
        skipped(compile, "there is no compiler for it");
        return false;
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./prog"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    true
}

#[test]
fn objects_of_cpp_are_shown_as_what_they_hold() {
    let place = Place::new();
    place.write("prog.cc", CPP);
    for how in ["-O0", "-O2"] {
        if !record(&place, &format!("g++ -std=c++17 -g {how} prog.cc")) {
            return;
        }
        for (function, expected) in CPP_CALLS {
            assert_eq!(call(&place, function).as_deref(), Some(expected), "{how}: {function}");
        }
    }
}

const RUST: &str = r#"
    pub enum Shape { Circle(f64), Rectangle { width: u32, height: u32 }, Nothing }
    #[derive(Clone, Copy)] pub struct Point { x: i32, y: i32 }
    pub struct Large { words: [u64; 5] }
    #[inline(never)] pub fn text(of: String, n: u32) -> String { format!("{of}{n}") }
    #[inline(never)] pub fn slices(of: &str, more: &[u32], n: u64) -> u64 { of.len() as u64 + more.len() as u64 + n }
    #[inline(never)] pub fn grown(mut of: Vec<i64>, by: Option<u32>) -> Vec<i64> { of.push(by.unwrap_or(9).into()); of }
    #[inline(never)] pub fn find(of: &[i32], x: i32) -> Option<usize> { of.iter().position(|it| *it == x) }
    #[inline(never)] pub fn parsed(of: &str) -> Result<i32, std::num::ParseIntError> { of.parse() }
    #[inline(never)] pub fn moved(of: Point, by: i32) -> Point { Point { x: of.x + by, y: of.y + by } }
    #[inline(never)] pub fn half(of: Option<f64>, by: i32) -> Option<f64> { of.map(|it| it / f64::from(by)) }
    #[inline(never)] pub fn large(of: Large, by: u32) -> u64 { of.words[1] + u64::from(by) }
    #[inline(never)] pub fn area(of: &Shape, by: f64) -> f64 {
        by * match of { Shape::Circle(radius) => *radius, Shape::Rectangle { width, height } => f64::from(width * height), Shape::Nothing => 0.0 }
    }
    fn main() {
        let count = std::env::args().count() as u32;
        let mut sum = text("name".repeat(count as usize), count).len() + slices("abc", &[1, 2, count], 5) as usize;
        sum += grown(vec![1, 2], Some(6 + count)).len() + find(&[1, count as i32 + 1], 2).unwrap_or(0);
        sum += parsed("12").unwrap_or(0) as usize + moved(Point { x: count as i32, y: 2 }, 5).x as usize;
        sum += half(Some(f64::from(count)), 2).map_or(0, |it| it as usize) + large(Large { words: [3; 5] }, count) as usize;
        let shape = if count > 1 { Shape::Nothing } else { Shape::Rectangle { width: count, height: 2 } };
        sum += area(if count > 2 { &Shape::Circle(1.0) } else { &shape }, 1.5) as usize;
        std::process::exit((std::hint::black_box(sum) == 0) as i32);
    }"#;

const RUST_CALLS: [(&str, &str); 9] = [
    ("text", "(of=\"name\", n=1) = \"name1\""),
    ("slices", "(of=\"abc\", more=slice of length 3 = {1, 2, 1}, n=5) = 11"),
    ("grown", "(of=Vec of length 2 = {1, 2}, by=Some(7)) = Vec of length 3 = {1, 2, 7}"),
    ("find", "(of=slice of length 2 = {1, 2}, x=2) = Some(1)"),
    ("parsed", "(of=\"12\") = Ok(12)"),
    ("moved", "(of={x = 1, y = 2}, by=5) = {x = 6, y = 7}"),
    ("half", "(of=Some(1), by=2) = Some(0.5)"),
    ("large", "(of={words = {3, 3, 3, 3, 3}}, by=1) = 4"),
    ("area", "(of=*, by=1.5) = 3"),
];

/// What LLVM has optimised takes other things in other places: there an argument may be missing, and is not wrong.
#[test]
fn values_of_rust_are_shown_or_not_known() {
    let place = Place::new();
    place.write("prog.rs", RUST);
    for level in ["0", "2"] {
        if !record(&place, &format!("rustc -g -C opt-level={level} prog.rs")) {
            return;
        }
        for (function, expected) in RUST_CALLS {
            let shown = call(&place, &format!("prog::{function}"));
            if level == "0" {
                assert_eq!(shown.as_deref(), Some(expected), "{function}");
                continue;
            }
            let Some(shown) = shown else { continue };
            let arguments = |of: &str| of.split(") = ").next().unwrap_or_default().to_owned();
            let known = arguments(expected);
            for argument in arguments(&shown).trim_start_matches('(').split(", ") {
                let unknown = argument.ends_with("=?") || argument.contains("<optimized out>");
                assert!(unknown || known.contains(argument), "{function}: {shown}");
            }
        }
    }
}
