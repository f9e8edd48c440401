//! What the record and the store have to show when all is over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use callboard::messages::RunEvent;
use callboard::prelude::Callboard;

use crate::agents::{self, KEYS, STEPS};
use crate::driver::Driven;
use crate::history::{self, Answer, Event, Kind};

/// What the record has.
#[derive(Default)]
pub(crate) struct Recorded {
    /// What each step of each part of a run has returned, by the steps after it.
    returned: BTreeMap<(String, String, usize), u64>,
    /// The tokens of the steps that were begun.
    begun: BTreeMap<u64, (String, String, usize)>,
    effects: BTreeMap<String, u64>,
    histories: BTreeMap<String, Vec<Event>>,
    pub(crate) wrong: Vec<String>,
}

impl Recorded {
    pub(crate) fn read(file: &Path) -> Self {
        let histories = (0..KEYS).map(|number| (agents::key(number), Vec::new())).collect();
        let mut recorded = Self { histories, ..Self::default() };
        let (mut fenced, mut zombies) = (BTreeSet::new(), BTreeSet::new());
        let text = std::fs::read_to_string(file).unwrap();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                // What a zombie has begun is done, and not stored.
                ["step", who, ..] | ["effect", who, ..] if fenced.contains(who) && !zombies.contains(who) => {
                    recorded.wrong.push(format!("begun by a board that was fenced: {line}"));
                }
                ["step", _, run, part, step, token, earlier] => {
                    let at = (run.to_owned(), part.to_owned(), step.parse().unwrap());
                    recorded.begun.insert(token.parse().unwrap(), at);
                    recorded.returned(run, part, earlier);
                }
                ["effect", _, run] => *recorded.effects.entry(run.to_owned()).or_default() += 1,
                ["invoked", op, who, key, ref kind @ ..] => {
                    let kind = match kind {
                        ["read"] => Kind::Read,
                        ["set"] => Kind::Set,
                        ["compare", expected] => Kind::CompareAndSet(value(expected)),
                        _ => panic!("{line}"),
                    };
                    let event = Event::Invoked { op: op.parse().unwrap(), who: who.to_owned(), kind };
                    recorded.histories.entry(key.to_owned()).or_default().push(event);
                }
                ["answered", op, key, ref answer @ ..] => {
                    let answer = match answer {
                        ["read", read] => Answer::Read(value(read)),
                        ["written"] => Answer::Written,
                        ["changed"] => Answer::Changed,
                        _ => panic!("{line}"),
                    };
                    let event = Event::Answered { op: op.parse().unwrap(), answer };
                    recorded.histories.entry(key.to_owned()).or_default().push(event);
                }
                ["zombie", who] => drop(zombies.insert(who)),
                ["fenced", who] => {
                    fenced.insert(who);
                    let event = Event::Fenced { who: who.to_owned() };
                    recorded.histories.values_mut().for_each(|history| history.push(event.clone()));
                }
                _ => panic!("{line}"),
            }
        }
        for (key, history) in &recorded.histories {
            recorded.wrong.extend(history::check(history).err().map(|error| format!("{key}: {error}")));
        }
        let twice = recorded.effects.iter().filter(|(_, count)| **count > 1);
        recorded.wrong.extend(twice.map(|(run, count)| format!("the effect of {run} was done {count} times")));
        recorded
    }

    /// Notes what the first steps of a part have returned, which never changes.
    fn returned(&mut self, run: &str, part: &str, tokens: &str) {
        for (step, token) in tokens.split(',').filter(|token| !token.is_empty()).enumerate() {
            let Ok(token) = token.parse() else {
                self.wrong.push(format!("{run} {part}: {tokens:?} are no results of steps"));
                return;
            };
            let at = (run.to_owned(), part.to_owned(), step);
            if self.begun.get(&token) != Some(&at) {
                self.wrong.push(format!("{at:?} returned {token}, which it has not done"));
            }
            let known = *self.returned.entry(at.clone()).or_insert(token);
            if known != token {
                self.wrong.push(format!("{at:?} returned {known}, and later {token}"));
            }
        }
    }

    /// Checks the output of a run that has finished.
    fn output(&mut self, run: &str, kind: &str, output: &str) {
        let is_word = |character: char| character.is_alphanumeric() || character == ',';
        let words: Vec<&str> = output.split(|character| !is_word(character)).filter(|word| !word.is_empty()).collect();
        let after = |part: &str| words.iter().position(|word| *word == part).and_then(|at| words.get(at + 2)).copied();
        let parts: &[&str] = match kind {
            "steps" => &["whole"],
            "delegate" => &["delegated"],
            "hand" => &["handed"],
            "fan" => &["first", "second"],
            _ => &[],
        };
        for part in parts {
            match after(part) {
                Some(tokens) if tokens.split(',').count() == STEPS => self.returned(run, part, tokens),
                _ => self.wrong.push(format!("{run} ({kind}) has no steps of {part}: {output}")),
            }
        }
        let effects = self.effects.get(run).copied().unwrap_or_default();
        let is_right = match (kind, after("whole")) {
            ("effect", Some("done" | "seen")) => effects == 1,
            ("effect", after) => after == Some("unseen") && effects <= 1,
            ("ask", after) => after == Some("yes") && output.contains(run),
            _ => true,
        };
        if !is_right {
            self.wrong.push(format!("{run} ({kind}) has {effects} effects and ended so: {output}"));
        }
    }

    pub(crate) fn effects(&self) -> usize {
        self.effects.len()
    }

    pub(crate) fn operations(&self) -> usize {
        let invoked = |event: &&Event| matches!(event, Event::Invoked { .. });
        self.histories.values().flatten().filter(invoked).count()
    }
}

