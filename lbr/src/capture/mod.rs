//! From registers to a trail: arm, let the guest run, read back, decode. The same path for hardware behind KVM and for
//! the model behind the software CPU. [`kvm`] has what must go before on KVM, [`host`] why a host has nothing.
//!
//! A host that has no branch records may still take the writes: kvm_pvm, for one, drops IA32_DEBUGCTL.LBR and reports
//! success. One that gave the hardware to someone else reports success too, and zeros. So nothing is believed that
//! does not read back, before the guest runs and after.

pub mod host;
pub mod kvm;

use crate::dump::{Dump, DumpError};
use crate::filter::Filter;
use crate::format::intel_legacy::Format;
use crate::msr;
use crate::registers::Registers;
use crate::trail::{Family, Provenance, Trail};
use host::NotOffered;

/// Access to a virtual CPU's model-specific registers. For KVM: on the thread that runs the virtual CPU, since the kernel
/// ties the recording hardware to the thread that first touches these registers.
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
    /// KVM offers none to guests.
    #[error("KVM offers guests no branch records: {0}")]
    NotOffered(NotOffered),
    /// No record format is announced.
    #[error("IA32_PERF_CAPABILITIES announces no branch record format")]
    NoFormat,
    /// A format that is not one of the known ones with these registers.
    #[error("branch record format {0} is not known")]
    UnknownFormat(u8),
    /// KVM does not take the CPUID that its check of branch records asks for.
    #[error("KVM_SET_CPUID2 refuses the host's processor model with a PMU")]
    CpuidRefused,
    /// KVM does not take the format that it offers.
    #[error(
        "IA32_PERF_CAPABILITIES refuses the format that KVM offers (processor model or CPUID differ from the host's)"
    )]
    FormatRefused,
    /// The registers of the stack itself are refused.
    #[error("the branch record registers are refused, from MSR 0x1c9 on")]
    NoRegisters,
    /// The filter is refused.
    #[error("MSR_LBR_SELECT refuses this filter")]
    FilterRefused,
    /// Writes are taken and forgotten: the hardware is someone else's.
    #[error(
        "what is written to the branch record registers is forgotten: the host uses the hardware itself (perf, BTS, Intel PT)"
    )]
    Inactive,
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
    /// A register that must be there is refused.
    #[error("{} is refused, after {done} of {count} registers", named(*register))]
    Short {
        /// Which.
        register: u32,
        /// How many were done before it.
        done: usize,
        /// How many there were to do.
        count: usize,
    },
    /// Recording was on, but every register reads as zero: the host took the hardware for something else.
    #[error("branch recording was on, but all records read as zero: the host has reclaimed the hardware")]
    Lost,
    /// Recording was switched off meanwhile.
    #[error("branch recording was switched off while the program ran: IA32_DEBUGCTL is {0:#x}")]
    Stopped(u64),
    /// The filter is another one: someone else used the hardware, and what it holds is not the program's alone.
    #[error("MSR_LBR_SELECT is {found:#x} and was {filter:#x}: the host has reset the hardware meanwhile")]
    FilterChanged {
        /// What it is.
        found: u64,
        /// What it was set to.
        filter: u64,
    },
    /// Two readings of the same records differ, though nothing ran between them.
    #[error("the branch records change while nothing runs: the host uses the hardware itself")]
    Unstable,
    /// What was read cannot be.
    #[error("the branch record registers of the virtual CPU: {0}")]
    Decode(DumpError),
    /// The registers cannot be reached at all.
    #[error("cannot reach the registers of the virtual CPU: {0}")]
    Access(E),
}

fn named(register: u32) -> String {
    let name = msr::name(register).map(|name| format!(" ({name})")).unwrap_or_default();
    format!("MSR {register:#x}{name}")
}

/// Branch recording that has been switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    format: Format,
    depth: u32,
    filter: Filter,
    transactions: Option<bool>,
}

/// A filter that is not the value after reset, and that every processor with a filter takes.
const PROBE_FILTER: u64 = 1;

impl Armed {
    /// Switches recording on, with empty records.
    ///
    /// # Errors
    /// When the registers are not there, do not take what is written, or do not keep it.
    pub fn arm<M: MsrAccess + ?Sized>(msrs: &mut M, filter: Filter) -> Result<Armed, CaptureError<M::Error>> {
        let format = format(msrs)?;
        if read(msrs, &[msr::TOP])?.is_empty() {
            return Err(Unavailable::NoRegisters.into());
        }
        let armed = Armed { format, depth: depth(format), filter, transactions: None };
        for value in [PROBE_FILTER, filter.bits()] {
            match write(msrs, &[(msr::SELECT, value)])? {
                1 if read(msrs, &[msr::SELECT])? == [value] => {}
                1 => return Err(Unavailable::Inactive.into()),
                _ => return Err(Unavailable::FilterRefused.into()),
            }
        }
        armed.clear(msrs)?;
        write(msrs, &[(msr::DEBUGCTL, msr::DEBUGCTL_LBR)])?;
        match read(msrs, &[msr::DEBUGCTL])?.as_slice() {
            [value] if value & msr::DEBUGCTL_LBR != 0 => Ok(armed),
            _ => Err(Unavailable::Dropped.into()),
        }
    }

    /// How many records there are.
    #[must_use]
    pub fn depth(self) -> u32 {
        self.depth
    }

