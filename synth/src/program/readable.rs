//! Names of C++ functions without what the library's templates have by default.
//!
//! Example: `run(std::vector<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, ...>)` is
//! `run(std::vector<std::string>)`, as the source has it.

use super::demangled;

/// Arguments of templates that nobody writes.
const DEFAULTS: [&str; 6] = [
    ", std::allocator<",
    ", std::char_traits<",
    ", std::less<",
    ", std::hash<",
    ", std::equal_to<",
    ", std::default_delete<",
];
/// Templates of one character type, and what they are called for `char`.
const OF_CHARS: [&str; 9] = [
    "string",
    "string_view",
    "ostream",
    "istream",
    "iostream",
    "ostringstream",
    "istringstream",
    "stringstream",
    "streambuf",
];

/// A function's name for people, from its symbol or as debug information has it. Who looks for a function compares
/// what [`demangled`] gives.
#[must_use]
pub fn readable(name: &str) -> String {
    let name = demangled(name);
    if !name.contains("std::") && !name.contains(", >") {
        return name.into_owned();
    }
    // An empty pack of arguments has a comma before it.
    let mut text = name.replace("std::__cxx11::", "std::").replace(", >", ">");
    while text.contains("> >") {
        text = text.replace("> >", ">>");
    }
    let text = without_defaults(&text);
    OF_CHARS
        .iter()
        .fold(text, |text, name| text.replace(&format!("std::basic_{name}<char>"), &format!("std::{name}")))
}

/// Leaves out default arguments that stand behind others in angle brackets.
fn without_defaults(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    let mut open = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let default = DEFAULTS.iter().find(|it| rest.starts_with(**it)).filter(|_| open.last() == Some(&'<'));
        if let Some(end) =
            default.and_then(|default| closing(&rest[default.len()..]).map(|at| default.len() + at))
            && rest[end..].starts_with([',', '>'])
        {
            rest = &rest[end..];
            continue;
        }
        // The brackets of operators are none.
        let len = operator(rest).unwrap_or_else(|| next.len_utf8());
        if len == next.len_utf8() {
            match next {
                '<' | '(' => open.push(next),
                '>' | ')' => drop(open.pop()),
                _ => {}
            }
        }
        done += &rest[..len];
        rest = &rest[len..];
    }
    done
}

/// Behind the bracket that closes one which is open.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (1, 0);
    while depth > 0 {
        let next = text[at..].chars().next()?;
        let len = operator(&text[at..]).unwrap_or_else(|| next.len_utf8());
        if len == next.len_utf8() {
            match next {
                '<' => depth += 1,
                '>' => depth -= 1,
                _ => {}
            }
        }
        at += len;
    }
    Some(at)
}

/// How long the name of an operator that begins here is, or an arrow.
fn operator(text: &str) -> Option<usize> {
    if text.starts_with("->") {
        return Some(2);
    }
    let symbols = text.strip_prefix("operator")?;
    let symbols = ["<<=", ">>=", "<=>", "->*", "<<", ">>", "<=", ">=", "->", "()", "<", ">"]
        .iter()
        .find(|it| symbols.starts_with(**it))?;
    Some("operator".len() + symbols.len())
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn what_is_default_is_left_out() {
        for (name, expected) in [
            ("main", "main"),
            (
                "run(std::vector<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, \
                 std::allocator<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > > >)",
                "run(std::vector<std::string>)",
            ),
            (
                "std::map<int, long, std::less<int>, std::allocator<std::pair<int const, long> > >::operator[](int&&)",
                "std::map<int, long>::operator[](int&&)",
            ),
            (
                "std::basic_ostream<char, std::char_traits<char> >& std::operator<< <std::char_traits<char> >\
                 (std::basic_ostream<char, std::char_traits<char> >&, char const*)",
                "std::ostream& std::operator<< <std::char_traits<char>>(std::ostream&, char const*)",
            ),
            (
                "void invoke<void, Pool::{lambda()#1}, >(Pool&)",
                "void invoke<void, Pool::{lambda()#1}>(Pool&)",
            ),
            // What is no default stays, as does what is an argument of the function.
            ("f(int, std::allocator<char>, int)", "f(int, std::allocator<char>, int)"),
            (
                "std::vector<int, Arena<int> >::at(unsigned long)",
                "std::vector<int, Arena<int>>::at(unsigned long)",
            ),
            ("g<&(A::operator->()), std::less<int> >(std::A)", "g<&(A::operator->())>(std::A)"),
            ("std::broken<int, std::allocator<", "std::broken<int, std::allocator<"),
        ] {
            assert_eq!(readable(name), expected);
        }
    }
}
