//! State as words: what a digest is of, and what a checkpoint holds.
//!
//! [`saved!`] names every field of a type, so that one that is added later and not saved does not compile. Example: a channel of the
//! 8254 is `[mode, access, reload, ...]`, one word for each field; read back, it is the same channel.

use std::collections::VecDeque;
use x86::state::{Fpu, Regs};
use x86_system::{Raised, Registers, Segment, TableRegister};

/// Words that are left to read.
pub(crate) struct Words<'w>(pub(crate) &'w [u64]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A length, which is never more than the words that are left.
    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.next()?).ok().filter(|length| *length <= self.0.len())
    }
}

/// What is saved as words.
pub(crate) trait Saved: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u64>);
    /// Takes it off; `None` if it is not there.
    fn take(from: &mut Words<'_>) -> Option<Self>;
}

/// Implements [`Saved`] for a struct by its fields, or for an enum without data by its variants.
macro_rules! saved {
    (struct $name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::saved::Saved for $name {
            fn put(&self, out: &mut Vec<u64>) {
                let $name { $($field),* } = self;
                $($crate::saved::Saved::put($field, out);)*
            }

            fn take(from: &mut $crate::saved::Words<'_>) -> Option<Self> {
                $(let $field = $crate::saved::Saved::take(from)?;)*
                Some($name { $($field),* })
            }
        }
    };
    (enum $name:ident { $($variant:ident),* $(,)? }) => {
        impl $crate::saved::Saved for $name {
            fn put(&self, out: &mut Vec<u64>) {
                out.push(*self as u64);
            }

            fn take(from: &mut $crate::saved::Words<'_>) -> Option<Self> {
                let word = u64::take(from)?;
                [$($name::$variant),*].into_iter().find(|variant| *variant as u64 == word)
            }
        }
    };
}
pub(crate) use saved;

impl Saved for u64 {
    fn put(&self, out: &mut Vec<u64>) {
        out.push(*self);
    }

    fn take(from: &mut Words<'_>) -> Option<u64> {
        from.next()
    }
}

macro_rules! saved_number {
    ($($name:ident)*) => {$(
        impl Saved for $name {
            fn put(&self, out: &mut Vec<u64>) {
                out.push((*self).into());
            }

            fn take(from: &mut Words<'_>) -> Option<$name> {
                from.next()?.try_into().ok()
            }
        }
    )*};
}
saved_number!(u8 u16 u32);

impl Saved for bool {
    fn put(&self, out: &mut Vec<u64>) {
        out.push((*self).into());
    }

    fn take(from: &mut Words<'_>) -> Option<bool> {
        match from.next()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<T: Saved> Saved for Option<T> {
    fn put(&self, out: &mut Vec<u64>) {
        self.is_some().put(out);
        self.iter().for_each(|it| it.put(out));
    }

    fn take(from: &mut Words<'_>) -> Option<Option<T>> {
        if bool::take(from)? { T::take(from).map(Some) } else { Some(None) }
    }
}

impl<T: Saved, const N: usize> Saved for [T; N] {
    fn put(&self, out: &mut Vec<u64>) {
        self.iter().for_each(|it| it.put(out));
    }

    fn take(from: &mut Words<'_>) -> Option<[T; N]> {
        let all: Option<Vec<T>> = (0..N).map(|_| T::take(from)).collect();
        all?.try_into().ok()
    }
}

impl<A: Saved, B: Saved> Saved for (A, B) {
    fn put(&self, out: &mut Vec<u64>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Words<'_>) -> Option<(A, B)> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl<T: Saved> Saved for Vec<T> {
    fn put(&self, out: &mut Vec<u64>) {
        out.push(self.len() as u64);
        self.iter().for_each(|it| it.put(out));
    }

    fn take(from: &mut Words<'_>) -> Option<Vec<T>> {
        let length = from.length()?;
        (0..length).map(|_| T::take(from)).collect()
    }
}

impl<T: Saved + Clone> Saved for VecDeque<T> {
    fn put(&self, out: &mut Vec<u64>) {
        Vec::from(self.clone()).put(out);
    }

    fn take(from: &mut Words<'_>) -> Option<VecDeque<T>> {
        Vec::take(from).map(VecDeque::from)
    }
}

impl Saved for String {
    fn put(&self, out: &mut Vec<u64>) {
        self.as_bytes().to_vec().put(out);
    }

    fn take(from: &mut Words<'_>) -> Option<String> {
        String::from_utf8(Vec::take(from)?).ok()
    }
}

saved!(struct Regs { gpr, rip, rflags, fs_base, gs_base });
saved!(struct Fpu { vector, opmask, mxcsr, control, status, tag, opcode, instruction, data, st });
saved!(struct Segment { selector, base, limit, attributes });
saved!(struct TableRegister { base, limit });
saved!(struct Raised { vector, code, address, rip, rsp, privilege });
saved!(struct Registers {
    cr0, cr2, cr3, cr4, efer, star, lstar, cstar, fmask, kernel_gs_base, sysenter, tsc_aux, pat, debug, segments, ldtr, tr, gdtr,
    idtr, privilege, blocks_nmi,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_taken_and_nothing_else_is() {
        let registers = Registers { cr3: 0x1000, privilege: 3, debug: [7; 8], ..Registers::default() };
        let it = (registers, (Some("text".to_owned()), VecDeque::from([1_u8, 2])));
        let mut words = Vec::new();
        it.put(&mut words);
        let mut from = Words(&words);
        assert_eq!(Saved::take(&mut from), Some(it));
        assert!(from.0.is_empty());
        for cut in 0..words.len() {
            assert!(<(Registers, (Option<String>, VecDeque<u8>))>::take(&mut Words(&words[..cut])).is_none());
        }
        assert_eq!(bool::take(&mut Words(&[2])), None);
        assert_eq!(u8::take(&mut Words(&[256])), None);
        assert_eq!(
            Vec::<u8>::take(&mut Words(&[u64::MAX, 1])),
            None,
            "a length is no more than what follows"
        );
    }
}
