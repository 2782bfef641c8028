//! How compiled code reaches guest memory: by a look-up in the CPU's caches of translations (its software TLBs).
//!
//! A run's accesses by one pointer (the fields of a structure, a function's stack frame) have one look-up, at the first of them: ten
//! instructions there, and one for each access after it. Which accesses there will be is known from writing the run once before
//! ([`crate::spans`]).
//!
//! An instruction that often comes to a page of which other bytes are watched, as those of a watchpoint, looks once more where
//! that fails: whether all of the access is in a part of the page without such bytes ([`Part`]).
//!
//! A look-up succeeds if the entry of the first byte's page has the page of the last byte. What crosses a page's end never does: no
//! entry has two pages. Where a look-up fails, the code is left before its instruction.
//!
//! Example: `mov rax, [rbx]; add rax, [rbx + 8]; mov [rbx + 24], rax` looks up bytes 0 to 15 for loads and bytes 24 to 31 for stores.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value, types};
use rustc_hash::FxHashMap;
use std::mem::{offset_of, size_of};
use x86::bus::PAGE_SIZE;
use x86::cpu::{ENTRIES, Entry, PART_BITS, PARTS, Part};
use x86::domain::{Bin, Domain};

use crate::clif::{Bv, Two, own};
use crate::context::at;
use crate::spans::{First, LookUp, Span};
use crate::translator::Translator;

/// What accesses are looked up together by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Base {
    /// A pointer.
    Pointer(Value),
    /// The start of a page that is known when the code is written.
    Page(u64),
}

impl Base {
    /// Its address.
    fn address(self) -> Bv {
        match self {
            Base::Pointer(v) => Bv::Value(v),
            Base::Page(at) => Bv::Known(at),
        }
    }
}

/// A place in the host's memory.
pub(crate) struct Spot {
    pub(crate) address: Value,
    pub(crate) offset: i32,
}

/// What was looked up.
struct Place {
    span: Span,
    /// What the base is in RAM, as an offset.
    base: Bv,
}

/// What was looked up together.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    /// The address of its first byte.
    pub(crate) first: Value,
    /// That of its last.
    pub(crate) last: Value,
}

/// What was looked up in a run. It holds for as long as the run is not left: what the CPU is called for in it may have another
/// translation take the place of one in the cache, but makes none untrue.
#[derive(Default)]
pub(crate) struct Checked {
    /// By what base, and whether they may be written.
    places: FxHashMap<(Base, bool), Vec<Place>>,
    ram: Option<Value>,
    reads: Option<Value>,
    writes: Option<Value>,
}

impl Checked {
    pub(crate) fn clear(&mut self) {
        *self = Checked::default();
    }

    /// Where the base is, if all of `span` was looked up.
    fn find(&self, base: Base, span: Span, write: bool) -> Option<Bv> {
        let of = |write| self.places.get(&(base, write)).into_iter().flatten();
        let all = of(true).chain(of(false).filter(|_| !write));
        all.into_iter().find(|place| place.span.has(span)).map(|place| place.base)
    }
}

pub(crate) const PAGE_BITS: u64 = PAGE_SIZE.trailing_zeros() as u64;
const ENTRY_BITS: u64 = size_of::<Entry>().trailing_zeros() as u64;
const _: () = assert!(ENTRIES.is_power_of_two() && size_of::<Entry>().is_power_of_two());
const _: () = assert!(PARTS.is_power_of_two() && size_of::<Part>().is_power_of_two());

