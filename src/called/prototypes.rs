//! What common functions of libc take and give, where its debug information is not installed, or has no types because they are written
//! by hand.
//!
//! Example: `strcpy(dest:p, src:s) s` is in the table, so that `gretel calls rec strcpy` shows two arguments, of which one is a string,
//! and not the six registers that may hold some. Source: the functions' declarations in C and POSIX.

use crate::values::{Plain, Signature};

/// Name, parameters with their kinds, and the result: `p` a pointer, `s` a string, `i` an int, `l` a long, `u` an unsigned long, `v`
/// nothing.
const PROTOTYPES: &str = "
memchr(s:p, c:i, n:u) p
memcmp(s1:p, s2:p, n:u) i
memcpy(dest:p, src:p, n:u) p
memmove(dest:p, src:p, n:u) p
mempcpy(dest:p, src:p, n:u) p
memrchr(s:p, c:i, n:u) p
memset(s:p, c:i, n:u) p
rawmemchr(s:p, c:i) p
stpcpy(dest:p, src:s) p
stpncpy(dest:p, src:s, n:u) p
strcasecmp(s1:s, s2:s) i
strcat(dest:s, src:s) s
strchr(s:s, c:i) s
strchrnul(s:s, c:i) s
strcmp(s1:s, s2:s) i
strcpy(dest:p, src:s) s
strcspn(s:s, reject:s) u
strdup(s:s) s
strlen(s:s) u
strncasecmp(s1:s, s2:s, n:u) i
strncat(dest:s, src:p, n:u) s
strncmp(s1:p, s2:p, n:u) i
strncpy(dest:p, src:p, n:u) p
strndup(s:p, n:u) s
strnlen(s:p, maxlen:u) u
strpbrk(s:s, accept:s) s
strrchr(s:s, c:i) s
strspn(s:s, accept:s) u
strstr(haystack:s, needle:s) s
strtol(nptr:s, endptr:p, base:i) l
strtoul(nptr:s, endptr:p, base:i) u
atoi(nptr:s) i
atol(nptr:s) l
malloc(size:u) p
calloc(nmemb:u, size:u) p
realloc(ptr:p, size:u) p
free(ptr:p) v
getenv(name:s) s
exit(status:i) v
abort() v
printf(format:s, ...) i
fprintf(stream:p, format:s, ...) i
sprintf(str:p, format:s, ...) i
snprintf(str:p, size:u, format:s, ...) i
sscanf(str:s, format:s, ...) i
puts(s:s) i
fputs(s:s, stream:p) i
fgets(s:p, size:i, stream:p) s
fopen(pathname:s, mode:s) p
fclose(stream:p) i
fread(ptr:p, size:u, nmemb:u, stream:p) u
fwrite(ptr:p, size:u, nmemb:u, stream:p) u
open(pathname:s, flags:i, ...) i
close(fd:i) i
read(fd:i, buf:p, count:u) l
write(fd:i, buf:p, count:u) l
unlink(pathname:s) i
socket(domain:i, type:i, protocol:i) i
accept(sockfd:i, addr:p, addrlen:p) i
connect(sockfd:i, addr:p, addrlen:i) i
send(sockfd:i, buf:p, len:u, flags:i) l
recv(sockfd:i, buf:p, len:u, flags:i) l
";

/// The prototype of a function of libc that is asked for by this name, if it is known.
pub(crate) fn of(name: &str) -> Option<Signature> {
    PROTOTYPES.lines().find_map(|line| {
        let (of, rest) = line.split_once('(')?;
        let (parameters, result) = rest.split_once(") ").filter(|_| of == name)?;
        let mut words: Vec<&str> = parameters.split(", ").filter(|word| !word.is_empty()).collect();
        let variadic = words.pop_if(|word| *word == "...").is_some();
        let parameter = |word: &str| {
            let (name, letter) = word.split_once(':')?;
            Some((name.to_owned(), plain(letter)?))
        };
        let parameters = words.into_iter().filter_map(parameter).collect();
        Some(Signature::plain(parameters, plain(result), variadic))
    })
}

fn plain(letter: &str) -> Option<Plain> {
    match letter {
        "p" => Some(Plain::Pointer),
        "s" => Some(Plain::Text),
        "i" => Some(Plain::Int),
        "l" => Some(Plain::Long),
        "u" => Some(Plain::Unsigned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prototype_is_read_whole() {
        for line in PROTOTYPES.lines().filter(|line| !line.is_empty()) {
            let name = line.split('(').next().unwrap_or_default();
            let found = of(name).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(found.parameters.len(), line.matches(':').count(), "{line}");
            assert_eq!(!found.has_result(), line.ends_with(") v"), "{line}");
            assert_eq!(found.variadic, line.contains("..."), "{line}");
        }
        assert!(of("no_such_function").is_none() && of("").is_none());
    }
}
