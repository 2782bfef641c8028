//! Variables, registers and expressions as the editor shows them.

use super::debuggee::Debuggee;
use super::protocol::{Answer, DataInfo, Shown as Asked};
use super::stack::{Held, Shown};
use crate::values::{Child, Value as Of, Variable, World, evaluate, number, show};
use serde_json::{Value, json};
use std::ops::Range;
use x86::op::Gpr;

/// Elements that are shown at once where the editor does not say how many.
const MOST: u64 = 200;
/// Bytes that one data breakpoint can be of.
pub(super) const LARGEST_WATCH: u64 = 1 << 16;

/// A value that is shown.
struct Line {
    name: String,
    text: String,
    kind: String,
    expression: String,
    /// What taking it apart gives: elements, others.
    parts: (u64, u64),
    memory: Option<u64>,
    value: Option<Of>,
}

impl Line {
    fn of(child: Child, world: &dyn World) -> Line {
        Line {
            name: child.name,
            text: show(&child.value, world),
            kind: child.value.type_name(),
            expression: child.expression,
            parts: child.value.count(world),
            memory: child.value.memory_reference(world),
            value: Some(child.value),
        }
    }

    /// What is no value: a remark.
    fn remark(name: &str, text: String) -> Line {
        Line {
            name: name.to_owned(),
            text,
            kind: String::new(),
            expression: String::new(),
            parts: (0, 0),
            memory: None,
            value: None,
        }
    }
}

impl Debuggee {
    /// `variables`.
    pub(super) fn variables(&mut self, asked: &Asked) -> Answer {
        let held = self.handles.held(asked.variables_reference)?;
        let count = if asked.count == 0 { MOST } else { asked.count.min(10 * MOST) };
        let range = asked.start..asked.start.saturating_add(count);
        let cut = asked.count == 0;
        let (shown, lines) = match held {
            Held::Arguments(shown) => (shown, self.locals(shown, true)),
            Held::Locals(shown) => (shown, self.locals(shown, false)),
            Held::Globals(shown) => (shown, self.globals(shown, &range)),
            Held::Registers(shown) => (shown, self.registers(shown)),
            Held::Value(shown, value, expression) => {
                (shown, self.parts(shown, &value, &expression, range, cut))
            }
        };
        let variables: Vec<_> = lines.into_iter().map(|line| self.variable(shown, line)).collect();
        Ok(json!({ "variables": variables }))
    }

    fn locals(&mut self, shown: Shown, parameters: bool) -> Vec<Line> {
        let sight = self.sight(shown.thread);
        let function = sight.function(shown.frame, shown.level);
        let all = function.as_ref().map_or(&[][..], |function| function.variables());
        let wanted = all.iter().filter(|variable| variable.parameter == parameters);
        let child = |variable: &Variable| Child {
            value: variable.value(&sight, shown.frame),
            expression: variable.name.clone(),
            name: variable.name.clone(),
        };
        wanted.map(|variable| Line::of(child(variable), &sight)).collect()
    }

    fn globals(&mut self, shown: Shown, range: &Range<u64>) -> Vec<Line> {
        let sight = self.sight(shown.thread);
        let function = sight.function(shown.frame, shown.level);
        let all = function.map(|function| function.globals()).unwrap_or_default();
        let total = all.len() as u64;
        let (skip, take) = (range.start, range.end - range.start);
        let [skip, take] = [skip, take].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let mut lines: Vec<_> = all
            .into_iter()
            .skip(skip)
            .take(take)
            .map(|variable| {
                let value = variable.value(&sight, shown.frame);
                Line::of(Child { expression: variable.name.clone(), name: variable.name, value }, &sight)
            })
            .collect();
        if total > range.end {
            lines.push(Line::remark(
                "...",
                format!("{} more are not shown; an expression shows each", total - range.end),
            ));
        }
        lines
    }

    fn registers(&mut self, shown: Shown) -> Vec<Line> {
        let sight = self.sight(shown.thread);
        let names = Gpr::NAMES.iter().copied().chain(["rip", "fs_base"]).map(str::to_owned);
        let vectors = (0..16).map(|n| format!("xmm{n}"));
        let line = |name: String| {
            let expression = format!("${name}");
            match evaluate(&sight, shown.frame, None, &expression) {
                Ok(value) => {
                    let hex = value_hex(&value, &sight);
                    Line { text: hex, ..Line::of(Child { name, expression, value }, &sight) }
                }
                Err(why) => Line::remark(&name, format!("<{why}>")),
            }
        };
        names.chain(vectors.filter(|_| shown.frame == 0)).map(line).collect()
    }

    fn parts(
        &mut self,
        shown: Shown,
        value: &Of,
        expression: &str,
        range: Range<u64>,
        cut: bool,
    ) -> Vec<Line> {
        let sight = self.sight(shown.thread);
        let (elements, _) = value.count(&sight);
        let children = value.children(&sight, expression, range.clone());
        let mut lines: Vec<_> = children.into_iter().map(|child| Line::of(child, &sight)).collect();
        if cut && elements > range.end {
            let more = elements - range.end;
            lines.push(Line::remark("...", format!("{more} more elements; {expression}[N] shows each")));
        }
        lines
    }

