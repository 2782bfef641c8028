//! How a recording ended, in a word and in a sentence.

use vmm::journal::End;
use vmm::process::Process;
use vmm::signal::{Death, SI_KERNEL};

/// The word for scripts, and the status or signal. A journal without an end is incomplete.
pub(crate) fn word(end: Option<&End>) -> (&'static str, Option<i32>) {
    match end {
        Some(End::Exited(status)) => ("exited", Some(*status)),
        Some(End::Killed(death)) => ("killed", Some(death.signal)),
        Some(End::Interrupted) => ("interrupted", None),
        Some(End::Stopped) => ("stopped", None),
        Some(End::Full) => ("full", None),
        Some(End::Kept) => ("kept", None),
        None => ("incomplete", None),
    }
}

/// In words for people, with the address of a fault.
pub(crate) fn sentence(end: &End) -> String {
    match end {
        End::Exited(status) => format!("exited with status {status}"),
        End::Killed(death) => {
            let name = vmm::elfcore::signal_name(death.signal).unwrap_or("a signal");
            match death.code {
                // Of a sender, or of the kernel: there is no address.
                SI_KERNEL | i32::MIN..=0 => format!("ended by {name}"),
                _ => format!("ended by {name} (address {:#x})", death.address),
            }
        }
        End::Interrupted => "interrupted".to_owned(),
        End::Stopped => "stopped".to_owned(),
        End::Full => "full: the program went on".to_owned(),
        End::Kept => "kept: the program went on".to_owned(),
    }
}

/// The signal that has ended the loaded process, if the program stands there; `ended` says whether that is the recording's end.
pub(crate) fn death(process: &Process, ended: bool) -> Option<Death> {
    // At the recording's end it is the first process's, whichever ran last.
    let is_another = ended && process.first_died_before() && !process.is_first();
    process.death().filter(|_| !is_another)
}