    /// Empties the records.
    ///
    /// # Errors
    /// When a register is refused, or is not empty then.
    pub fn clear<M: MsrAccess + ?Sized>(self, msrs: &mut M) -> Result<(), CaptureError<M::Error>> {
        let records = self.records();
        let zeros: Vec<(u32, u64)> = records.iter().map(|index| (*index, 0)).collect();
        let done = write(msrs, &zeros)?;
        short(&records, done)?;
        match read_all(msrs, &records)?.iter().all(|value| *value == 0) {
            true => Ok(()),
            false => Err(Unavailable::Inactive.into()),
        }
    }

    /// Reads the records as they are now. Recording stays on: switching it off first would let KVM free them.
    ///
    /// Besides the records it reads what was armed: where the host has taken the hardware away, or given it back empty, the
    /// filter no longer reads as it was written. Filter zero cannot tell; then records that are all zero are taken for lost.
    ///
    /// # Errors
    /// When the records are not those of the guest since recording was switched on.
    pub fn capture<M: MsrAccess + ?Sized>(
        self,
        msrs: &mut M,
        provenance: Provenance,
    ) -> Result<Trail, CaptureError<M::Error>> {
        let indices = [vec![msr::DEBUGCTL, msr::SELECT, msr::TOP], self.records()].concat();
        let values = read_all(msrs, &indices)?;
        if read_all(msrs, &indices)? != values {
            return Err(CaptureError::Unstable);
        }
        let [debugctl, select, _, records @ ..] = values.as_slice() else {
            unreachable!("three and the records")
        };
        let filter = self.filter.bits();
        let empty = records.iter().all(|value| *value == 0);
        match (*debugctl & msr::DEBUGCTL_LBR != 0, *select == filter) {
            (false, _) => return Err(CaptureError::Stopped(*debugctl)),
            (true, false) if empty => return Err(CaptureError::Lost),
            (true, false) => return Err(CaptureError::FilterChanged { found: *select, filter }),
            (true, true) if empty && filter == 0 && provenance == Provenance::Hardware => {
                return Err(CaptureError::Lost);
            }
            (true, true) => {}
        }
        let registers: Registers = indices.into_iter().zip(values).skip(2).collect();
        let family = Family::IntelLegacy { format: self.format.number() };
        let dump = Dump {
            depth: Some(self.depth),
            filter: Some(self.filter),
            tsx: self.transactions,
            ..Dump::of(family)
        };
        let trail = dump.decode(&registers).map_err(CaptureError::Decode)?;
        Ok(match provenance {
            Provenance::Derived => Trail { provenance, ..without_guesses(trail) },
            _ => Trail { provenance, ..trail },
        })
    }

    /// Switches recording off.
    ///
    /// # Errors
    /// When the register is refused.
    pub fn disarm<M: MsrAccess + ?Sized>(self, msrs: &mut M) -> Result<(), CaptureError<M::Error>> {
        let done = write(msrs, &[(msr::DEBUGCTL, 0)])?;
        short(&[msr::DEBUGCTL], done)
    }

    /// The registers of all records.
    fn records(self) -> Vec<u32> {
        let banks = [msr::FROM, msr::TO, msr::INFO];
        let banks = if self.format.has_info() { &banks[..] } else { &banks[..2] };
        banks.iter().flat_map(|base| *base..*base + self.depth).collect()
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
    Ok(announced(capabilities)?)
}

/// The format that IA32_PERF_CAPABILITIES announces, if a guest can have it.
fn announced(capabilities: u64) -> Result<Format, Unavailable> {
    let number = u8::try_from(capabilities & msr::FORMAT_MASK).unwrap_or(0);
    match Format::new(number) {
        Some(Format::OFFSETS_32) => Err(Unavailable::NoFormat),
        // Processors with these have their registers elsewhere, and KVM does not give them to guests.
        Some(Format::LINEAR | Format::OFFSETS) | None => Err(Unavailable::UnknownFormat(number)),
        Some(format) => Ok(format),
    }
}

/// The number of records of processors with this format (Linux, arch/x86/events/intel/lbr.c, `intel_pmu_lbr_init_*`). It is
/// not found out by what answers: a register that is refused once would halve it.
fn depth(format: Format) -> u32 {
    if matches!(format, Format::FLAGS | Format::FLAGS_TSX) { 16 } else { 32 }
}

/// Reads registers that must all be there.
fn read_all<M: MsrAccess + ?Sized>(
    msrs: &mut M,
    indices: &[u32],
) -> Result<Vec<u64>, CaptureError<M::Error>> {
    let values = read(msrs, indices)?;
    short(indices, values.len())?;
    Ok(values)
}

/// Whether all registers were done; if not, which was refused.
fn short<E>(indices: &[u32], done: usize) -> Result<(), CaptureError<E>> {
    let refused = indices.get(done).map(|register| CaptureError::Short {
        register: *register,
        done,
        count: indices.len(),
    });
    refused.map_or(Ok(()), Err)
}

fn read<M: MsrAccess + ?Sized>(msrs: &mut M, indices: &[u32]) -> Result<Vec<u64>, CaptureError<M::Error>> {
    let mut values = msrs.read(indices).map_err(CaptureError::Access)?;
    values.truncate(indices.len());
    Ok(values)
}

fn write<M: MsrAccess + ?Sized>(
    msrs: &mut M,
    entries: &[(u32, u64)],
) -> Result<usize, CaptureError<M::Error>> {
    msrs.write(entries).map_err(CaptureError::Access)
}
