//! The map of predecessors and the certificate against programs that run on this very processor, watched
//! instruction by instruction.

mod certificate;
mod cfg;
mod compiler;
mod tracee;
