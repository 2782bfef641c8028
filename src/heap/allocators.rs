//! The functions of allocators, by their names: those of C libraries, of jemalloc and mimalloc under their prefixes, and C++'s operators.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use vmm::process::Process;
use x86::op::Gpr;

/// What allocators put before the names of C when they do not take their place (jemalloc, also in Rust programs; mimalloc).
const PREFIXES: [&str; 4] = ["", "je_", "_rjem_", "mi_"];

/// The functions of C, POSIX, glibc and jemalloc; the numbers are those of their arguments.
const FUNCTIONS: [(&str, Does); 16] = [
    ("malloc", Does::Allocate(Size::Of(0))),
    ("calloc", Does::Allocate(Size::Product(0, 1))),
    ("memalign", Does::Allocate(Size::Of(1))),
    ("aligned_alloc", Does::Allocate(Size::Of(1))),
    ("valloc", Does::Allocate(Size::Of(0))),
    ("pvalloc", Does::Allocate(Size::Of(0))),
    ("mallocx", Does::Allocate(Size::Of(0))),
    ("posix_memalign", Does::AllocateInto(Size::Of(2))),
    ("realloc", Does::Reallocate(Size::Of(1))),
    ("reallocarray", Does::Reallocate(Size::Product(1, 2))),
    ("rallocx", Does::Reallocate(Size::Of(1))),
    ("free", Does::Free),
    ("cfree", Does::Free),
    ("dallocx", Does::Free),
    ("sdallocx", Does::Free),
    ("free_sized", Does::Free),
];

/// `operator new` and `new[]`, and `operator delete` and `delete[]`; what follows says what else they take.
const NEW: [&str; 2] = ["_Znwm", "_Znam"];
const DELETE: [&str; 2] = ["_ZdlPv", "_ZdaPv"];
const ALSO_TAKEN: [&str; 6] =
    ["", "m", "RKSt9nothrow_t", "St11align_val_t", "mSt11align_val_t", "St11align_val_tRKSt9nothrow_t"];

/// What a function does. What frees or moves memory is given it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Allocate(Size),
    /// Into the word that the first argument points to.
    AllocateInto(Size),
    Reallocate(Size),
    Free,
}

/// How many bytes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Of(usize),
    Product(usize, usize),
}

/// All of them, by the linker's names, each with what people call it. Of two names for one function the lesser number is the better known.
pub(super) fn all() -> HashMap<String, (usize, String, Does)> {
    let mut all = Vec::new();
    for (name, does) in FUNCTIONS {
        for prefix in PREFIXES {
            let name = format!("{prefix}{name}");
            all.push((name.clone(), name, does));
        }
    }
    let new = NEW.map(|name| (name, "operator new", Does::Allocate(Size::Of(0))));
    let delete = DELETE.map(|name| (name, "operator delete", Does::Free));
    for (name, called, does) in new.into_iter().chain(delete) {
        all.extend(ALSO_TAKEN.map(|also| (format!("{name}{also}"), called.to_owned(), does)));
    }
    let numbered = all.into_iter().enumerate();
    numbered.map(|(number, (name, called, does))| (name, (number, called, does))).collect()
}

/// A call of one of them, as it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) function: String,
    pub(super) does: Does,
    /// The bytes that are asked for; zero where there are none.
    pub(super) size: u64,
    /// The first argument.
    pub(super) given: u64,
}

impl Request {
    /// The call whose function begins where the program stands.
    pub(super) fn of(process: &Process, function: &str, does: Does) -> Request {
        let gpr = process.cpu().regs().gpr;
        let arguments = [Gpr::RDI, Gpr::RSI, Gpr::RDX].map(|register| gpr[usize::from(register.0)]);
        let size = match does {
            Does::Allocate(size) | Does::AllocateInto(size) | Does::Reallocate(size) => match size {
                Size::Of(n) => arguments[n],
                Size::Product(a, b) => arguments[a].saturating_mul(arguments[b]),
            },
            Does::Free => 0,
        };
        Request { function: function.to_owned(), does, size, given: arguments[0] }
    }

    /// What it frees or moves.
    pub(super) fn gives_back(&self) -> Option<u64> {
        matches!(self.does, Does::Free | Does::Reallocate(_)).then_some(self.given).filter(|it| *it != 0)
    }

    /// What it gives, if that begins at `start`.
    pub(super) fn covers(&self, start: u64) -> Range<u64> {
        start..start.saturating_add(self.size.max(1))
    }

    /// What it has given, where the program stands behind it; `None` where that is nothing.
    pub(super) fn given_at_return(&self, process: &Process) -> Option<u64> {
        let rax = process.cpu().regs().gpr[usize::from(Gpr::RAX.0)];
        let given = match self.does {
            Does::Allocate(_) | Does::Reallocate(_) => rax,
            Does::AllocateInto(_) => {
                let mut word = [0; 8];
                let read = rax == 0 && process.read_memory(self.given, &mut word);
                if read { u64::from_le_bytes(word) } else { 0 }
            }
            Does::Free => 0,
        };
        Some(given).filter(|given| *given != 0)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { function, size, given, .. } = self;
        match self.does {
            Does::Allocate(_) | Does::AllocateInto(_) => write!(f, "{function}({size})"),
            Does::Reallocate(_) => write!(f, "{function}({given:#x}, {size})"),
            Does::Free => write!(f, "{function}({given:#x})"),
        }
    }
}

/// How allocators name what is theirs besides: glibc's, which give back a thread's memory when it ends, and jemalloc's.
const INSIDE: [&str; 12] = [
    "__malloc",
    "_int_",
    "__libc_free",
    "tcache_",
    "malloc_",
    "sysmalloc",
    "systrim",
    "unlink_chunk",
    "arena_",
    "je_",
    "_rjem_",
    "mi_",
];

/// Whether a function of the allocator's module is a part of the allocator: it may look at what is free.
pub(super) fn is_inside(function: &str) -> bool {
    INSIDE.iter().any(|begins| function.starts_with(begins))
}
