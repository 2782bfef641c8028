//! The rings whose branches are recorded.

use lbr::Filter;
use std::str::FromStr;

/// `--ring`: the processor's own filter of branches by their level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rings {
    kernel: bool,
    user: bool,
}

impl Rings {
    /// The kernel's: what the suffix of a kernel is searched by.
    pub(crate) const KERNEL: Rings = Rings { kernel: true, user: false };

    /// A filter that lets through what `filter` does, in these rings.
    pub(crate) fn of(self, filter: Filter) -> Filter {
        filter.in_rings(self.kernel, self.user)
    }
}

impl FromStr for Rings {
    type Err = String;

    fn from_str(text: &str) -> Result<Rings, String> {
        match text {
            "kernel" => Ok(Rings::KERNEL),
            "user" => Ok(Rings { kernel: false, user: true }),
            "both" => Ok(Rings { kernel: true, user: true }),
            _ => Err("give kernel, user or both".to_owned()),
        }
    }
}
