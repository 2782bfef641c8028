//! Loops of one kind of instruction each, as images that exit with their checksum.

use iced_x86::code_asm::*;

use crate::emulator::{Image, Piece};

const CODE: u64 = 0x40_0000;
pub(crate) const SOURCE: u64 = 0x50_0000;
const TARGET: u64 = 0x60_0000;
const CHAIN: u64 = 0x70_0000;
const STACK: u64 = 0x80_0000;
/// Words of the source.
pub(crate) const ELEMENTS: u16 = 512;
/// Words of the chain of pointers, half a megabyte.
const LINKS: u64 = 1 << 16;

type Assembled = Result<(), IcedError>;
/// Writes a loop.
pub(crate) type Body = fn(&mut CodeAssembler) -> Assembled;

/// The loops by name: rsi is the source, rdi the target, r10 the chain; the checksum goes to rbx.
pub(crate) const ALL: [(&str, Body); 5] = [
    ("integers", integers),
    ("loads and stores", loads_and_stores),
    ("memory and calls", memory_and_calls),
    ("SSE2 integers", vectors),
    ("SSE2 floats", floats),
];

/// Registers only.
fn integers(a: &mut CodeAssembler) -> Assembled {
    let mut next = a.create_label();
    a.mov(rax, 88_172_645_463_325_252_u64)?;
    a.mov(ecx, 3_000_000)?;
    a.set_label(&mut next)?;
    a.mov(rdx, rax)?;
    a.shl(rdx, 13)?;
    a.xor(rax, rdx)?;
    a.mov(rdx, rax)?;
    a.shr(rdx, 7)?;
    a.xor(rax, rdx)?;
    a.lea(r8, qword_ptr(rbx + rax * 2 + 5))?;
    a.add(rbx, r8)?;
    a.and(r8d, 0xff)?;
    a.sub(rbx, r8)?;
    a.dec(ecx)?;
    a.jne(next)
}

/// A running sum over an array, into another.
fn loads_and_stores(a: &mut CodeAssembler) -> Assembled {
    let (mut outer, mut inner) = (a.create_label(), a.create_label());
    a.mov(edx, 10_000)?;
    a.set_label(&mut outer)?;
    a.xor(ecx, ecx)?;
    a.set_label(&mut inner)?;
    a.mov(rax, qword_ptr(rsi + rcx * 8))?;
    a.add(rbx, rax)?;
    a.xor(rbx, rcx)?;
    a.mov(qword_ptr(rdi + rcx * 8), rbx)?;
    a.lea(r8, qword_ptr(rbx + rax + 3))?;
    a.add(rcx, 1)?;
    a.cmp(rcx, i32::from(ELEMENTS))?;
    a.jb(inner)?;
    a.sub(rdx, 1)?;
    a.jne(outer)
}

/// A histogram of bytes, a chain of pointers over half a megabyte, and a function with a frame.
fn memory_and_calls(a: &mut CodeAssembler) -> Assembled {
    let (mut next, mut function, mut done) = (a.create_label(), a.create_label(), a.create_label());
    a.mov(r12d, 1_500_000)?;
    a.mov(r9, r10)?;
    a.set_label(&mut next)?;
    a.mov(ecx, r12d)?;
    a.and(ecx, 0xfff)?;
    a.movzx(eax, byte_ptr(rsi + rcx))?;
    a.add(qword_ptr(rdi + rax * 8), 1)?;
    a.mov(r9, qword_ptr(r9))?;
    a.mov(rdx, qword_ptr(rdi + rax * 8))?;
    a.call(function)?;
    a.mov(dword_ptr(rsi + rcx), ebx)?;
    a.dec(r12)?;
    a.jne(next)?;
    a.jmp(done)?;
    a.set_label(&mut function)?;
    a.push(rbp)?;
    a.mov(rbp, rsp)?;
    a.mov(qword_ptr(rbp - 8), rdx)?;
    a.mov(qword_ptr(rbp - 16), r9)?;
    a.add(rbx, qword_ptr(rbp - 8))?;
    a.xor(rbx, qword_ptr(rbp - 16))?;
    a.pop(rbp)?;
    a.ret()?;
    a.set_label(&mut done)?;
    a.nop()
}

