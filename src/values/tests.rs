//! Values of a program that gcc makes here, at addresses and with memory that the test chooses; and what becomes of damaged debug
//! information.

use super::{Frame, Function, Info, Lines, Variable, World, evaluate, show};
use gimli::{LittleEndian, SectionId};
use object::{Object, ObjectSection, ObjectSymbol};
use std::collections::HashMap;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

const SOURCE: &str = r#"
    struct list { int key; struct list *next; };
    union both { int i; float f; };
    enum kind { ONE = 1, TWO = 2, FOUR = 4 };
    struct wide { char name[8]; enum kind kind; unsigned low : 3; int high : 5; union both both; struct { long in; }; };
    typedef struct wide wide_t;
    struct list last = { 7, 0 };
    static double table[2][3];
    long count = -5;
    int (*pointer)(int, struct list *);
    int find(int wanted, struct list *from) {
        wide_t local = { "abc", ONE };
        for (struct list *node = from; node; node = node->next) {
            const int inner = node->key;
            if (inner == wanted) return local.low + (int)table[1][2];
        }
        return 0;
    }
    int main(void) { pointer = find; return find(7, &last); }
"#;

/// The sections of a program, and where its function `find` and some objects are.
struct Compiled {
    sections: HashMap<String, Vec<u8>>,
    find: u64,
    last: u64,
}

/// `None` where there is no compiler.
fn compiled() -> Option<Compiled> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (source, program) = (dir.path().join("a.c"), dir.path().join("a"));
    std::fs::write(&source, SOURCE).expect("a file");
    let done = Command::new("gcc").args(["-g", "-O0", "-no-pie", "-o"]).arg(&program).arg(&source).status();
    done.ok().filter(std::process::ExitStatus::success)?;
    let bytes = std::fs::read(&program).expect("a program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let section = |it: object::Section<'_, '_>| {
        Some((it.name().ok()?.to_owned(), it.uncompressed_data().ok()?.into_owned()))
    };
    let symbol = |name: &str| file.symbol_by_name(name).map(|it| it.address());
    Some(Compiled {
        sections: file.sections().filter_map(section).collect(),
        find: symbol("find")?,
        last: symbol("last")?,
    })
}

