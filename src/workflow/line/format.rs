//! Formats drafts: on one line if it fits, otherwise with a step on each line.

use std::fmt::Write as _;
use std::time::Duration;

use callboard_text::is_unseen;
use serde_json::Value;

use crate::messages::{Condition, JoinPolicy, MAX_JSON_DEPTH};
use crate::workflow::draft::{Draft, GotoDraft, Node, RepeatDraft, WorkDraft};

use super::layout::Layout;
use super::steps::{NodeStep, Step, UNNAMED};
use super::syntax::{self, is_name};
use super::{lower, raise, tokens};

/// The draft as text, with a line break at its end; `None` if the syntax cannot express it: if it has channels, a description or
/// an output, names that are no identifiers or not unique, or edges that no groups, branchings and catches have.
///
/// [`parse`](super::parse) reads it back to the same draft, except for positions. A draft has no comments.
pub(in crate::workflow) fn format(draft: &Draft) -> Option<String> {
    if draft.description.is_some() || !draft.channels.is_empty() || draft.output.is_some() {
        return None;
    }
    let steps = raise::steps(&draft.nodes)?;
    let mut text = String::new();
    if draft.name.value != UNNAMED {
        let name = &draft.name.value;
        let name = if is_name(name) { name.clone() } else { quoted(name) };
        text = std::format!("workflow {name}:\n");
    }
    text += &Layout::Group(alternatives(&steps)?).write();
    text.push('\n');
    // The text may be nested too deep, or have too many nodes.
    let is_read = tokens::read(&text).is_ok_and(|tokens| syntax::read(&tokens, text.len()).is_ok());
    is_read.then_some(text)
}

/// A position where several sequences are allowed: a group needs no brackets of its own.
fn alternatives(steps: &[Step]) -> Option<Vec<Layout>> {
    match steps {
        [Step::Group { branches, policy, .. }] if policy.value == JoinPolicy::All => {
            separated(branches.iter().map(|steps| sequence(steps)), " ", "| ")
        }
        steps => sequence(steps).map(|steps| vec![steps]),
    }
}

fn sequence(steps: &[Step]) -> Option<Layout> {
    let mut parts = steps.iter().map(step);
    let mut layout = vec![parts.next()??];
    let mut rest = Vec::new();
    for part in parts {
        rest.extend([Layout::Break(" "), Layout::text("-> "), part?]);
    }
    layout.push(Layout::Indented(rest));
    Some(Layout::Group(layout))
}

/// Parts with a break and a sign before each but the first.
fn separated(
    parts: impl Iterator<Item = Option<Layout>>,
    gap: &'static str,
    sign: &'static str,
) -> Option<Vec<Layout>> {
    let mut layout = Vec::new();
    for part in parts {
        if !layout.is_empty() {
            layout.extend([Layout::Break(gap), Layout::text(sign)]);
        }
        layout.push(part?);
    }
    Some(layout)
}

/// Parts in brackets with commas after them.
fn list(open: impl Into<String>, parts: Vec<Layout>, close: &'static str) -> Layout {
    let mut inside = vec![Layout::Break("")];
    let count = parts.len();
    for (position, part) in (1..).zip(parts) {
        inside.push(part);
        if position < count {
            inside.extend([Layout::text(","), Layout::Break(" ")]);
        }
    }
    Layout::Group(vec![Layout::text(open), Layout::Indented(inside), Layout::Break(""), Layout::text(close)])
}

fn braces(steps: &[Step]) -> Option<Layout> {
    let mut inside = vec![Layout::Break(" ")];
    inside.extend(alternatives(steps)?);
    Some(Layout::Group(vec![Layout::text("{"), Layout::Indented(inside), Layout::Break(" "), Layout::text("}")]))
}

fn step(step: &Step) -> Option<Layout> {
    match step {
        Step::Node(step) => node(step),
        Step::Group { branches, policy, .. } => {
            let word = match policy.value {
                JoinPolicy::All => {
                    let mut inside = vec![Layout::Break("")];
                    inside.extend(separated(branches.iter().map(|steps| sequence(steps)), " ", "| ")?);
                    let (open, close) = (Layout::text("("), Layout::text(")"));
                    return Some(Layout::Group(vec![open, Layout::Indented(inside), Layout::Break(""), close]));
                }
                JoinPolicy::AtLeast(1) => "any(".to_owned(),
                JoinPolicy::AtLeast(count) => std::format!("at_least({count}, "),
                JoinPolicy::Settled => "settled(".to_owned(),
            };
            let branches = branches.iter().map(|steps| alternatives(steps).map(Layout::Group));
            Some(list(word, branches.collect::<Option<_>>()?, ")"))
        }
        Step::If { condition: holds, then, otherwise, .. } => {
            let mut layout = vec![Layout::text(std::format!("if({}) ", condition(&holds.value)?)), braces(then)?];
            match otherwise.as_deref() {
                None => {}
                Some([inner @ Step::If { .. }]) => layout.extend([Layout::text(" else "), self::step(inner)?]),
                Some(steps) => layout.extend([Layout::text(" else "), braces(steps)?]),
            }
            Some(Layout::Group(layout))
        }
    }
}

