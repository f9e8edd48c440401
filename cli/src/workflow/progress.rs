//! A run as it continues: the line that reports what has happened to a node.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::state::StateRules;
use callboard::messages::{Command, Failure, Published, visible};
use callboard::supervision::runs::follow::{self, TurnEvent, TurnStatus};
use callboard::supervision::runs::interrupts::Interrupt;
use callboard::supervision::runs::run::Run;

use crate::page::{brief, brief_json, duration};

/// How much of an output or an error stands in a line, in characters.
const SHOWN: usize = 120;

/// A run as far as its events were told, in lines.
pub(crate) struct Follower {
    turns: follow::Follower,
    /// The last iteration of each loop, by the way to it.
    iterations: BTreeMap<String, String>,
}

/// Something that happened to a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) kind: Kind,
    node: String,
    text: String,
}

/// What kind of thing it is: it has a mark, and a colour on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Started,
    Finished,
    Failed,
    Retried,
    Waits,
    Repeated,
    CutOff,
}

impl Follower {
    /// Nothing is known yet: the first event is the submission.
    pub(crate) fn new(rules: StateRules) -> Self {
        Self { turns: follow::Follower::new(rules), iterations: BTreeMap::new() }
    }

    /// The number of the next event.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.turns.next_sequence()
    }

    /// Goes on from here, and tells of the turns that are open.
    pub(crate) fn catch_up(&mut self, run: Run) -> Vec<Line> {
        let events = self.turns.catch_up(run);
        self.lines(events)
    }

    /// Takes the next event; one that is known already says nothing.
    pub(crate) fn take(&mut self, published: &Published) -> Vec<Line> {
        let events = self.turns.take(published);
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
                TurnStatus::Cancelled => (Kind::CutOff, "was cut off".to_owned()),
            };
            lines.extend(iterations(&node, &mut self.iterations));
            let node = if event.is_compensation { taking_back(&node) } else { node };
            lines.push(Line { kind, node, text });
        }
        lines
    }

    /// The nodes that wait for a person.
    pub(crate) fn interrupts(&self) -> Vec<Interrupt> {
        self.turns.run().into_iter().flat_map(Run::interrupts).collect()
    }

    /// The turns that wait because something is wrong with them, with the nodes and the reasons.
    pub(crate) fn troubled(&self) -> Vec<(String, String)> {
        let turns = self.turns.run().into_iter().flat_map(Run::turns_that_need_attention);
        let node = |turn: u32| {
            let node = self.turns.node_of(turn).unwrap_or_default();
            let run = self.turns.run();
            let is_compensation = run.is_some_and(|run| run.turn(turn).is_some_and(|open| run.is_compensation(open)));
            if is_compensation { taking_back(node) } else { node.to_owned() }
        };
        turns.map(|(turn, why)| (node(turn.number), why.to_owned())).collect()
    }

    /// Whether it continues by itself, or has ended. These turns wait no more, though no event says so yet.
    pub(crate) fn goes_on(&self, decided: &BTreeSet<u32>) -> bool {
        let Some(run) = self.turns.run() else { return true };
        let open = run.open_turns().count();
        let waiting = run.interrupts().filter(|interrupt| !decided.contains(&interrupt.turn.number)).count();
        open == 0 || open > waiting + run.turns_that_need_attention().count()
    }
}

/// What stands for a node where what it has done is taken back.
pub(crate) fn taking_back(node: &str) -> String {
    format!("taking back {node}")
}

/// The loops on the way to a node that have begun anew.
fn iterations(node: &str, known: &mut BTreeMap<String, String>) -> Vec<Line> {
    let (mut way, mut lines) = (String::new(), Vec::new());
    for part in node.split('/') {
        if let Some((name, iteration)) = part.split_once('#') {
            let around = format!("{way}{name}");
            let last = known.insert(around.clone(), iteration.to_owned());
            if last.as_deref() != Some(iteration) {
                lines.push(Line { kind: Kind::Repeated, node: around, text: format!("iteration {iteration}") });
            }
        }
        way.push_str(part);
        way.push('/');
    }
    lines
}

/// A program's complaints have several lines.
fn why_in_one_line(failure: &Failure) -> String {
    brief(&failure.to_string().replace('\n', " "), 4 * SHOWN)
}

fn gave(command: &Command) -> String {
    let shown = command.output.as_ref().map(|output| brief_json(output, SHOWN)).unwrap_or_default();
    if shown.is_empty() { shown } else { format!(": {shown}") }
}

impl Line {
    /// The line as it is shown; coloured on a terminal.
    pub(crate) fn shown(&self, is_coloured: bool) -> String {
        let Self { kind, node, text } = self;
        let (mark, colour) = match kind {
            Kind::Started => ("▶", "36"),
            Kind::Finished => ("✔", "32"),
            Kind::Failed => ("✘", "31"),
            Kind::Retried => ("…", "33"),
            Kind::Waits => ("‖", "35"),
            Kind::Repeated => ("↻", "34"),
            Kind::CutOff => ("–", "2"),
        };
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
    fn a_loop_is_told_of_when_an_iteration_begins_and_not_for_each_of_its_nodes() {
        let mut known = BTreeMap::new();
        let mut told =
            |node: &str| -> Vec<String> { iterations(node, &mut known).iter().map(|line| line.shown(false)).collect() };
        assert_eq!(told("draft"), Vec::<String>::new());
        assert_eq!(told("again#1/draft"), ["↻ again iteration 1"]);
        assert_eq!(told("again#1/review"), Vec::<String>::new());
        assert_eq!(told("again#2/inner#1/x"), ["↻ again iteration 2", "↻ again#2/inner iteration 1"]);
    }
}
