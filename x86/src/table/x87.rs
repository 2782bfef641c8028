//! x87 instructions, by iced's code.

use iced_x86::{Code, Instruction};

use crate::decode;
use crate::machine::{Body, Handler, Machine};
use crate::op::Op;
use crate::sem::vector::float::{Double, Single};
use crate::sem::x87::{arithmetic, compare, control, decimal, load, store, transcendental, unary};

/// The handler and operands of `i`, if it is one of these.
pub(super) fn lookup<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    let body = load_body(i)
        .or_else(|| store_body(i))
        .or_else(|| arithmetic_body(i))
        .or_else(|| compare_body(i))
        .or_else(|| unary_body(i))
        .or_else(|| transcendental_body(i))
        .or_else(|| control_body(i))?;
    Some((Handler::Body(body), decode::op(i)))
}

fn load_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Fld_m32fp => load::float::<M, Single>,
        Code::Fld_m64fp => load::float::<M, Double>,
        Code::Fld_m80fp => load::extended::<M>,
        Code::Fld_sti => load::register::<M>,
        Code::Fild_m16int => load::integer::<M, 16>,
        Code::Fild_m32int => load::integer::<M, 32>,
        Code::Fild_m64int => load::integer::<M, 64>,
        Code::Fbld_m80bcd => decimal::load::<M>,
        Code::Fld1 => load::constant::<M, load::One>,
        Code::Fldz => load::constant::<M, load::Zero>,
        Code::Fldpi => load::constant::<M, load::Pi>,
        Code::Fldl2t => load::constant::<M, load::Log2Of10>,
        Code::Fldl2e => load::constant::<M, load::Log2OfE>,
        Code::Fldlg2 => load::constant::<M, load::Log10Of2>,
        Code::Fldln2 => load::constant::<M, load::LnOf2>,
        _ => return None,
    })
}

fn store_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Fst_m32fp => store::float::<M, Single, false>,
        Code::Fstp_m32fp => store::float::<M, Single, true>,
        Code::Fst_m64fp => store::float::<M, Double, false>,
        Code::Fstp_m64fp => store::float::<M, Double, true>,
        Code::Fstp_m80fp => store::extended::<M>,
        Code::Fbstp_m80bcd => decimal::store::<M>,
        Code::Fst_sti => store::register::<M, false>,
        Code::Fstp_sti | Code::Fstp_sti_DFD0 | Code::Fstp_sti_DFD8 => store::register::<M, true>,
        Code::Fist_m16int => store::integer::<M, 16, false, false>,
        Code::Fist_m32int => store::integer::<M, 32, false, false>,
        Code::Fistp_m16int => store::integer::<M, 16, true, false>,
        Code::Fistp_m32int => store::integer::<M, 32, true, false>,
        Code::Fistp_m64int => store::integer::<M, 64, true, false>,
        Code::Fisttp_m16int => store::integer::<M, 16, true, true>,
        Code::Fisttp_m32int => store::integer::<M, 32, true, true>,
        Code::Fisttp_m64int => store::integer::<M, 64, true, true>,
        _ => return None,
    })
}

/// Matches the eight forms of an arithmetic instruction.
macro_rules! arithmetic {
    ($i:expr, $($m32:ident $m64:ident $i16:ident $i32:ident $first:ident $other:ident $pop:ident => $operation:ident;)*) => {
        match $i.code() {
            $(
                Code::$m32 => arithmetic::float::<M, Single, arithmetic::$operation>,
                Code::$m64 => arithmetic::float::<M, Double, arithmetic::$operation>,
                Code::$i16 => arithmetic::integer::<M, 16, arithmetic::$operation>,
                Code::$i32 => arithmetic::integer::<M, 32, arithmetic::$operation>,
                Code::$first | Code::$other => arithmetic::registers::<M, arithmetic::$operation, false>,
                Code::$pop => arithmetic::registers::<M, arithmetic::$operation, true>,
            )*
            _ => return None,
        }
    };
}

fn arithmetic_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(arithmetic!(i,
        Fadd_m32fp Fadd_m64fp Fiadd_m16int Fiadd_m32int Fadd_st0_sti Fadd_sti_st0 Faddp_sti_st0 => Add;
        Fsub_m32fp Fsub_m64fp Fisub_m16int Fisub_m32int Fsub_st0_sti Fsub_sti_st0 Fsubp_sti_st0 => Sub;
        Fsubr_m32fp Fsubr_m64fp Fisubr_m16int Fisubr_m32int Fsubr_st0_sti Fsubr_sti_st0 Fsubrp_sti_st0
            => SubReversed;
        Fmul_m32fp Fmul_m64fp Fimul_m16int Fimul_m32int Fmul_st0_sti Fmul_sti_st0 Fmulp_sti_st0 => Mul;
        Fdiv_m32fp Fdiv_m64fp Fidiv_m16int Fidiv_m32int Fdiv_st0_sti Fdiv_sti_st0 Fdivp_sti_st0 => Div;
        Fdivr_m32fp Fdivr_m64fp Fidivr_m16int Fidivr_m32int Fdivr_st0_sti Fdivr_sti_st0 Fdivrp_sti_st0
            => DivReversed;
    ))
}

