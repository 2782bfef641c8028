//! The first record of a journal: what was recorded, and with what. Its encodings are those of [`super::schema`].

#[cfg(doc)]
use super::schema::BEHAVIOUR;
use crate::cpu_model::Model;
use crate::plain::numbers::{Cursor, put_bytes, put_digest, put_u64};
use crate::program::{
    Capabilities, Ids, Inherited, Interpreter, Launch, Limits, OuterTerminal, Parents, Signals,
};
use x86::state::MxcsrMask;

/// What was recorded, and with what. Fields: gretel `b` (UTF-8; the first in every version of the format, so that the error for
/// another version can name it), behaviour `u`, model `b` (UTF-8), engine `b` (UTF-8), then of the launch: path `b` (UTF-8), name
/// `b`, argv `[b]`, envp `[b]`, random (16 bytes), cwd `b`, uid `u`, euid `u`, gid `u`, egid `u`, pid `u`, parent `u`, process group
/// `u`, session `u`, terminal (a list of none or one: its number in /dev/pts (a list of none or one) `u`, bits 0 to 2 for the
/// standard streams that are it `u`), descriptors that are inherited (a list: number `u`, copy of another (a list of none or one)
/// `u`, family and kind of a socket (a list of none or one) twice `u`, device and number of a regular file (a list of none or one)
/// twice `u`, whether it is the terminal `u`), supplementary groups `[u]`, capabilities (effective, permitted, inheritable, bounding,
/// ambient, securebits: 6 times `u`), umask `u`, signals ignored `u` and blocked `u`, limits of resources (soft and hard, by number: 16 times
/// twice `u`), seed (a list of none or one) `u`, memory `u`, MXCSR_MASK `u`,
/// digest `d` of the executable, then of the dynamic linker (a list of none or one) path `b` (UTF-8) and digest `d`. The files
/// themselves are `program` and `interpreter` beside the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of gretel that recorded.
    pub gretel: String,
    /// The recorder's [`BEHAVIOUR`].
    pub behaviour: u32,
    /// The name of the CPU model that the guest saw; `launch` has the model itself, if there is one of that name.
    pub model: String,
    /// The engine that recorded: information only, replay may use another.
    pub engine: String,
    /// What was run, without the files' bytes.
    pub launch: Launch,
    /// XXH3-64 of the executable.
    pub executable_digest: u64,
    /// XXH3-64 of the dynamic linker, if there is one.
    pub interpreter_digest: Option<u64>,
}

