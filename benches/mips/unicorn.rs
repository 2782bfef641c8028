//! Unicorn (<https://www.unicorn-engine.org>), whose library is opened at run time where `make unicorn` put it, or where the
//! system has it. Constants are those of its headers, version 2.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use x86::op::Gpr;

use crate::emulator::{Guest, Image, Serve};

type Engine = *mut c_void;
type Open = unsafe extern "C" fn(c_int, c_int, *mut Engine) -> c_int;
type Close = unsafe extern "C" fn(Engine) -> c_int;
type Map = unsafe extern "C" fn(Engine, u64, u64, u32) -> c_int;
type Write = unsafe extern "C" fn(Engine, u64, *const c_void, u64) -> c_int;
type Read = unsafe extern "C" fn(Engine, u64, *mut c_void, u64) -> c_int;
type SetReg = unsafe extern "C" fn(Engine, c_int, *const c_void) -> c_int;
type GetReg = unsafe extern "C" fn(Engine, c_int, *mut c_void) -> c_int;
type Hook = unsafe extern "C" fn(Engine, *mut usize, c_int, *mut c_void, *mut c_void, u64, u64, ...) -> c_int;
type Start = unsafe extern "C" fn(Engine, u64, u64, u64, usize) -> c_int;
type Stop = unsafe extern "C" fn(Engine) -> c_int;
type Message = unsafe extern "C" fn(c_int) -> *const c_char;
type Version = unsafe extern "C" fn(*mut u32, *mut u32) -> u32;

const ARCH_X86: c_int = 4;
const MODE_64: c_int = 8;
const PROT_ALL: u32 = 7;
const HOOK_INSN: c_int = 2;
const INS_SYSCALL: c_int = 699;
const REG_FS_BASE: c_int = 250;
const REG_X87_CONTROL: c_int = 246;
/// Its numbers of rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi; r8 to r15 follow each other from [`REG_R8`].
const REGS: [c_int; 8] = [35, 38, 40, 37, 44, 36, 43, 39];
const REG_R8: c_int = 106;

fn reg_number(r: Gpr) -> c_int {
    REGS.get(usize::from(r.0)).copied().unwrap_or_else(|| REG_R8 + c_int::from(r.0) - 8)
}

/// The library.
pub(crate) struct Unicorn {
    open: Open,
    close: Close,
    map: Map,
    write: Write,
    read: Read,
    set_reg: SetReg,
    get_reg: GetReg,
    hook: Hook,
    start: Start,
    stop: Stop,
    message: Message,
    version: Version,
}

