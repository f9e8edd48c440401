//! Progress of a workflow: a line for each event of a node.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::{Command, Failure, Pending, RunEvent, StateRules, visible};
use callboard::supervision::runs::{self, Run, TurnEvent, TurnStatus};

use crate::page::{brief, brief_json, duration, shown_node};
use crate::retry::without_limits;

/// How much of an output or an error one line shows, in characters.
const SHOWN: usize = 120;

/// Follows the events of a run and turns them into lines.
pub(crate) struct Follower {
    turns: runs::Follower,
    /// The last iteration of each loop, by the loop's path.
    iterations: BTreeMap<String, String>,
}

/// An event of a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) kind: Kind,
    node: String,
    text: String,
}

/// The kind of an event, which chooses the mark, and the colour on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Started,
    Finished,
    Failed,
    Retried,
    Waits,
    Repeated,
    Cancelled,
}

impl Follower {
    /// A follower that has received no event: the first is the submission.
    pub(crate) fn new(rules: StateRules) -> Self {
        Self { turns: runs::Follower::new(rules), iterations: BTreeMap::new() }
    }

    /// The number of the next event.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.turns.next_sequence()
    }

    /// Continues from the state of a run; returns lines for its open turns.
    pub(crate) fn catch_up(&mut self, run: Run) -> Vec<Line> {
        let events = self.turns.catch_up(run);
        self.lines(events)
    }

    /// Applies the next event; no lines for one that was applied already.
    pub(crate) fn take(&mut self, sequence: u64, event: &RunEvent) -> Vec<Line> {
        let events = self.turns.take(sequence, event);
        self.lines(events)
    }

    fn lines(&mut self, events: Vec<TurnEvent>) -> Vec<Line> {
        let mut lines = Vec::new();
        for event in events {
            let node = event.node.map_or_else(|| format!("turn {}", event.turn.number), |node| node.to_string());
            let (kind, text) = match event.status {
                TurnStatus::Started => (Kind::Started, format!("started: {}", event.agent)),
                TurnStatus::Interrupted => (Kind::Waits, "waits for a person".to_owned()),
                TurnStatus::Resumed { by } => (Kind::Started, format!("resumed by {}", brief(&by, SHOWN))),
                TurnStatus::Restarted => (Kind::Started, "begins again".to_owned()),
                TurnStatus::NeedsAttention { why } => (Kind::Waits, format!("needs attention: {}", brief(&why, SHOWN))),
                TurnStatus::Retrying { attempt, failure, until } => {
                    let (again, why) = (duration(until.since(event.at)), why_in_one_line(&failure));
                    (Kind::Retried, format!("attempt {attempt} failed, the next begins in {again}: {why}"))
                }
                TurnStatus::Finished { command, took } => {
                    (Kind::Finished, format!("finished after {}{}", duration(took), gave(&command)))
                }
                TurnStatus::Failed { failure, took } => {
                    (Kind::Failed, format!("failed after {}: {}", duration(took), why_in_one_line(&failure)))
                }
                TurnStatus::Cancelled => (Kind::Cancelled, "was cancelled".to_owned()),
            };
            lines.extend(iterations(&node, &mut self.iterations));
            let node = shown_node(&node, event.is_compensation);
            lines.push(Line { kind, node, text });
        }
        lines
    }

    /// The run as it stands after the events; `None` before the first.
    pub(crate) fn run(&self) -> Option<&Run> {
        self.turns.run()
    }

    /// The turns that need attention: their nodes and the reasons.
    pub(crate) fn troubled(&self) -> Vec<(String, String)> {
        let troubled = |open: Pending| match open {
            Pending::Attention { node, is_compensation, why, .. } => {
                Some((node.map(|node| shown_node(&node, is_compensation)).unwrap_or_default(), why))
            }
            Pending::Approval(_) | Pending::Question(_) | Pending::Node(_) => None,
        };
        self.turns.run().map(Run::pending).unwrap_or_default().into_iter().filter_map(troubled).collect()
    }

    /// Whether the run continues without a person, or has ended. The turns in `decided` were resumed, though no event reports it yet.
    pub(crate) fn continues(&self, decided: &BTreeSet<u32>) -> bool {
        let Some(run) = self.turns.run() else { return true };
        let open = run.open_turns().count();
        let is_held_up = |open: &Pending| match open {
            Pending::Node(interrupt) => !decided.contains(&interrupt.turn.number),
            Pending::Attention { .. } => true,
            Pending::Approval(_) | Pending::Question(_) => false,
        };
        open == 0 || open > run.pending().into_iter().filter(is_held_up).count()
    }
}

/// Lines for the loops around a node that have begun a new iteration.
fn iterations(node: &str, known: &mut BTreeMap<String, String>) -> Vec<Line> {
    let (mut path, mut lines) = (String::new(), Vec::new());
    for part in node.split('/') {
        if let Some((name, iteration)) = part.split_once('#') {
            let node = format!("{path}{name}");
            let last = known.insert(node.clone(), iteration.to_owned());
            if last.as_deref() != Some(iteration) {
                lines.push(Line { kind: Kind::Repeated, node, text: format!("iteration {iteration}") });
            }
        }
        path.push_str(part);
        path.push('/');
    }
    lines
}

/// The failure in one line; the standard error of a program has several.
fn why_in_one_line(failure: &Failure) -> String {
    brief(&without_limits(&failure.to_string()).replace('\n', " "), 4 * SHOWN)
}

fn gave(command: &Command) -> String {
    let shown = command.output.as_ref().map(|output| brief_json(output, SHOWN)).unwrap_or_default();
    if shown.is_empty() { shown } else { format!(": {shown}") }
}

impl Kind {
    /// The mark of a line, and the parameter of the escape sequence for its colour.
    pub(crate) fn mark(self) -> (&'static str, &'static str) {
        match self {
            Self::Started => ("▶", "36"),
            Self::Finished => ("✔", "32"),
            Self::Failed => ("✘", "31"),
            Self::Retried => ("…", "33"),
            Self::Waits => ("‖", "35"),
            Self::Repeated => ("↻", "34"),
            Self::Cancelled => ("–", "2"),
        }
    }
}

impl Line {
    /// The path of the node, or the number of the turn that is of none.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The line as text, with escape sequences for colours if `is_coloured`.
    pub(crate) fn shown(&self, is_coloured: bool) -> String {
        let Self { kind, node, text } = self;
        let (mark, colour) = kind.mark();
        let node = visible(node);
        if is_coloured {
            format!("\u{1b}[{colour}m{mark} {node}\u{1b}[0m {text}")
        } else {
            format!("{mark} {node} {text}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_has_a_line_for_each_iteration_and_not_for_each_of_its_nodes() {
        let mut known = BTreeMap::new();
        let mut shown =
            |node: &str| -> Vec<String> { iterations(node, &mut known).iter().map(|line| line.shown(false)).collect() };
        assert_eq!(shown("draft"), Vec::<String>::new());
        assert_eq!(shown("again#1/draft"), ["↻ again iteration 1"]);
        assert_eq!(shown("again#1/review"), Vec::<String>::new());
        assert_eq!(shown("again#2/inner#1/x"), ["↻ again iteration 2", "↻ again#2/inner iteration 1"]);
    }
}
