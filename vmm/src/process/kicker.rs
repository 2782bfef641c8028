//! The thread by which a processor that does not count is interrupted after a time.

use crate::engine::Interrupter;
use crate::gate::Time;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// A kick that the processor has not taken is repeated after this, and then after twice as long, and so on up to [`RARELY`]: KVM may
/// have to go on when it comes.
pub(super) const SOON: Duration = Duration::from_micros(200);
pub(super) const RARELY: Duration = Duration::from_millis(10);

/// A thread that kicks a processor at a given time.
pub(super) struct Kicker {
    orders: Sender<Instant>,
    interrupter: Interrupter,
    /// When the next kick comes, by the host's monotonic clock, if one is on its way.
    pub(super) armed: Option<u64>,
}

impl Kicker {
    pub(super) fn new(interrupter: Interrupter) -> Kicker {
        let (orders, received) = mpsc::channel::<Instant>();
        let kicked = interrupter.clone();
        let wait = move || {
            let Ok(mut at) = received.recv() else { return };
            loop {
                match received.recv_timeout(at.saturating_duration_since(Instant::now())) {
                    Ok(earlier) => at = at.min(earlier),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        interrupter.kick();
                        match next_order(&received, &interrupter) {
                            Some(next) => at = next,
                            None => return,
                        }
                    }
                }
            }
        };
        // Without the thread nobody is preempted, as on a machine without timers.
        if let Err(error) = std::thread::Builder::new().name("kicker".to_owned()).spawn(wait) {
            tracing::warn!("tasks are not preempted: {error}");
        }
        Kicker { orders, interrupter: kicked, armed: None }
    }

    /// Whether the kick for this time has still to come. One that is over may have been taken by another run than those that it is for:
    /// a crash that runs again for its branch records, the way to a preemption.
    fn is_coming(&self, armed: u64) -> bool {
        self.interrupter.is_kicked() || Time::now().monotonic < armed
    }

    /// Kicks at this time, unless a kick comes sooner.
    pub(super) fn arm(&mut self, at: u64) {
        if self.armed.is_some_and(|armed| armed <= at && self.is_coming(armed)) {
            return;
        }
        self.armed = Some(at);
        let left = Duration::from_nanos(at.saturating_sub(Time::now().monotonic));
        // A thread that is not there is said when it is made.
        let _ = self.orders.send(Instant::now() + left);
    }
}

/// Waits for the next order, and kicks again meanwhile where the kick was not taken. `None` when there will be none.
fn next_order(received: &Receiver<Instant>, interrupter: &Interrupter) -> Option<Instant> {
    let mut pause = SOON;
    while interrupter.is_kicked() {
        match received.recv_timeout(pause) {
            Ok(next) => return Some(next),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if interrupter.is_kicked() => interrupter.kick(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        pause = (pause * 2).min(RARELY);
    }
    received.recv().ok()
}