impl Unicorn {
    /// Opens the library, or says why not.
    pub(crate) fn load() -> Result<Unicorn, String> {
        let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join(".deps/unicorn-2.1.4/libunicorn.so.2");
        let name =
            if fetched.exists() { fetched.display().to_string() } else { "libunicorn.so.2".to_owned() };
        let file = CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: `file` ends in zero. What the library does when it is opened is the same as were it linked.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err("there is no libunicorn.so.2; `make unicorn` fetches it".to_owned());
        }
        macro_rules! symbol {
            ($name:literal as $type:ty) => {{
                // SAFETY: `library` is open, and the name ends in zero.
                let at = unsafe { libc::dlsym(library, $name.as_ptr()) };
                if at.is_null() {
                    return Err(format!("libunicorn.so.2 has no {:?}", $name));
                }
                // SAFETY: the symbol is a function with this signature in Unicorn 2's unicorn.h.
                unsafe { std::mem::transmute::<*mut c_void, $type>(at) }
            }};
        }
        Ok(Unicorn {
            open: symbol!(c"uc_open" as Open),
            close: symbol!(c"uc_close" as Close),
            map: symbol!(c"uc_mem_map" as Map),
            write: symbol!(c"uc_mem_write" as Write),
            read: symbol!(c"uc_mem_read" as Read),
            set_reg: symbol!(c"uc_reg_write" as SetReg),
            get_reg: symbol!(c"uc_reg_read" as GetReg),
            hook: symbol!(c"uc_hook_add" as Hook),
            start: symbol!(c"uc_emu_start" as Start),
            stop: symbol!(c"uc_emu_stop" as Stop),
            message: symbol!(c"uc_strerror" as Message),
            version: symbol!(c"uc_version" as Version),
        })
    }

    /// Its version, as "2.1.4".
    pub(crate) fn version(&self) -> String {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two numbers, and returns all of it as bytes.
        let all = unsafe { (self.version)(&raw mut major, &raw mut minor) };
        format!("{major}.{minor}.{}", all >> 8 & 0xff)
    }

    fn check(&self, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: gives a constant text for every number.
        let text = unsafe { CStr::from_ptr((self.message)(status)) };
        Err(format!("Unicorn: {}", text.to_string_lossy()))
    }

    /// Runs `image` to its end.
    pub(crate) fn run(&self, image: &Image, serve: &mut Serve<'_>) -> Result<(), String> {
        let mut engine: Engine = std::ptr::null_mut();
        // SAFETY: writes the handle of a new engine.
        self.check(unsafe { (self.open)(ARCH_X86, MODE_64, &raw mut engine) })?;
        let ended = self.run_in(engine, image, serve);
        // SAFETY: `engine` is open, and nothing uses it after this.
        self.check(unsafe { (self.close)(engine) })?;
        ended
    }

    fn run_in(&self, engine: Engine, image: &Image, serve: &mut Serve<'_>) -> Result<(), String> {
        for piece in &image.pieces {
            let size = piece.bytes.len() as u64;
            // SAFETY: `engine` is open.
            self.check(unsafe { (self.map)(engine, piece.at, size, PROT_ALL) })?;
            // SAFETY: reads `size` bytes, which are there.
            self.check(unsafe { (self.write)(engine, piece.at, piece.bytes.as_ptr().cast(), size) })?;
        }
        let mut waiting = Waiting { unicorn: self, engine, serve };
        waiting.set_reg(Gpr::RSP, image.stack);
        // What Linux gives a program; Unicorn's own rounds long doubles to single.
        waiting.set(REG_X87_CONTROL, 0x37f);
        let mut hook = 0;
        // SAFETY: the callback has the signature of a hook for SYSCALL; `waiting` outlives the run, and only the
        // callback uses it meanwhile.
        self.check(unsafe {
            (self.hook)(
                engine,
                &raw mut hook,
                HOOK_INSN,
                on_syscall as *mut c_void,
                (&raw mut waiting).cast(),
                1,
                0,
                INS_SYSCALL,
            )
        })?;
        // SAFETY: `engine` is open; it runs until the callback stops it.
        self.check(unsafe { (self.start)(engine, image.entry, u64::MAX, 0, 0) })
    }
}

/// An engine that is at a system call.
struct Waiting<'a, 'b> {
    unicorn: &'a Unicorn,
    engine: Engine,
    serve: &'a mut Serve<'b>,
}

extern "C" fn on_syscall(engine: Engine, waiting: *mut c_void) {
    // SAFETY: the pointer that `run_in` gave with this callback, which nobody else uses while the engine runs.
    let waiting: &mut Waiting<'_, '_> = unsafe { &mut *waiting.cast() };
    let mut at = Waiting { unicorn: waiting.unicorn, engine, serve: &mut |_| false };
    if !(waiting.serve)(&mut at) {
        // SAFETY: `engine` is the one that runs.
        let status = unsafe { (waiting.unicorn.stop)(engine) };
        assert_eq!(status, 0, "Unicorn cannot be stopped");
    }
}

impl Waiting<'_, '_> {
    fn must(&self, status: c_int) {
        self.unicorn.check(status).expect("Unicorn knows the register or the memory");
    }

    fn set(&mut self, number: c_int, v: u64) {
        // SAFETY: reads 64 bits, as all these registers have.
        self.must(unsafe { (self.unicorn.set_reg)(self.engine, number, (&raw const v).cast()) });
    }
}

impl Guest for Waiting<'_, '_> {
    fn reg(&mut self, r: Gpr) -> u64 {
        let mut v = 0_u64;
        // SAFETY: writes 64 bits, as general registers have.
        self.must(unsafe { (self.unicorn.get_reg)(self.engine, reg_number(r), (&raw mut v).cast()) });
        v
    }

    fn set_reg(&mut self, r: Gpr, v: u64) {
        self.set(reg_number(r), v);
    }

    fn set_fs_base(&mut self, base: u64) {
        self.set(REG_FS_BASE, base);
    }

    fn read(&mut self, at: u64, to: &mut [u8]) {
        let size = to.len() as u64;
        // SAFETY: writes `size` bytes, for which `to` has room.
        self.must(unsafe { (self.unicorn.read)(self.engine, at, to.as_mut_ptr().cast(), size) });
    }

    fn write(&mut self, at: u64, from: &[u8]) {
        let size = from.len() as u64;
        // SAFETY: reads `size` bytes, which `from` has.
        self.must(unsafe { (self.unicorn.write)(self.engine, at, from.as_ptr().cast(), size) });
    }
}
