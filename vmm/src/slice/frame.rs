//! The frame of a signal handler: where the kernel puts the general registers (struct ucontext, `linux/signals/frame.rs`).

/// Where the registers are behind the ucontext's beginning.
const REGISTERS: u64 = 40;
/// In this order: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp.
const ORDER: [u8; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];

/// Where a register is in the ucontext at an address.
pub(super) fn saved(context: u64, register: u8) -> u64 {
    let place = ORDER.iter().position(|it| *it == register & 15).unwrap_or(0) as u64;
    context.wrapping_add(REGISTERS + 8 * place)
}

/// Which register, and which byte of it, is at an address of the ucontext at another.
pub(super) fn register_at(context: u64, address: u64) -> Option<(u8, u8)> {
    let offset = address.checked_sub(context)?.checked_sub(REGISTERS)?;
    let register = ORDER.get(usize::try_from(offset / 8).ok()?)?;
    Some((*register, u8::try_from(offset % 8).ok()?))
}

#[cfg(test)]
mod tests {
    use super::{register_at, saved};

    #[test]
    fn there_and_back() {
        for register in 0..16 {
            assert_eq!(register_at(0x1000, saved(0x1000, register) + 3), Some((register, 3)));
        }
        assert_eq!(register_at(0x1000, 0x1000 + 40 + 128), None);
    }
}
