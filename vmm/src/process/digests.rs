//! Digests of all that a program is: what recording writes and replay compares.

use super::{Process, ProcessError};
use crate::journal::schema::{Digests, digest_all, digest_fpu, digest_regs};

impl Process {
    /// Digests of the registers of all tasks and of the memory of all processes.
    pub(crate) fn digests(&mut self) -> Result<Digests, ProcessError> {
        let state = self.state()?;
        let (mut regs, mut fpu) = (vec![digest_regs(&state.regs)], vec![digest_fpu(&state.fpu)]);
        for (_, state) in self.other_tasks() {
            regs.push(digest_regs(&state.regs));
            fpu.push(digest_fpu(&state.fpu));
        }
        Ok(Digests { regs: digest_all(&regs), fpu: digest_all(&fpu), memory: self.memory_digest() })
    }
}
