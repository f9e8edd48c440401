//! The differences between two runs.
//!
//! Ids, times and nonces differ between any two runs and are not compared. Turns are matched by what caused them and not by
//! their numbers, so two runs whose branches took turns in another order have the same turns.

use std::collections::BTreeMap;
use std::fmt;

use callboard_text::cut;

use crate::messages::state::StateChange;
use crate::messages::{
    ApprovalId, Envelope, Json, Outcome, RunEvent, RunId, Submission, Timestamp, TraceId, Verdict, visible,
};

use super::{Cause, Deed, Replay, ReplayStep, TurnEnd, TurnStory};

/// What is different about two runs, as [`Diff::of`] finds it. Ids, times and nonces are not compared.
#[derive(Clone, Debug)]
pub struct Diff {
    /// The first events that are not alike, of the first run and of the second; one that has ended by then has none. If one of
    /// them is a fork, what forks do not copy (notices, tokens, failed attempts) is passed over.
    pub first: Option<(Option<ReplayStep>, Option<ReplayStep>)>,
    /// How they ended, if not in the same way; nothing for one that has not.
    pub outcomes: Option<(Option<Outcome>, Option<Outcome>)>,
    /// Their outputs, if not the same; null for one that has none.
    pub outputs: Option<(Json, Json)>,
    /// What the second has in its channels at the end that the first has not, or the other way round.
    pub channels: Vec<StateChange>,
    /// The turns that only one has, or that went differently, in the order of what caused them.
    pub turns: Vec<TurnDifference>,
}

/// A turn that only one run has, or that went differently in the other.
#[derive(Clone, Debug)]
pub struct TurnDifference {
    /// The turn of the first run; `None` if only the second has it.
    pub first: Option<TurnStory>,
    /// The turn of the second run; `None` if only the first has it.
    pub second: Option<TurnStory>,
    /// What is different about them, if both have it.
    pub aspects: Vec<Aspect>,
}

/// Something about a turn that can be different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// The agent that took the turn.
    Agent,
    /// The input of the turn.
    Input,
    /// The number of attempts ([`TurnStory::attempts`]). It is not compared if one of the turns is a copy in a fork.
    Attempts,
    /// What the turn did before it ended ([`TurnStory::did`]). If one of the turns is a copy in a fork, refusals and
    /// requests for consent are not compared.
    Deeds,
    /// How the turn ended ([`TurnStory::end`]).
    End,
}

impl Diff {
    /// Compares two runs by their events, outcomes, outputs, channels at the end and turns.
    #[must_use]
    pub fn of(first: &Replay, second: &Replay) -> Self {
        let outcome = |replay: &Replay| replay.result().map(|result| result.outcome.clone());
        let output = |replay: &Replay| replay.result().map(|result| result.output.clone()).unwrap_or_default();
        let different = |a, b| (a != b).then_some((a, b));
        Self {
            first: first_difference(first, second),
            outcomes: different(outcome(first), outcome(second)),
            outputs: Some((output(first), output(second))).filter(|(a, b)| a != b),
            channels: StateChange::between(first.state(), second.state()),
            turns: turn_differences(first, second),
        }
    }

    /// Returns whether nothing that is compared is different.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
            && self.outcomes.is_none()
            && self.outputs.is_none()
            && self.channels.is_empty()
            && self.turns.is_empty()
    }
}

fn first_difference(first: &Replay, second: &Replay) -> Option<(Option<ReplayStep>, Option<ReplayStep>)> {
    let has_copies = is_fork(first) || is_fork(second);
    let steps_of = |replay: &Replay| -> Vec<ReplayStep> {
        replay.steps.iter().filter(|step| is_compared(&step.event, has_copies)).cloned().collect()
    };
    let (steps, others) = (steps_of(first), steps_of(second));
    let bare = |replay: &Replay, step: Option<&ReplayStep>| step.map(|step| bare(&step.event, replay.run.id()));
    let differ = |at: &usize| bare(first, steps.get(*at)) != bare(second, others.get(*at));
    let at = (0..steps.len().max(others.len())).find(differ)?;
    Some((steps.get(at).cloned(), others.get(at).cloned()))
}

/// Whether a run is a fork: it begins with copied events that happened before it was submitted.
fn is_fork(replay: &Replay) -> bool {
    let submitted = replay.submission().at;
    replay.steps.iter().any(|step| matches!(step.event, RunEvent::Forked { .. }) || step.at < submitted)
}

