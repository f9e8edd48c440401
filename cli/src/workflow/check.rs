//! `callboard workflow check`.

use std::path::PathBuf;

use serde_json::{Value, json};

use callboard::messages::visible;
use callboard::workflow::{Defect, Defects, Form, Source, Workflow};

use crate::exit::Exit;
use crate::page::{Failure, Page, count};

use super::read::{self, Texts};

/// Reports every defect in these workflows.
pub(crate) fn check(files: &[PathBuf], line: Option<&str>) -> Result<Page, Failure> {
    let Texts { read: texts, left_out } = read::texts(files, line)?;
    let read = read::workflows(files, &texts);
    let (mut text, mut remarks, mut rows, mut defects, mut wrong) = (String::new(), String::new(), Vec::new(), 0, 0);
    let all = texts.len() + left_out.len();
    let unread = left_out.iter().map(|unread| (&unread.origin, Err(unread.defects())));
    for (origin, read) in texts.iter().map(|text| &text.origin).zip(read).chain(unread) {
        match read {
            Ok(workflow) => {
                text.push_str(&format!("{}: {}\n", visible(origin), summary(&workflow)));
                rows.push(row(origin, &workflow));
            }
            Err(found) => {
                remarks.push_str(&format!("{found}\n\n"));
                (defects, wrong) = (defects + found.list().len(), wrong + 1);
                rows.push(json!({ "kind": "unread", "file": origin, "defects": defects_json(&found) }));
            }
        }
    }
    if defects > 0 {
        remarks.push_str(&format!("{} in {} of {}\n", count(defects, "defect"), wrong, count(all, "workflow")));
    }
    Ok(Page { exit: exit(defects > 0), remarks, ..Page::new(text, Value::from(rows)) })
}

/// Prints workflows of the one-line syntax in canonical form.
pub(crate) fn format(files: &[PathBuf], line: Option<&str>) -> Result<Page, Failure> {
    let (mut text, mut remarks) = (String::new(), String::new());
    for Source { origin, bytes, form } in read::texts_or_warn(files, line)? {
        if form == Form::Toml {
            let text = "only the one-line syntax has a canonical form; for TOML use a TOML formatter";
            return Err(Failure::usage(format!("{}: {text}", visible(&origin))));
        }
        let Ok(written) = String::from_utf8(bytes) else {
            return Err(Failure::usage(format!("{}: the text is not UTF-8", visible(&origin))));
        };
        match Workflow::formatted(&origin, &written) {
            Ok(formatted) => text.push_str(&format!("{}\n", callboard::messages::visible_lines(formatted.trim_end()))),
            Err(defects) => remarks.push_str(&format!("{defects}\n\n")),
        }
    }
    Ok(Page { exit: exit(!remarks.is_empty()), remarks, ..Page::new(text, Value::Null) })
}

/// The exit of a check.
pub(crate) fn exit(has_defects: bool) -> Exit {
    if has_defects { Exit::Usage } else { Exit::Done }
}

fn summary(workflow: &Workflow) -> String {
    let mut agents: Vec<String> = Vec::new();
    for agent in workflow.plan().cast() {
        if !agents.iter().any(|known| **known == **agent) {
            agents.push(agent.to_string());
        }
    }
    let mut parts = vec![count(workflow.plan().node_count(), "node")];
    if !agents.is_empty() {
        parts.push(format!("agents {}", agents.join(", ")));
    }
    let inputs: Vec<&str> = workflow.inputs().collect();
    if !inputs.is_empty() {
        parts.push(format!("reads {} of its input", inputs.join(", ")));
    }
    visible(&format!("{}: {}", workflow.name(), parts.join("; ")))
}

fn row(origin: &str, workflow: &Workflow) -> Value {
    json!({
        "kind": "workflow",
        "file": origin,
        "workflow": workflow.name(),
        "description": workflow.description(),
        "nodes": workflow.plan().node_count(),
        "agents": workflow.plan().cast(),
        "inputs": workflow.inputs().collect::<Vec<_>>(),
        "defects": [],
    })
}

/// The defects as JSON, with line and column.
pub(crate) fn defects_json(defects: &Defects) -> Vec<Value> {
    let place = |start: usize| {
        let before = defects.source().map_or("", |(_, text)| text.get(..start).unwrap_or(text));
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    };
    let row = |defect: &Defect| {
        let (line, column) = defect.place.as_ref().map(|range| place(range.start)).unzip();
        json!({ "problem": defect.problem, "advice": defect.advice, "line": line, "column": column })
    };
    defects.list().iter().map(row).collect()
}