fn node(step: &NodeStep) -> Option<Layout> {
    let NodeStep { node, body, rescue } = step;
    let name = &node.name.value;
    let word = lower::word(node);
    if !(is_name(name) || name.is_empty() && word.is_some()) {
        return None;
    }
    let arguments = arguments(node)?;
    let head = match word {
        None => name.clone(),
        Some(word) if name.is_empty() => word.to_owned(),
        Some("block") if arguments.is_empty() => std::format!("{name}:"),
        Some(word) => std::format!("{name}: {word}"),
    };
    let mut layout = vec![if arguments.is_empty() { Layout::text(head) } else { list(head + "(", arguments, ")") }];
    if let Some(steps) = body {
        layout.extend([Layout::text(" "), braces(steps)?]);
    }
    if let Some(steps) = rescue {
        layout.extend([Layout::text(" catch "), braces(steps)?]);
    }
    Some(Layout::Group(layout))
}

fn arguments(node: &Node) -> Option<Vec<Layout>> {
    if !node.repeats.is_empty() {
        return None;
    }
    let mut arguments = Vec::new();
    let mut add = |key: &str, value: String| arguments.push((key.to_owned(), Layout::text(value)));
    let mut result = None;
    match &node.work {
        WorkDraft::Agent(agent) if agent.value == node.name.value => {}
        WorkDraft::Agent(agent) => add("agent", quoted(&agent.value)),
        WorkDraft::Workflow(workflow) => add("workflow", quoted(&workflow.value)),
        WorkDraft::Join if node.repeat.is_some() => return None,
        WorkDraft::Join => {}
        WorkDraft::Nodes { output, .. } => result = output.as_ref(),
    }
    match &node.repeat {
        Some(RepeatDraft::Loop { until, max, ends_at_max }) => {
            if let Some(until) = until {
                add("until", condition(&until.value)?);
            }
            add("max", max.value.to_string());
            // A loop without a condition stops at its bound by default.
            match (until, ends_at_max) {
                (Some(_), true) => add("at_max", quoted("stop")),
                (None, false) => add("at_max", quoted("refuse")),
                (Some(_), false) | (None, true) => {}
            }
        }
        Some(RepeatDraft::Map { over, max }) => {
            add("over", quoted(&over.value));
            if let Some(max) = max {
                add("max", max.value.to_string());
            }
        }
        // Made from `goto`, which is written instead.
        Some(RepeatDraft::Back { .. }) => return None,
        None => {}
    }
    if let Some(when) = &node.when {
        add("when", condition(&when.value)?);
    }
    if let Some(attempts) = &node.attempts {
        add("attempts", attempts.value.to_string());
    }
    if let Some(timeout) = &node.timeout {
        add("timeout", time(timeout.value)?);
    }
    if let Some(agent) = &node.compensation {
        add("compensate", quoted(&agent.value));
    }
    if node.is_interrupted {
        add("interrupt", quoted("before"));
    }
    if let Some(channel) = &node.saves {
        add("save", quoted(&channel.value));
    }
    if !node.goto.is_empty() {
        arguments.push(("goto".to_owned(), list("[", node.goto.iter().map(target).collect(), "]")));
    }
    for (key, json) in [("input", node.input.as_ref()), ("output", result)] {
        if let Some(json) = json {
            arguments.push((key.to_owned(), value(&json.value, 0)?));
        }
    }
    let written = |(key, value)| Layout::Group(vec![Layout::text(key + "="), value]);
    Some(arguments.into_iter().map(written).collect())
}

fn condition(condition: &Condition) -> Option<String> {
    match condition {
        Condition::Expression(expression) => Some(quoted(expression)),
        Condition::Predicate(name) => Some(std::format!("predicate({})", quoted(name))),
        Condition::NotPredicate(_) => None,
    }
}

fn target(target: &GotoDraft) -> Layout {
    let to = quoted(&target.to.value);
    Layout::Text(match &target.max {
        Some(max) => std::format!("back({to}, {})", max.value),
        None => to,
    })
}

/// The time in the largest unit that divides it.
fn time(time: Duration) -> Option<String> {
    if !time.subsec_nanos().is_multiple_of(1_000_000) {
        return None;
    }
    let millis = time.as_millis();
    let units = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let (unit, size) = units.into_iter().find(|(_, size)| millis.is_multiple_of(*size))?;
    let count = u64::try_from(millis / size).ok()?;
    Some(std::format!("\"{count}{unit}\""))
}

fn value(json: &Value, depth: usize) -> Option<Layout> {
    if depth > MAX_JSON_DEPTH {
        return None;
    }
    Some(match json {
        Value::Null | Value::Bool(_) | Value::Number(_) => Layout::Text(json.to_string()),
        Value::String(text) => Layout::Text(quoted(text)),
        Value::Array(items) => list("[", items.iter().map(|item| value(item, depth + 1)).collect::<Option<_>>()?, "]"),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| {
                let key = if is_name(key) { key.clone() } else { quoted(key) };
                Some(Layout::Group(vec![Layout::Text(key + ": "), value(field, depth + 1)?]))
            });
            list("{", fields.collect::<Option<_>>()?, "}")
        }
    })
}

/// A text in quotes; characters that are not shown are escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() || is_unseen(c) => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{{{:x}}}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
