//! From registers to a trail: arm, let the guest run, read back, decode. The same path for hardware behind KVM and
//! for the model behind the software CPU.
//!
//! A host that has no branch records may still take the writes: kvm_pvm, for one, drops IA32_DEBUGCTL.LBR and reports
//! success. So nothing is believed that does not read back.

use crate::dump::{Dump, DumpError};
use crate::filter::Filter;
use crate::format::intel_legacy::Format;
use crate::msr;
use crate::registers::Registers;
use crate::trail::{Family, Provenance, Trail};

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
    /// A format that is not one of the known ones with these registers.
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
    /// What was read cannot be.
    #[error("the branch record registers of the virtual CPU: {0}")]
    Decode(DumpError),
    /// The registers cannot be reached at all.
    #[error("cannot reach the registers of the virtual CPU: {0}")]
    Access(E),
}

/// Branch recording that has been switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    format: Format,
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
        let mut registers = Registers::default();
        let banks = [vec![msr::TOP], bank(msr::FROM), bank(msr::TO), bank(msr::INFO)];
        for indices in if self.format.has_info() { &banks[..] } else { &banks[..3] } {
            let values = read(msrs, indices)?;
            if values.len() != indices.len() {
                return Err(Unavailable::NoRegisters.into());
            }
            indices.iter().zip(values).for_each(|(index, value)| registers.set(*index, value));
        }
        let family = Family::IntelLegacy { format: self.format.number() };
        let dump = Dump { depth: Some(self.depth), filter: Some(self.filter), ..Dump::of(family) };
        let trail = dump.decode(&registers).map_err(CaptureError::Decode)?;
        match provenance {
            Provenance::Hardware if trail.records.is_empty() => Err(CaptureError::Lost),
            Provenance::Derived => Ok(Trail { provenance, ..without_guesses(trail) }),
            _ => Ok(Trail { provenance, ..trail }),
        }
    }
}

/// The trail without what the model does not model: it has no branch predictor and no clock.
fn without_guesses(mut trail: Trail) -> Trail {
    for record in &mut trail.records {
        (record.mispredicted, record.cycles) = (None, None);
    }
    trail
}

fn format<M: MsrAccess + ?Sized>(msrs: &mut M) -> Result<Format, CaptureError<M::Error>> {
    let capabilities = read(msrs, &[msr::PERF_CAPABILITIES])?.first().copied().unwrap_or(0);
    let number = u8::try_from(capabilities & msr::FORMAT_MASK).unwrap_or(0);
    match Format::new(number) {
        Some(Format::OFFSETS_32) => Err(Unavailable::NoFormat.into()),
        // Processors with these have their registers elsewhere, and KVM does not give them to guests.
        Some(Format::LINEAR | Format::OFFSETS) | None => Err(Unavailable::UnknownFormat(number).into()),
        Some(format) => Ok(format),
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

fn clear<M: MsrAccess + ?Sized>(
    msrs: &mut M,
    format: Format,
    depth: u32,
) -> Result<(), CaptureError<M::Error>> {
    let banks = [msr::FROM, msr::TO, msr::INFO];
    let banks = if format.has_info() { &banks[..] } else { &banks[..2] };
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
