//! Conditions of breakpoints, as gdb compiles them: the bytecode of its agent expressions, on a stack of 64-bit words.
//!
//! Source: gdb's manual, appendix "The GDB Agent Expression Mechanism". Tracing and floating point are left out, which conditions do
//! not have. Whatever the bytes are, an evaluation ends ([`FUEL`]), and gives `None` where it comes to nothing: a stack that is empty or
//! too large, a division by zero, memory that is not mapped, an operation that is not known.
//!
//! Example: `i == 100000` with `i` in ebx is `reg 3; ext 32; const32 100000; equal; end`.

/// So many operations may be carried out: gdb's conditions have no loops, and few operations.
const FUEL: usize = 10_000;
/// So many words may be on the stack.
const HEIGHT: usize = 256;

/// What an expression sees of the program.
pub(super) trait World {
    /// A register, by its number in the description that the debugger has; `None` where it has no such, or one of more than 64 bits.
    fn register(&self, number: u16) -> Option<u64>;
    /// Fills these bytes from memory; false if not all are mapped.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
}

/// Carries an expression out: what is on top of the stack at its end.
pub(super) fn evaluate(code: &[u8], world: &dyn World) -> Option<u64> {
    let mut run = Run { code, at: 0, stack: Vec::new() };
    for _ in 0..FUEL {
        let op = run.byte()?;
        if op == END {
            return run.pop();
        }
        run.operate(op, world)?;
        if run.stack.len() > HEIGHT {
            return None;
        }
    }
    None
}

const END: u8 = 0x27;

struct Run<'a> {
    code: &'a [u8],
    at: usize,
    stack: Vec<u64>,
}

impl Run<'_> {
    fn operate(&mut self, op: u8, world: &dyn World) -> Option<()> {
        match op {
            0x02 => self.two(u64::wrapping_add),
            0x03 => self.two(u64::wrapping_sub),
            0x04 => self.two(u64::wrapping_mul),
            0x05 => self.divide(|a, b| signed(a, b, i64::checked_div)),
            0x06 => self.divide(u64::checked_div),
            0x07 => self.divide(|a, b| signed(a, b, i64::checked_rem)),
            0x08 => self.divide(u64::checked_rem),
            0x09 => self.two(|a, b| shift(b).map_or(0, |by| a << by)),
            0x0a => self.two(|a, b| (a.cast_signed() >> shift(b).unwrap_or(63)).cast_unsigned()),
            0x0b => self.two(|a, b| shift(b).map_or(0, |by| a >> by)),
            0x0e => self.one(|a| u64::from(a == 0)),
            0x0f => self.two(|a, b| a & b),
            0x10 => self.two(|a, b| a | b),
            0x11 => self.two(|a, b| a ^ b),
            0x12 => self.one(|a| !a),
            0x13 => self.two(|a, b| u64::from(a == b)),
            0x14 => self.two(|a, b| u64::from(a.cast_signed() < b.cast_signed())),
            0x15 => self.two(|a, b| u64::from(a < b)),
            0x16 => {
                let bits = self.byte()?;
                self.one(|a| unused(bits).map_or(a, |by| ((a << by).cast_signed() >> by).cast_unsigned()))
            }
            0x2a => {
                let bits = self.byte()?;
                self.one(|a| unused(bits).map_or(a, |by| a << by >> by))
            }
            0x17..=0x1a => self.load(world, 1 << (op - 0x17)),
            0x20 => {
                let target = self.operand(2)?;
                (self.pop()? == 0).then_some(()).or_else(|| self.jump(target))
            }
            0x21 => {
                let target = self.operand(2)?;
                self.jump(target)
            }
            0x22..=0x25 => {
                let value = self.operand(1 << (op - 0x22))?;
                self.push(value)
            }
            0x26 => {
                let number = u16::try_from(self.operand(2)?).ok()?;
                self.push(world.register(number)?)
            }
            0x28 => self.pick(0),
            0x29 => self.pop().map(drop),
            0x2b => {
                let top = self.stack.len();
                (top >= 2).then(|| self.stack.swap(top - 1, top - 2))
            }
            0x32 => {
                let depth = self.byte()?;
                self.pick(depth.into())
            }
            0x33 => self.rotate(),
            _ => None,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// A number that stands in the code, the highest byte first.
    fn operand(&mut self, bytes: usize) -> Option<u64> {
        (0..bytes).try_fold(0, |value, _| Some(value << 8 | u64::from(self.byte()?)))
    }

    fn push(&mut self, value: u64) -> Option<()> {
        self.stack.push(value);
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.stack.pop()
    }

    fn one(&mut self, f: impl FnOnce(u64) -> u64) -> Option<()> {
        let a = self.pop()?;
        self.push(f(a))
    }

    fn two(&mut self, f: impl FnOnce(u64, u64) -> u64) -> Option<()> {
        self.divide(|a, b| Some(f(a, b)))
    }

    /// The second from the top is the left one.
    fn divide(&mut self, f: impl FnOnce(u64, u64) -> Option<u64>) -> Option<()> {
        let (b, a) = (self.pop()?, self.pop()?);
        self.push(f(a, b)?)
    }

    fn load(&mut self, world: &dyn World, size: usize) -> Option<()> {
        let (address, mut bytes) = (self.pop()?, [0; 8]);
        world.read(address, &mut bytes[..size]).then_some(())?;
        self.push(u64::from_le_bytes(bytes))
    }

    fn jump(&mut self, target: u64) -> Option<()> {
        self.at = usize::try_from(target).ok()?;
        Some(())
    }

    /// A copy of the word so far below the top.
    fn pick(&mut self, depth: usize) -> Option<()> {
        let place = self.stack.len().checked_sub(depth + 1)?;
        self.push(self.stack[place])
    }

    /// The top goes below the two that follow.
    fn rotate(&mut self) -> Option<()> {
        let third = self.stack.len().checked_sub(3)?;
        self.stack[third..].rotate_right(1);
        Some(())
    }
}

fn signed(a: u64, b: u64, f: fn(i64, i64) -> Option<i64>) -> Option<u64> {
    f(a.cast_signed(), b.cast_signed()).map(i64::cast_unsigned)
}

/// A count that shifts something else than all bits out.
fn shift(count: u64) -> Option<u32> {
    u32::try_from(count).ok().filter(|count| *count < 64)
}

/// How many bits are above the lowest so many; `None` where these are all.
fn unused(bits: u8) -> Option<u32> {
    (1..64).contains(&bits).then(|| 64 - u32::from(bits))
}

/// A world without anything.
#[cfg(test)]
pub(super) struct Nothing;

#[cfg(test)]
impl World for Nothing {
    fn register(&self, _: u16) -> Option<u64> {
        None
    }

    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
