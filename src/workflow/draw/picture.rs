//! The content of a picture of a plan, without positions: boxes with their texts, and the arrows between them.

use std::collections::BTreeMap;

use crate::messages::{Block, Condition, JoinPolicy, On, PlanNode, Until, Work};

use super::node_state::{Count, NodeStates, path_of_node};

/// A block.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) figures: Vec<Figure>,
    pub(super) arrows: Vec<Arrow>,
}

/// A node.
#[derive(Debug)]
pub(super) struct Figure {
    /// The path from [`path_of_node`].
    pub(super) path: String,
    pub(super) name: String,
    pub(super) notes: Vec<Note>,
    pub(super) border: Border,
    pub(super) progress: Option<NodeStates>,
    pub(super) inner: Option<Picture>,
}

/// A line below the name.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) text: String,
    /// It waits for a person.
    pub(super) is_pause: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Border {
    /// A turn of an agent.
    Plain,
    /// A repeated turn or join.
    Repeated,
    /// A node without work.
    Join,
    /// Nodes that see the outputs of the enclosing block.
    Group,
    /// A workflow of its own.
    Closed,
}

/// An edge between two figures of a picture.
#[derive(Debug)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) on: On,
    pub(super) label: Option<String>,
}

type States<'a> = Option<&'a BTreeMap<String, NodeStates>>;

impl Picture {
    pub(super) fn of(block: &Block, states: States) -> Self {
        Self::within("", None, block, states)
    }

    /// The content of the node at `path`; `repeated` is its name if it is repeated.
    fn within(path: &str, repeated: Option<&str>, block: &Block, states: States) -> Self {
        let mut picture = Self { figures: Vec::with_capacity(block.nodes.len()), arrows: Vec::new() };
        for (to, node) in block.nodes.iter().enumerate() {
            let arrows = node.after.iter().filter(|edge| (edge.from as usize) < block.nodes.len());
            picture.arrows.extend(arrows.map(|edge| Arrow {
                from: edge.from as usize,
                to,
                on: edge.on,
                label: label_of(edge.on, edge.when.as_ref()),
            }));
            let key = path_of_node(path, &node.name, repeated);
            picture.figures.push(Figure::of(node, key, &path_of_node(path, &node.name, None), states));
        }
        picture
    }
}

impl Figure {
    fn of(node: &PlanNode, path: String, inner: &str, states: States) -> Self {
        let progress = states.and_then(|states| states.get(&path)).copied();
        let mut figure =
            Self { path, name: node.name.to_string(), notes: Vec::new(), border: Border::Plain, progress, inner: None };
        match &node.work {
            Work::Agent(_) | Work::Join => figure.note_work(node),
            Work::Block { body, is_closed } => {
                figure.border = if *is_closed { Border::Closed } else { Border::Group };
                if *is_closed {
                    figure.note("workflow of its own".to_owned());
                }
                figure.inner = Some(Picture::within(inner, None, body, states));
            }
            Work::Loop { body, .. } | Work::Map { body, .. } => match body.nodes.as_slice() {
                // A repeated turn is one box.
                [only] if only.name == node.name && only.work.body().is_none() => {
                    figure.note_work(only);
                    figure.note_rules(only);
                    figure.border = Border::Repeated;
                }
                _ => figure.inner = Some(Picture::within(inner, Some(&node.name), body, states)),
            },
        }
        if figure.inner.is_some() && figure.border == Border::Plain {
            figure.border = Border::Group;
        }
        figure.note_repetition(&node.work);
        figure.note_join(node);
        figure.note_rules(node);
        if let Some(progress) = progress {
            figure.note(state_of(progress, &node.work));
        }
        figure
    }

    fn note(&mut self, text: String) {
        self.notes.push(Note { text, is_pause: false });
    }

    fn note_work(&mut self, node: &PlanNode) {
        match &node.work {
            Work::Agent(agent) if *agent == node.name => {}
            Work::Agent(agent) => self.note(agent.to_string()),
            Work::Join => self.border = Border::Join,
            Work::Block { .. } | Work::Loop { .. } | Work::Map { .. } => {}
        }
    }

    fn note_repetition(&mut self, work: &Work) {
        match work {
            Work::Agent(_) | Work::Join | Work::Block { .. } => {}
            Work::Loop { until, max, ends_at_max, .. } => self.note(match until {
                Until::Bound => format!("{max} times"),
                Until::Holds(condition) => {
                    let end = if *ends_at_max { ", then stops" } else { "" };
                    format!("at most {max} times{end}, until {}", condition_of(condition))
                }
                Until::NotRepeated => format!("at most {max} times, when a command goes back"),
            }),
            Work::Map { over, max, .. } => self.note(format!("for each of at most {max} in {over}")),
        }
    }

    fn note_join(&mut self, node: &PlanNode) {
        let edges = node.after.len();
        match node.join {
            JoinPolicy::All => {}
            JoinPolicy::AtLeast(1) => self.note(format!("any of {edges}")),
            JoinPolicy::AtLeast(needed) => self.note(format!("{needed} of {edges}")),
            JoinPolicy::Settled => self.note("settled: all have ended".to_owned()),
        }
    }

    fn note_rules(&mut self, node: &PlanNode) {
        if let Some(condition) = &node.when {
            self.note(format!("if {}", condition_of(condition)));
        }
        if node.is_interrupted {
            self.notes.push(Note { text: "a person starts it".to_owned(), is_pause: true });
        }
        if node.may_repeat {
            self.note("may go back to the beginning".to_owned());
        }
        for exit in &node.exits {
            self.note(format!("may go out to {exit}"));
        }
        // A repeated turn has it on each repetition, not as a whole.
        if let Some(agent) = &node.compensation
            && !self.notes.iter().any(|note| note.text.strip_prefix("undone by ") == Some(agent))
        {
            self.note(format!("undone by {agent}"));
        }
    }
}

fn label_of(on: On, when: Option<&Condition>) -> Option<String> {
    let on = match on {
        On::Success => None,
        On::Failure => Some("on failure"),
        On::Goto => Some("goto"),
    };
    match (on, when.map(condition_of)) {
        (on, None) => on.map(str::to_owned),
        (None, when) => when,
        (Some(on), Some(when)) => Some(format!("{on}, {when}")),
    }
}

fn condition_of(condition: &Condition) -> String {
    match condition {
        Condition::Expression(source) => source.to_string(),
        Condition::Predicate(name) => format!("{name}?"),
        Condition::NotPredicate(name) => format!("not {name}?"),
    }
}

fn state_of(progress: NodeStates, work: &Work) -> String {
    let state = progress.state.name();
    match (progress.count, work) {
        (None, _) => state.to_owned(),
        (Some(Count::Iteration(now)), Work::Loop { max, .. }) => format!("{state}, time {now} of {max}"),
        (Some(Count::Iteration(now)), Work::Agent(_) | Work::Join | Work::Block { .. } | Work::Map { .. }) => {
            format!("{state}, time {now}")
        }
        (Some(Count::Items { done, of }), _) => format!("{state}, {done} of {of} done"),
    }
}
