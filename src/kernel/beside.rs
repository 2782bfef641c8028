//! What the core of a kernel that crashed has beside the memory of the machine's end: where it crashed, and the newest branch records and
//! exits there. The recording that was just made is run again for it, from its newest checkpoint, since nothing that a machine does live
//! records branches.

use super::crashed::failed;
use super::rings::Rings;
use super::subject::travel;
use crate::exit::Failure;
use crate::log::say;
use board::Machine;
use board::crash::{self, Crash};
use board::travel::Travel;
use board::vmcore::{Beside, Crashed};
use lbr::crumb::Crumbs;
use lbr::crumb::Origin;
use lbr::{Filter, Trail};
use std::time::Instant;
use vmm::recording::Recording;

/// Which branch records a core is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// How many; none if zero.
    pub(crate) records: u32,
    /// Which branches.
    pub(crate) filter: Filter,
    /// In which rings.
    pub(crate) rings: Rings,
}

/// What is known of the crash of a machine that has ended. What cannot be had is said, and left out.
pub(super) fn derive(recording: &Recording, machine: &Machine, wanted: Wanted) -> Beside {
    let begin = Instant::now();
    let beside = stand(recording, machine).map(|(mut travel, crash)| {
        let crashed = Some(Crashed::of(travel.machine(), crash, machine.ram()));
        let entries = travel.machine().crumbs();
        let crumbs = Some(Crumbs { origin: Origin::default(), entries, preemptions: false });
        Beside { crashed, trail: trail(&mut travel, wanted), crumbs }
    });
    match beside {
        Ok(beside) => {
            let records = beside.trail.as_ref().map_or(0, |trail| trail.records.len());
            let seconds = begin.elapsed().as_secs_f64();
            say!(
                "gretel: the core has where the kernel crashed, and {records} branch records, derived in {seconds:.1} s by a run of the \
                 recording on the software CPU"
            );
            beside
        }
        Err(why) => {
            say!("gretel: the core has neither where the kernel crashed nor branch records: {why}");
            Beside::default()
        }
    }
}

/// The recording where the kernel crashed. The live machine has seen that exception, so that the panic behind it is not run again.
fn stand(recording: &Recording, machine: &Machine) -> Result<(Travel, Crash), Failure> {
    let known = crash::exception(machine);
    let (mut travel, _) = travel(recording, known.map(|exception| exception.at.retired))?;
    let crash = match known {
        Some(exception) => {
            travel.seek(exception.at).map_err(failed)?;
            Crash::Raised(exception.raised)
        }
        None => crash::seek(&mut travel).map_err(failed)?,
    };
    Ok((travel, crash))
}

fn trail(travel: &mut Travel, wanted: Wanted) -> Option<Trail> {
    if wanted.records == 0 {
        return None;
    }
    let trail = travel.branch_records(wanted.records, wanted.rings.of(wanted.filter));
    trail.inspect_err(|why| say!("gretel: the core has no branch records: {why}")).ok()
}