fn compare_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Fcom_st0_sti | Code::Fcom_st0_sti_DCD0 => compare::registers::<M, true, 0>,
        Code::Fcomp_st0_sti | Code::Fcomp_st0_sti_DCD8 | Code::Fcomp_st0_sti_DED0 => {
            compare::registers::<M, true, 1>
        }
        Code::Fcompp => compare::registers::<M, true, 2>,
        Code::Fucom_st0_sti => compare::registers::<M, false, 0>,
        Code::Fucomp_st0_sti => compare::registers::<M, false, 1>,
        Code::Fucompp => compare::registers::<M, false, 2>,
        Code::Fcom_m32fp => compare::float::<M, Single, 0>,
        Code::Fcomp_m32fp => compare::float::<M, Single, 1>,
        Code::Fcom_m64fp => compare::float::<M, Double, 0>,
        Code::Fcomp_m64fp => compare::float::<M, Double, 1>,
        Code::Ficom_m16int => compare::integer::<M, 16, 0>,
        Code::Ficomp_m16int => compare::integer::<M, 16, 1>,
        Code::Ficom_m32int => compare::integer::<M, 32, 0>,
        Code::Ficomp_m32int => compare::integer::<M, 32, 1>,
        Code::Fcomi_st0_sti => compare::to_flags::<M, true, 0>,
        Code::Fcomip_st0_sti => compare::to_flags::<M, true, 1>,
        Code::Fucomi_st0_sti => compare::to_flags::<M, false, 0>,
        Code::Fucomip_st0_sti => compare::to_flags::<M, false, 1>,
        Code::Ftst => compare::test::<M>,
        Code::Fxam => compare::examine::<M>,
        _ => return None,
    })
}

fn unary_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Fsqrt => unary::operate::<M, unary::Sqrt>,
        Code::Frndint => unary::operate::<M, unary::RoundToInteger>,
        Code::Fscale => unary::operate::<M, unary::Scale>,
        Code::Fprem => unary::operate::<M, unary::Remainder>,
        Code::Fprem1 => unary::operate::<M, unary::RemainderNearest>,
        Code::Fxtract => unary::extract::<M>,
        Code::Fchs => unary::sign::<M, false>,
        Code::Fabs => unary::sign::<M, true>,
        Code::Fxch_st0_sti | Code::Fxch_st0_sti_DDC8 | Code::Fxch_st0_sti_DFC8 => unary::exchange::<M>,
        Code::Fcmovb_st0_sti => unary::conditional_move::<M, 2>,
        Code::Fcmovnb_st0_sti => unary::conditional_move::<M, 3>,
        Code::Fcmove_st0_sti => unary::conditional_move::<M, 4>,
        Code::Fcmovne_st0_sti => unary::conditional_move::<M, 5>,
        Code::Fcmovbe_st0_sti => unary::conditional_move::<M, 6>,
        Code::Fcmovnbe_st0_sti => unary::conditional_move::<M, 7>,
        Code::Fcmovu_st0_sti => unary::conditional_move::<M, 10>,
        Code::Fcmovnu_st0_sti => unary::conditional_move::<M, 11>,
        Code::Fincstp => unary::rotate::<M, 1>,
        Code::Fdecstp => unary::rotate::<M, 7>,
        Code::Ffree_sti => unary::free::<M, false>,
        Code::Ffreep_sti => unary::free::<M, true>,
        _ => return None,
    })
}

fn transcendental_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    use transcendental::{AngleOfPoint, Cosine, Logarithm, LogarithmPlus1, Power, Sine};
    Some(match i.code() {
        Code::Fsin => transcendental::replace::<M, Sine>,
        Code::Fcos => transcendental::replace::<M, Cosine>,
        Code::F2xm1 => transcendental::replace::<M, Power>,
        Code::Fyl2x => transcendental::combine::<M, Logarithm>,
        Code::Fyl2xp1 => transcendental::combine::<M, LogarithmPlus1>,
        Code::Fpatan => transcendental::combine::<M, AngleOfPoint>,
        Code::Fptan => transcendental::replace_and_push::<M, false>,
        Code::Fsincos => transcendental::replace_and_push::<M, true>,
        _ => return None,
    })
}

fn control_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Wait | Code::Fnop => control::wait::<M>,
        Code::Fnstcw_m2byte => control::store_control::<M>,
        Code::Fldcw_m2byte => control::load_control::<M>,
        Code::Fnstsw_m2byte | Code::Fnstsw_AX => control::store_status::<M>,
        Code::Fnclex => control::clear_exceptions::<M>,
        Code::Fninit => control::initialize::<M>,
        Code::Fldenv_m28byte => control::load_environment::<M, 32>,
        Code::Fldenv_m14byte => control::load_environment::<M, 16>,
        Code::Frstor_m108byte => control::restore::<M, 32>,
        Code::Frstor_m94byte => control::restore::<M, 16>,
        // They were instructions of the 8087 and the 80287.
        Code::Fneni | Code::Fndisi | Code::Fnsetpm => crate::sem::system::nop::<M>,
        _ => return None,
    })
}
