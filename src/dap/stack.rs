//! The stack as the editor shows it: a frame for each function of the source, inlined ones too; and the numbers by which the editor asks
//! for frames and values.

use super::debuggee::Debuggee;
use super::protocol::{Answer, StackTrace};
use crate::sight::Sight;
use crate::symbols::without_parameters;
use crate::values::{Function, Value as Of, World};
use serde_json::json;

/// Frames that are shown at once where the editor does not say how many.
const MOST: usize = 1000;

/// A frame that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) thread: i32,
    /// The call, the innermost is 0.
    pub(super) frame: usize,
    /// Which function of the source: the innermost inlined one is 0.
    pub(super) level: usize,
}

/// What a `variablesReference` stands for.
#[derive(Clone)]
pub(super) enum Held {
    Arguments(Shown),
    Locals(Shown),
    Globals(Shown),
    Registers(Shown),
    /// A value, and the expression that gives it.
    Value(Shown, Of, String),
}

/// The numbers of frames and values of this stop.
#[derive(Default)]
pub(super) struct Handles {
    frames: Vec<Shown>,
    held: Vec<Held>,
    /// Numbers that earlier stops gave: what has one is no more.
    past: u64,
}

impl Handles {
    pub(super) fn clear(&mut self) {
        self.past += self.frames.len() as u64 + self.held.len() as u64;
        self.frames.clear();
        self.held.clear();
    }

    fn frame(&mut self, shown: Shown) -> u64 {
        let known = self.frames.iter().position(|it| *it == shown);
        let place = known.unwrap_or_else(|| {
            self.frames.push(shown);
            self.frames.len() - 1
        });
        self.past * 2 + place as u64 * 2 + 2
    }

    pub(super) fn shown(&self, id: u64) -> Result<Shown, String> {
        let place = id.checked_sub(self.past * 2 + 2).filter(|place| place % 2 == 0);
        let place = place.and_then(|place| usize::try_from(place / 2).ok());
        let found = place.and_then(|place| self.frames.get(place)).copied();
        found.ok_or_else(|| format!("there is no frame {id}: the program has moved since, or never had it"))
    }

    pub(super) fn hold(&mut self, held: Held) -> u64 {
        self.held.push(held);
        self.past * 2 + self.held.len() as u64 * 2 - 1
    }

    pub(super) fn held(&self, reference: u64) -> Result<Held, String> {
        let place = reference.checked_sub(self.past * 2 + 1).filter(|place| place % 2 == 0);
        let place = place.and_then(|place| usize::try_from(place / 2).ok());
        let found = place.and_then(|place| self.held.get(place)).cloned();
        found.ok_or_else(|| {
            format!("there is nothing with number {reference}: the program has moved since, or never had it")
        })
    }
}

/// A frame before it gets a number.
struct Line {
    shown: Shown,
    rip: u64,
    name: String,
    source: Option<(String, u32)>,
}

impl Debuggee {
    /// `stackTrace`.
    pub(super) fn stack_trace(&mut self, asked: &StackTrace) -> Answer {
        let thread = self.thread(asked.thread_id)?;
        let levels = if asked.levels == 0 { MOST } else { asked.levels };
        let end = asked.start_frame.saturating_add(levels);
        // A call is at least one frame; one more says whether there are others.
        let (lines, stopped) = self.lines_of(thread, end.saturating_add(1));
        let total = lines.len();
        let mut frames = Vec::new();
        for line in lines.into_iter().skip(asked.start_frame).take(levels) {
            let mut frame = json!({
                "id": self.handles.frame(line.shown),
                "name": line.name,
                "line": 0,
                "column": 0,
                "instructionPointerReference": format!("{:#x}", line.rip),
            });
            match line.source {
                Some((file, number)) => {
                    frame["source"] = self.source_of_line(&file, number);
                    frame["line"] = number.into();
                }
                None => frame["presentationHint"] = "subtle".into(),
            }
            frames.push(frame);
        }
        if let Some(why) = stopped.filter(|_| total < end) {
            frames.push(json!({
                "id": 0, "line": 0, "column": 0, "presentationHint": "label",
                "name": format!("the stack ends here: {why}"),
            }));
        }
        Ok(json!({ "totalFrames": total.max(asked.start_frame + frames.len()), "stackFrames": frames }))
    }

    fn lines_of(&mut self, thread: i32, most: usize) -> (Vec<Line>, Option<String>) {
        let sight = Sight::new(self.travel.process(), &self.known, thread, None);
        let (frames, stopped) = sight.frames(most);
        let mut lines = Vec::new();
        for (n, frame) in frames.iter().enumerate() {
            let module = self.known.symbols.module_at(frame.pc);
            let mut source = module.map(|module| module.names().source_frames(frame.pc)).unwrap_or_default();
            if source.is_empty() {
                source.push(synth::program::SourceFrame::default());
            }
            let info = self.known.info(frame.pc);
            // Where several lines begin at an address, this knows which of them is a statement.
            let innermost = info.as_ref().and_then(|info| info.source_line(frame.pc));
            let functions = self.known.functions(frame.pc);
            for (level, of) in source.into_iter().enumerate() {
                let inlined = level + 1 < functions.len();
                let named = of.function.map(|name| without_parameters(&name).to_owned());
                let named = named.or_else(|| functions.get(level).and_then(Function::name));
                let named =
                    named.or_else(|| sight.name(frame.rip)).unwrap_or_else(|| format!("{:#x}", frame.rip));
                let name = if inlined { format!("{named} (inlined)") } else { named };
                let source = innermost.clone().filter(|_| level == 0).or_else(|| of.file.zip(of.line));
                lines.push(Line { shown: Shown { thread, frame: n, level }, rip: frame.rip, name, source });
            }
        }
        (lines, stopped)
    }

    /// `scopes`.
    pub(super) fn scopes(&mut self, frame_id: Option<u64>) -> Answer {
        let shown = self.handles.shown(frame_id.ok_or("a frame is missing")?)?;
        let function = self.sight(shown.thread).function(shown.frame, shown.level);
        let mut scopes = Vec::new();
        let mut add = |name: &str, hint: &str, held: Held, expensive: bool| {
            let reference = self.handles.hold(held);
            scopes.push(json!({
                "name": name, "presentationHint": hint, "variablesReference": reference, "expensive": expensive,
            }));
        };
        if function.is_some() {
            add("Arguments", "arguments", Held::Arguments(shown), false);
            add("Locals", "locals", Held::Locals(shown), false);
            add("Globals of this file", "globals", Held::Globals(shown), true);
        }
        add("Registers", "registers", Held::Registers(shown), true);
        Ok(json!({ "scopes": scopes }))
    }

    /// The frame that a request names; the innermost of the loaded thread where it names none.
    pub(super) fn frame_of(&self, id: Option<u64>) -> Result<Shown, String> {
        match id {
            Some(id) => self.handles.shown(id),
            None => Ok(Shown { thread: self.loaded(), frame: 0, level: 0 }),
        }
    }
}