    /// A variable as DAP has it.
    fn variable(&mut self, shown: Shown, line: Line) -> Value {
        let mut variable = json!({ "name": line.name, "value": line.text, "variablesReference": 0 });
        if !line.kind.is_empty() {
            variable["type"] = line.kind.into();
        }
        if !line.expression.is_empty() {
            variable["evaluateName"] = line.expression.clone().into();
        }
        if let Some(address) = line.memory {
            variable["memoryReference"] = format!("{address:#x}").into();
        }
        if let (Some(value), (elements, others)) = (line.value, line.parts)
            && elements + others > 0
        {
            if elements > 0 {
                variable["indexedVariables"] = elements.into();
            }
            variable["variablesReference"] =
                self.handles.hold(Held::Value(shown, value, line.expression)).into();
        }
        variable
    }

    /// `evaluate`, of an expression.
    pub(super) fn evaluate(&mut self, frame: Option<u64>, expression: &str) -> Answer {
        let shown = self.frame_of(frame)?;
        let sight = self.sight(shown.thread);
        let function = sight.function(shown.frame, shown.level);
        let value = evaluate(&sight, shown.frame, function.as_ref(), expression)?;
        let is_register = expression.trim_start().starts_with('$') && value.address().is_none();
        let line = Line::of(
            Child { name: String::new(), expression: expression.trim().to_owned(), value: value.clone() },
            &sight,
        );
        let line = if is_register { Line { text: value_hex(&value, &sight), ..line } } else { line };
        let mut answer = self.variable(shown, line);
        answer["result"] = answer["value"].take();
        if let Some(fields) = answer.as_object_mut() {
            ["value", "name", "evaluateName"].iter().for_each(|name| drop(fields.remove(*name)));
        }
        Ok(answer)
    }

    /// Where an expression's value is in memory, and its size.
    pub(super) fn located(&mut self, shown: Shown, expression: &str) -> Result<(u64, u64), String> {
        let sight = self.sight(shown.thread);
        let function = sight.function(shown.frame, shown.level);
        let value = evaluate(&sight, shown.frame, function.as_ref(), expression)?;
        let address = value.address().ok_or_else(|| format!("`{expression}` is not in memory here"))?;
        let size = value.size().filter(|size| (1..=LARGEST_WATCH).contains(size));
        Ok((address, size.ok_or_else(|| format!("`{expression}` is not 1 to {LARGEST_WATCH} bytes"))?))
    }

    /// `dataBreakpointInfo`.
    pub(super) fn data_info(&mut self, asked: &DataInfo) -> Answer {
        let found = self.data_place(asked);
        Ok(match found {
            Ok((address, size, name)) => json!({
                "dataId": format!("{address:#x}:{size} {name}"),
                "description": format!("{name}: {size} bytes at {address:#x}"),
                "accessTypes": ["write", "read", "readWrite"],
                "canPersist": false,
            }),
            Err(why) => json!({ "dataId": null, "description": why }),
        })
    }

    fn data_place(&mut self, asked: &DataInfo) -> Result<(u64, u64, String), String> {
        if asked.as_address {
            let address = number(&asked.name).ok_or_else(|| format!("`{}` is no address", asked.name))?;
            return Ok((address, asked.bytes.unwrap_or(1), asked.name.clone()));
        }
        let (shown, expression) = match asked.variables_reference {
            0 => (self.frame_of(asked.frame_id)?, asked.name.clone()),
            reference => self.child_expression(reference, &asked.name)?,
        };
        let (address, size) = self.located(shown, &expression)?;
        Ok((address, asked.bytes.unwrap_or(size), expression))
    }

    /// The expression that gives a part of what a number stands for.
    fn child_expression(&mut self, reference: u64, name: &str) -> Result<(Shown, String), String> {
        match self.handles.held(reference)? {
            Held::Arguments(shown) | Held::Locals(shown) | Held::Globals(shown) => {
                Ok((shown, name.to_owned()))
            }
            Held::Registers(_) => Err("a register is not in memory".to_owned()),
            Held::Value(shown, value, expression) => {
                let sight = self.sight(shown.thread);
                let at = name.trim_start_matches('[').trim_end_matches(']').parse::<u64>();
                let range = at.map_or(0..MOST, |at| at..at.saturating_add(1));
                let child = value.children(&sight, &expression, range).into_iter().find(|it| it.name == name);
                let child = child.ok_or_else(|| format!("`{expression}` has no part `{name}`"))?;
                Ok((shown, child.expression))
            }
        }
    }
}

/// A register in hexadecimal digits.
fn value_hex(value: &Of, world: &dyn World) -> String {
    value.hex(world).unwrap_or_else(|why| format!("<{why}>"))
}
