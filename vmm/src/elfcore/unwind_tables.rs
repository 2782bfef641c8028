//! The unwind tables of a file: for each range of code, how the caller's registers are found.

use super::expression::evaluate;
use super::unwind::{FoundBy, Registers, Walked};
use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, Encoding, EndianSlice, LittleEndian, UnwindContext,
    UnwindExpression, UnwindOffset, UnwindSection, UnwindTableRow,
};
use object::{Object, ObjectSection};
use std::cell::OnceCell;
use std::ops::Range;

/// Bytes of a file.
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The unwind tables of a file that is loaded.
pub struct Tables {
    eh_frame: Vec<u8>,
    debug_frame: Vec<u8>,
    bases: BaseAddresses,
    /// What to add to the file's addresses.
    bias: u64,
    /// What each of the two sections covers, found when first asked for: stacks are walked by the thousand.
    indices: [OnceCell<Index>; 2],
}

/// The addresses that the entries of a section cover, by their first, and where the entries are.
type Index = Vec<(Range<u64>, usize)>;

/// The caller's registers, and how they were found.
pub(super) type Caller = (Registers, FoundBy);

impl Tables {
    /// The tables of the file with these bytes, which was loaded `bias` above its own addresses.
    ///
    /// # Errors
    /// When it does not parse.
    pub fn of(bytes: &[u8], bias: u64) -> Result<Tables, object::Error> {
        let file = object::File::parse(bytes)?;
        let section = |name: &str| {
            let section = file.section_by_name(name);
            section.and_then(|s| Some((s.address(), s.data().ok()?))).unwrap_or((0, &[]))
        };
        let (eh_address, eh_bytes) = section(".eh_frame");
        Ok(Tables {
            eh_frame: eh_bytes.to_vec(),
            debug_frame: section(".debug_frame").1.to_vec(),
            bases: BaseAddresses::default().set_eh_frame(eh_address).set_text(section(".text").0),
            bias,
            indices: Default::default(),
        })
    }

    /// The caller of a frame, by the first table that covers `address`. `None` if none does.
    pub(super) fn caller(
        &self,
        memory: &dyn Walked,
        address: u64,
        registers: &Registers,
    ) -> Option<Result<Caller, String>> {
        let own = address.wrapping_sub(self.bias);
        let eh_frame = EhFrame::new(&self.eh_frame, LittleEndian);
        let mut debug_frame = DebugFrame::new(&self.debug_frame, LittleEndian);
        debug_frame.set_address_size(8);
        self.by_section(0, &eh_frame, own, memory, registers)
            .or_else(|| self.by_section(1, &debug_frame, own, memory, registers))
    }

    /// How the stack pointer before the call is found at an address: a register by DWARF number, and what to add to it. `None` where no
    /// table covers the address, or it takes more than that.
    #[must_use]
    pub fn cfa(&self, address: u64) -> Option<(u16, i64)> {
        let own = address.wrapping_sub(self.bias);
        let eh_frame = EhFrame::new(&self.eh_frame, LittleEndian);
        let mut debug_frame = DebugFrame::new(&self.debug_frame, LittleEndian);
        debug_frame.set_address_size(8);
        let in_eh_frame = self.row(0, &eh_frame, own, |row, _, _| plain_cfa(row));
        in_eh_frame.or_else(|| self.row(1, &debug_frame, own, |row, _, _| plain_cfa(row))).flatten()
    }

    fn by_section<'a, S>(
        &self,
        number: usize,
        section: &S,
        address: u64,
        memory: &dyn Walked,
        registers: &Registers,
    ) -> Option<Result<Caller, String>>
    where
        S: UnwindSection<Slice<'a>>,
        S::Offset: UnwindOffset,
    {
        self.row(number, section, address, |row, entry, is_signal| {
            let by = if is_signal { FoundBy::Signal } else { FoundBy::Tables };
            let evaluate = |expression: UnwindExpression<usize>, initial| {
                evaluate(expression.get(section).ok()?, entry, initial, registers, memory)
            };
            registers.unwind(row, memory, &evaluate).map(|caller| (caller, by))
        })
    }

    /// What `of` makes of the row for an address, with the encoding of its expressions and whether it is of a signal handler's frame.
    fn row<'a, S, T>(
        &self,
        number: usize,
        section: &S,
        address: u64,
        of: impl FnOnce(&UnwindTableRow<usize>, Encoding, bool) -> T,
    ) -> Option<T>
    where
        S: UnwindSection<Slice<'a>>,
        S::Offset: UnwindOffset,
    {
        let index = self.indices[number].get_or_init(|| index(section, &self.bases));
        let after = index.partition_point(|(covered, _)| covered.start <= address);
        let (_, at) = index[..after].last().filter(|(covered, _)| address < covered.end)?;
        let entry = section.fde_from_offset(&self.bases, (*at).into(), S::cie_from_offset).ok()?;
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(section, &self.bases, &mut context, address).ok()?;
        Some(of(row, entry.cie().encoding(), entry.is_signal_trampoline()))
    }
}

fn plain_cfa(row: &UnwindTableRow<usize>) -> Option<(u16, i64)> {
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Some((register.0, *offset)),
        CfaRule::Expression(_) => None,
    }
}

/// What a section covers, up to the first entry that is damaged.
fn index<'a, S>(section: &S, bases: &BaseAddresses) -> Index
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: UnwindOffset,
{
    let mut found = Index::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(S::cie_from_offset) else { break };
        let start = entry.initial_address();
        found.push((start..start.saturating_add(entry.len()), entry.offset()));
    }
    found.sort_by_key(|(covered, _)| covered.start);
    found
}
