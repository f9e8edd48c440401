//! A picture as Mermaid text. Names are never used as ids, so no name can be a keyword.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::messages::On;

use super::node_state::NodeState;
use super::picture::{Arrow, Border, Figure, Picture};
use super::text::{MAX_SHOWN, clip, mermaid};

/// The picture as a flowchart.
pub(super) fn write(name: &str, picture: &Picture) -> String {
    let mut writer = Writer { text: "flowchart TD\n".to_owned(), next: 0, closed: Vec::new(), states: BTreeMap::new() };
    let title = words(name);
    if !title.is_empty() {
        let _ = writeln!(writer.text, "  accTitle: {title}");
    }
    writer.picture(picture, 1);
    writer.classes();
    writer.text
}

/// A name in the characters that Mermaid accepts without quotes, where nothing can be escaped.
fn words(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let words: String = clip(name, MAX_SHOWN).chars().map(|c| if is_plain(c) { c } else { ' ' }).collect();
    words.trim().to_owned()
}

/// Writing to a string cannot fail.
struct Writer {
    text: String,
    next: usize,
    /// Workflows of their own.
    closed: Vec<usize>,
    states: BTreeMap<NodeState, Vec<usize>>,
}

impl Writer {
    fn picture(&mut self, picture: &Picture, depth: usize) {
        let ids: Vec<usize> = picture.figures.iter().map(|figure| self.figure(figure, depth)).collect();
        for arrow in &picture.arrows {
            self.arrow(arrow, &ids, depth);
        }
    }

    fn figure(&mut self, figure: &Figure, depth: usize) -> usize {
        let id = self.next;
        self.next += 1;
        if let Some(progress) = figure.progress {
            self.states.entry(progress.state).or_default().push(id);
        }
        let pad = "  ".repeat(depth);
        let label = label_of(figure);
        match &figure.inner {
            Some(inner) => {
                let _ = writeln!(self.text, "{pad}subgraph n{id}[\"{label}\"]");
                self.picture(inner, depth + 1);
                let _ = writeln!(self.text, "{pad}end");
            }
            None => {
                let (open, close) = match figure.border {
                    Border::Plain | Border::Group | Border::Closed => ("[", "]"),
                    Border::Repeated => ("[[", "]]"),
                    Border::Join => ("([", "])"),
                };
                let _ = writeln!(self.text, "{pad}n{id}{open}\"{label}\"{close}");
            }
        }
        if figure.border == Border::Closed {
            self.closed.push(id);
        }
        id
    }

    fn arrow(&mut self, arrow: &Arrow, ids: &[usize], depth: usize) {
        let line = match arrow.on {
            On::Success => "-->",
            On::Failure => "-.->",
            On::Goto => "==>",
        };
        let label = arrow.label.as_ref().map(|label| format!("|\"{}\"|", mermaid(&clip(label, MAX_SHOWN))));
        let (pad, label) = ("  ".repeat(depth), label.unwrap_or_default());
        let _ = writeln!(self.text, "{pad}n{} {line}{label} n{}", ids[arrow.from], ids[arrow.to]);
    }

    fn classes(&mut self) {
        let closed = std::mem::take(&mut self.closed);
        if !closed.is_empty() {
            self.text.push_str("  classDef closed stroke-width:4px\n");
            self.class(&closed, "closed");
        }
        for (state, ids) in std::mem::take(&mut self.states) {
            let _ = writeln!(self.text, "  classDef {} {}", state.name(), style_of(state));
            self.class(&ids, state.name());
        }
    }

    fn class(&mut self, ids: &[usize], name: &str) {
        let ids: Vec<String> = ids.iter().map(|id| format!("n{id}")).collect();
        let _ = writeln!(self.text, "  class {} {name}", ids.join(","));
    }
}

fn label_of(figure: &Figure) -> String {
    let mut label = mermaid(&clip(&figure.name, MAX_SHOWN));
    for note in &figure.notes {
        let mark = if note.is_pause { "⏸ " } else { "" };
        let _ = write!(label, "<br/>{mark}{}", mermaid(&clip(&note.text, MAX_SHOWN)));
    }
    label
}

/// Colours that are legible on light and dark pages, each with its own border.
fn style_of(state: NodeState) -> &'static str {
    match state {
        NodeState::Waiting => "fill:#f6f8fa,stroke:#6e7781,color:#1f2328,stroke-dasharray:4 3",
        NodeState::Running => "fill:#ddf4ff,stroke:#0969da,color:#1f2328,stroke-width:3px",
        NodeState::Interrupted => "fill:#fff8c5,stroke:#9a6700,color:#1f2328,stroke-width:2px,stroke-dasharray:10 4",
        NodeState::Finished => "fill:#dafbe1,stroke:#1a7f37,color:#1f2328",
        NodeState::Undone => "fill:#fff1e5,stroke:#bc4c00,color:#1f2328,stroke-dasharray:6 3",
        NodeState::Failed => "fill:#ffebe9,stroke:#cf222e,color:#1f2328,stroke-width:4px",
        NodeState::Skipped => "fill:#f6f8fa,stroke:#8c959f,color:#57606a,stroke-dasharray:1 3",
        NodeState::Dropped => "fill:#eaeef2,stroke:#8c959f,color:#57606a,stroke-dasharray:8 3 1 3",
        NodeState::Open => "fill:#ddf4ff,stroke:#0969da,color:#1f2328,stroke-dasharray:12 3",
    }
}