impl Header {
    /// Its encoding.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let launch = &self.launch;
        put_bytes(&mut out, self.gretel.as_bytes());
        put_u64(&mut out, self.behaviour.into());
        for text in [&self.model, &self.engine, &launch.path] {
            put_bytes(&mut out, text.as_bytes());
        }
        put_bytes(&mut out, &launch.name);
        for list in [&launch.argv, &launch.envp] {
            put_u64(&mut out, list.len() as u64);
            list.iter().for_each(|item| put_bytes(&mut out, item));
        }
        out.extend(launch.random);
        put_bytes(&mut out, &launch.cwd);
        for id in [launch.ids.uid, launch.ids.euid, launch.ids.gid, launch.ids.egid] {
            put_u64(&mut out, id.into());
        }
        let Parents { parent, group, session } = launch.parents;
        for id in [launch.pid, parent, group, session] {
            put_u64(&mut out, id.unsigned_abs().into());
        }
        put_u64(&mut out, launch.terminal.is_some().into());
        if let Some(OuterTerminal { index, streams }) = launch.terminal {
            put_u64(&mut out, index.is_some().into());
            index.iter().for_each(|index| put_u64(&mut out, (*index).into()));
            put_u64(&mut out, streams.iter().rev().fold(0, |bits, is_it| bits << 1 | u64::from(*is_it)));
        }
        put_u64(&mut out, launch.inherited.len() as u64);
        launch.inherited.iter().for_each(|inherited| encode_inherited(inherited, &mut out));
        put_u64(&mut out, launch.groups.len() as u64);
        launch.groups.iter().for_each(|group| put_u64(&mut out, u64::from(*group)));
        let Capabilities { effective, permitted, inheritable, bounding, ambient, securebits } =
            launch.capabilities;
        for set in [effective, permitted, inheritable, bounding, ambient, securebits.into()] {
            put_u64(&mut out, set);
        }
        put_u64(&mut out, launch.umask.into());
        put_u64(&mut out, launch.signals.ignored);
        put_u64(&mut out, launch.signals.blocked);
        launch.limits.0.as_flattened().iter().for_each(|limit| put_u64(&mut out, *limit));
        put_u64(&mut out, u64::from(launch.seed.is_some()));
        launch.seed.iter().for_each(|seed| put_u64(&mut out, *seed));
        put_u64(&mut out, launch.memory);
        put_u64(&mut out, launch.mxcsr_mask.0.into());
        put_digest(&mut out, self.executable_digest);
        put_u64(&mut out, u64::from(launch.interpreter.is_some()));
        if let Some(interpreter) = &launch.interpreter {
            put_bytes(&mut out, interpreter.path.as_bytes());
            put_digest(&mut out, self.interpreter_digest.unwrap_or_default());
        }
        out
    }

    /// Reads an encoding; `None` if it is not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let mut c = Cursor(bytes);
        let (gretel, behaviour) = (c.string()?, c.u64()?.try_into().ok()?);
        let (model, engine, path) = (c.string()?, c.string()?, c.string()?);
        let name = c.bytes()?.to_vec();
        let strings = |c: &mut Cursor<'_>| c.list(|c| c.bytes().map(<[u8]>::to_vec));
        let (argv, envp) = (strings(&mut c)?, strings(&mut c)?);
        let (random, rest) = c.0.split_first_chunk()?;
        c.0 = rest;
        let cwd = c.bytes()?.to_vec();
        let mut id = || c.u64()?.try_into().ok();
        let ids = Ids { uid: id()?, euid: id()?, gid: id()?, egid: id()? };
        let mut task = || c.u64()?.try_into().ok();
        let (pid, parent, group, session) = (task()?, task()?, task()?, task()?);
        let parents = Parents { parent, group, session };
        let terminal = |c: &mut Cursor<'_>| {
            let index = c.list(|c| c.u64()?.try_into().ok())?.into_iter().next();
            let streams = c.u64()?;
            Some(OuterTerminal { index, streams: [0, 1, 2].map(|stream| streams >> stream & 1 != 0) })
        };
        let terminal = c.list(terminal)?.into_iter().next();
        let inherited = c.list(decode_inherited)?;
        let groups = c.list(|c| c.u64()?.try_into().ok())?;
        let capabilities = Capabilities {
            effective: c.u64()?,
            permitted: c.u64()?,
            inheritable: c.u64()?,
            bounding: c.u64()?,
            ambient: c.u64()?,
            securebits: c.u64()?.try_into().ok()?,
        };
        let umask = c.u64()?.try_into().ok()?;
        let signals = Signals { ignored: c.u64()?, blocked: c.u64()? };
        let mut limits = Limits::default();
        for limit in limits.0.as_flattened_mut() {
            *limit = c.u64()?;
        }
        let seed = c.list(Cursor::u64)?.into_iter().next();
        let memory = c.u64()?;
        let mxcsr_mask = MxcsrMask(c.u64()?.try_into().ok()?);
        let cpu = Model::named(&model).unwrap_or_default();
        let executable_digest = c.digest()?;
        let interpreter = c.list(|c| Some((c.string()?, c.digest()?)))?.into_iter().next();
        let (interpreter, interpreter_digest) = interpreter.unzip();
        let interpreter = interpreter.map(|path| Interpreter { path, executable: Vec::new() });
        let executable = Vec::new();
        let random = *random;
        let launch = Launch {
            executable,
            path,
            name,
            interpreter,
            argv,
            envp,
            random,
            cwd,
            ids,
            pid,
            parents,
            terminal,
            inherited,
            groups,
            capabilities,
            umask,
            signals,
            limits,
            seed,
            memory,
            cpu,
            mxcsr_mask,
        };
        let header =
            Header { gretel, behaviour, model, engine, launch, executable_digest, interpreter_digest };
        c.0.is_empty().then_some(header)
    }
}

fn encode_inherited(inherited: &Inherited, out: &mut Vec<u8>) {
    let Inherited { number, copy_of, socket, file, terminal } = *inherited;
    put_u64(out, number.into());
    put_u64(out, copy_of.is_some().into());
    copy_of.iter().for_each(|number| put_u64(out, (*number).into()));
    put_u64(out, socket.is_some().into());
    socket.iter().flatten().for_each(|part| put_u64(out, (*part).into()));
    put_u64(out, file.is_some().into());
    file.iter().flatten().for_each(|part| put_u64(out, *part));
    put_u64(out, terminal.into());
}

fn decode_inherited(c: &mut Cursor<'_>) -> Option<Inherited> {
    let small = |c: &mut Cursor<'_>| c.u64()?.try_into().ok();
    let number = small(c)?;
    let copy_of = c.list(small)?.first().copied();
    let socket = c.list(|c| Some([small(c)?, small(c)?]))?.first().copied();
    let file = c.list(|c| Some([c.u64()?, c.u64()?]))?.first().copied();
    Some(Inherited { number, copy_of, socket, file, terminal: c.u64()? != 0 })
}

/// The version of gretel that wrote a header, of this or another version of the format.
pub(super) fn recorder(header: &[u8]) -> Option<String> {
    Cursor(header).string()
}
