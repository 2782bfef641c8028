//! The types of the table: a call, its arguments, and what memory an argument stands for.

/// A system call of Linux on x86-64.
#[derive(Debug)]
pub struct Call {
    /// Its number, in rax.
    pub number: u16,
    /// Its name, as strace prints it.
    pub name: &'static str,
    /// What is in rdi, rsi, rdx, r10, r8 and r9; six at most.
    pub arguments: &'static [Argument],
    /// What the result stands for, if the call did not fail.
    pub returns: Returns,
    /// How gretel serves the call.
    pub served: Served,
    /// What the call does that no argument shows.
    pub beyond: Beyond,
}

/// An argument of a call.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name, as in the manual pages.
    pub name: &'static str,
    /// What it stands for.
    pub kind: Kind,
}

/// What an argument, or a field of a structure, stands for.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A signed 32-bit number.
    Int,
    /// A signed 64-bit number.
    Long,
    /// An unsigned 32-bit number.
    Unsigned,
    /// A number shown in hexadecimal.
    Hex,
    /// An address that the call does not follow, or follows beyond what [`Extent`] can say.
    Address,
    /// A descriptor.
    Fd,
    /// A descriptor that paths are relative to, or `AT_FDCWD`.
    DirFd,
    /// The address of a path that ends with a zero byte.
    Path,
    /// One of a list of values.
    Enum(&'static Names),
    /// A combination of bits.
    Flags(&'static Bits),
    /// The flags of clone, with a signal in the low byte.
    CloneFlags(&'static Bits),
    /// A signal's number.
    Signal,
    /// The id of a process or a thread.
    Pid,
    /// The id of a user or a group; -1 is none.
    Id,
    /// Permissions of a file.
    Mode,
    /// Type and permissions of a file.
    FileType,
    /// A number of bytes.
    Size,
    /// A position in a file.
    Off,
    /// A clock.
    Clock,
    /// An operation of futex with its bits.
    Futex,
    /// The environment of a program, of which only the number of variables is shown.
    Environment,
    /// The number of a device.
    Device,
    /// A limit of a resource.
    Limit,
    /// A structure inside another one.
    Nested(&'static Struct),
    /// Nothing: the call does not look at it.
    Unused,
    /// The call reads memory.
    In(Extent),
    /// The call writes memory if it does not fail.
    Out(Extent),
    /// The call reads memory, and writes it if it does not fail or was interrupted.
    InOut(Extent),
    /// The call writes memory only if it was interrupted: the time that was left.
    Left(Extent),
    /// What it stands for depends on another argument.
    By(&'static Choices),
    /// A request of ioctl.
    Command,
    /// What it stands for depends on the request of an ioctl, which is this argument.
    Request(usize),
}

/// Names of values.
pub type Names = [(u64, &'static str)];

/// How a combination of bits is shown.
#[derive(Debug)]
pub struct Bits {
    /// The bits that hold one of `values`; 0 if there are none.
    pub field: u64,
    /// The values of the field.
    pub values: &'static Names,
    /// The other bits.
    pub bits: &'static Names,
    /// What zero is called, if no value of the field is.
    pub none: &'static str,
}

/// The kinds of an argument, by the value of another one.
#[derive(Debug)]
pub struct Choices {
    /// The argument that chooses.
    pub by: usize,
    /// What of it is compared.
    pub mask: u64,
    /// The kind for each value.
    pub table: &'static [(u64, Kind)],
    /// The kind for other values, and while the value is not known.
    pub otherwise: Kind,
}

/// How much memory there is at an argument. Numbers are arguments, counted from zero.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// This many bytes.
    Bytes(u64),
    /// One structure.
    Struct(&'static Struct),
    /// A structure whose size is an argument.
    Sized(&'static Struct, usize),
    /// As many bytes as an argument says.
    Arg(usize),
    /// An array with as many elements as an argument says.
    ArgTimes(usize, &'static Struct),
    /// As many bytes as the call returns, and no more than an argument says.
    Result(usize),
    /// An array with as many elements as the call returns, and no more than an argument says.
    ResultTimes(usize, &'static Struct),
    /// Bytes up to a zero.
    String,
    /// Addresses of strings, up to a null.
    Strings,
    /// An array of `struct iovec` with as many elements as an argument says, and the buffers. Those that are written
    /// hold as many bytes as the call returns.
    Iovec(usize),
    /// A structure with at most as many bytes as the `socklen_t` says to which an argument points.
    PointedBy(usize, &'static Struct),
    /// A `struct msghdr` and the buffers that it names.
    Message,
    /// An array of `struct mmsghdr` with as many elements as an argument says.
    Messages(usize),
    /// A set of descriptors below the argument.
    Bits(usize),
    /// A byte for each page of as many bytes as an argument says.
    Pages(usize),
    /// An amount that the table does not tell.
    Unknown,
}

/// A structure of the kernel's interface.
#[derive(Debug)]
pub struct Struct {
    /// Its name, without `struct`.
    pub name: &'static str,
    /// Bytes.
    pub size: u64,
    /// How it is shown.
    pub form: Form,
}

/// How a structure is shown.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// As `{...}`.
    Opaque,
    /// Its address alone.
    Hidden,
    /// Its fields.
    Whole(&'static [Field]),
    /// Some of its fields, then `...`.
    Part(&'static [Field]),
    /// One number.
    Number(Kind),
    /// As many elements as there is room for.
    Array(&'static Struct),
    /// Bytes, up to a zero.
    Text,
    /// Bytes in hexadecimal.
    Random,
    /// A set of signals.
    Signals,
    /// A set of descriptors, or of processors.
    Members,
    /// What is done about a signal.
    Action,
    /// What `wait` tells of a process.
    Status,
    /// The address of a socket.
    Socket,
}

/// A field of a structure.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Where it begins.
    pub at: usize,
    /// Bytes; 8 at most, unless it is a structure.
    pub width: usize,
    /// What it stands for.
    pub kind: Kind,
}

/// What the result of a call stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A number; mostly 0.
    Int,
    /// A new descriptor.
    Fd,
    /// An address.
    Address,
    /// A number of bytes, or of elements.
    Size,
    /// Permissions of a file.
    Mode,
    /// What the command of fcntl, argument 1, asks for.
    Fcntl,
    /// How many descriptors are ready; which ones is in the array at argument 0.
    Ready,
    /// Nothing: the call does not return to the instruction after it.
    Never,
}

/// How gretel serves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// By gretel alone. A replay computes it again.
    Ours,
    /// By the host: result and memory are an input, which the journal holds.
    Host,
    /// By both: gretel keeps the state, and the host gives inputs.
    Mixed,
    /// With this error or result always, for a reason.
    Fixed(i32, &'static str),
    /// Not yet: ENOSYS, with a warning.
    Missing,
}

/// What a call does that no argument shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// Nothing.
    Nothing,
    /// It changes what is mapped.
    Mappings(Mapping),
    /// It replaces the program.
    Exec,
    /// It makes a task, which returns from the call too.
    Task,
    /// It ends a thread or the process.
    Exit,
    /// It loads the registers that a signal's frame holds.
    Sigreturn,
    /// It changes registers other than rax, rcx and r11: bases of segments, rights of protection keys.
    Registers,
    /// It returns only after a signal's handler has run.
    Handler,
    /// It reads or writes memory that the table does not tell, now or later.
    Memory,
}

/// How a call changes what is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// brk: the heap ends at the result.
    Heap,
    /// mmap: pages appear at the result, as many as argument 1 says.
    Map,
    /// Pages appear, with a length or contents that no argument tells.
    Attach,
    /// Pages go away.
    Unmap,
    /// Pages are moved to the result.
    Move,
    /// Rights change, contents do not.
    Protect,
    /// Contents may be dropped.
    Discard,
}
