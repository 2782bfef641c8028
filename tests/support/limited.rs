//! Commands that may take only so long. Each runs in a process group of its own; when its time is over, all of the
//! group is killed.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two looks at a command, at first and at most.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Runs the command to its end. Its output goes to files, so that a process that it leaves behind holds up nobody.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<Output, String> {
    let program = command.get_program().to_owned();
    run(command, limit).map_err(|why| format!("{}: {why}", program.display()))
}

fn run(command: &mut Command, limit: Duration) -> Result<Output, String> {
    let (mut stdout, mut stderr) = (temporary()?, temporary()?);
    command.stdout(handle(&stdout)?).stderr(handle(&stderr)?).process_group(0);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let status = match wait(&mut child, limit)? {
        Some(status) => status,
        None => {
            let doing = doing(child.id());
            kill_group(child.id());
            child.wait().map_err(|error| error.to_string())?;
            let wrote = [content(&mut stdout)?, content(&mut stderr)?];
            let [out, err] = wrote.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            return Err(format!("not done after {} s\n{doing}{out}{err}", limit.as_secs()));
        }
    };
    Ok(Output { status, stdout: content(&mut stdout)?, stderr: content(&mut stderr)? })
}

fn temporary() -> Result<File, String> {
    tempfile::tempfile().map_err(|error| format!("a temporary file: {error}"))
}

fn handle(file: &File) -> Result<Stdio, String> {
    file.try_clone().map(Stdio::from).map_err(|error| format!("a temporary file: {error}"))
}

fn content(file: &mut File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(|error| format!("a temporary file: {error}"))?;
    Ok(bytes)
}

/// The status, or nothing when the time is over.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let (start, mut pause) = (Instant::now(), LOOKS.0);
    loop {
        let status = child.try_wait().map_err(|error| error.to_string())?;
        if status.is_some() || start.elapsed() > limit {
            return Ok(status);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LOOKS.1);
    }
}

/// What each thread of a process is at, a line for each: its state, the time that it has used in ticks, and where it
/// waits in the kernel.
fn doing(process: u32) -> String {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads
        .map(|thread| {
            let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let stat = read("stat");
            let fields: Vec<_> =
                stat.rsplit_once(')').map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
            let field = |n: usize| fields.get(n).copied().unwrap_or("?");
            format!(
                "thread {}: state {}, user {}, system {}, in {}\n",
                thread.file_name().display(),
                field(1),
                field(12),
                field(13),
                read("wchan")
            )
        })
        .collect()
}

/// Kills the group that this process leads.
fn kill_group(leader: u32) {
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill -s KILL -- \"-$0\"", &leader.to_string()]);
    // A group that is gone needs no signal.
    let _ = kill.stderr(Stdio::null()).status();
}
