//! What crashed: signal, stack, registers, threads.

use super::html::{Html, list, text};
use super::source::{Sources, of_place};
use crate::folded_stack::{Part, fold};
use serde_json::Value;

/// The order in which people know them; others follow.
const REGISTERS: [&str; 18] = [
    "rip", "rflags", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12",
    "r13", "r14", "r15",
];

/// So many frames have their source text beside them: the innermost whose text there is.
const WITH_SOURCE: usize = 8;
/// Frames behind these are folded: those of an asynchronous runtime are many.
const UNFOLDED: usize = 24;

/// So much of what is damaged is named.
const MOST_DAMAGE: usize = 5;

pub(super) fn section(core: &Value) -> String {
    let mut html = Html::new();
    let signal = &core["signal"];
    html.raw("<p class=\"lead\">");
    html.element("b", "", &text(&signal["name"]));
    let cause = text(&signal["cause"]);
    if !cause.is_empty() {
        html.text(&format!(": {cause}"));
    }
    html.raw("</p>\n");
    if let Some(overflow) = signal["stack_overflow"].as_str() {
        html.element("p", "lead", overflow);
    }
    if let Some(said) = signal["abort_message"].as_str() {
        html.element("p", "lead", &format!("libc said: {said}"));
    }
    let damage = list(&core["damage"]);
    if !damage.is_empty() {
        html.element("p", "lead", "The core is damaged. All on this page is of what it has:");
        html.raw("<ul>\n");
        for what in damage.iter().take(MOST_DAMAGE) {
            html.element("li", "", &text(what));
        }
        if damage.len() > MOST_DAMAGE {
            html.element(
                "li",
                "",
                &format!("and {} more, which gretel core names", damage.len() - MOST_DAMAGE),
            );
        }
        html.raw("</ul>\n");
    }
    html.raw("<table class=\"facts\">\n");
    let process = &core["process"];
    html.fact("command", &text(&process["arguments"]));
    html.fact("process", &text(&process["pid"]));
    for (name, key) in [("instructions", "instructions"), ("branches taken", "taken_branches")] {
        let count = &core["counters"][key];
        if !count.is_null() {
            html.fact(name, &text(count));
        }
    }
    html.raw("</table>\n<h3>Stack</h3>\n");
    stack(&mut html, core);
    registers(&mut html, core);
    threads(&mut html, core);
    html.finish()
}

/// The frames, with recursion folded.
fn stack(html: &mut Html, core: &Value) {
    let frames = list(&core["stack"]);
    let places: Vec<String> = frames.iter().map(|frame| text(&frame["place"])).collect();
    let (mut sources, mut excerpts) = (Sources::default(), 0);
    html.raw("<ol class=\"stack\" start=\"0\">\n");
    let parts = fold(&places);
    let unfolded = if parts.len() > UNFOLDED + UNFOLDED / 2 { UNFOLDED } else { parts.len() };
    for (number, part) in parts.iter().enumerate() {
        if number == unfolded {
            let more = parts.len() - unfolded;
            html.raw(&format!("</ol>\n<details><summary>{more} more frames</summary><ol class=\"stack\">\n"));
        }
        match *part {
            Part::Frame(n) => {
                html.raw(&format!("<li value=\"{n}\">"));
                excerpts += usize::from(frame(html, &mut sources, excerpts, &frames[n], &places[n]));
            }
            Part::Repeated { first, count, period } => {
                html.raw(&format!("<li value=\"{first}\">"));
                let above = if period == 1 { "the one".to_owned() } else { format!("the {period}") };
                html.element("span", "note", &format!("{count} more frames, which repeat {above} above"));
            }
        }
        html.raw("</li>\n");
    }
    html.raw("</ol>\n");
    if unfolded < parts.len() {
        html.raw("</details>\n");
    }
    if let Some(why) = core["stack_stopped"].as_str() {
        html.element("p", "warn", &format!("the stack ends here: {why}"));
    }
}

/// A frame, with its source text if not enough frames had theirs; whether it has it.
fn frame(html: &mut Html, sources: &mut Sources, excerpts: usize, frame: &Value, place: &str) -> bool {
    html.element("code", "", place);
    for (key, note) in
        [("guessed", "a guess"), ("inlined", "inlined"), ("signal", "a signal interrupted this")]
    {
        if frame[key] == true {
            html.raw(" ");
            html.element("span", "note", note);
        }
    }
    let at = of_place(place).filter(|_| excerpts < WITH_SOURCE);
    at.is_some_and(|(file, line)| sources.excerpt(html, file, line))
}

/// The registers that an object has.
pub(super) fn registers(html: &mut Html, core: &Value) {
    let Some(all) = core["registers"].as_object() else { return };
    html.raw("<details><summary>Registers</summary><div class=\"registers\">");
    let place = |name: &str| REGISTERS.iter().position(|it| *it == name).unwrap_or(REGISTERS.len());
    let mut all: Vec<(&String, &Value)> = all.iter().collect();
    all.sort_by_key(|(name, _)| place(name));
    for (name, value) in all {
        html.raw("<span>");
        html.element("b", "", name);
        html.element("code", "", &text(value));
        html.raw("</span>");
    }
    html.raw("</div></details>\n");
}

fn threads(html: &mut Html, core: &Value) {
    let threads = list(&core["threads"]);
    if threads.len() < 2 {
        return;
    }
    html.raw(&format!("<details><summary>{} threads</summary><table>\n", threads.len()));
    html.heads(&["thread", "instruction", "where"]);
    html.raw("<tbody>");
    for thread in threads {
        html.row(&[&text(&thread["id"]), &text(&thread["rip"]), &text(&thread["place"])]);
    }
    html.raw("</tbody></table></details>\n");
}
