//! Each operation by itself, and that no bytes are too bad.

use super::*;
use proptest::prelude::*;

/// Register n is 10 n; the bytes at 0x1000 to 0x1008 are 0xf1 to 0xf8.
struct Small;

impl World for Small {
    fn register(&self, number: u16) -> Option<u64> {
        (number < 16).then(|| u64::from(number) * 10)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let end = address.saturating_add(bytes.len() as u64);
        let inside = (0x1000..=0x1008).contains(&address) && end <= 0x1008;
        if inside {
            bytes.iter_mut().zip(address..).for_each(|(byte, at)| *byte = 0xf1 + at.to_le_bytes()[0]);
        }
        inside
    }
}

/// `a`, `b`, the operation with its operands, and the end.
fn of(a: i64, b: i64, operation: &[u8]) -> Option<u64> {
    let mut code = Vec::new();
    for value in [a, b] {
        code.push(0x25);
        code.extend(value.to_be_bytes());
    }
    code.extend(operation);
    code.push(END);
    evaluate(&code, &Small)
}

fn signed_of(a: i64, b: i64, operation: u8) -> Option<i64> {
    of(a, b, &[operation]).map(u64::cast_signed)
}

#[test]
fn operations_on_two_words() {
    for (operation, a, b, result) in [
        (0x02, 7, -2, 5),
        (0x03, 7, -2, 9),
        (0x04, 7, -2, -14),
        (0x05, -7, 2, -3),
        (0x06, 7, 2, 3),
        (0x07, -7, 2, -1),
        (0x08, 7, 2, 1),
        (0x09, -1, 4, -16),
        (0x09, -1, 64, 0),
        (0x0a, -16, 2, -4),
        (0x0a, -16, 64, -1),
        (0x0b, 16, 2, 4),
        (0x0b, -1, 64, 0),
        (0x0f, 12, 10, 8),
        (0x10, 12, 10, 14),
        (0x11, 12, 10, 6),
        (0x13, 3, 3, 1),
        (0x13, 3, 4, 0),
        (0x14, -1, 0, 1),
        (0x15, -1, 0, 0),
        (0x2b, 1, 2, 1),
        (0x29, 1, 2, 1),
    ] {
        assert_eq!(signed_of(a, b, operation), Some(result), "{a} {b} {operation:#x}");
    }
}

#[test]
fn what_cannot_be_divided_is_nothing() {
    for operation in [0x05, 0x06, 0x07, 0x08] {
        assert_eq!(signed_of(1, 0, operation), None);
    }
    assert_eq!((signed_of(i64::MIN, -1, 0x05), signed_of(i64::MIN, -1, 0x07)), (None, None));
}

#[test]
fn operations_on_one_word() {
    for (operation, a, result) in [
        (&[0x0e][..], 0, 1),
        (&[0x0e], 5, 0),
        (&[0x12], 5, -6),
        (&[0x16, 8], 0x1ff, -1),
        (&[0x16, 64], -5, -5),
        (&[0x16, 0], -5, -5),
        (&[0x2a, 8], 0x1ff, 0xff),
        (&[0x2a, 64], -5, -5),
        (&[0x2a, 200], -5, -5),
    ] {
        assert_eq!(of(0, a, operation).map(u64::cast_signed), Some(result), "{a} {operation:x?}");
    }
}

#[test]
fn words_of_the_program_and_of_the_code() {
    assert_eq!(evaluate(&[0x26, 0, 3, END], &Small), Some(30));
    assert_eq!(evaluate(&[0x26, 0, 16, END], &Small), None);
    for (operation, value) in
        [(0x17, 0xf1), (0x18, 0xf2f1), (0x19, 0xf4f3_f2f1), (0x1a, 0xf8f7_f6f5_f4f3_f2f1)]
    {
        assert_eq!(evaluate(&[0x23, 0x10, 0, operation, END], &Small), Some(value));
    }
    assert_eq!(evaluate(&[0x23, 0x10, 1, 0x1a, END], &Small), None, "not all is mapped");
    assert_eq!(evaluate(&[0x22, 9, END], &Small), Some(9));
    assert_eq!(evaluate(&[0x24, 1, 2, 3, 4, END], &Small), Some(0x0102_0304));
}

#[test]
fn the_stack_is_moved_about() {
    assert_eq!(evaluate(&[0x22, 5, 0x28, 0x02, END], &Small), Some(10), "dup");
    assert_eq!(evaluate(&[0x22, 1, 0x22, 2, 0x22, 3, 0x32, 2, END], &Small), Some(1), "pick");
    // 1 2 3 becomes 3 1 2.
    assert_eq!(evaluate(&[0x22, 1, 0x22, 2, 0x22, 3, 0x33, END], &Small), Some(2), "rot");
    for short in [&[0x02][..], &[0x28], &[0x2b], &[0x33], &[0x32, 0], &[END], &[0x0e], &[]] {
        assert_eq!(evaluate(&[short, &[END]].concat(), &Small), None, "{short:x?}");
    }
}

#[test]
fn it_goes_where_it_is_sent_and_always_ends() {
    // Whether one is not zero: to 7 if so.
    let code = |value| [0x22, value, 0x20, 0, 8, 0x22, 4, END, 0x22, 5, END];
    assert_eq!((evaluate(&code(0), &Small), evaluate(&code(1), &Small)), (Some(4), Some(5)));
    assert_eq!(evaluate(&[0x21, 0, 0], &Small), None, "an endless loop");
    assert_eq!(evaluate(&[0x22, 1, 0x21, 0, 0], &Small), None, "an endless stack");
    assert_eq!(evaluate(&[0x21, 0xff, 0xff], &Small), None, "out of the code");
    assert_eq!(evaluate(&[0x01, END], &Small), None, "an operation that there is not");
}

proptest! {
    #[test]
    fn no_code_is_too_bad(code in proptest::collection::vec(0_u8..0x38, 0..60)) {
        evaluate(&code, &Small);
    }
}
