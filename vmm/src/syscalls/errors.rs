//! The names of error numbers, as strace prints them.

/// The errors from 1 up; numbers that Linux left out are empty.
const NAMES: [&str; 134] = [
    "",
    "EPERM",
    "ENOENT",
    "ESRCH",
    "EINTR",
    "EIO",
    "ENXIO",
    "E2BIG",
    "ENOEXEC",
    "EBADF",
    "ECHILD",
    "EAGAIN",
    "ENOMEM",
    "EACCES",
    "EFAULT",
    "ENOTBLK",
    "EBUSY",
    "EEXIST",
    "EXDEV",
    "ENODEV",
    "ENOTDIR",
    "EISDIR",
    "EINVAL",
    "ENFILE",
    "EMFILE",
    "ENOTTY",
    "ETXTBSY",
    "EFBIG",
    "ENOSPC",
    "ESPIPE",
    "EROFS",
    "EMLINK",
    "EPIPE",
    "EDOM",
    "ERANGE",
    "EDEADLK",
    "ENAMETOOLONG",
    "ENOLCK",
    "ENOSYS",
    "ENOTEMPTY",
    "ELOOP",
    "",
    "ENOMSG",
    "EIDRM",
    "ECHRNG",
    "EL2NSYNC",
    "EL3HLT",
    "EL3RST",
    "ELNRNG",
    "EUNATCH",
    "ENOCSI",
    "EL2HLT",
    "EBADE",
    "EBADR",
    "EXFULL",
    "ENOANO",
    "EBADRQC",
    "EBADSLT",
    "",
    "EBFONT",
    "ENOSTR",
    "ENODATA",
    "ETIME",
    "ENOSR",
    "ENONET",
    "ENOPKG",
    "EREMOTE",
    "ENOLINK",
    "EADV",
    "ESRMNT",
    "ECOMM",
    "EPROTO",
    "EMULTIHOP",
    "EDOTDOT",
    "EBADMSG",
    "EOVERFLOW",
    "ENOTUNIQ",
    "EBADFD",
    "EREMCHG",
    "ELIBACC",
    "ELIBBAD",
    "ELIBSCN",
    "ELIBMAX",
    "ELIBEXEC",
    "EILSEQ",
    "ERESTART",
    "ESTRPIPE",
    "EUSERS",
    "ENOTSOCK",
    "EDESTADDRREQ",
    "EMSGSIZE",
    "EPROTOTYPE",
    "ENOPROTOOPT",
    "EPROTONOSUPPORT",
    "ESOCKTNOSUPPORT",
    "EOPNOTSUPP",
    "EPFNOSUPPORT",
    "EAFNOSUPPORT",
    "EADDRINUSE",
    "EADDRNOTAVAIL",
    "ENETDOWN",
    "ENETUNREACH",
    "ENETRESET",
    "ECONNABORTED",
    "ECONNRESET",
    "ENOBUFS",
    "EISCONN",
    "ENOTCONN",
    "ESHUTDOWN",
    "ETOOMANYREFS",
    "ETIMEDOUT",
    "ECONNREFUSED",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "EALREADY",
    "EINPROGRESS",
    "ESTALE",
    "EUCLEAN",
    "ENOTNAM",
    "ENAVAIL",
    "EISNAM",
    "EREMOTEIO",
    "EDQUOT",
    "ENOMEDIUM",
    "EMEDIUMTYPE",
    "ECANCELED",
    "ENOKEY",
    "EKEYEXPIRED",
    "EKEYREVOKED",
    "EKEYREJECTED",
    "EOWNERDEAD",
    "ENOTRECOVERABLE",
    "ERFKILL",
    "EHWPOISON",
];

/// What the kernel returns inside when a signal interrupts a call; a tracer sees it.
const RESTARTS: [(i32, &str, &str); 4] = [
    (512, "ERESTARTSYS", "To be restarted if SA_RESTART is set"),
    (513, "ERESTARTNOINTR", "To be restarted"),
    (514, "ERESTARTNOHAND", "To be restarted if no handler"),
    (516, "ERESTART_RESTARTBLOCK", "Interrupted by signal"),
];

/// The error that a result stands for; the kernel's own numbers for calls to begin again among them.
pub(super) fn of(result: u64) -> Option<i32> {
    i32::try_from(result.wrapping_neg()).ok().filter(|error| (1..=4095).contains(error))
}

/// The name of an error, if it has one.
pub(super) fn name(error: i32) -> Option<&'static str> {
    let restart = RESTARTS.iter().find(|(number, ..)| *number == error).map(|(_, name, _)| *name);
    let named = usize::try_from(error).ok().and_then(|error| NAMES.get(error)).copied();
    restart.or_else(|| named.filter(|name| !name.is_empty()))
}

/// An error as strace prints it after the equals sign.
pub(super) fn shown(error: i32) -> String {
    if let Some((_, name, text)) = RESTARTS.iter().find(|(number, ..)| *number == error) {
        return format!("? {name} ({text})");
    }
    let text = std::io::Error::from_raw_os_error(error).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    match name(error) {
        Some(name) => format!("-1 {name} ({text})"),
        None => format!("-1 (errno {error})"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_those_of_libc() {
        let known = [(libc::ENOENT, "ENOENT"), (libc::ENODATA, "ENODATA"), (libc::EHWPOISON, "EHWPOISON")];
        for (error, name) in known {
            assert_eq!(super::name(error), Some(name));
        }
        assert_eq!(super::name(0), None);
        assert_eq!(super::name(4000), None);
        assert_eq!(super::shown(libc::ENOENT), "-1 ENOENT (No such file or directory)");
        assert_eq!(super::shown(512), "? ERESTARTSYS (To be restarted if SA_RESTART is set)");
    }
}