/// Sums, products, shuffles and shifts of integers in vectors.
fn vectors(a: &mut CodeAssembler) -> Assembled {
    let (mut outer, mut inner) = (a.create_label(), a.create_label());
    a.mov(edx, 6_000)?;
    a.pxor(xmm2, xmm2)?;
    a.set_label(&mut outer)?;
    a.xor(ecx, ecx)?;
    a.set_label(&mut inner)?;
    a.movdqu(xmm0, xmmword_ptr(rsi + rcx))?;
    a.movdqa(xmm1, xmmword_ptr(rdi + rcx))?;
    a.paddd(xmm0, xmm1)?;
    a.pxor(xmm2, xmm0)?;
    a.pshufd(xmm3, xmm0, 0x1b)?;
    a.pmullw(xmm3, xmm2)?;
    a.psrld(xmm3, 3)?;
    a.pcmpgtb(xmm1, xmm3)?;
    a.pand(xmm1, xmm0)?;
    a.punpcklbw(xmm3, xmm1)?;
    a.movdqa(xmmword_ptr(rdi + rcx), xmm3)?;
    a.add(rcx, 16)?;
    a.cmp(rcx, i32::from(ELEMENTS) * 8)?;
    a.jb(inner)?;
    a.sub(rdx, 1)?;
    a.jne(outer)?;
    a.movq(rbx, xmm2)
}

/// Sums, products, a quotient and a square root, single and double.
fn floats(a: &mut CodeAssembler) -> Assembled {
    let mut next = a.create_label();
    a.mov(ecx, 600_000)?;
    a.mov(eax, 3)?;
    a.cvtsi2sd(xmm0, eax)?;
    a.sqrtsd(xmm1, xmm0)?;
    a.cvtps2pd(xmm4, xmm2)?;
    a.set_label(&mut next)?;
    a.cvtsi2sd(xmm2, ecx)?;
    a.mulsd(xmm2, xmm1)?;
    a.addsd(xmm0, xmm2)?;
    a.divsd(xmm2, xmm0)?;
    a.subsd(xmm1, xmm2)?;
    a.cvtpd2ps(xmm3, xmm0)?;
    a.mulps(xmm3, xmm3)?;
    a.addps(xmm4, xmm3)?;
    a.sqrtss(xmm5, xmm3)?;
    a.ucomisd(xmm0, xmm1)?;
    a.dec(ecx)?;
    a.jne(next)?;
    a.movq(rbx, xmm0)?;
    a.movd(eax, xmm4)?;
    a.xor(rbx, rax)
}

/// Numbers without a pattern.
pub(crate) fn source() -> Vec<u64> {
    (0..u64::from(ELEMENTS)).map(|k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

/// A loop with its data.
pub(crate) fn image(body: Body) -> Result<Image, IcedError> {
    let mut a = CodeAssembler::new(64)?;
    a.mov(esi, u32::try_from(SOURCE).unwrap_or(0))?;
    a.mov(edi, u32::try_from(TARGET).unwrap_or(0))?;
    a.mov(r10d, u32::try_from(CHAIN).unwrap_or(0))?;
    a.xor(ebx, ebx)?;
    body(&mut a)?;
    a.mov(rdi, rbx)?;
    a.mov(eax, 60)?;
    a.syscall()?;
    let bytes = |words: &[u64]| words.iter().flat_map(|v| v.to_le_bytes()).collect();
    // One cycle through all links: the step is odd, so it is prime to their number.
    let chain: Vec<u64> = (0..LINKS).map(|k| CHAIN + (k + 0x6b4d) % LINKS * 8).collect();
    let mut source = source();
    source.push(0);
    let pieces = vec![
        Piece { at: CODE, bytes: a.assemble(CODE)? },
        Piece { at: SOURCE, bytes: bytes(&source) },
        Piece { at: TARGET, bytes: vec![0; 4096] },
        Piece { at: CHAIN, bytes: bytes(&chain) },
        Piece { at: STACK - 4096, bytes: vec![0; 4096] },
    ];
    Ok(Image {
        pieces: pieces.into_iter().map(Piece::whole_pages).collect(),
        entry: CODE,
        stack: STACK - 256,
    })
}
