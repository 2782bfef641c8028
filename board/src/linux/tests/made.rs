//! A kernel of a few hundred bytes in four megabytes of memory: page tables, a log, names, types, a module, a task, a stack.

use super::super::*;

/// Where physical memory is mapped.
pub(super) const MAP: u64 = 0xffff_ffff_8000_0000;
pub(super) const SIZE: usize = 4 << 20;
/// Physical addresses of its parts.
const ROOT: usize = 0x1000;
pub(super) const RING: usize = 0x10_000;
pub(super) const KALLSYMS: usize = 0x20_000;
const BTF: usize = 0x40_000;
pub(super) const ORC: usize = 0x50_000;
pub(super) const MODULE: usize = 0x60_000;
const TASK: usize = 0x70_000;
const STACK: usize = 0x80_000;
/// The registers that the kernel has saved, and the stack where they were.
const SAVED: usize = STACK + 32;
const INTERRUPTED: usize = STACK + 0x400;
pub(super) const TEXT: usize = 0x10_0000;
pub(super) const MODULE_TEXT: usize = 0x20_0000;
/// Kallsyms as Linux 5.10 has it, behind the code.
pub(super) const PACKED: usize = 0x30_0004;

pub(super) const fn virt(physical: usize) -> u64 {
    MAP + physical as u64
}

/// The name of a structure, its size, and its members: name, bit, bits, type.
type Structure<'s> = (&'s str, u32, &'s [(&'s str, u32, u32, u32)]);

pub(super) struct Ram(pub(super) Vec<u8>);

impl Memory for Ram {
    fn read_physical(&self, at: u64, bytes: &mut [u8]) -> bool {
        let found = usize::try_from(at).ok().and_then(|at| self.0.get(at..at.checked_add(bytes.len())?));
        found.map(|found| bytes.copy_from_slice(found)).is_some()
    }
}

