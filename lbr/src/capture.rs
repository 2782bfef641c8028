//! From registers to a trail: arm, let the guest run, read back, decode. The same path for hardware behind KVM and for
//! the model behind the software CPU.
//!
//! A host that has no branch records may still take the writes: kvm_pvm, for one, drops IA32_DEBUGCTL.LBR and reports
//! success. So nothing is believed that does not read back.

use crate::filter::Filter;
use crate::msr;
use crate::trail::{BranchRecord, Family, Provenance, Trail};

/// Access to a virtual CPU's model-specific registers.
pub trait MsrAccess {
    /// What goes wrong besides a refusal.
    type Error: std::error::Error + Send + Sync + 'static;
    /// Reads registers up to the first that is refused; gives the values before it.
    fn read(&mut self, indices: &[u32]) -> Result<Vec<u64>, Self::Error>;
    /// Writes registers up to the first that is refused; gives the number written.
    fn write(&mut self, entries: &[(u32, u64)]) -> Result<usize, Self::Error>;
}

/// Why there are no branch records here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// No record format is announced.
    #[error("IA32_PERF_CAPABILITIES announces no branch record format (no PMU in this virtual machine)")]
    NoFormat,
    /// A format that is not one of the known ones.
    #[error("branch record format {0} is not known")]
    UnknownFormat(u8),
    /// The registers of the stack itself are refused.
    #[error("the branch record registers (MSR 0x1c9, 0x680...) are refused")]
    NoRegisters,
    /// The filter is refused.
    #[error("MSR_LBR_SELECT refuses this filter")]
    FilterRefused,
    /// Recording cannot be switched on.
    #[error("IA32_DEBUGCTL.LBR does not stay set: the host drops it silently")]
    Dropped,
}

/// What went wrong with a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError<E> {
    /// There are no branch records here.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Recording was on, but every record reads as zero: the host took the hardware for something else.
    #[error("branch recording was on, but all records read as zero: the host has reclaimed the hardware")]
    Lost,
    /// The registers cannot be reached at all.
    #[error("cannot reach the registers of the virtual CPU: {0}")]
    Access(E),
}

/// Branch recording that has been switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    format: u8,
    depth: u32,
    filter: Filter,
}

impl Armed {
    /// Switches recording on, with empty records.
    pub fn arm<M: MsrAccess + ?Sized>(msrs: &mut M, filter: Filter) -> Result<Armed, CaptureError<M::Error>> {
        let format = format(msrs)?;
        let depth = depth(msrs)?;
        clear(msrs, format, depth)?;
        if write(msrs, &[(msr::SELECT, filter.bits())])? != 1
            || read(msrs, &[msr::SELECT])? != [filter.bits()]
        {
            return Err(Unavailable::FilterRefused.into());
        }
        write(msrs, &[(msr::DEBUGCTL, msr::DEBUGCTL_LBR)])?;
        match read(msrs, &[msr::DEBUGCTL])?.as_slice() {
            [value] if value & msr::DEBUGCTL_LBR != 0 => Ok(Armed { format, depth, filter }),
            _ => Err(Unavailable::Dropped.into()),
        }
    }

    /// How many records there are.
    #[must_use]
    pub fn depth(self) -> u32 {
        self.depth
    }

    /// Reads the records as they are now. Recording stays on: switching it off first would let KVM free them.
    pub fn capture<M: MsrAccess + ?Sized>(
        self,
        msrs: &mut M,
        provenance: Provenance,
    ) -> Result<Trail, CaptureError<M::Error>> {
        let bank = |base: u32| (base..base + self.depth).collect::<Vec<u32>>();
        let all = |values: Vec<u64>| match values.len() == self.depth as usize {
            true => Ok(values),
            false => Err(CaptureError::Unavailable(Unavailable::NoRegisters)),
        };
        let from = all(read(msrs, &bank(msr::FROM))?)?;
        let to = all(read(msrs, &bank(msr::TO))?)?;
        let info = match has_info(self.format) {
            true => all(read(msrs, &bank(msr::INFO))?)?,
            false => vec![0; from.len()],
        };
        let top = read(msrs, &[msr::TOP])?.first().copied().ok_or(Unavailable::NoRegisters)?;
        let nothing = from.iter().chain(&to).all(|value| *value == 0);
        if nothing && provenance == Provenance::Hardware {
            return Err(CaptureError::Lost);
        }
        Ok(Trail {
            records: decode(self.format, top, &from, &to, &info),
            depth: self.depth,
            filter: self.filter,
            provenance,
            family: Family::IntelLegacy { format: self.format },
        })
    }
}

/// The records of a ring, newest last. Entries that were never written read as zero and are left out.
fn decode(format: u8, top: u64, from: &[u64], to: &[u64], info: &[u64]) -> Vec<BranchRecord> {
    let depth = from.len();
    let top = usize::try_from(top).unwrap_or(0) % depth.max(1);
    (1..=depth)
        .map(|age| (top + age) % depth)
        .filter(|n| from[*n] != 0 || to[*n] != 0)
        .map(|n| decode_one(format, from[n], to[n], info[n]))
        .collect()
}

