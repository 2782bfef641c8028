//! Operations that a bit-vector algebra does not express, or not well: floating point, and the steps of ciphers.
//!
//! A symbolic domain treats them as uninterpreted functions and folds them when every argument is concrete by
//! calling [`evaluate`]; the concrete domain calls [`evaluate`] directly. So each has one meaning, here.
//!
//! They are pure: what an operation needs of a control register is an argument (with the sticky flags cut
//! away, so that equal operands make equal terms), and the exceptions that it raises are a result. Nothing
//! here depends on the floating-point environment of the host but for its default, rounding to nearest.
//!
//! Parts: [`real`] (exact arithmetic and rounding), [`sse`] (the rules of SSE: DAZ, FTZ, NaN operands), `fast`
//! (the same through host floats where that is provably equal), [`fused`] (multiply-add), [`convert`] (between formats),
//! [`auxiliary`] (taking apart, scaling, choosing), [`approximate`] (of reciprocals), [`x87`] (the 80-bit format and
//! its rules), [`field`] (polynomials of bits).

mod approximate;
mod auxiliary;
mod basic;
mod convert;
mod fast;
mod field;
mod fused;
mod real;
mod series;
mod sse;
mod x87;

pub use approximate::Approximation;
pub use auxiliary::Auxiliary;
pub use field::{AesStep, Field};
pub use fused::Fused;
use sse::Mode;
pub use x87::status;

/// Exception flags, by their bits in MXCSR and in the x87 status word.
pub mod exception {
    /// Invalid operation.
    pub const INVALID: u64 = 1;
    /// Denormal operand.
    pub const DENORMAL: u64 = 2;
    /// Division of a finite number by zero.
    pub const ZERO_DIVIDE: u64 = 4;
    /// Overflow.
    pub const OVERFLOW: u64 = 8;
    /// Underflow.
    pub const UNDERFLOW: u64 = 16;
    /// Inexact result.
    pub const PRECISION: u64 = 32;
    /// All six.
    pub const ALL: u64 = 63;
    /// Those that are found before a result is computed, and keep it from being computed if unmasked.
    pub const BEFORE_RESULT: u64 = INVALID | DENORMAL | ZERO_DIVIDE;
}

/// The bits of MXCSR that an SSE operation depends on: DAZ, the masks, RC and FTZ; not the sticky flags.
pub const SSE_MODE: u64 = 0xffc0;
/// The bits of the x87 control word that an operation depends on: the masks, PC and RC.
pub const X87_MODE: u64 = 0x0f3f;

/// An IEEE 754 format of SSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// binary16, which is only converted from and to.
    Half,
    /// binary32.
    Single,
    /// binary64.
    Double,
}

impl Format {
    /// Its size in bits.
    #[must_use]
    #[inline]
    pub const fn width(self) -> u32 {
        match self {
            Format::Half => 16,
            Format::Single => 32,
            Format::Double => 64,
        }
    }
}

/// An operation on two SSE numbers (square root: on the second).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// a + b.
    Add,
    /// a - b.
    Sub,
    /// a * b.
    Mul,
    /// a / b.
    Div,
    /// The smaller; b if either is a NaN or both are zeros.
    Min,
    /// The larger; b if either is a NaN or both are zeros.
    Max,
    /// The square root of b.
    Sqrt,
}

/// An operation on x87 numbers a and b (a is ST(0) where only one is used).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum X87Arithmetic {
    /// a + b.
    Add,
    /// a - b.
    Sub,
    /// a * b.
    Mul,
    /// a / b.
    Div,
    /// The square root of a.
    Sqrt,
    /// a rounded to an integer.
    RoundToInteger,
    /// a * 2^trunc(b).
    Scale,
    /// One step of the partial remainder, quotient truncated (FPREM).
    Remainder,
    /// One step of the partial remainder, quotient rounded to nearest (FPREM1).
    RemainderNearest,
    /// The exponent of a as a number (the first result of FXTRACT).
    Exponent,
    /// The significand of a with exponent zero (the second result of FXTRACT).
    Significand,
    /// sin a (FSIN); C2 if a is too large, and then a itself.
    Sine,
    /// cos a (FCOS); likewise.
    Cosine,
    /// tan a (the first result of FPTAN); likewise.
    Tangent,
    /// 2^a - 1 (F2XM1).
    Power,
    /// b * log2(a) (FYL2X).
    Logarithm,
    /// b * log2(a + 1) (FYL2XP1).
    LogarithmPlus1,
    /// arctan(b / a) in the quadrant of the point (a, b) (FPATAN).
    AngleOfPoint,
}

