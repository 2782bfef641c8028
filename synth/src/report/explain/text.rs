//! The explanation for people.

use super::{Attempt, Barrier, Explanation, Parting, Where, Window};
use std::fmt::{self, Display, Formatter};

/// So many barriers are shown; JSON has all.
const MOST: usize = 20;

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Explanation { searched, certified, stopped, .. } = self;
        writeln!(
            f,
            "why it goes no further back: {searched} instructions searched, {certified} certified; {stopped}"
        )?;
        if let Some(end) = &self.end {
            writeln!(f, "\nthe suffix begins {} instructions before the crash, at", end.before_crash)?;
            writeln!(f, "  {}", end.first)?;
            writeln!(f, "  since: {}", end.why)?;
            writeln!(f, "  would help: {}", end.would_help)?;
        }
        if let Some(parting) = &self.parting {
            parting.fmt(f)?;
        }
        if !self.certificates.is_empty() {
            writeln!(f, "\ncertificates tried, of the newest so many instructions:")?;
            self.certificates.iter().try_for_each(|attempt| attempt.fmt(f))?;
        }
        if !self.barriers.is_empty() {
            writeln!(f, "\nplaces that the search did not go past (how often, how far back at most):")?;
            self.barriers.iter().take(MOST).try_for_each(|barrier| barrier.fmt(f))?;
            if let Some(more) = self.barriers.len().checked_sub(MOST).filter(|more| *more > 0) {
                writeln!(f, "  and {more} more places (--json has all)")?;
            }
        }
        if !self.windows.is_empty() {
            writeln!(f, "\ninstructions that branch records cover, on the path of the {}:", self.windows_of)?;
            let used = self.windows.iter().find(|window| window.used).map(|window| window.instructions);
            self.windows.iter().try_for_each(|window| window.show(f, used))?;
        }
        match self.crumbs {
            None => writeln!(
                f,
                "\ncrumbs: the search of a kernel uses the newest alone: how much has retired since the processor came in by it"
            )?,
            Some(0) => writeln!(
                f,
                "\ncrumbs: none; with them each system call is known, and what retired between them"
            )?,
            Some(n) => writeln!(f, "\ncrumbs: {n} system calls are known")?,
        }
        let seconds: Vec<String> =
            self.seconds.iter().map(|(phase, seconds)| format!("{phase} {seconds:.2}")).collect();
        writeln!(f, "seconds: {}", seconds.join(", "))
    }
}

impl Display for Where {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10x}  {}  {}", self.address, self.place, self.text)
    }
}

impl Display for Parting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Parting { instructions, at, came_from, went_to, met } = self;
        writeln!(
            f,
            "\nof what was searched, the newest {instructions} instructions are the true ones, up to"
        )?;
        writeln!(f, "  {at}")?;
        match came_from {
            Some(came_from) => writeln!(f, "  the program came from:  {came_from}")?,
            None => writeln!(f, "  what ran before is not looked at")?,
        }
        match went_to {
            Some(went_to) => writeln!(f, "  the search went to:     {went_to}")?,
            None => writeln!(f, "  the search ends there")?,
        }
        met.iter().try_for_each(|met| {
            writeln!(f, "  it met, {} instructions back:  {}: {}", met.before_crash, met.at, met.why)
        })
    }
}

impl Display for Attempt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let how = if self.choosing { "addresses chosen" } else { "no address chosen" };
        let result = self.failed.as_deref().unwrap_or("certified");
        writeln!(f, "{:>7}  {how}: {} left: {result}", self.tried, self.reached)?;
        match &self.waiting {
            Some((at, what)) if self.reached < self.tried => {
                writeln!(f, "         no address: {at}\n         {what}")
            }
            _ => Ok(()),
        }
    }
}

impl Display for Barrier {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>7}  {:>5}  {}", self.times, format!("-{}", self.deepest), self.at)?;
        writeln!(f, "{:16}{}: {}", "", self.why, self.would_help)
    }
}

impl Window {
    fn show(&self, f: &mut Formatter<'_>, used: Option<usize>) -> fmt::Result {
        let about = if self.estimated { "about " } else { "" };
        let count = format!("{about}{}", self.instructions);
        let more = match (self.used, used) {
            (true, _) => "  used".to_owned(),
            (false, Some(used)) if self.instructions > used => format!("  {} more", self.instructions - used),
            _ => String::new(),
        };
        writeln!(f, "  {:>2} {:<10} {count:>12}{more}", self.records, self.filter)
    }
}
