//! Scripts: files that begin with `#!` and name the program that reads them.

/// So many scripts may name one another before a program comes (kernel: fs/exec.c).
pub(crate) const DEEPEST: usize = 5;
/// The kernel looks at so much of a script's first line (BINPRM_BUF_SIZE).
const FIRST_LINE: usize = 256;

/// What a script's first line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// The program that reads it.
    pub(crate) interpreter: Vec<u8>,
    /// All that follows on the line, as one argument.
    argument: Option<Vec<u8>>,
}

/// It begins with `#!`, and names no program, or one whose name is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoInterpreter;

impl Script {
    /// The first line of `file`; `None` if it is no script.
    pub(crate) fn parse(file: &[u8]) -> Option<Result<Script, NoInterpreter>> {
        let line = &file[..file.len().min(FIRST_LINE)];
        let line = line.strip_prefix(b"#!")?;
        let end = line.iter().position(|byte| *byte == b'\n' || *byte == 0);
        let whole = end.is_some() || file.len() < FIRST_LINE;
        let line = line[..end.unwrap_or(line.len())].trim_ascii();
        let space = |byte: &u8| *byte == b' ' || *byte == b'\t';
        let name_ends = line.iter().position(space);
        if line.is_empty() || name_ends.is_none() && !whole {
            return Some(Err(NoInterpreter));
        }
        let (interpreter, rest) = line.split_at(name_ends.unwrap_or(line.len()));
        let rest = rest.trim_ascii();
        let argument = (!rest.is_empty()).then(|| rest.to_vec());
        Some(Ok(Script { interpreter: interpreter.to_vec(), argument }))
    }

    /// The interpreter's arguments, for a script that is started as `path` with `argv`.
    pub(crate) fn arguments(&self, path: &[u8], argv: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut arguments = vec![self.interpreter.clone()];
        arguments.extend(self.argument.clone());
        arguments.push(path.to_vec());
        arguments.extend(argv.iter().skip(1).cloned());
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_line_is_one_argument() {
        let script =
            Script::parse(b"#! /usr/bin/env  -S perl -w \nprint 1").expect("a script").expect("a name");
        assert_eq!(script.interpreter, b"/usr/bin/env");
        let argv = [b"x".to_vec(), b"1".to_vec()];
        let arguments = script.arguments(b"./x", &argv);
        assert_eq!(arguments, [&b"/usr/bin/env"[..], b"-S perl -w", b"./x", b"1"]);
    }

    #[test]
    fn a_line_without_a_program_is_refused_and_other_files_are_none() {
        assert_eq!(Script::parse(b"#!\n"), Some(Err(NoInterpreter)));
        assert_eq!(Script::parse(&[b"#!/".as_slice(), &[b'x'; 300]].concat()), Some(Err(NoInterpreter)));
        assert!(Script::parse(b"#!/bin/sh").expect("a script").is_ok());
        assert_eq!(Script::parse(b"\x7fELF"), None);
    }
}