/// An operation outside bit-vector arithmetic.
///
/// `mode` is MXCSR cut to [`SSE_MODE`] (16 bits) or the x87 control word cut to [`X87_MODE`] (16 bits).
/// `raised` is 6 bits of [`exception`]; `status` is 16 bits of the x87 status word: [`exception`] and C0 to C3
/// (see [`status`]). An x87 number is two vectors: significand (64 bits), sign and exponent (16 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opaque {
    /// (a, b, mode) to (value, raised).
    Sse(Arithmetic, Format),
    /// (a, b, mode) to (relation, raised); the relation is 3 bits: 1 if a < b, 2 if equal, 4 if unordered,
    /// 0 if a > b. A quiet NaN raises INVALID if `signaling`.
    SseCompare {
        /// The format of both operands.
        format: Format,
        /// Whether quiet NaNs are invalid operands.
        signaling: bool,
    },
    /// (a, mode) to (a rounded to an integer of the same format, raised).
    SseRound(Format),
    /// (a, b, c, mode) to (a * b + c rounded once, raised).
    SseFused(Fused),
    /// (a, b, mode) to (value, raised).
    SseAuxiliary {
        /// The operation.
        op: Auxiliary,
        /// The format of both operands and of the result.
        format: Format,
        /// The immediate of the instruction.
        imm: u8,
    },
    /// VFIXUPIMM: (a, b, table of 32 bits, mode) to (what the table answers for the class of b, raised).
    SseFixUp {
        /// The format of both operands and of the result.
        format: Format,
        /// The immediate of the instruction.
        imm: u8,
    },
    /// (a, mode) to (a in another format, raised).
    SseConvert {
        /// The format of a.
        from: Format,
        /// The format of the result.
        to: Format,
    },
    /// (a, mode) to (integer of `bits` bits, raised). Truncation is a mode whose RC is 3.
    SseToInteger {
        /// The format of a.
        from: Format,
        /// 32 or 64.
        bits: u32,
        /// Whether the integer has a sign.
        signed: bool,
    },
    /// (integer of `bits` bits, mode) to (value, raised).
    SseFromInteger {
        /// 32 or 64.
        bits: u32,
        /// Whether the integer has a sign.
        signed: bool,
        /// The format of the result.
        to: Format,
    },
    /// (a, a', b, b', mode) to (result, result', status).
    X87(X87Arithmetic),
    /// (a, a', b, b') to (status): C3, C2, C0 as FCOM sets them. A quiet NaN raises INVALID if
    /// `signaling`.
    X87Compare {
        /// Whether quiet NaNs are invalid operands.
        signaling: bool,
    },
    /// (a) to (result, result', status). A signaling NaN is made quiet and raises INVALID if `quiet`, else it is
    /// kept for the operation that follows.
    X87FromFloat {
        /// The format of a.
        format: Format,
        /// Whether signaling NaNs are made quiet.
        quiet: bool,
    },
    /// (a, a', mode) to (value, status).
    X87ToFloat(Format),
    /// (a, a', mode) to (signed integer of `bits` bits, status). Truncation is a mode whose RC is 3.
    X87ToInteger {
        /// 16, 32 or 64.
        bits: u32,
    },
    /// As the variant says; bits and polynomials, not numbers.
    Field(Field),
}

impl Opaque {
    /// The widths of the arguments in bits.
    #[must_use]
    pub fn argument_widths(self) -> Vec<u32> {
        match self {
            Opaque::Sse(_, f)
            | Opaque::SseCompare { format: f, .. }
            | Opaque::SseAuxiliary { format: f, .. } => {
                vec![f.width(), f.width(), 16]
            }
            Opaque::SseFixUp { format, .. } => vec![format.width(), format.width(), 32, 16],
            Opaque::SseFused(f) => vec![f.format.width(), f.format.width(), f.format.width(), 16],
            Opaque::SseRound(f) | Opaque::SseConvert { from: f, .. } => vec![f.width(), 16],
            Opaque::SseToInteger { from, .. } => vec![from.width(), 16],
            Opaque::SseFromInteger { bits, .. } => vec![bits, 16],
            Opaque::X87(_) => vec![64, 16, 64, 16, 16],
            Opaque::X87Compare { .. } => vec![64, 16, 64, 16],
            Opaque::X87FromFloat { format, .. } => vec![format.width()],
            Opaque::X87ToFloat(_) | Opaque::X87ToInteger { .. } => vec![64, 16, 16],
            Opaque::Field(op) => op.argument_widths(),
        }
    }

