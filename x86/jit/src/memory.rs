//! How compiled code reaches guest memory: by a look-up in the CPU's caches of translations.
//!
//! An access is done if the entry that its first byte may be in has the page of its last byte: so one compare finds accesses that
//! cross a page, too, which no entry satisfies. What is not done leaves the code before its instruction.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use rustc_hash::FxHashMap;
use std::mem::{offset_of, size_of};
use x86::bus::PAGE_SIZE;
use x86::cpu::{ENTRIES, Entry};

use crate::clif::{Bv, Two, own};
use crate::context::at;
use crate::translator::Translator;

/// An address that was looked up.
#[derive(Clone, Copy)]
struct Place {
    /// Where it is in the host's memory.
    host: Value,
    /// How many bytes of it were checked.
    len: u32,
    /// It may be written.
    write: bool,
}

/// What was looked up in a run. It holds for as long as the run is not left: what the CPU is called for in it may have another
/// translation take the place of one in the cache, but makes none untrue.
#[derive(Default)]
pub(crate) struct Checked {
    places: FxHashMap<Value, Place>,
    ram: Option<Value>,
    reads: Option<Value>,
    writes: Option<Value>,
}

impl Checked {
    pub(crate) fn clear(&mut self) {
        *self = Checked::default();
    }
}

const PAGE_BITS: u32 = PAGE_SIZE.trailing_zeros();
const ENTRY_BITS: u32 = size_of::<Entry>().trailing_zeros();
const _: () = assert!(ENTRIES.is_power_of_two() && size_of::<Entry>().is_power_of_two());

impl Translator<'_> {
    /// The host's address of `len` bytes at `va`.
    pub(crate) fn host(&mut self, va: Bv, len: u32, write: bool) -> Value {
        let va = self.d.value(64, va);
        if let Some(place) = self.checked.places.get(&va)
            && place.len >= len
            && place.write >= write
        {
            return place.host;
        }
        let entry = self.entry(va, write);
        let (page_at, frame_at) = (offset_of!(Entry, page), offset_of!(Entry, frame));
        let page = self.load_own(entry, page_at);
        let last = match len {
            0 | 1 => va,
            _ => self.d.two_known(Two::Add, 64, va, u64::from(len - 1)),
        };
        let last_page = self.d.two_known(Two::Shr, 64, last, u64::from(PAGE_BITS));
        let is_elsewhere = self.d.compare(IntCC::NotEqual, page, last_page);
        self.leave_if(is_elsewhere);
        let frame = self.load_own(entry, frame_at);
        let in_page = self.d.two_known(Two::And, 64, va, PAGE_SIZE - 1);
        let offset = self.d.two(Two::Add, frame, in_page);
        let ram = self.ram();
        let host = self.d.two(Two::Add, ram, offset);
        self.checked.places.insert(va, Place { host, len, write });
        host
    }

    /// Where the translation of `va` is if it is cached.
    fn entry(&mut self, va: Value, write: bool) -> Value {
        let page = self.d.two_known(Two::Shr, 64, va, u64::from(PAGE_BITS - ENTRY_BITS));
        let offset = self.d.two_known(Two::And, 64, page, (ENTRIES as u64 - 1) << ENTRY_BITS);
        let table = self.table(write);
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
