//! Plain data to bytes and back: what a checkpoint on disk holds of the kernel, the processor and the address spaces.
//!
//! [`Plain`] is implemented by [`plain!`], which names every field of a type, so that one that is added later and not stored
//! does not compile. [`numbers`] is how numbers and byte strings look, here and in the journal. What is behind a counted
//! pointer is written once, and stays one thing ([`shared!`]). Large byte strings do not go among the rest: a [`Blob`] is kept
//! aside by its pointer, so that writing takes no time for it, and may be compressed by another thread.
//!
//! What is read may be anything: reading gives `None`, and never takes more memory than the input is long.
//!
//! Example: two descriptors of one open file are written as the file and a number that refers to it; read back, they are two
//! descriptors of one file again.

mod basic;
pub mod numbers;

use numbers::{Cursor, put_u64};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::sync::Arc;

/// Bytes that many may own, kept aside.
pub(crate) type Blob = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Data that is written to bytes and read back.
pub(crate) trait Plain: Sized {
    /// Appends it.
    fn put(&self, out: &mut Out);
    /// Takes it off; `None` if it is not there.
    fn take(from: &mut In<'_>) -> Option<Self>;
}

/// What was written.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) bytes: Vec<u8>,
    /// Byte strings that are kept aside, by the numbers that stand for them.
    pub(crate) blobs: Vec<Blob>,
    /// The numbers of what is behind pointers, and of blobs, by address.
    shared: FxHashMap<usize, u64>,
    known_blobs: FxHashMap<usize, u64>,
}

impl Out {
    /// Appends what a pointer leads to, or the number that it got when it was appended first.
    pub(crate) fn put_shared<T: Plain>(&mut self, it: &T) {
        let address = std::ptr::from_ref(it).addr();
        if let Some(number) = self.shared.get(&address) {
            let reference = number + 1;
            put_u64(&mut self.bytes, reference);
            return;
        }
        put_u64(&mut self.bytes, 0);
        it.put(self);
        self.shared.insert(address, self.shared.len() as u64);
    }

    /// Appends the number of a byte string.
    pub(crate) fn put_blob(&mut self, address: usize, blob: impl FnOnce() -> Blob) {
        let next = self.blobs.len() as u64;
        let number = *self.known_blobs.entry(address).or_insert(next);
        if number == next {
            self.blobs.push(blob());
        }
        put_u64(&mut self.bytes, number);
    }
}

/// What is left to read.
pub(crate) struct In<'a> {
    pub(crate) cursor: Cursor<'a>,
    blobs: &'a [Arc<Vec<u8>>],
    shared: Vec<Box<dyn Any>>,
}

impl<'a> In<'a> {
    /// Reads `bytes`, beside which these byte strings were kept.
    pub(crate) fn new(bytes: &'a [u8], blobs: &'a [Arc<Vec<u8>>]) -> In<'a> {
        In { cursor: Cursor(bytes), blobs, shared: Vec::new() }
    }

    /// Whether all was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.cursor.0.is_empty()
    }

    /// Takes what a pointer leads to: `P` is the pointer, `wrap` makes it.
    pub(crate) fn take_shared<T: Plain, P: Clone + 'static>(
        &mut self,
        wrap: impl FnOnce(T) -> P,
    ) -> Option<P> {
        match self.cursor.u64()?.checked_sub(1) {
            Some(number) => {
                let known = self.shared.get(usize::try_from(number).ok()?)?;
                known.downcast_ref::<P>().cloned()
            }
            None => {
                let pointer = wrap(T::take(self)?);
                self.shared.push(Box::new(pointer.clone()));
                Some(pointer)
            }
        }
    }

    /// Takes the number of a byte string, and gives that.
    pub(crate) fn take_blob(&mut self) -> Option<Arc<Vec<u8>>> {
        let number = usize::try_from(self.cursor.u64()?).ok()?;
        self.blobs.get(number).map(Arc::clone)
    }
}

