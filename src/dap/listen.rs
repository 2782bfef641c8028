//! `--listen`: editors that connect. Each connection is served by a gretel of its own, since each is of one recording, and is confined to
//! it: an editor that starts sessions of children connects once for each.
//!
//! It ends when the first editor has come and no connection is open any more.

use super::Args;
use crate::log::say;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// What the listener waits for.
enum Happened {
    /// An editor has connected, or it is known why none can any more.
    Came(io::Result<TcpStream>),
    /// A connection was served; whether without an error.
    Served(bool),
}

/// Serves all that connect at an address, until the last of them has gone. False if one of them was served with an error.
pub(super) fn serve(address: &str, args: &Args) -> io::Result<bool> {
    let listener = TcpListener::bind(address)?;
    say!("gretel: waiting for an editor at {}", listener.local_addr()?);
    let (send, happened) = channel();
    let came = send.clone();
    thread::spawn(move || while accept(&listener, &came) {});
    let (mut open, mut is_well) = (0_usize, true);
    for happened in happened {
        match happened {
            Happened::Came(socket) => match socket.and_then(|socket| start(socket, args)) {
                Ok(session) => {
                    await_end(session, send.clone());
                    open += 1;
                }
                Err(error) if open == 0 => return Err(error),
                // Those that are there go on.
                Err(error) => say!("gretel: an editor is not served: {error}"),
            },
            Happened::Served(well) => {
                is_well &= well;
                open -= 1;
                if open == 0 {
                    break;
                }
            }
        }
    }
    Ok(is_well)
}

/// Waits for an editor, and tells of it; false when nobody waits for one.
fn accept(listener: &TcpListener, came: &Sender<Happened>) -> bool {
    let socket = listener.accept().map(|(socket, from)| {
        say!("gretel: an editor has come from {from}");
        socket
    });
    let goes_on = socket.is_ok();
    came.send(Happened::Came(socket)).is_ok() && goes_on
}

/// Starts the gretel that serves a connection, as its standard input and output.
fn start(socket: TcpStream, args: &Args) -> io::Result<Child> {
    socket.set_nodelay(true)?;
    let other = OwnedFd::from(socket.try_clone()?);
    let mut session = Command::new(std::env::current_exe()?);
    session.args(["dap", "--engine", args.engine.name()]);
    if let Some(dir) = &args.dir {
        session.arg("--").arg(dir);
    }
    session.stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::from(other)).spawn()
}

fn await_end(mut session: Child, send: Sender<Happened>) {
    thread::spawn(move || {
        let is_well = session.wait().is_ok_and(|status| status.success());
        // Where nobody waits for it, all has ended.
        let _ = send.send(Happened::Served(is_well));
    });
}
