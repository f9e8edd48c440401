//! What the address of a run's page asks for: which events are listed, and which turns and events are the last ones.

use callboard::messages::RunEvent;

use crate::problem::Problem;
use crate::query;

/// The part of a run's history that a page has.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// The turns below this number, and the events below this one; the newest by default.
    pub(super) turns_before: Option<u32>,
    pub(super) events_before: Option<u64>,
    /// The kind of the events, a part of their text, and whether only failures are listed.
    pub(super) kind: Option<String>,
    pub(super) text: Option<String>,
    pub(super) failed: bool,
    /// Whether events that matter little are listed too.
    pub(super) all: bool,
}

impl Asked {
    /// Reads a query. Fields of a form that were left empty are not there. `id` is the run in the query of a part.
    pub(super) fn read(query: Option<&str>) -> Result<(Option<String>, Self), Problem> {
        let names = ["id", "turns_before", "events_before", "kind", "text", "failed", "all"];
        let [id, turns, events, kind, text, failed, all] =
            query::values(query, names)?.map(|value| value.filter(|value| !value.is_empty()));
        let number = |name: &str| Problem::bad(format!("`{name}` in the query is a number"));
        let asked = Self {
            turns_before: turns.map(|turns| turns.parse().map_err(|_| number("turns_before"))).transpose()?,
            events_before: events.map(|events| events.parse().map_err(|_| number("events_before"))).transpose()?,
            kind: kind.map(Into::into),
            text: text.map(Into::into),
            failed: failed.is_some(),
            all: all.is_some(),
        };
        Ok((id.map(Into::into), asked))
    }

    /// The same as a query, without those that are `None`.
    pub(super) fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let (turns, events) = (self.turns_before.map(|it| it.to_string()), self.events_before.map(|it| it.to_string()));
        let flag = |is_set: bool| is_set.then(|| "1".to_owned());
        let pairs = [
            ("turns_before", turns),
            ("events_before", events),
            ("kind", self.kind.clone()),
            ("text", self.text.clone()),
            ("failed", flag(self.failed)),
            ("all", flag(self.all)),
        ];
        for (name, value) in pairs {
            query.extend_pairs(value.map(|value| (name, value)));
        }
        query.finish()
    }

    /// Whether an event is listed.
    pub(super) fn wants(&self, event: &RunEvent) -> bool {
        let is_of_kind = match &self.kind {
            Some(kind) => kind_of(event) == kind,
            None => self.all || self.failed || is_important(event),
        };
        is_of_kind
            && (!self.failed || is_failure(event))
            && self.text.as_ref().is_none_or(|text| event.to_string().to_lowercase().contains(&text.to_lowercase()))
    }
}

fn is_important(event: &RunEvent) -> bool {
    !matches!(
        event,
        RunEvent::StepStarted { .. }
            | RunEvent::Reserved { .. }
            | RunEvent::Settled { .. }
            | RunEvent::IntentRecorded { .. }
            | RunEvent::HandoffChecked { refusal: None, .. }
            | RunEvent::Recovered { .. }
            | RunEvent::ConversationEntered { .. }
    ) || is_failure(event)
}

/// Whether an event is about something that failed or was refused.
pub(super) fn is_failure(event: &RunEvent) -> bool {
    use callboard::messages::Verdict::Refused;
    match event {
        RunEvent::AttemptFailed { .. }
        | RunEvent::StepFailed { .. }
        | RunEvent::TurnFailed { .. }
        | RunEvent::NeedsAttention { .. }
        | RunEvent::DelegationExpired { .. }
        | RunEvent::QuestionExpired { .. }
        | RunEvent::OutcomeUnknown { .. } => true,
        RunEvent::HandoffChecked { refusal, .. } => refusal.is_some(),
        RunEvent::AgentMade { made, .. } => made.is_err(),
        RunEvent::Delegated { verdict, .. }
        | RunEvent::Reserved { verdict, .. }
        | RunEvent::TurnEnded { verdict, .. }
        | RunEvent::Decided { verdict, .. } => matches!(verdict, Refused(_)),
        RunEvent::Stopped { outcome, .. } => !outcome.is_finished(),
        _ => false,
    }
}

/// The kinds of events by which they are filtered, as JSON names them.
pub(super) const KINDS: [&str; 16] = [
    "step_finished",
    "step_failed",
    "delegated",
    "asked",
    "answered",
    "approval_asked",
    "decided",
    "noticed",
    "summarized",
    "attempt_failed",
    "turn_ended",
    "turn_failed",
    "needs_attention",
    "reserved",
    "settled",
    "stopped",
];

/// The kind of an event, as JSON names it, if events are filtered by it.
fn kind_of(event: &RunEvent) -> &'static str {
    match event {
        RunEvent::StepFinished { .. } => "step_finished",
        RunEvent::StepFailed { .. } => "step_failed",
        RunEvent::Delegated { .. } => "delegated",
        RunEvent::Asked { .. } | RunEvent::AskedUntil { .. } => "asked",
        RunEvent::Answered { .. } => "answered",
        RunEvent::ApprovalAsked { .. } => "approval_asked",
        RunEvent::Decided { .. } => "decided",
        RunEvent::Noticed { .. } => "noticed",
        RunEvent::Summarized { .. } => "summarized",
        RunEvent::AttemptFailed { .. } => "attempt_failed",
        RunEvent::TurnEnded { .. } => "turn_ended",
        RunEvent::TurnFailed { .. } => "turn_failed",
        RunEvent::NeedsAttention { .. } => "needs_attention",
        RunEvent::Reserved { .. } => "reserved",
        RunEvent::Settled { .. } => "settled",
        RunEvent::Stopped { .. } => "stopped",
        _ => "other",
    }
}
