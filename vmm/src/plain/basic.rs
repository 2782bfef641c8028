//! Numbers, lists, maps and the like, and the processor's state.

use super::numbers::{put_bytes, put_i64, put_u64};
use super::{In, Out, Plain, plain};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CString;
use std::ops::Range;
use std::sync::Arc;
use x86::state::{Fpu, Regs, State};

macro_rules! numbers {
    ($($unsigned:ty),*; $($signed:ty),*) => {
        $(impl Plain for $unsigned {
            fn put(&self, out: &mut Out) {
                put_u64(&mut out.bytes, *self as u64);
            }

            fn take(from: &mut In<'_>) -> Option<Self> {
                from.cursor.u64()?.try_into().ok()
            }
        })*
        $(impl Plain for $signed {
            fn put(&self, out: &mut Out) {
                put_i64(&mut out.bytes, i64::from(*self));
            }

            fn take(from: &mut In<'_>) -> Option<Self> {
                from.cursor.i64()?.try_into().ok()
            }
        })*
    };
}

numbers!(u16, u32, u64, usize; i16, i32, i64);

impl Plain for u8 {
    fn put(&self, out: &mut Out) {
        out.bytes.push(*self);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        from.cursor.byte()
    }
}

impl Plain for bool {
    fn put(&self, out: &mut Out) {
        out.bytes.push(u8::from(*self));
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        match from.cursor.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Plain for String {
    fn put(&self, out: &mut Out) {
        put_bytes(&mut out.bytes, self.as_bytes());
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        from.cursor.string()
    }
}

impl Plain for CString {
    fn put(&self, out: &mut Out) {
        put_bytes(&mut out.bytes, self.as_bytes());
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        CString::new(from.cursor.bytes()?).ok()
    }
}

impl<T: Plain> Plain for Option<T> {
    fn put(&self, out: &mut Out) {
        self.is_some().put(out);
        self.iter().for_each(|it| it.put(out));
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Plain> Plain for Box<T> {
    fn put(&self, out: &mut Out) {
        T::put(self, out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        T::take(from).map(Box::new)
    }
}

impl<T: Plain, const N: usize> Plain for [T; N] {
    fn put(&self, out: &mut Out) {
        self.iter().for_each(|it| it.put(out));
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        let all: Option<Vec<T>> = (0..N).map(|_| T::take(from)).collect();
        all?.try_into().ok()
    }
}

/// Lists, whose count is not trusted for an allocation.
macro_rules! lists {
    ($($list:ident: $($bound:ident)+),*) => {
        $(impl<T: $($bound +)+> Plain for $list<T> {
            fn put(&self, out: &mut Out) {
                put_u64(&mut out.bytes, self.len() as u64);
                self.iter().for_each(|it| it.put(out));
            }

            fn take(from: &mut In<'_>) -> Option<Self> {
                (0..from.cursor.u64()?).map(|_| T::take(from)).collect()
            }
        })*
    };
}

lists!(Vec: Plain, VecDeque: Plain, BTreeSet: Plain Ord);

impl<K: Plain + Ord, V: Plain> Plain for BTreeMap<K, V> {
    fn put(&self, out: &mut Out) {
        put_u64(&mut out.bytes, self.len() as u64);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        (0..from.cursor.u64()?).map(|_| Plain::take(from)).collect()
    }
}

impl<A: Plain, B: Plain> Plain for (A, B) {
    fn put(&self, out: &mut Out) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl<T: Plain> Plain for Range<T> {
    fn put(&self, out: &mut Out) {
        self.start.put(out);
        self.end.put(out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        Some(T::take(from)?..T::take(from)?)
    }
}

impl Plain for Arc<Vec<u8>> {
    fn put(&self, out: &mut Out) {
        out.put_blob(Arc::as_ptr(self).addr(), || Arc::clone(self) as super::Blob);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        from.take_blob()
    }
}

impl<const N: usize> Plain for Arc<[u8; N]> {
    fn put(&self, out: &mut Out) {
        out.put_blob(Arc::as_ptr(self).addr(), || Arc::clone(self) as super::Blob);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        Some(Arc::new(from.take_blob()?.as_slice().try_into().ok()?))
    }
}

plain!(struct Regs { gpr, rip, rflags, fs_base, gs_base });
plain!(struct Fpu { vector, opmask, mxcsr, control, status, tag, opcode, instruction, data, st });
plain!(struct State { regs, fpu });
