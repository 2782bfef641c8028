//! Random instructions from random states, against the software CPU: what is said to be written is what it writes; a byte of
//! the state that no origin names changes nothing when it is another one; and what is called a copy changes with its source.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::cell::Cell;
use x86::cpu::Cpu;
use x86::flags::Flag;
use x86::flat::{Flat, Protection};
use x86::interpreter::Interpreter;
use x86::state::State;
use x86_oracle::case::{Case, Image};
use x86_oracle::generate::Generator;
use x86_oracle::layout::{CODE, DATA, DATA_SIZE, PAGE, READ_ONLY, WRITABLE};
use x86_provenance::{Before, Byte, Memory, Provenance, Untraced, trace};

/// The oracle's data pages, and that of the code.
struct Pages<'a> {
    data: &'a Image,
    code: Vec<u8>,
}

/// The page of the code.
fn code(case: &Case) -> Vec<u8> {
    let mut code = vec![0xcc; PAGE];
    if let Some(at) = case.offset() {
        code[at..at + case.len].copy_from_slice(case.bytes());
    }
    code
}

fn offset(address: u64) -> Option<usize> {
    let within = |from: u64, len: usize| address.checked_sub(from).filter(|at| *at < len as u64);
    let at = within(DATA, WRITABLE).or_else(|| Some(within(READ_ONLY, PAGE)? + WRITABLE as u64))?;
    usize::try_from(at).ok()
}

impl Memory for Pages<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        for (n, byte) in (0..).zip(bytes) {
            let address = address.wrapping_add(n);
            let in_code = address.checked_sub(CODE).and_then(|at| self.code.get(usize::try_from(at).ok()?));
            let in_data = offset(address).map(|at| &self.data[at]);
            let Some(is) = in_data.or(in_code) else { return false };
            *byte = *is;
        }
        true
    }

    fn may_write(&self, address: u64) -> bool {
        offset(address).is_some_and(|at| at < WRITABLE)
    }
}

/// The state and the data pages behind the one instruction; `None` if it does not retire.
fn run(case: &Case, state: &State, image: &Image) -> Option<(State, Box<Image>)> {
    let mut flat = Flat::new();
    flat.map(CODE, &code(case), Protection::CODE);
    flat.map(DATA, &image[..WRITABLE], Protection::DATA);
    flat.map(READ_ONLY, &image[WRITABLE..], Protection::READ);
    let mut cpu = Interpreter::new(Cpu::new(flat));
    cpu.cpu_mut().load_state(state);
    if cpu.step(&mut ()).is_some() {
        return None;
    }
    let mut after = Box::new([0; DATA_SIZE]);
    for (start, from) in [(0, DATA), (WRITABLE, READ_ONLY)] {
        let frame = usize::try_from(cpu.cpu().bus().offset(from)?).ok()?;
        let len = if start == 0 { WRITABLE } else { PAGE };
        after[start..start + len].copy_from_slice(&x86::bus::Bus::ram(cpu.cpu().bus())[frame..frame + len]);
    }
    Some((cpu.cpu().state(), after))
}

/// A byte of a state.
fn get(byte: Byte, state: &State, image: &Image) -> Option<u8> {
    let of = |number: u64, n: u8| number.to_le_bytes()[usize::from(n)];
    Some(match byte {
        Byte::General(r, n) => of(state.regs.gpr[usize::from(r)], n),
        Byte::Vector(r, n) => of(state.fpu.vector[usize::from(r)][usize::from(n / 8)], n % 8),
        Byte::Mask(r, n) => of(state.fpu.opmask[usize::from(r)], n),
        Byte::X87(r, n) if n < 8 => of(state.fpu.st[usize::from(r)].0, n),
        Byte::X87(r, n) => of(state.fpu.st[usize::from(r)].1.into(), n - 8),
        Byte::Base(0, n) => of(state.regs.fs_base, n),
        Byte::Base(_, n) => of(state.regs.gs_base, n),
        Byte::Flag(n) => u8::from(state.regs.rflags >> Flag::ALL[usize::from(n)].bit() & 1 == 1),
        Byte::Direction => u8::from(state.regs.rflags >> 10 & 1 == 1),
        Byte::Memory(address) => image[offset(address)?],
        Byte::System(_) | Byte::Control(..) | Byte::Stream(..) => return None,
    })
}

/// Makes a byte of a state another one.
fn set(byte: Byte, value: u8, state: &mut State, image: &mut Image) {
    let put = |number: &mut u64, n: u8| {
        let mut bytes = number.to_le_bytes();
        bytes[usize::from(n)] = value;
        *number = u64::from_le_bytes(bytes);
    };
    match byte {
        Byte::General(r, n) => put(&mut state.regs.gpr[usize::from(r)], n),
        Byte::Vector(r, n) => put(&mut state.fpu.vector[usize::from(r)][usize::from(n / 8)], n % 8),
        Byte::Mask(r, n) => put(&mut state.fpu.opmask[usize::from(r)], n),
        Byte::X87(r, n) => put(&mut state.fpu.st[usize::from(r)].0, n),
        Byte::Flag(n) => state.regs.rflags ^= 1 << Flag::ALL[usize::from(n)].bit(),
        Byte::Direction => state.regs.rflags ^= 1 << 10,
        Byte::Memory(address) => image[offset(address).expect("a data page")] = value,
        Byte::Base(..) | Byte::System(_) | Byte::Control(..) | Byte::Stream(..) => {
            unreachable!("not changed here")
        }
    }
}

