//! Who sent the signal that ended a process, where that was not the process itself.
//!
//! Example: `kill -ABRT` in another terminal. The journal has the signal with `si_pid` 0, as Linux tells of a sender in another PID
//! namespace: no value of the program made it, also where it came right behind a system call of the program's own.

use std::cell::RefCell;
use std::rc::Rc;
use vmm::position::Position;
use vmm::process::happening::{Happening, What};
use vmm::replay::ReplayError;
use vmm::signal::Cause;
use vmm::travel::Travel;

/// The signal is delivered in one of so many events before the end of its process: the end of another task, a switch and a death are one
/// step.
const EVENTS: u64 = 8;

/// In words, who sent the signal that ended the loaded process; `None` for itself, or the kernel for what the process did. The program
/// stands where it stood.
pub(super) fn elsewhere(travel: &mut Travel) -> Result<Option<String>, ReplayError> {
    let Some(death) = travel.process().death().filter(|it| it.exception.is_none()) else { return Ok(None) };
    let pid = travel.process().pid();
    let cause = delivered(travel, pid, death.signal)?;
    Ok(match cause {
        Some(Cause::Sender { pid: 0, .. } | Cause::Queued { pid: 0, .. }) => {
            Some("which was sent from outside of it: no value of the program made it".to_owned())
        }
        Some(Cause::Sender { pid: by, .. } | Cause::Queued { pid: by, .. }) if by != pid => {
            Some(format!("which process {by} sent: no value of this process made it"))
        }
        Some(Cause::Kernel) if death.signal == libc::SIGQUIT => {
            Some("which came from its terminal: no value of the program made it".to_owned())
        }
        _ => None,
    })
}

/// Why the signal came that ended a process. What came right before the end is run again for it.
fn delivered(travel: &mut Travel, pid: i32, signal: i32) -> Result<Option<Cause>, ReplayError> {
    let (here, ended) = (travel.position(), travel.ended());
    let from = Position { event: here.event.saturating_sub(EVENTS), retired: 0 };
    travel.seek(from.max(travel.begin()))?;
    let happened: Rc<RefCell<Vec<Happening>>> = Rc::default();
    let told = Rc::clone(&happened);
    travel.process_mut().trace(Box::new(move |it: &Happening| told.borrow_mut().push(it.clone())));
    while travel.position() <= here && travel.next_event()? {}
    travel.process_mut().trace_no_more();
    if ended {
        travel.seek_end()?
    } else {
        travel.seek(here).map(drop)?
    }
    let causes =
        happened.take().into_iter().rev().filter(|it| it.pid == pid).filter_map(|it| match it.what {
            What::Signal { raised, handler: None } if raised.signal() == signal => Some(raised.cause),
            _ => None,
        });
    Ok(causes.into_iter().next())
}
