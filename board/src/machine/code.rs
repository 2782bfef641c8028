//! What was compiled of a kernel is kept for the next machine that boots it ([`kept`]): a boot runs most of its code a few thousand times
//! at most, so that the compiler and the interpreter are most of what it costs.
//!
//! The file is the kernel's: what its programs run is in it, too, since nothing has code but bytes at addresses. Example: the replay of a
//! recording finds at the first look what the recording's own machine has compiled.

use super::Machine;
use vmm::engine::soft::kept;

/// Makes of a kernel's digest another one than a program has that is the same file.
const OF_A_KERNEL: u64 = 0x6b65_726e_656c_0001;

impl Machine {
    /// Takes the code that earlier machines have compiled of the kernel with this digest, and keeps what this one compiles, where code is
    /// kept at all ([`kept::keep_in`]). Before anything has run.
    pub fn keep_code(&mut self, kernel: u64) {
        self.code_file = kept::file(kernel ^ OF_A_KERNEL);
        if let Some(file) = &self.code_file {
            self.processor.keep(kept::load(file));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let (Some(file), Some(code)) = (&self.code_file, self.processor.kept()) {
            kept::save(file, code);
        }
    }
}
