//! How the program of a core died, and whether an exception is that.

use vmm::elfcore::{Core, SignalInfo};
use vmm::engine::Exception;
use vmm::signal::SI_KERNEL;

/// How the program died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By an exception with one of these vectors, for #PF at this address.
    Exception { vectors: &'static [u8], address: Option<u64> },
    /// By an exception of a kernel: this one, with this error code and address.
    Raised { vector: u8, code: u32, address: u64 },
    /// By a signal that was sent: the state after the last instruction of the path is the core.
    Sent,
}

impl Ending {
    /// How the core's program, or kernel, died.
    pub(super) fn of(core: &Core) -> Ending {
        match core.machine.as_ref().map(|machine| machine.raised) {
            None => Ending::of_signal(&core.signal),
            Some(None) => Ending::Sent,
            Some(Some(raised)) => Ending::Raised {
                vector: raised.vector,
                code: raised.code,
                address: raised.address.unwrap_or(0),
            },
        }
    }

    /// From the signal: `si_code` above zero says that the kernel made it for an exception.
    fn of_signal(signal: &SignalInfo) -> Ending {
        if signal.code <= 0 {
            return Ending::Sent;
        }
        let (vectors, address): (&[u8], _) = match signal.signo {
            // Without an address: a #GP and its like, or any exception whose handler could not be entered, since the
            // stack does not take the frame.
            libc_signal::SEGV if signal.code == SI_KERNEL => (&FAULTS, None),
            libc_signal::SEGV => (&[14], Some(signal.address)),
            libc_signal::BUS => (&[12, 14, 17], None),
            libc_signal::FPE => (&[0, 16, 19], None),
            libc_signal::ILL => (&[6], None),
            libc_signal::TRAP => (&[1, 3], None),
            _ => return Ending::Sent,
        };
        Ending::Exception { vectors, address }
    }

    /// Whether `exception` is this end.
    pub(super) fn matches(&self, exception: &Exception) -> bool {
        match self {
            Ending::Exception { vectors, address } => {
                vectors.contains(&exception.vector)
                    && address.is_none_or(|address| address == exception.address)
            }
            Ending::Raised { vector, code, address } => {
                (*vector, *code, *address) == (exception.vector, exception.error_code, exception.address)
            }
            Ending::Sent => false,
        }
    }
}

/// The vectors of the exceptions that become signals: #DE, #DB, #BP, #OF, #UD, #NP, #SS, #GP, #PF, #MF, #AC, #XM.
const FAULTS: [u8; 12] = [0, 1, 3, 4, 6, 11, 12, 13, 14, 16, 17, 19];

/// Numbers of the signals that exceptions make (x86-64 Linux).
mod libc_signal {
    pub(super) const ILL: i32 = 4;
    pub(super) const TRAP: i32 = 5;
    pub(super) const BUS: i32 = 7;
    pub(super) const FPE: i32 = 8;
    pub(super) const SEGV: i32 = 11;
}
