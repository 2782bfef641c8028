//! How wide the text is, and what is coloured in it: by the formatter's width, and its `#`.

use super::COLUMNS;
use crate::suffix::Origin;
use std::fmt::Formatter;

/// A terminal narrower than this breaks the lines itself.
const NARROWEST: usize = 60;
/// How many columns the values of an instruction need.
const OF_VALUES: usize = 46;
/// Where they begin at the latest.
const VALUES: usize = 64;

/// How something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// As all the rest.
    Plain,
    /// What heads other lines.
    Bold,
    /// Inferred: cyan.
    Inferred,
    /// Chosen: yellow.
    Chosen,
    /// What follows is forced: green.
    Sure,
    /// The crash: red.
    Crash,
}

impl From<Origin> for Colour {
    fn from(origin: Origin) -> Colour {
        match origin {
            Origin::Core => Colour::Plain,
            Origin::Forced => Colour::Inferred,
            Origin::Chosen => Colour::Chosen,
        }
    }
}

/// The width and whether there are colours.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) columns: usize,
    coloured: bool,
}

impl Style {
    pub(super) fn of(f: &Formatter<'_>) -> Style {
        Style { columns: f.width().unwrap_or(COLUMNS).max(NARROWEST), coloured: f.alternate() }
    }

    /// The column at which the values of an instruction begin.
    pub(super) fn values(self) -> usize {
        VALUES.min(self.columns - OF_VALUES.min(self.columns / 2))
    }

    /// The text in a colour (ECMA-48, SGR).
    pub(super) fn paint(self, text: &str, colour: Colour) -> String {
        let code = match colour {
            _ if !self.coloured => return text.to_owned(),
            Colour::Plain => return text.to_owned(),
            Colour::Bold => "1",
            Colour::Inferred => "36",
            Colour::Chosen => "33",
            Colour::Sure => "32",
            Colour::Crash => "1;31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