/// Whether an event is compared. Some events of copied turns are missing in a fork in any case: notices, summaries, tokens, failed attempts
/// and questions of consent. That a run was recovered is not something its agents did.
fn is_compared(event: &RunEvent, has_copies: bool) -> bool {
    match event {
        // A fork belongs to no conversation.
        RunEvent::Recovered { .. } | RunEvent::ConversationEntered { .. } => false,
        RunEvent::Noticed { .. }
        | RunEvent::Summarized { .. }
        | RunEvent::Tainted { .. }
        | RunEvent::Reserved { .. }
        | RunEvent::Settled { .. }
        | RunEvent::AttemptFailed { .. }
        | RunEvent::NeedsAttention { .. }
        | RunEvent::ApprovalAsked { .. } => !has_copies,
        RunEvent::Submitted(_)
        | RunEvent::StepStarted { .. }
        | RunEvent::StepFinished { .. }
        | RunEvent::IntentRecorded { .. }
        | RunEvent::StepFailed { .. }
        | RunEvent::OutcomeUnknown { .. }
        | RunEvent::OutcomeResolved { .. }
        | RunEvent::Delegated { .. }
        | RunEvent::DelegationExpired { .. }
        | RunEvent::Asked { .. }
        | RunEvent::AskedUntil { .. }
        | RunEvent::QuestionExpired { .. }
        | RunEvent::Answered { .. }
        | RunEvent::Decided { .. }
        | RunEvent::HandoffChecked { .. }
        | RunEvent::AgentMade { .. }
        | RunEvent::TurnEnded { .. }
        | RunEvent::TurnFailed { .. }
        | RunEvent::TurnRestarted { .. }
        | RunEvent::Overwritten { .. }
        | RunEvent::Resumed { .. }
        | RunEvent::Forked { .. }
        | RunEvent::ConversationRead { .. }
        | RunEvent::ReferenceChanged { .. }
        | RunEvent::Stopped { .. } => true,
    }
}

/// The turns of both runs that have the same cause.
#[derive(Default)]
struct Place<'a> {
    first: Option<&'a TurnStory>,
    second: Option<&'a TurnStory>,
    /// The indices of the turns that this one caused, by kind of cause.
    next: BTreeMap<(u8, u32, usize, &'a str), usize>,
}

fn turn_differences(first: &Replay, second: &Replay) -> Vec<TurnDifference> {
    let places = places(first, second);
    let (mut found, mut ahead) = (Vec::new(), vec![0]);
    while let Some(place) = ahead.pop().map(|at: usize| &places[at]) {
        ahead.extend(place.next.values().rev());
        let aspects = match (place.first, place.second) {
            (Some(turn), Some(other)) => aspects(turn, first, other, second),
            (Some(_), None) | (None, Some(_)) | (None, None) => Vec::new(),
        };
        if place.first.is_some() != place.second.is_some() || !aspects.is_empty() {
            let (first, second) = (place.first.cloned(), place.second.cloned());
            found.push(TurnDifference { first, second, aspects });
        }
    }
    found
}

/// The turns of both runs as one tree of causes. The first entry has no turn.
fn places<'a>(first: &'a Replay, second: &'a Replay) -> Vec<Place<'a>> {
    let mut places = vec![Place::default()];
    for (replay, is_first) in [(first, true), (second, false)] {
        let mut place_of: BTreeMap<u32, usize> = BTreeMap::new();
        let mut compensations: BTreeMap<&str, usize> = BTreeMap::new();
        for turn in replay.turns() {
            let (from, how) = match &turn.cause {
                Cause::Task => (None, (0, 0, 0, "")),
                Cause::Delegation { from, ordinal } => (Some(from), (1, *ordinal, 0, "")),
                Cause::Handoff { from, target } => (Some(from), (2, 0, *target, "")),
                Cause::Answer { from } => (Some(from), (3, 0, 0, "")),
                Cause::Node { node } => (None, (4, 0, 0, node.as_str())),
                Cause::Compensation { node } => {
                    // Each turn of a repeated node is compensated separately.
                    let times = compensations.entry(node).or_default();
                    *times += 1;
                    (None, (5, 0, *times, node.as_str()))
                }
            };
            let before = from.and_then(|from| place_of.get(from).copied()).unwrap_or_default();
            let unknown = places.len();
            let place = *places[before].next.entry(how).or_insert(unknown);
            if place == unknown {
                places.push(Place::default());
            }
            let here = &mut places[place];
            *(if is_first { &mut here.first } else { &mut here.second }) = Some(turn);
            place_of.insert(turn.number, place);
        }
    }
    places
}