/// Numbers that only depend on the first.
struct Numbers(Cell<u64>);

impl Numbers {
    fn below(&self, n: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        x % n
    }

    /// A byte of the state, or of what the instruction loads.
    fn byte(&self, named: &[Byte]) -> Byte {
        let small = |n| u8::try_from(self.below(n)).expect("small");
        match self.below(10) {
            0..=3 => Byte::General(small(16), small(8)),
            4 | 5 => Byte::Vector(small(32), small(64)),
            6 => Byte::Mask(small(8), small(8)),
            7 => Byte::X87(small(8), small(8)),
            8 => Byte::Flag(small(6)),
            _ => match named.iter().filter(|byte| byte.is_memory()).nth(usize::from(small(16))) {
                Some(byte) => *byte,
                None => Byte::Memory(DATA + self.below(WRITABLE as u64)),
            },
        }
    }
}

fn decoded(case: &Case) -> Option<Instruction> {
    let rip = case.state.regs.rip;
    let mut decoder = Decoder::with_ip(64, case.bytes(), rip, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid() && instruction.len() == case.len).then_some(instruction)
}

/// What was said, against a run.
fn check(case: &Case, image: &Image, said: &Provenance, numbers: &Numbers, name: &str) -> usize {
    let Some((after, memory)) = run(case, &case.state, image) else {
        panic!("{name} traps, and was said to retire");
    };
    for (byte, (value, _)) in &said.written {
        if let Some(is) = get(*byte, &after, &memory) {
            assert_eq!(is, *value, "{name}: {byte}");
        }
    }
    let named: Vec<Byte> = said.written.values().flat_map(|(_, origin)| origin.all()).collect();
    let mut changed = 0;
    for _ in 0..6 {
        let byte = numbers.byte(&named);
        let Some(old) = get(byte, &case.state, image) else { continue };
        let new = old ^ u8::try_from(1 + numbers.below(255)).expect("a byte");
        let (mut state, mut other) = (case.state, Box::new(*image));
        set(byte, new, &mut state, &mut other);
        let Some((then, changed_memory)) = run(case, &state, &other) else { continue };
        changed += 1;
        for (written, (value, origin)) in &said.written {
            let Some(is) = get(*written, &then, &changed_memory) else { continue };
            if origin.all().all(|from| from != byte) {
                assert_eq!(
                    is, *value,
                    "{name}: {byte} was {old:#x}, is {new:#x}, and changes {written}: {origin:?}"
                );
            } else if origin.source() == Some(byte) && origin.all().filter(|from| *from == byte).count() == 1
            {
                let want = if matches!(byte, Byte::Flag(_)) { 1 - old } else { new };
                assert_eq!(is, want, "{name}: {written} is no copy of {byte}");
            }
        }
        // Of one that does nothing, since rcx is zero, nothing is said.
        if said.written.is_empty() {
            continue;
        }
        let untouched = (0..16).flat_map(|r| (0..8).map(move |n| Byte::General(r, n)));
        for still in untouched.filter(|it| !said.written.contains_key(it) && *it != byte) {
            assert_eq!(get(still, &then, &changed_memory), get(still, &case.state, image), "{name}: {still}");
        }
    }
    changed
}

#[test]
fn what_no_origin_names_changes_nothing() {
    let generator = Generator::new(&[], 1);
    let numbers = Numbers(Cell::new(0x9e37_79b9_7f4a_7c15));
    let (mut traced, mut changed) = (0, 0);
    for number in 0..12 {
        let batch = generator.batch(7, number, 1000);
        let all: Vec<Byte> = Byte::memory(DATA, WRITABLE as u64)
            .chain((0..16).flat_map(|r| (0..8).map(move |n| Byte::General(r, n))))
            .collect();
        for case in &batch.cases {
            let Some(instruction) = decoded(case) else { continue };
            let name = format!("{instruction} ({:02x?})", case.bytes());
            let pages = Pages { data: &batch.image, code: code(case) };
            let before = Before { regs: &case.state.regs, fpu: &case.state.fpu, memory: &pages };
            match trace(&instruction, before, &all) {
                Ok(said) => {
                    traced += 1;
                    changed += check(case, &batch.image, &said, &numbers, &name);
                }
                Err(Untraced::Trapped(why)) => {
                    assert!(run(case, &case.state, &batch.image).is_none(), "{name} does not trap: {why:?}");
                }
                Err(_) => {}
            }
        }
    }
    assert!(traced > 4_000 && changed > 10_000, "{traced} traced, {changed} changed");
}