    /// The widths of the results in bits; a result that the operation does not have is a zero of width 1.
    #[must_use]
    pub fn result_widths(self) -> [u32; 3] {
        match self {
            Opaque::Sse(_, f)
            | Opaque::SseRound(f)
            | Opaque::SseAuxiliary { format: f, .. }
            | Opaque::SseFixUp { format: f, .. }
            | Opaque::SseConvert { to: f, .. }
            | Opaque::SseFromInteger { to: f, .. } => [f.width(), 6, 1],
            Opaque::SseFused(f) => [f.format.width(), 6, 1],
            Opaque::SseCompare { .. } => [3, 6, 1],
            Opaque::SseToInteger { bits, .. } => [bits, 6, 1],
            Opaque::X87(_) | Opaque::X87FromFloat { .. } => [64, 16, 16],
            Opaque::X87Compare { .. } => [16, 1, 1],
            Opaque::X87ToFloat(f) => [f.width(), 16, 1],
            Opaque::X87ToInteger { bits } => [bits, 16, 1],
            Opaque::Field(op) => op.result_widths(),
        }
    }
}

/// [`evaluate`] where the host's floats give the same: small enough to be compiled into an instruction.
#[inline(always)]
pub(crate) fn on_host(op: Opaque, args: &[u64]) -> Option<[u64; 3]> {
    match op {
        Opaque::Sse(op, format) => fast::arithmetic(op, format, args[0], args[1], Mode(args[2])),
        Opaque::SseCompare { format, .. } => fast::compare(format, args[0], args[1], Mode(args[2])),
        Opaque::SseConvert { from, to } => fast::convert(from, to, args[0], Mode(args[1])),
        Opaque::SseToInteger { from, bits, signed: true } => {
            fast::to_integer(from, bits, args[0], Mode(args[1]))
        }
        Opaque::SseFromInteger { bits, signed: true, to } => {
            let number = (args[0] << (64 - bits)).cast_signed() >> (64 - bits);
            fast::from_integer(to, bits, number, Mode(args[1]))
        }
        _ => None,
    }
}

/// Applies `op` to concrete arguments. Arguments and results have zeros above their widths.
///
/// # Panics
/// If there are not as many arguments as [`Opaque::argument_widths`] says.
#[must_use]
#[inline(never)]
pub fn evaluate(op: Opaque, args: &[u64]) -> [u64; 3] {
    match op {
        Opaque::Sse(op, format) => sse::arithmetic(op, format, args[0], args[1], args[2]),
        Opaque::SseCompare { format, signaling } => {
            sse::compare(format, signaling, args[0], args[1], args[2])
        }
        Opaque::SseRound(format) => sse::round(format, args[0], args[1]),
        Opaque::SseFused(fused) => fused::multiply_add(fused, [args[0], args[1], args[2]], args[3]),
        Opaque::SseAuxiliary { op, format, imm } => {
            auxiliary::evaluate(op, format, imm, args[0], args[1], args[2])
        }
        Opaque::SseFixUp { format, imm } => {
            auxiliary::fix_up(format, imm, args[0], args[1], args[2], args[3])
        }
        Opaque::SseConvert { from, to } => convert::between(from, to, args[0], args[1]),
        Opaque::SseToInteger { from, bits, signed } => {
            convert::to_integer(from, bits, signed, args[0], args[1])
        }
        Opaque::SseFromInteger { bits, signed, to } => {
            convert::from_integer(bits, signed, to, args[0], args[1])
        }
        Opaque::X87(op) => x87::arithmetic(op, (args[0], args[1]), (args[2], args[3]), args[4]),
        Opaque::X87Compare { signaling } => x87::compare(signaling, (args[0], args[1]), (args[2], args[3])),
        Opaque::X87FromFloat { format, quiet } => x87::from_float(format, quiet, args[0]),
        Opaque::X87ToFloat(format) => x87::to_float(format, (args[0], args[1]), args[2]),
        Opaque::X87ToInteger { bits } => x87::to_integer(bits, (args[0], args[1]), args[2]),
        Opaque::Field(op) => field::evaluate(op, args),
    }
}