fn aspects(turn: &TurnStory, of: &Replay, other: &TurnStory, of_other: &Replay) -> Vec<Aspect> {
    let input = |turn: &TurnStory, of: &Replay| bare_input(&turn.input, of.run.id());
    // A copied turn does not have all events of the original one.
    let is_copied = is_copied(turn, of) || is_copied(other, of_other);
    let did = |turn: &TurnStory| -> Vec<Deed> {
        turn.did.iter().filter(|deed| !is_copied || is_copied_deed(deed)).cloned().collect()
    };
    let differ = [
        (Aspect::Agent, turn.agent != other.agent),
        (Aspect::Input, input(turn, of) != input(other, of_other)),
        (Aspect::Attempts, !is_copied && turn.attempts != other.attempts),
        (Aspect::Deeds, did(turn) != did(other)),
        (Aspect::End, bare_end(&turn.end) != bare_end(&other.end)),
    ];
    differ.into_iter().filter_map(|(aspect, differs)| differs.then_some(aspect)).collect()
}

/// Whether a turn was over before the fork that contains it began.
fn is_copied(turn: &TurnStory, of: &Replay) -> bool {
    let fork =
        of.steps.iter().rfind(|step| matches!(step.event, RunEvent::Forked { .. })).map_or(0, |step| step.number);
    turn.closed.is_some_and(|(step, at)| step < fork || at < of.submission().at)
}

/// Whether a fork copies this event of a turn.
fn is_copied_deed(deed: &Deed) -> bool {
    match deed {
        Deed::Step(_) | Deed::Delegated(_) | Deed::Asked => true,
        Deed::Refused(_) | Deed::AskedConsent => false,
    }
}

fn bare_end(end: &TurnEnd) -> TurnEnd {
    let mut bare = end.clone();
    if let TurnEnd::Command { verdict, .. } = &mut bare {
        bare_verdict(verdict);
    }
    bare
}

/// An event without the parts that differ between any two runs.
fn bare(event: &RunEvent, run: RunId) -> RunEvent {
    let never = Timestamp::default();
    let mut bare = event.clone();
    match &mut bare {
        RunEvent::Submitted(submission) => {
            let mut task = submission.task.clone();
            task.id = None;
            let (run, trace) = (RunId(uuid::Uuid::nil()), TraceId(uuid::Uuid::nil()));
            *submission = Submission { run, trace, at: never, task, ..(**submission).clone() }.into();
        }
        RunEvent::Asked { nonce, at, .. } => (*nonce, *at) = (0, never),
        RunEvent::AskedUntil { nonce, at, expires_at, .. } => (*nonce, *at, *expires_at) = (0, never, never),
        RunEvent::OutcomeUnknown { asked, .. } => (asked.nonce, asked.at, asked.expires_at) = (0, never, never),
        RunEvent::ApprovalAsked { envelope, at, .. } => {
            bare_envelope(envelope);
            *at = never;
        }
        RunEvent::Decided { approval, decision, verdict, at, .. } => {
            *approval = ApprovalId([0; 32]);
            (decision.at, *at) = (never, never);
            bare_verdict(verdict);
        }
        RunEvent::AttemptFailed { retry_at, at, .. } => (*retry_at, *at) = (never, never),
        RunEvent::TurnFailed { input, at, .. } => {
            *input = bare_input(input, run);
            *at = never;
        }
        RunEvent::Delegated { verdict, at, .. }
        | RunEvent::TurnEnded { verdict, at, .. }
        | RunEvent::Overwritten { verdict, at, .. } => {
            bare_verdict(verdict);
            *at = never;
        }
        RunEvent::Forked { from, at, .. } => {
            from.run = RunId(uuid::Uuid::nil());
            *at = never;
        }
        RunEvent::DelegationExpired { at, .. }
        | RunEvent::Answered { at, .. }
        | RunEvent::QuestionExpired { at, .. }
        | RunEvent::HandoffChecked { at, .. }
        | RunEvent::AgentMade { at, .. }
        | RunEvent::Tainted { at, .. }
        | RunEvent::Noticed { at, .. }
        | RunEvent::Summarized { at, .. }
        | RunEvent::IntentRecorded { at, .. }
        | RunEvent::OutcomeResolved { at, .. }
        | RunEvent::Recovered { at, .. }
        | RunEvent::NeedsAttention { at, .. }
        | RunEvent::TurnRestarted { at, .. }
        | RunEvent::Resumed { at, .. }
        | RunEvent::ConversationEntered { at, .. }
        | RunEvent::ConversationRead { at, .. }
        | RunEvent::ReferenceChanged { at, .. }
        | RunEvent::Stopped { at, .. } => *at = never,
        RunEvent::StepStarted { at, .. }
        | RunEvent::StepFinished { at, .. }
        | RunEvent::StepFailed { at, .. }
        | RunEvent::Reserved { at, .. }
        | RunEvent::Settled { at, .. } => *at = None,
    }
    bare
}