fn value(text: &str) -> Option<u64> {
    (text != "-").then(|| text.parse().unwrap())
}

/// Checks what has become of each run by what everybody said of it, the record, and the store as a board without agents reads it. Returns
/// how many ended as what.
pub(crate) async fn check(driven: &Driven, recorded: &mut Recorded, observer: &Callboard) -> BTreeMap<String, u64> {
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for (run, submitted) in &driven.runs {
        let handle = observer.run(run.parse().unwrap());
        let (outcome, output) = match handle.read().await.map(|read| read.result().cloned()) {
            Ok(Some(result)) => (result.outcome.to_string(), result.output.to_string()),
            other => {
                recorded.wrong.push(format!("{run} has no end in the store: {other:?}"));
                continue;
            }
        };
        if submitted.ends.iter().ne([&format!("{outcome} {output}").replace('\n', " ")]) {
            recorded.wrong.push(format!("{run} ended as {outcome} {output}, and as {:?}", submitted.ends));
        }
        match &*outcome {
            "finished" => recorded.output(run, submitted.kind, &output),
            // All boards that have an agent may be away when it is handed something, or is delegated to.
            other if other.contains("refused (UnknownAgent)") || other.contains("refused (Unavailable)") => {}
            other => recorded.wrong.push(format!("{run} ended as {other}")),
        }
        *outcomes.entry(outcome).or_default() += 1;
    }
    let unfinished: Vec<_> = observer.unfinished_runs().await.unwrap().iter().map(|run| run.id()).collect();
    if !unfinished.is_empty() {
        recorded.wrong.push(format!("still noted as open: {unfinished:?}"));
    }
    if !observer.quarantined().is_empty() {
        recorded.wrong.push(format!("quarantined: {:?}", observer.quarantined()));
    }
    // Among them the runs that are turns of others.
    for run in observer.runs().await.unwrap() {
        let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
        let history = run.history().await.unwrap();
        for event in &history {
            if let RunEvent::TurnEnded { turn, .. } | RunEvent::TurnFailed { turn, .. } = event {
                *ends.entry(*turn).or_default() += 1;
            }
        }
        let stops = history.iter().filter(|event| matches!(event, RunEvent::Stopped { .. })).count();
        if ends.values().any(|count| *count > 1) || stops > 1 {
            recorded.wrong.push(format!("{}: turns with several ends: {ends:?}, {stops} stops", run.id()));
        }
        if run.read().await.unwrap().result().is_none() {
            recorded.wrong.push(format!("{} is in the store and has not ended", run.id()));
        }
    }
    outcomes
}