impl Compiled {
    fn info(&self) -> Option<Rc<Info>> {
        let section = |id: SectionId| {
            let bytes = self.sections.get(id.name()).cloned().unwrap_or_default();
            Ok::<_, gimli::Error>(gimli::EndianArcSlice::new(Arc::from(bytes), LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(section).ok()?;
        Some(Rc::new(Info::new(Arc::new(dwarf), 0, Some(16))))
    }
}

/// A stack of one frame, whose words are their own addresses' low bytes, and a list of one node.
struct Fake {
    info: Rc<Info>,
    frame: Frame,
    last: u64,
}

const CFA: u64 = 0x7000_0000_1000;

impl World for Fake {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let own = |address: u64| match address.wrapping_sub(self.last) {
            0 => Some(7),
            1..16 => Some(0),
            // `table`, `count` and `pointer` are near it, and zero here.
            _ if address < 0x100_0000 && address > 0x1000 => Some(0),
            _ if address.abs_diff(CFA) < 0x1000 => Some(address.to_le_bytes()[0]),
            _ => None,
        };
        let there = bytes.len() < 1 << 20;
        there
            && bytes
                .iter_mut()
                .zip(0..)
                .all(|(byte, n)| own(address.wrapping_add(n)).map(|it| *byte = it).is_some())
    }

    fn frame(&self, n: usize) -> Option<Frame> {
        (n == 0).then(|| self.frame.clone())
    }

    fn info(&self, _: u64) -> Option<Rc<Info>> {
        Some(Rc::clone(&self.info))
    }

    fn infos(&self) -> Vec<Rc<Info>> {
        vec![Rc::clone(&self.info)]
    }

    fn name(&self, _: u64) -> Option<String> {
        None
    }
}

fn world(compiled: &Compiled, info: Rc<Info>, pc: u64) -> Fake {
    let frame =
        Frame { rip: pc, pc, cfa: Some(CFA), general: [Some(CFA - 16); 17], vector: None, fs_base: CFA };
    Fake { info, frame, last: compiled.last }
}

#[test]
fn variables_have_the_names_and_types_of_the_source() {
    let Some(compiled) = compiled() else { return };
    let info = compiled.info().expect("debug information");
    let lines = Lines::at(&info, compiled.find).expect("lines");
    assert!(lines.entry == compiled.find && lines.body > lines.entry, "the prologue is passed");
    let inner = lines.statements.iter().find(|it| it.line.number == 14).expect("line 14");
    let world = world(&compiled, Rc::clone(&info), inner.address);
    let functions = Function::at(&info, inner.address);
    assert_eq!(functions.len(), 1);
    let names: Vec<_> = functions[0].variables().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["wanted", "from", "local", "node", "inner"]);
    let value = |text: &str| {
        let found = evaluate(&world, 0, Some(&functions[0]), text);
        found.map(|value| (value.type_name(), show(&value, &world)))
    };
    for (text, kind, shown) in [
        ("last", "struct list", "{key = 7, next = 0x0}"),
        ("&last == 0", "long", "0"),
        ("last.key + 1", "long", "8"),
        ("count", "long int", "0"),
        ("table", "double [2][3]", "{{0, 0, 0}, {0, 0, 0}}"),
        ("&table[1]", "double (*)[3]", ""),
        ("pointer", "int (*)(int, struct list *)", "0x0"),
        ("find", "int (int, struct list *)", ""),
        ("(&last).key", "int", "7"),
        ("from", "struct list *", ""),
        ("inner", "const int", ""),
        ("(&last)->key == 7 && !last.next", "long", "1"),
        ("$fs_base == $rax + 16", "long", "1"),
        ("local.in == local.in", "long", "1"),
        ("'a' < 'b' || 0", "long", "1"),
    ] {
        let (found_kind, found) = value(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(found_kind, kind, "{text}");
        assert!(shown.is_empty() || found == shown, "{text}: {found}");
    }
    for text in [
        "nothing",
        "last.no",
        "last->key",
        "*last",
        "1 +",
        "last[",
        "a b",
        "$x",
        "&1",
        "local.low = 3",
        "'",
        "\"x\"",
    ] {
        assert!(value(text).is_err(), "{text}");
    }
}

/// All that can be asked of some debug information.
fn ask_everything(compiled: &Compiled) {
    let Some(info) = compiled.info() else { return };
    let _ = (info.files(), info.line(&|_| true, 5));
    for pc in (compiled.find..compiled.find + 0x80).step_by(9) {
        let world = world(compiled, Rc::clone(&info), pc);
        let _ = (Lines::at(&info, pc), info.source_line(pc));
        for function in Function::at(&info, pc) {
            let globals = function.globals();
            let named =
                ["last", "table", "find"].into_iter().filter_map(|name| Variable::named(&world, pc, name));
            let named: Vec<_> = named.collect();
            for variable in function.variables().iter().chain(&globals).chain(&named) {
                let value = variable.value(&world, 0);
                let _ = (show(&value, &world), value.type_name(), value.count(&world), value.hex(&world));
                for child in value.children(&world, &variable.name, 0..3) {
                    let _ = (show(&child.value, &world), child.value.type_name());
                }
            }
            let _ = evaluate(&world, 0, Some(&function), "local.both.f + from->next->key");
        }
    }
}

#[test]
fn damaged_debug_information_gives_no_panic_and_no_endless_loop() {
    let Some(mut compiled) = compiled() else { return };
    let sound = compiled.sections.clone();
    let names = [
        ".debug_info",
        ".debug_abbrev",
        ".debug_line",
        ".debug_str",
        ".debug_line_str",
        ".debug_loclists",
        ".debug_aranges",
    ];
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).unwrap_or(0) % below.max(1)
    };
    ask_everything(&compiled);
    for round in 0..1500 {
        compiled.sections.clone_from(&sound);
        for _ in 0..=round % 4 {
            let name = names[next(if round % 2 == 0 { 2 } else { names.len() })];
            let Some(section) = compiled.sections.get_mut(name).filter(|it| !it.is_empty()) else { continue };
            // The parts of the program itself, and not only of the C library's start-up, come first.
            let at = next(section.len());
            match next(3) {
                0 => section[at] = u8::try_from(next(256)).unwrap_or(0),
                1 => section[at] ^= 1 << next(8),
                _ => section.truncate(at),
            }
        }
        ask_everything(&compiled);
    }
}
