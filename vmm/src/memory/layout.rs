//! Where things go in the address space: fixed, so that two runs of a program see the same addresses.

use crate::ram::{PAGE, Virt};

/// The first address that a program cannot have (47-bit user space less its guard page, as on Linux).
pub const USER_END: Virt = 0x7fff_ffff_f000;
/// The lowest address that may be mapped (`vm.mmap_min_addr`).
pub const USER_START: Virt = 0x1_0000;
/// Where a position-independent program is put, as by Linux with ASLR off.
pub const PIE_BASE: Virt = 0x5555_5555_4000;
/// Where the dynamic linker is put: at the top of what mmap gives, with room for one of 4 MiB.
pub const INTERPRETER_BASE: Virt = TIME_PAGE - (4 << 20);
/// Programs, and the heap that follows them, end before this: what lies above is for mmap and the stack.
pub const PROGRAM_END: Virt = 0x7000_0000_0000;
/// The stack grows down from here.
pub const STACK_END: Virt = USER_END;
/// How far the stack may grow (the default of RLIMIT_STACK).
pub const STACK_LIMIT: u64 = 8 << 20;
/// What of the stack is mapped at the start, below the arguments.
pub const STACK_AT_START: u64 = 33 * PAGE;
/// The gap that Linux keeps free below a stack (`stack_guard_gap`).
pub const STACK_GUARD: u64 = 256 * PAGE;
/// The page that holds the time for the vDSO.
pub const TIME_PAGE: Virt = 0x7fff_f7ff_c000;
/// The vDSO.
pub const VDSO: Virt = TIME_PAGE + PAGE;
/// mmap without an address allocates downwards from here.
pub const MMAP_END: Virt = TIME_PAGE;
/// Size of a page as a length.
pub const PAGE_BYTES: usize = 1 << 12;
const _: () = assert!(PAGE_BYTES as u64 == PAGE);
/// How many pages are made resident at a fault at most: the aligned group of this many that holds the
/// address. Amortises the exit; the group does not depend on the order of accesses, so the set of resident
/// pages is a function of the execution.
pub const PAGES_PER_FAULT: u64 = 64;
/// A mapping of a file that is not written becomes resident whole if it has no more pages than this: its frames are shared by all who
/// map it.
pub const SMALL_FILE_PAGES: u64 = 512;
/// As many mappings as Linux allows (`vm.max_map_count`).
pub const MAPPINGS_LIMIT: usize = 65_530;