/// Implements [`Plain`] for a struct by its fields, or for an enum by its variants, each with its tag.
macro_rules! plain {
    (struct $name:ident $(<$generic:ident>)? { $($field:ident),* $(,)? }) => {
        impl $(<$generic: $crate::plain::Plain>)? $crate::plain::Plain for $name $(<$generic>)? {
            fn put(&self, out: &mut $crate::plain::Out) {
                let $name { $($field),* } = self;
                $($crate::plain::Plain::put($field, out);)*
            }

            fn take(from: &mut $crate::plain::In<'_>) -> Option<Self> {
                $(let $field = $crate::plain::Plain::take(from)?;)*
                Some($name { $($field),* })
            }
        }
    };
    (enum $name:ident {
        $($tag:literal = $variant:ident $(($($part:ident),*))? $({ $($field:ident),* })?),* $(,)?
    }) => {
        impl $crate::plain::Plain for $name {
            fn put(&self, out: &mut $crate::plain::Out) {
                match self {
                    $($name::$variant $(($($part),*))? $({ $($field),* })? => {
                        out.bytes.push($tag);
                        $($($crate::plain::Plain::put($part, out);)*)?
                        $($($crate::plain::Plain::put($field, out);)*)?
                    })*
                }
            }

            fn take(from: &mut $crate::plain::In<'_>) -> Option<Self> {
                Some(match from.cursor.byte()? {
                    $($tag => {
                        $($(let $part = $crate::plain::Plain::take(from)?;)*)?
                        $($(let $field = $crate::plain::Plain::take(from)?;)*)?
                        $name::$variant $(($($part),*))? $({ $($field),* })?
                    })*
                    _ => return None,
                })
            }
        }
    };
}

/// Implements [`Plain`] for a counted pointer: what it leads to is written once.
macro_rules! shared {
    ($pointer:ident<$name:ty>) => {
        impl $crate::plain::Plain for $pointer<$name> {
            fn put(&self, out: &mut $crate::plain::Out) {
                out.put_shared::<$name>(self);
            }

            fn take(from: &mut $crate::plain::In<'_>) -> Option<Self> {
                from.take_shared::<$name, _>($pointer::new)
            }
        }
    };
}

pub(crate) use {plain, shared};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    #[derive(Debug, PartialEq)]
    struct Point {
        x: i64,
        names: BTreeMap<i32, Option<String>>,
    }
    plain!(struct Point { x, names });
    shared!(Rc<Point>);

    #[derive(Debug, PartialEq)]
    enum Shape {
        Nothing,
        Two(Rc<Point>, Rc<Point>),
        Named { name: [u16; 3] },
    }
    plain!(enum Shape { 0 = Nothing, 1 = Two(a, b), 2 = Named { name } });

    fn point() -> Rc<Point> {
        Rc::new(Point { x: -7, names: BTreeMap::from([(1, None), (-2, Some("two".to_owned()))]) })
    }

    #[test]
    fn what_was_one_thing_stays_one() {
        let (one, other) = (point(), point());
        let shapes = vec![
            Shape::Two(Rc::clone(&one), other),
            Shape::Nothing,
            Shape::Named { name: [1, 2, 65535] },
            Shape::Two(Rc::clone(&one), one),
        ];
        let mut out = Out::default();
        shapes.put(&mut out);
        let mut from = In::new(&out.bytes, &[]);
        let read = Vec::<Shape>::take(&mut from).expect("it was written");
        assert!(from.is_at_end() && read == shapes);
        let (Shape::Two(a, b), Shape::Two(c, d)) = (&read[0], &read[3]) else { panic!("{read:?}") };
        assert!(Rc::ptr_eq(a, c) && Rc::ptr_eq(c, d) && !Rc::ptr_eq(a, b));
    }

    #[test]
    fn blobs_are_kept_aside_once() {
        let blob = Arc::new(vec![5; 10_000]);
        let mut out = Out::default();
        (Arc::clone(&blob), Arc::clone(&blob)).put(&mut out);
        assert_eq!((out.bytes.len(), out.blobs.len()), (2, 1));
        let blobs = [Arc::clone(&blob)];
        let read = <(Arc<Vec<u8>>, Arc<Vec<u8>>)>::take(&mut In::new(&out.bytes, &blobs));
        assert!(read.is_some_and(|(a, b)| Arc::ptr_eq(&a, &b) && a == blob));
    }

    #[test]
    fn anything_can_be_read_and_is_refused() {
        let mut out = Out::default();
        vec![Shape::Two(point(), point())].put(&mut out);
        for length in 0..out.bytes.len() {
            assert!(Vec::<Shape>::take(&mut In::new(&out.bytes[..length], &[])).is_none());
        }
        // A count that no memory holds, an unknown tag, a number that refers to nothing.
        for bytes in [&[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &[1, 9], &[1, 1, 5]] {
            assert!(Vec::<Shape>::take(&mut In::new(bytes, &[])).is_none());
        }
    }
}