impl Ram {
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn long(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    pub(super) fn int(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    /// Page tables: pages of 2 MiB.
    pub(super) fn map(&mut self) {
        let table = |n: usize| (ROOT + 0x1000 * n) as u64;
        self.long(ROOT + 8 * 511, table(1) | 1);
        self.long(ROOT + 0x1000 + 8 * 510, table(2) | 1);
        for n in 0..SIZE >> 21 {
            self.long(ROOT + 0x2000 + 8 * n, (n << 21) as u64 | 0x81);
        }
    }

    /// A ring of eight descriptors and 64 bytes of text: a record at the end of the ring, one at its beginning, an empty one, one that
    /// is being written.
    pub(super) fn log(&mut self) {
        let (descriptors, facts, text) = (RING + 0x1000, RING + 0x2000, RING + 0x3000);
        self.long(RING, virt(RING + 8));
        let ring = RING + 8;
        self.int(ring, 3);
        for (n, value) in [(8, virt(descriptors)), (16, virt(facts)), (24, 12), (32, 9)] {
            self.long(ring + n, value);
        }
        self.int(ring + 48, 6);
        self.long(ring + 56, virt(text));
        let records: [(usize, u64, u64, u64, &str); 4] =
            [(9, 2, 40, 64, "first"), (10, 1, 104, 152, "two\nlines"), (11, 2, 3, 3, ""), (12, 0, 5, 5, "")];
        for (n, (number, state, begin, end, content)) in records.into_iter().enumerate() {
            let (descriptor, facts) = (descriptors + 24 * (number % 8), facts + 88 * (number % 8));
            self.long(descriptor, state << 62 | number as u64);
            self.long(descriptor + 8, begin);
            self.long(descriptor + 16, end);
            self.long(facts, 100 + n as u64);
            self.long(facts + 8, 1_000_000 * n as u64);
            self.int(facts + 16, content.len() as u32 | 6 << 29);
            let at = if begin / 64 == (end - 1) / 64 { begin % 64 } else { 0 };
            self.put(text + at as usize + 8, content.as_bytes());
        }
    }

    /// Kallsyms with one token for each character.
    pub(super) fn names(&mut self, symbols: &[(&str, u64)]) {
        let (names, tokens, indexes, offsets) =
            (KALLSYMS + 0x100, KALLSYMS + 0x8000, KALLSYMS + 0x9000, KALLSYMS + 0xa000);
        self.int(KALLSYMS, symbols.len() as u32);
        self.long(KALLSYMS + 8, MAP);
        for n in 0..=255 {
            self.put(tokens + 2 * usize::from(n), &[n.clamp(1, 127), 0]);
            self.put(indexes + 2 * usize::from(n), &(2 * u16::from(n)).to_le_bytes());
        }
        let mut at = names;
        for (n, (name, address)) in symbols.iter().enumerate() {
            self.put(at, &[name.len() as u8]);
            self.put(at + 1, name.as_bytes());
            at += 1 + name.len();
            // Variables of processors are addresses themselves.
            let offset = if *address < MAP { *address } else { MAP.wrapping_sub(1).wrapping_sub(*address) };
            self.int(offsets + 4 * n, offset as u32);
        }
    }

    /// The same with its parts one behind another, and more symbols, so that some are marked.
    pub(super) fn packed_names(&mut self, symbols: &[(&str, u64)]) {
        let more: Vec<_> = (0..300).map(|n| (format!("dvariable_{n}"), virt(RING))).collect();
        let all = || symbols.iter().copied().chain(more.iter().map(|(name, at)| (name.as_str(), *at)));
        let mut at = PACKED;
        let mut add = |part: &[u8]| {
            at = at.next_multiple_of(8);
            self.put(at, part);
            at += part.len();
        };
        let offsets = all().map(|(_, address)| {
            if address < MAP { address as u32 } else { MAP.wrapping_sub(1).wrapping_sub(address) as u32 }
        });
        add(&offsets.flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
        add(&MAP.to_le_bytes());
        add(&(all().count() as u32).to_le_bytes());
        let (mut names, mut markers) = (Vec::new(), Vec::new());
        for (n, (name, _)) in all().enumerate() {
            if n % 256 == 0 {
                markers.extend((names.len() as u32).to_le_bytes());
            }
            names.push(name.len() as u8);
            names.extend(name.as_bytes());
        }
        add(&names);
        add(&markers);
        add(&(0..=255_u8).flat_map(|n| [n.clamp(1, 127), 0]).collect::<Vec<u8>>());
        add(&(0..=255_u16).flat_map(|n| (2 * n).to_le_bytes()).collect::<Vec<u8>>());
    }

    /// Types: of each structure its size, and its members: bit, bits, type. Type 1 is a number of four bytes.
    fn types(&mut self, structures: &[Structure<'_>]) -> usize {
        let (mut types, mut names) = (Vec::new(), vec![0]);
        let mut name = |text: &str| {
            let at = if text.is_empty() { 0 } else { names.len() as u32 };
            if at > 0 {
                names.extend(text.as_bytes());
                names.push(0);
            }
            at
        };
        types.extend([name("u32"), 1 << 24, 4, 32]);
        for (structure, size, members) in structures {
            types.extend([name(structure), 1 << 31 | 4 << 24 | members.len() as u32, *size]);
            members
                .iter()
                .for_each(|(member, bit, bits, kind)| types.extend([name(member), *kind, bits << 24 | bit]));
        }
        let size = 4 * types.len() as u32;
        let header = [0x0001_eb9f, 24, 0, size, size, names.len() as u32];
        let words: Vec<u8> = header.into_iter().chain(types).flat_map(u32::to_le_bytes).collect();
        let all = [words, names].concat();
        self.put(BTF, &all);
        all.len()
    }

    /// The kernel came here by the exception, in this ring.
    pub(super) fn interrupt(&mut self, rip: u64, cs: u64) {
        self.long(SAVED + 128, rip);
        self.long(SAVED + 136, cs);
        self.long(SAVED + 152, self.interrupted() + 8);
    }

    /// The stack where the exception came.
    pub(super) fn interrupted(&self) -> u64 {
        virt(INTERRUPTED)
    }

    /// What is at the top of the stack there returns to this place, behind a call.
    pub(super) fn call_from(&mut self, to: usize) {
        self.long(INTERRUPTED + 8, virt(to));
        self.put(to - 5, &[0xe8]);
    }

    /// ORC entries from these addresses on.
    fn orc(&mut self, entries: &[(usize, [u8; 6])]) {
        for (n, (address, entry)) in entries.iter().enumerate() {
            let at = ORC + 4 * n;
            self.int(at, (*address as u32).wrapping_sub(at as u32));
            self.put(ORC + 0x1000 + 6 * n, entry);
        }
    }
}

/// An entry: the stack at rsp and this, the kind, whether it is the end.
fn orc(offset: i16, kind: u8, is_end: bool) -> [u8; 6] {
    let [low, high] = offset.to_le_bytes();
    [low, high, 0, 0, 5, kind | u8::from(is_end) << 3]
}

pub(super) const DESCRIPTION: &str = "OSRELEASE=6.1-test
SYMBOL(swapper_pg_dir)=ffffffff80001000
SYMBOL(_stext)=ffffffff80100000
SYMBOL(prb)=ffffffff80010000
OFFSET(printk_ringbuffer.desc_ring)=0
OFFSET(printk_ringbuffer.text_data_ring)=48
OFFSET(prb_desc_ring.count_bits)=0
OFFSET(prb_desc_ring.descs)=8
OFFSET(prb_desc_ring.infos)=16
OFFSET(prb_desc_ring.head_id)=24
OFFSET(prb_desc_ring.tail_id)=32
SIZE(prb_desc)=24
OFFSET(prb_desc.state_var)=0
OFFSET(prb_desc.text_blk_lpos)=8
OFFSET(prb_data_blk_lpos.begin)=0
OFFSET(prb_data_blk_lpos.next)=8
SIZE(printk_info)=88
OFFSET(printk_info.seq)=0
OFFSET(printk_info.ts_nsec)=8
OFFSET(printk_info.text_len)=16
OFFSET(prb_data_ring.size_bits)=0
OFFSET(prb_data_ring.data)=8
SYMBOL(kallsyms_names)=ffffffff80020100
SYMBOL(kallsyms_num_syms)=ffffffff80020000
SYMBOL(kallsyms_token_table)=ffffffff80028000
SYMBOL(kallsyms_token_index)=ffffffff80029000
SYMBOL(kallsyms_offsets)=ffffffff8002a000
SYMBOL(kallsyms_relative_base)=ffffffff80020008
";

pub(super) fn ram() -> Ram {
    ram_with(Ram::names)
}

/// The kernel with its names so.
pub(super) fn ram_with(names: fn(&mut Ram, &[(&str, u64)])) -> Ram {
    let mut ram = Ram(vec![0; SIZE]);
    ram.map();
    ram.log();
    let types = ram.types(&[
        (
            "orc_entry",
            6,
            &[
                ("sp_offset", 0, 0, 1),
                ("bp_offset", 16, 0, 1),
                ("sp_reg", 32, 4, 1),
                ("bp_reg", 36, 4, 1),
                ("type", 40, 2, 1),
                ("end", 43, 1, 1),
            ],
        ),
        ("task_struct", 64, &[("pid", 0, 0, 1), ("tgid", 32, 0, 1), ("comm", 64, 0, 1)]),
        ("module_layout", 16, &[("base", 0, 0, 1), ("size", 64, 0, 1), ("text_size", 96, 0, 1)]),
        ("mod_kallsyms", 24, &[("symtab", 0, 0, 1), ("num_symtab", 64, 0, 1), ("strtab", 128, 0, 1)]),
        (
            "mod_arch_specific",
            24,
            &[("num_orcs", 0, 0, 1), ("orc_unwind_ip", 64, 0, 1), ("orc_unwind", 128, 0, 1)],
        ),
        // A part of a module without a name.
        ("", 8, &[("kallsyms", 0, 0, 1)]),
        (
            "module",
            160,
            &[
                ("list", 0, 0, 1),
                ("name", 128, 0, 1),
                ("core_layout", 640, 0, 4),
                ("init_layout", 768, 0, 4),
                ("", 896, 0, 7),
                ("arch", 960, 0, 6),
            ],
        ),
    ]);
    let symbols = [
        ("Acurrent_task", 0x40),
        ("T_stext", virt(TEXT)),
        ("Tpanic", virt(TEXT + 0x10)),
        ("tfault", virt(TEXT + 0x100)),
        ("Wfault_alias", virt(TEXT + 0x100)),
        ("Tsystem_call", virt(TEXT + 0x200)),
        ("T_etext", virt(TEXT + 0x300)),
        ("D__per_cpu_offset", virt(TASK)),
        ("Dmodules", virt(MODULE)),
        ("R__start_BTF", virt(BTF)),
        ("R__stop_BTF", virt(BTF + types)),
        ("R__start_orc_unwind_ip", virt(ORC)),
        ("R__stop_orc_unwind_ip", virt(ORC + 12)),
        ("R__start_orc_unwind", virt(ORC + 0x1000)),
    ];
    names(&mut ram, &symbols);
    // In panic 16 bytes are used, in fault there are saved registers above 8; nobody has called system_call.
    ram.orc(&[
        (TEXT + 0x10, orc(24, 0, false)),
        (TEXT + 0x100, orc(8, 1, false)),
        (TEXT + 0x200, orc(0, 0, true)),
    ]);
    // The list has one module, with two functions and 8 bytes of stack in each.
    let module = MODULE + 0x100;
    ram.long(MODULE, virt(module));
    ram.long(module, virt(MODULE));
    ram.put(module + 16, b"broken\0");
    ram.long(module + 80, virt(MODULE_TEXT));
    ram.int(module + 88, 0x1000);
    ram.int(module + 92, 0x800);
    ram.long(module + 112, virt(MODULE + 0x300));
    ram.int(module + 120, 1);
    ram.long(module + 128, virt(MODULE + 0x400));
    ram.long(module + 136, virt(MODULE + 0x410));
    ram.int(MODULE + 0x400, (MODULE_TEXT - (MODULE + 0x400)) as u32);
    ram.put(MODULE + 0x410, &orc(16, 0, false));
    for (n, value) in [(0, virt(MODULE + 0x500)), (8, 3), (16, virt(MODULE + 0x600))] {
        ram.long(MODULE + 0x300 + n, value);
    }
    for (n, (name, at)) in [(0, 0), (1, MODULE_TEXT), (7, MODULE_TEXT + 0x80)].into_iter().enumerate() {
        ram.long(MODULE + 0x500 + 24 * n, name | 2 << 32 | 1 << 48);
        ram.long(MODULE + 0x508 + 24 * n, virt(at));
    }
    ram.put(MODULE + 0x600, b"\0count\0write\0");
    // The first processor's variables, its task.
    ram.long(TASK, virt(TASK + 0x100));
    ram.long(TASK + 0x140, virt(TASK + 0x200));
    ram.put(TASK + 0x200, &[7, 1, 0, 0, 7, 1, 0, 0]);
    ram.put(TASK + 0x208, b"sh\0");
    stack(&mut ram);
    ram
}

/// panic, called by fault, which an exception in count led to; count was called by write, and that by system_call.
pub(super) fn stack(ram: &mut Ram) {
    ram.long(STACK + 16, virt(TEXT + 0x120));
    for (n, value) in
        [(128, virt(MODULE_TEXT + 5)), (136, 0x10), (152, virt(INTERRUPTED)), (160, 0x18), (32, 0xb9)]
    {
        ram.long(SAVED + n, value);
    }
    ram.long(INTERRUPTED + 8, virt(MODULE_TEXT + 0x90));
    ram.long(INTERRUPTED + 24, virt(TEXT + 0x210));
}

pub(super) fn regs() -> Regs {
    let mut regs = Regs { rip: virt(TEXT + 0x20), ..Regs::default() };
    regs.gpr[4] = virt(STACK);
    regs
}
