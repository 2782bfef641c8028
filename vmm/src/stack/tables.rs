//! Rules from the unwind tables of a file (.eh_frame).

use super::rule::{Base, Rbp, Rule};
use crate::elf::MappedImage;
use crate::engine::Virt;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, LittleEndian,
    Operation, Pointer, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
    UnwindTableRow, X86_64,
};
use object::{Object, ObjectSection};
use std::ops::Range;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The tables, with an index by address. Entries that cannot be read are as if they were not there.
pub(super) struct Tables {
    bytes: Vec<u8>,
    bases: BaseAddresses,
    bias: u64,
    /// First address, first address behind it, and where the entry is.
    index: Vec<(Virt, Virt, EhFrameOffset)>,
}

impl Tables {
    pub(super) fn parse(executable: &[u8], bias: u64) -> Tables {
        let file = object::File::parse(executable).ok();
        let section = |name| file.as_ref().and_then(|file| file.section_by_name(name));
        let frames = section(".eh_frame");
        let bytes = frames.as_ref().and_then(|s| s.data().ok()).unwrap_or(&[]).to_vec();
        let address = |section: Option<object::Section<'_, '_>>| section.map_or(0, |s| s.address());
        let bases =
            BaseAddresses::default().set_eh_frame(address(frames)).set_text(address(section(".text")));
        let mut tables = Tables { bytes, bases, bias, index: Vec::new() };
        tables.index = tables.entries();
        tables
    }

    /// The tables of a file as it lies in memory.
    pub(super) fn mapped(image: &MappedImage, read: &dyn Fn(Range<Virt>) -> Option<Vec<u8>>) -> Tables {
        let found = image.unwind.as_ref().and_then(|header| {
            let bytes = read(header.clone())?;
            let bases = BaseAddresses::default().set_eh_frame_hdr(header.start);
            let parsed = EhFrameHdr::new(&bytes, LittleEndian).parse(&bases, 8).ok()?;
            let Pointer::Direct(start) = parsed.eh_frame_ptr() else { return None };
            let mut segments = image.image.segments.iter();
            let segment = segments.find(|segment| (segment.start..segment.file_end).contains(&start))?;
            // They end with an entry of no length.
            Some((start, read(start..segment.file_end)?))
        });
        let (start, bytes) = found.unwrap_or_default();
        let bases = BaseAddresses::default().set_eh_frame(start);
        let mut tables = Tables { bytes, bases, bias: 0, index: Vec::new() };
        tables.index = tables.entries();
        tables
    }

    fn entries(&self) -> Vec<(Virt, Virt, EhFrameOffset)> {
        let frames = self.frames();
        let mut entries = frames.entries(&self.bases);
        let mut index = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let start = fde.initial_address().wrapping_add(self.bias);
            if let Some(end) = start.checked_add(fde.len()) {
                index.push((start, end, EhFrameOffset(fde.offset())));
            }
        }
        index.sort_unstable_by_key(|(start, ..)| *start);
        index
    }

    fn frames(&self) -> EhFrame<Slice<'_>> {
        EhFrame::new(&self.bytes, LittleEndian)
    }

    /// The rule at `address`, if an entry covers it.
    pub(super) fn rule(&self, address: Virt) -> Option<Rule> {
        let after = self.index.partition_point(|(start, ..)| *start <= address);
        let (_, _, offset) = self.index[..after].last().filter(|(_, end, _)| address < *end)?;
        let frames = self.frames();
        let fde = frames.fde_from_offset(&self.bases, *offset, EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::new();
        let own = address.wrapping_sub(self.bias);
        let row = fde.unwind_info_for_address(&frames, &self.bases, &mut context, own).ok()?;
        Some(rule(row, |expression| {
            let operations = expression.get(&frames).ok()?;
            simple(operations, fde.cie().encoding())
        }))
    }
}

/// The address that an expression computes, if it is a register and an offset, or what memory holds there.
type Simple = (Register, i64, bool);

fn simple(expression: gimli::Expression<Slice<'_>>, encoding: gimli::Encoding) -> Option<Simple> {
    let mut operations = expression.operations(encoding);
    let Ok(Some(Operation::RegisterOffset { register, offset, .. })) = operations.next() else { return None };
    match (operations.next(), operations.next()) {
        (Ok(None), _) => Some((register, offset, false)),
        (Ok(Some(Operation::Deref { size: 8, .. })), Ok(None)) => Some((register, offset, true)),
        _ => None,
    }
}

fn rule(row: &UnwindTableRow<usize>, evaluate: impl Fn(&UnwindExpression<usize>) -> Option<Simple>) -> Rule {
    let known = || {
        let (register, offset, through) = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => (*register, *offset, false),
            CfaRule::Expression(expression) => evaluate(expression)?,
        };
        let base = match register {
            X86_64::RSP => Base::Rsp,
            X86_64::RBP => Base::Rbp,
            _ => return None,
        };
        match row.register(X86_64::RA) {
            Some(RegisterRule::Offset(-8)) => {}
            Some(RegisterRule::Undefined) => return Some(Rule::Outermost),
            _ => return None,
        }
        let small = |offset: i64| i32::try_from(offset).ok();
        let rbp = match row.register(X86_64::RBP) {
            None | Some(RegisterRule::SameValue) => Rbp::Same,
            Some(RegisterRule::Offset(offset)) => Rbp::InFrame(small(offset)?),
            Some(RegisterRule::Expression(expression)) => match evaluate(&expression) {
                Some((X86_64::RBP, offset, false)) => Rbp::Pointed(small(offset)?),
                _ => Rbp::Lost,
            },
            _ => Rbp::Lost,
        };
        Some(Rule::Frame { base, offset: small(offset)?, through, rbp })
    };
    known().unwrap_or(Rule::Unknown)
}
