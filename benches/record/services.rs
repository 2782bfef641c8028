//! Servers, and what they are asked for.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A server is given so long to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that listens on a port of 127.0.0.1.
pub(crate) struct Service {
    pub(crate) port: u16,
    /// The client's command line.
    pub(crate) client: Vec<String>,
    pub(crate) work: Work,
}

/// How much work the client has done when it ends.
pub(crate) enum Work {
    /// So many requests.
    Requests(f64),
    /// As wrk says: `N requests in 2.00s`.
    Wrk,
}

/// What a client got: so many pieces of work, in so many seconds.
pub(crate) struct Asked {
    pub(crate) seconds: f64,
    pub(crate) units: f64,
}

impl Service {
    /// Waits until the server listens, and runs the client; `None` where either does not do well.
    pub(crate) fn ask(&self, dir: &Path) -> Option<Asked> {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if begun.elapsed() > PATIENCE {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let mut client = Command::new(&self.client[0]);
        client.args(&self.client[1..]).current_dir(dir).stdin(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let output = client.output().ok().filter(|output| output.status.success())?;
        let seconds = start.elapsed().as_secs_f64();
        let units = match self.work {
            Work::Requests(count) => count,
            Work::Wrk => requests(&String::from_utf8_lossy(&output.stdout))?,
        };
        Some(Asked { seconds, units })
    }
}

/// The number of requests that wrk tells of; `None` where some were not answered, or not well.
fn requests(text: &str) -> Option<f64> {
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return None;
    }
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    line.split_whitespace().next()?.parse().ok()
}