/// One record (Intel SDM vol. 3, "LBR stack" and the table of formats).
fn decode_one(format: u8, from: u64, to: u64, info: u64) -> BranchRecord {
    let extended = |value: u64, bits: u32| ((value << bits).cast_signed() >> bits).cast_unsigned();
    let bit = |value: u64, n: u32| Some(value >> n & 1 != 0);
    let low16 = |value: u64| u16::try_from(value & 0xffff).ok();
    let mut record = BranchRecord::new(from, to);
    match format {
        3 => {
            record.mispredicted = bit(from, 63);
            record.from = extended(from, 1);
        }
        4 => {
            record.mispredicted = bit(from, 63);
            record.in_transaction = bit(from, 62);
            record.aborted = bit(from, 61);
            record.from = extended(from, 3);
        }
        6 => {
            record.mispredicted = bit(from, 63);
            record.from = extended(from, 1);
            record.cycles = low16(to >> 48);
            record.to = extended(to, 16);
        }
        msr::FORMAT_INFO | msr::FORMAT_INFO_PLAIN => {
            record.mispredicted = Some(info & msr::INFO_MISPREDICTED != 0);
            record.cycles = low16(info & msr::INFO_CYCLES);
            if format == msr::FORMAT_INFO {
                record.in_transaction = Some(info & msr::INFO_IN_TRANSACTION != 0);
                record.aborted = Some(info & msr::INFO_ABORT != 0);
            }
        }
        _ => {}
    }
    record
}

fn has_info(format: u8) -> bool {
    matches!(format, msr::FORMAT_INFO | msr::FORMAT_INFO_PLAIN)
}

fn format<M: MsrAccess + ?Sized>(msrs: &mut M) -> Result<u8, CaptureError<M::Error>> {
    let capabilities = read(msrs, &[msr::PERF_CAPABILITIES])?.first().copied().unwrap_or(0);
    match u8::try_from(capabilities & msr::FORMAT_MASK).unwrap_or(0) {
        0 => Err(Unavailable::NoFormat.into()),
        format @ 3..=7 => Ok(format),
        other => Err(Unavailable::UnknownFormat(other).into()),
    }
}

/// The number of records is that of the registers which answer.
fn depth<M: MsrAccess + ?Sized>(msrs: &mut M) -> Result<u32, CaptureError<M::Error>> {
    for depth in [32, 16, 8] {
        if read(msrs, &[msr::TOP, msr::FROM + depth - 1, msr::TO + depth - 1])?.len() == 3 {
            return Ok(depth);
        }
    }
    Err(Unavailable::NoRegisters.into())
}

fn clear<M: MsrAccess + ?Sized>(msrs: &mut M, format: u8, depth: u32) -> Result<(), CaptureError<M::Error>> {
    let banks = [msr::FROM, msr::TO, msr::INFO];
    let banks = if has_info(format) { &banks[..] } else { &banks[..2] };
    for base in banks {
        let zeros: Vec<(u32, u64)> = (0..depth).map(|n| (base + n, 0)).collect();
        if write(msrs, &zeros)? != zeros.len() {
            return Err(Unavailable::NoRegisters.into());
        }
    }
    Ok(())
}

fn read<M: MsrAccess + ?Sized>(msrs: &mut M, indices: &[u32]) -> Result<Vec<u64>, CaptureError<M::Error>> {
    msrs.read(indices).map_err(CaptureError::Access)
}

fn write<M: MsrAccess + ?Sized>(
    msrs: &mut M,
    entries: &[(u32, u64)],
) -> Result<usize, CaptureError<M::Error>> {
    msrs.write(entries).map_err(CaptureError::Access)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_gives_addresses_and_flags_from_where_it_has_them() {
        let canonical = 0xffff_8000_0000_1000;
        let plain = decode_one(5, canonical, 0x40_1000, msr::INFO_MISPREDICTED | 77);
        assert_eq!((plain.from, plain.to), (canonical, 0x40_1000));
        assert_eq!(
            (plain.mispredicted, plain.in_transaction, plain.cycles),
            (Some(true), Some(false), Some(77))
        );
        let eip_flags = decode_one(3, 0x7fff_8000_0000_1000, 1, 0);
        assert_eq!((eip_flags.from, eip_flags.mispredicted), (canonical, Some(false)));
        assert_eq!((eip_flags.aborted, eip_flags.cycles), (None, None));
        let flags2 = decode_one(4, 0xc000_0000_0000_1000, 1, 0);
        assert_eq!(
            (flags2.from, flags2.mispredicted, flags2.in_transaction),
            (0x1000, Some(true), Some(true))
        );
        let time = decode_one(6, 0x1000, 0x0123_8000_0000_2000, 0);
        assert_eq!((time.to, time.cycles), (0xffff_8000_0000_2000, Some(0x123)));
        assert_eq!(decode_one(7, 1, 2, 5).in_transaction, None);
    }
}
