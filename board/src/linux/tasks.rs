//! The task that a processor ran.

use super::space::Space;
use super::symbols::Symbols;
use super::types::Types;

/// A task: a process's thread, or one of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number; the process's is that of its first thread.
    pub id: u32,
    /// The process's number.
    pub process: u32,
    /// Its name, 15 bytes at most.
    pub name: String,
}

/// The task that the processor with this number ran.
pub(super) fn current(
    space: &Space<'_>,
    symbols: &Symbols,
    types: &Types,
    processor: usize,
) -> Result<Task, String> {
    const LONGEST_NAME: usize = 16;
    let gone = || "its task is not in memory".to_owned();
    // The variables of a processor are so far from those that symbols name.
    let own = match symbols.address("__per_cpu_offset") {
        Some(offsets) => space.long(offsets.wrapping_add(8 * processor as u64)).ok_or_else(gone)?,
        None => 0,
    };
    let variable = match symbols.address("current_task") {
        Some(variable) => variable,
        // From 6.2 on it is in a structure with others that are used often.
        None => {
            let hot = symbols.address("pcpu_hot").ok_or("kallsyms has neither current_task nor pcpu_hot")?;
            hot.wrapping_add(types.structure("pcpu_hot")?.offset("current_task")?)
        }
    };
    let task = space.long(variable.wrapping_add(own)).ok_or_else(gone)?;
    let kind = types.structure("task_struct")?;
    let field = |name| Ok::<u64, String>(task.wrapping_add(kind.offset(name)?));
    let id = space.int(field("pid")?).ok_or_else(gone)?;
    let process = space.int(field("tgid")?).ok_or_else(gone)?;
    let name = space.text(field("comm")?, LONGEST_NAME).ok_or_else(gone)?;
    Ok(Task { id, process, name })
}