impl Translator<'_> {
    /// Where `len` bytes at `va` are in the host's memory.
    pub(crate) fn host(&mut self, va: Bv, len: u32, write: bool) -> Spot {
        let (base, offset) = self.base_of(va);
        let span = Span::of(offset, len);
        let access = First { run: self.region.runs[self.run].start, rip: self.rip, write, span };
        let LookUp { write: as_store, together } = self.spans.note(base, access, self.reach);
        let at = match self.checked.find(base, span, write) {
            Some(at) => at,
            None => self.look_up(base, together.unwrap_or(span), as_store, together.is_some()),
        };
        let at = self.d.value(64, at);
        let ram = self.ram();
        Spot { address: self.d.two(Two::Add, ram, at), offset }
    }

    /// What `va` is reached by, and how far from there it is.
    fn base_of(&self, va: Bv) -> (Base, i32) {
        match va {
            Bv::Known(at) => {
                let in_page = i32::try_from(at % PAGE_SIZE).expect("a page is small");
                (Base::Page(at - at % PAGE_SIZE), in_page)
            }
            Bv::Value(va) => {
                let (base, by) = self.d.parts_of(va);
                match i32::try_from(by) {
                    Ok(by) if by.unsigned_abs() < FARTHEST => (Base::Pointer(base), by),
                    _ => (Base::Pointer(va), 0),
                }
            }
        }
    }

    /// Looks up all of `span`, and leaves the code where that fails. Gives what the base is in RAM, as an offset.
    fn look_up(&mut self, base: Base, span: Span, write: bool, together: bool) -> Bv {
        let [first, last] = [span.from, span.to - 1].map(|n| {
            let n = Bv::Known(i64::from(n).cast_unsigned());
            self.d.bin(Bin::Add, 64, base.address(), n)
        });
        let entry = self.entry(first, write);
        let last_page = self.d.bin(Bin::Shr, 64, last, Bv::Known(PAGE_BITS));
        let last_page = self.d.value(64, last_page);
        let page = self.load_own(entry, offset_of!(Entry, page));
        // The last operand is the one that can be compared in memory.
        let is_elsewhere = self.d.compare(IntCC::NotEqual, last_page, page);
        let [first, last] = [first, last].map(|at| self.d.value(64, at));
        let reached = Reached { first, last };
        let addend = if self.looks_around {
            self.look_around(is_elsewhere, entry, reached, write)
        } else {
            self.leave_if_absent(is_elsewhere, together.then_some(reached));
            self.load_own(entry, offset_of!(Entry, addend))
        };
        let at = self.d.bin(Bin::Add, 64, base.address(), Bv::Value(addend));
        self.checked.places.entry((base, write)).or_default().push(Place { span, base: at });
        at
    }

    /// The addend of `entry`; where that is elsewhere, that of the part of a page that has all of what is reached. Leaves the code
    /// where there is neither.
    fn look_around(&mut self, is_elsewhere: Value, entry: Value, reached: Reached, write: bool) -> Value {
        let [around, there, found] = [(); 3].map(|()| self.new_block());
        let addend = {
            let mut builder = self.d.builder.borrow_mut();
            builder.ins().brif(is_elsewhere, around, &[], there, &[]);
            builder.append_block_param(found, types::I64)
        };
        self.begin(there);
        let cached = self.load_own(entry, offset_of!(Entry, addend));
        self.jump_to_found(found, cached);
        self.begin(around);
        let part = self.part(reached.first, write);
        let [first, last] =
            [offset_of!(Part, first), offset_of!(Part, last)].map(|at| self.load_own(part, at));
        let begins_before = self.d.compare(IntCC::UnsignedLessThan, reached.first, first);
        let ends_behind = self.d.compare(IntCC::UnsignedGreaterThan, reached.last, last);
        let is_left = self.d.builder.borrow_mut().ins().bor(begins_before, ends_behind);
        self.leave_if(is_left);
        let of_part = self.load_own(part, offset_of!(Part, addend));
        self.jump_to_found(found, of_part);
        self.begin(found);
        // What was computed on one of the two ways is not there on both.
        self.d.forget();
        addend
    }

    /// Where the translation of the part of a page is that what begins at `va` may be in.
    fn part(&self, va: Value, write: bool) -> Value {
        let table =
            self.d.load_context(types::I64, if write { at!(writes_of_parts) } else { at!(reads_of_parts) });
        let [low, high] = PART_BITS.map(|bits| self.d.two_known(Two::Shr, 64, va, bits.into()));
        let hash = self.d.two(Two::Xor, low, high);
        let number = self.d.two_known(Two::And, 64, hash, PARTS as u64 - 1);
        let offset = self.d.two_known(Two::Shl, 64, number, size_of::<Part>().trailing_zeros().into());
        self.d.two(Two::Add, table, offset)
    }

    fn jump_to_found(&self, found: Block, addend: Value) {
        self.d.builder.borrow_mut().ins().jump(found, &[BlockArg::from(addend)]);
    }

    /// Where the translation of `va` is if it is cached.
    fn entry(&mut self, va: Bv, write: bool) -> Value {
        let page = self.d.bin(Bin::Shr, 64, va, Bv::Known(PAGE_BITS - ENTRY_BITS));
        let offset = self.d.bin(Bin::And, 64, page, Bv::Known((ENTRIES as u64 - 1) << ENTRY_BITS));
        let table = self.table(write);
        let offset = self.d.value(64, offset);
        self.d.two(Two::Add, table, offset)
    }

    fn table(&mut self, write: bool) -> Value {
        let (table, offset) = match write {
            true => (&mut self.checked.writes, at!(writes)),
            false => (&mut self.checked.reads, at!(reads)),
        };
        *table.get_or_insert_with(|| self.d.load_context(types::I64, offset))
    }

    fn ram(&mut self) -> Value {
        *self.checked.ram.get_or_insert_with(|| self.d.load_context(types::I64, at!(ram)))
    }

    fn load_own(&self, from: Value, offset: usize) -> Value {
        let offset = i32::try_from(offset).expect("an entry is small");
        self.d.builder.borrow_mut().ins().load(types::I64, own(), from, offset)
    }
}

/// What lies farther from a pointer is looked up by itself.
const FARTHEST: u32 = 1 << 20;
