//! What a task has open: for those who look at a program, and not for itself.

use super::{Kernel, OpenFile};
use std::rc::Rc;

impl Kernel {
    /// What a task has open by this number.
    pub(crate) fn file_of(&self, task: i32, number: i32) -> Option<Rc<OpenFile>> {
        self.tables.get(self.tasks.get(task)?.files).get(number).ok()
    }
}