fn bare_verdict(verdict: &mut Verdict) {
    match verdict {
        Verdict::Parked(envelope) => bare_envelope(envelope),
        Verdict::Nothing | Verdict::Admitted(_) | Verdict::Refused(_) => {}
    }
}

fn bare_envelope(envelope: &mut Envelope) {
    envelope.request.turn.run = RunId(uuid::Uuid::nil());
    (envelope.nonce, envelope.expires_at, envelope.remind_at) = (0, Timestamp::default(), None);
}

/// The input of a turn that takes a late answer names the request, and so its run.
fn bare_input(input: &Json, run: RunId) -> Json {
    let request = input["request"].as_str().and_then(|request| request.strip_prefix(&format!("{run}/")));
    let Some(request) = request else { return input.clone() };
    let mut bare = input.value().clone();
    bare["request"] = request.into();
    bare.into()
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent => "agent",
            Self::Input => "input",
            Self::Attempts => "attempts",
            Self::Deeds => "what it did",
            Self::End => "how it ended",
        })
    }
}

/// As text fit for a terminal: lines with `-` are the first run's, lines with `+` the second's. Empty if the runs do not differ.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((first, second)) = &self.first {
            writeln!(f, "first different event")?;
            for (sign, step) in [('-', first), ('+', second)] {
                match step {
                    Some(step) => writeln!(f, "  {sign} {}{}", Whose(step), step.event)?,
                    None => writeln!(f, "  {sign} nothing more")?,
                }
            }
        }
        if let Some((first, second)) = &self.outcomes {
            writeln!(f, "outcome")?;
            for (sign, outcome) in [('-', first), ('+', second)] {
                let outcome = outcome.as_ref().map_or("has not ended".to_owned(), ToString::to_string);
                writeln!(f, "  {sign} {}", visible(&outcome))?;
            }
        }
        if let Some((first, second)) = &self.outputs {
            writeln!(f, "output")?;
            for (sign, output) in [('-', first), ('+', second)] {
                writeln!(f, "  {sign} {}", cut(&output.to_string()))?;
            }
        }
        if !self.channels.is_empty() {
            writeln!(f, "state at the end")?;
            self.channels.iter().try_for_each(|change| writeln!(f, "    {change}"))?;
        }
        if !self.turns.is_empty() {
            writeln!(f, "turns")?;
        }
        for TurnDifference { first, second, aspects } in &self.turns {
            match (first, second) {
                (Some(first), Some(second)) => {
                    let aspects: Vec<String> = aspects.iter().map(ToString::to_string).collect();
                    let aspects = aspects.join(" and ");
                    write!(f, "    turn {} ({})", first.number, first.agent)?;
                    if (first.number, &first.agent) != (second.number, &second.agent) {
                        write!(f, ", in the second turn {} ({})", second.number, second.agent)?;
                    }
                    writeln!(f, ": other {aspects}")?;
                }
                (Some(only), None) => writeln!(f, "  - turn {} ({})", only.number, only.agent)?,
                (None, Some(only)) => writeln!(f, "  + turn {} ({})", only.number, only.agent)?,
                (None, None) => {}
            }
        }
        Ok(())
    }
}

/// An event with its turn, for output.
struct Whose<'a>(&'a ReplayStep);

impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReplayStep { number, event, agent, .. } = self.0;
        match (event.turn(), agent) {
            (Some(turn), Some(agent)) => write!(f, "event {number}, turn {turn} ({agent}): "),
            (Some(turn), None) => write!(f, "event {number}, turn {turn}: "),
            (None, _) => write!(f, "event {number}: "),
        }
    }
}
