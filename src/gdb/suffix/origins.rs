//! Where the values come from that a suffix begins with: `monitor origins`.

use crate::values::number;
use std::fmt::Write;
use synth::suffix::{Origin, RegisterOrigins, Suffix};
use x86::op::Gpr;

/// The origins of a start: of registers, and of memory that is not simply the core's.
pub(super) struct Origins {
    registers: RegisterOrigins,
    memory: Vec<(u64, Vec<Origin>)>,
    len: usize,
    forced: usize,
}

impl Origins {
    pub(super) fn of(suffix: &Suffix) -> Origins {
        let memory = suffix.memory.iter().map(|piece| (piece.address, piece.origins.clone())).collect();
        Origins {
            registers: suffix.registers.clone(),
            memory,
            len: suffix.len(),
            forced: suffix.forced.steps,
        }
    }

    /// How many values are not simply the core's, in a sentence.
    pub(super) fn summary(&self) -> String {
        let all = || {
            self.registers()
                .map(|(_, origin)| origin)
                .chain(self.memory.iter().flat_map(|(_, it)| it.clone()))
        };
        let count = |wanted| all().filter(|origin| *origin == wanted).count();
        format!(
            "of the registers and bytes that it begins with, {} are forced and {} were chosen",
            count(Origin::Forced),
            count(Origin::Chosen)
        )
    }

    fn registers(&self) -> impl Iterator<Item = (String, Origin)> {
        let it = &self.registers;
        let general = Gpr::NAMES.iter().zip(it.gpr).map(|(name, origin)| ((*name).to_owned(), origin));
        let vector = it.vector.iter().enumerate().map(|(n, origin)| (format!("zmm{n}"), *origin));
        let rest = [("flags", it.flags), ("k0-k7", it.opmask), ("x87", it.fpu), ("fs-gs-base", it.bases)];
        general.chain(rest.map(|(name, origin)| (name.to_owned(), origin))).chain(vector)
    }

    /// All that is not simply the core's.
    pub(super) fn listing(&self) -> String {
        let mut text = self.head();
        for wanted in [Origin::Forced, Origin::Chosen] {
            let names = self.registers().filter(|(_, origin)| *origin == wanted).map(|(name, _)| name);
            let names = names.collect::<Vec<_>>();
            if !names.is_empty() {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{}: {}", word(wanted), names.join(" "));
            }
        }
        for (address, origins) in &self.memory {
            text += &runs(*address, origins);
        }
        text
    }

    /// Of some bytes of memory.
    pub(super) fn of_bytes(&self, address: &str, len: &str) -> String {
        let (Some(start), Some(len)) = (number(address), number(len).filter(|len| (1..=4096).contains(len)))
        else {
            return format!(
                "`{address}` and `{len}` are to be an address and a number of bytes up to 4096\n"
            );
        };
        let origin = |at: u64| {
            let piece = self.memory.iter().find_map(|(start, origins)| {
                origins.get(usize::try_from(at.checked_sub(*start)?).ok()?).copied()
            });
            piece.unwrap_or(Origin::Core)
        };
        let origins: Vec<_> = (0..len).map(|n| origin(start.wrapping_add(n))).collect();
        self.head() + &runs(start, &origins)
    }

    fn head(&self) -> String {
        format!(
            "at the start, {} instructions before the crash; nothing was chosen in the last {}\n",
            self.len, self.forced
        )
    }
}

/// Bytes of one origin that follow each other, a line each.
fn runs(address: u64, origins: &[Origin]) -> String {
    let mut at = address;
    let lines = origins.chunk_by(|a, b| a == b).map(|run| {
        let line = format!("{}: {} bytes at {at:#x}\n", word(run[0]), run.len());
        at = at.wrapping_add(run.len() as u64);
        line
    });
    lines.collect()
}

fn word(origin: Origin) -> &'static str {
    match origin {
        Origin::Core => "in the core",
        Origin::Forced => "forced",
        Origin::Chosen => "chosen",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_one_origin_are_a_line() {
        use Origin::{Chosen, Core, Forced};
        assert_eq!(
            runs(0x10, &[Forced, Forced, Chosen, Core]),
            "forced: 2 bytes at 0x10\nchosen: 1 bytes at 0x12\nin the core: 1 bytes at 0x13\n"
        );
        let memory = vec![(0x1000, vec![Chosen, Forced])];
        let origins = Origins { registers: RegisterOrigins::all(Core), memory, len: 9, forced: 2 };
        assert!(origins.summary().contains("1 are forced and 1 were chosen"));
        let text = origins.of_bytes("0x0fff", "3");
        assert!(text.ends_with(
            "in the core: 1 bytes at 0xfff\nchosen: 1 bytes at 0x1000\nforced: 1 bytes at 0x1001\n"
        ));
        assert!(
            origins.of_bytes("here", "3").contains("an address")
                && origins.of_bytes("1", "0").contains("4096")
        );
    }
}
