//! A run as it goes on, event by event: which node each event is about, and the line that says so.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::state::StateRules;
use callboard::messages::{Command, Failure, Published, RunEvent, Timestamp, TurnId, visible};
use callboard::supervision::runs::interrupts::Interrupt;
use callboard::supervision::runs::run::Run;
use callboard::supervision::runs::step::Effect;

use crate::page::{brief, brief_json, duration};

/// How much of an output or an error stands in a line, in characters.
const SHOWN: usize = 120;

/// The fold of a run, as far as its events were told.
pub(crate) struct Follower {
    rules: StateRules,
    run: Option<Run>,
    open: BTreeMap<u32, Open>,
    /// The last iteration of each loop, by the way to it.
    iterations: BTreeMap<String, String>,
}

/// A turn that is open.
struct Open {
    node: String,
    since: Timestamp,
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
        Self { rules, run: None, open: BTreeMap::new(), iterations: BTreeMap::new() }
    }

    /// The number of the next event.
    pub(crate) fn next(&self) -> u64 {
        self.run.as_ref().map_or(1, |run| run.sequence() + 1)
    }

    /// Goes on from here, and tells of the turns that are open.
    pub(crate) fn catch_up(&mut self, run: Run) -> Vec<Line> {
        let known: Vec<u32> = run.open_turns().collect();
        self.open.retain(|turn, _| known.contains(turn));
        self.run = Some(run);
        let new: Vec<u32> = known.into_iter().filter(|turn| !self.open.contains_key(turn)).collect();
        let mut lines = Vec::new();
        for turn in new {
            self.begin(turn, self.is_interrupted(turn), &mut lines);
        }
        lines
    }

    /// Takes the next event; one that is known already says nothing.
    pub(crate) fn take(&mut self, published: &Published) -> Vec<Line> {
        let mut lines = Vec::new();
        if published.sequence < self.next() {
            return lines;
        }
        let event = &*published.event;
        let effects = match (&mut self.run, event) {
            (None, RunEvent::Submitted(submission)) => {
                let (run, effects) = Run::begin(submission.clone(), self.rules.clone());
                self.run = Some(run);
                effects
            }
            (None, _) => return lines,
            (Some(run), event) => run.step(event),
        };
        self.tell(event, &mut lines);
        for effect in effects {
            match effect {
                Effect::Start(turn) if !self.open.contains_key(&turn) => self.begin(turn, false, &mut lines),
                Effect::Interrupted(turn) if !self.open.contains_key(&turn) => self.begin(turn, true, &mut lines),
                Effect::Close { turn, .. } => {
                    if let Some(Open { node, .. }) = self.open.remove(&turn) {
                        lines.push(Line { kind: Kind::CutOff, node, text: "was cut off".to_owned() });
                    }
                }
                Effect::Start(_)
                | Effect::Interrupted(_)
                | Effect::Retry(..)
                | Effect::Deadline { .. }
                | Effect::Reply { .. }
                | Effect::Answered(_)
                | Effect::RequestApproval { .. }
                | Effect::WithdrawApproval(_)
                | Effect::Ended => {}
            }
        }
        lines
    }

    fn begin(&mut self, turn: u32, is_interrupted: bool, lines: &mut Vec<Line>) {
        let Some((run, open)) = self.run.as_ref().and_then(|run| Some((run, run.turn(turn)?))) else { return };
        let node = run.node_of(turn).unwrap_or_else(|| format!("turn {turn}"));
        lines.extend(iterations(&node, &mut self.iterations));
        let line = if is_interrupted {
            Line { kind: Kind::Waits, node: node.clone(), text: "waits for a person".to_owned() }
        } else {
            Line { kind: Kind::Started, node: node.clone(), text: format!("started: {}", open.agent()) }
        };
        lines.push(line);
        self.open.insert(turn, Open { node, since: run.last_at() });
    }

    /// What an event itself says of its turn's node.
    fn tell(&mut self, event: &RunEvent, lines: &mut Vec<Line>) {
        let Some(turn) = event.turn() else { return };
        let since = self.open.get(&turn).map(|open| open.since);
        let took = |at: Timestamp| since.map(|since| duration(at.since(since))).unwrap_or_default();
        let (kind, text, is_over) = match event {
            RunEvent::TurnEnded { command, at, .. } => {
                (Kind::Finished, format!("finished after {}{}", took(*at), gave(command)), true)
            }
            RunEvent::TurnFailed { failure, at, .. } => {
                (Kind::Failed, format!("failed after {}: {}", took(*at), why_in_one_line(failure)), true)
            }
            RunEvent::AttemptFailed { attempt, failure, retry_at, at, .. } => {
                let (again, why) = (duration(retry_at.since(*at)), why_in_one_line(failure));
                (Kind::Retried, format!("attempt {attempt} failed, the next begins in {again}: {why}"), false)
            }
            RunEvent::NeedsAttention { why, .. } => {
                (Kind::Waits, format!("needs attention: {}", brief(why, SHOWN)), false)
            }
            RunEvent::Resumed { by, .. } => (Kind::Started, format!("resumed by {}", brief(by, SHOWN)), false),
            RunEvent::TurnRestarted { .. } => (Kind::Started, "begins again".to_owned(), false),
            // The others say nothing about where a node stands.
            _ => return,
        };
        let node = if is_over {
            self.open.remove(&turn).map(|open| open.node)
        } else {
            self.open.get(&turn).map(|open| open.node.clone())
        };
        lines.extend(node.map(|node| Line { kind, node, text }));
    }

    fn is_interrupted(&self, turn: u32) -> bool {
        self.interrupts().iter().any(|interrupt| interrupt.turn.number == turn)
    }

    /// The nodes that wait for a person.
    pub(crate) fn interrupts(&self) -> Vec<Interrupt> {
        self.run.iter().flat_map(Run::interrupts).collect()
    }

    /// The turns that wait because something is wrong with them, with the nodes and the reasons.
    pub(crate) fn troubled(&self) -> Vec<(String, String)> {
        let node = |turn: TurnId| self.open.get(&turn.number).map(|open| open.node.clone()).unwrap_or_default();
        let turns = self.run.iter().flat_map(Run::turns_that_need_attention);
        turns.map(|(turn, why)| (node(turn), why.to_owned())).collect()
    }

    /// Whether it goes on by itself, or has ended. These turns wait no more, though no event says so yet.
    pub(crate) fn goes_on(&self, decided: &BTreeSet<u32>) -> bool {
        let Some(run) = &self.run else { return true };
        let open = run.open_turns().count();
        let waiting = run.interrupts().filter(|interrupt| !decided.contains(&interrupt.turn.number)).count();
        open == 0 || open > waiting + run.turns_that_need_attention().count()
    }
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
    brief(&failure.to_string().replace('\n', " "), SHOWN)
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
