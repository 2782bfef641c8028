//! Why a core cannot be, for other solvers: each refutation of a search that found no way, as a file of SMT-LIB.
//!
//! The search is run again, and each way that it gives up writes the claims that contradict each other. Together they are
//! the verdict, as far as it is one of logic: which instructions can come before another is the map's, the records' and the
//! crumbs', and is not in these files.

use crate::core_image::CoreImage;
use crate::fuel::Fuel;
use crate::past::audit::{Audit, By, Refutation};
use crate::program::Program;
use crate::program::cfg::Cfg;
use crate::report::trace::formatter;
use crate::search::{Records, Stop};
use crate::shares;
use crate::smt::script::script;
use crate::synthesis::{Request, Unmapped, search_of};
use crate::term::Terms;
use iced_x86::Formatter;
use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Refutations by propagation.
    pub propagation: usize,
    /// Refutations by the solver.
    pub solver: usize,
    /// Addresses that cannot be others.
    pub addresses: usize,
    /// How many of all rest on the assumption that a store at an unknown address touched nothing that was read.
    pub assumed: usize,
}

impl Written {
    /// How many files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.propagation + self.solver + self.addresses
    }
}

/// Why it was not, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum RefutationError {
    /// The file system refuses.
    #[error("cannot write {path}: {error}")]
    File {
        /// What.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// There is something in the folder.
    #[error("{0} is not empty: name a folder that is, or none")]
    NotEmpty(PathBuf),
    /// The search ended before it had tried every way.
    #[error("the search was not finished again (more --fuel lets it): {0} refutations were written")]
    Unfinished(usize),
}

/// Searches again, and writes each refutation to a file of its own in `dir`, which is made if it is not there. Needs
/// [`crate::synthesis::STACK_BYTES`] of stack.
///
/// # Errors
/// When a file cannot be written, or the search does not end by having tried every way.
pub fn write(request: &Request<'_>, dir: &Path) -> Result<Written, RefutationError> {
    let failed = |error| RefutationError::File { path: dir.to_owned(), error };
    fs::create_dir_all(dir).map_err(failed)?;
    if fs::read_dir(dir).map_err(failed)?.next().is_some() {
        return Err(RefutationError::NotEmpty(dir.to_owned()));
    }
    let files = Rc::new(Files {
        program: request.program,
        dir: dir.to_owned(),
        written: RefCell::default(),
        failure: RefCell::default(),
    });
    let image = CoreImage::new(request.core, request.anchors);
    let cfg = Cfg::build(request.program, &|va| request.core.word(va));
    let records = Records::new(request.records.to_vec(), request.recorded.to_vec());
    let fuel = Fuel::default();
    let whole = shares::whole(&request.limits, request.interrupter, &fuel);
    let until = shares::of_search(&request.limits, &whole);
    let search =
        search_of(request, Unmapped::of(request), &cfg, &image, &records, &fuel).with_audit(files.clone());
    let found = search.run(request.limits.instructions, &until, &mut |_, _| {});
    if let Some(failure) = files.failure.take() {
        return Err(failure);
    }
    let written = *files.written.borrow();
    if found.stop == Stop::Exhausted {
        Ok(written)
    } else {
        Err(RefutationError::Unfinished(written.files()))
    }
}

/// The files, as they are written.
struct Files<'a> {
    program: &'a Program,
    dir: PathBuf,
    written: RefCell<Written>,
    failure: RefCell<Option<RefutationError>>,
}

impl Audit for Files<'_> {
    fn refuted(&self, terms: &Terms, refutation: &Refutation) {
        if self.failure.borrow().is_some() {
            return;
        }
        let mut written = *self.written.borrow();
        let (count, by) = match refutation.by {
            By::Propagation => (&mut written.propagation, "propagation"),
            By::Solver => (&mut written.solver, "solver"),
            By::Address => (&mut written.addresses, "address"),
        };
        *count += 1;
        written.assumed += usize::from(refutation.unplaced_stores > 0);
        let path = self.dir.join(format!("{:05}-{by}.smt2", written.files()));
        match self.save(&path, &script(terms, refutation, &|address| self.text(address))) {
            Ok(()) => *self.written.borrow_mut() = written,
            Err(error) => *self.failure.borrow_mut() = Some(RefutationError::File { path, error }),
        }
    }
}

impl Files<'_> {
    /// Only its owner can read it: it holds what the program's memory held.
    fn save(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    }

    /// Where an instruction is, and what it is.
    fn text(&self, address: u64) -> String {
        let mut text = self.program.function_at(address).map_or_else(String::new, |function| {
            format!("{}+{:#x}  ", function.name, address.wrapping_sub(function.start))
        });
        if let Some(instruction) = self.program.instruction_at(address) {
            formatter().format(&instruction, &mut text);
        }
        // A name is the file's, and a comment ends with its line.
        text.replace(|c: char| c.is_control(), " ")
    }
}
