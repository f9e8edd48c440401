//! Effects that must not be repeated by themselves: what the record of an effect means for an attempt that reaches it again, and
//! the decision about a request for it (SEMANTICS 14). Pure.

use std::sync::Arc;

use crate::messages::{
    AskedOutcome, Failure, Intent, Json, OnUnknown, POLICY, Reconciled, Resolution, RunEvent, Timestamp,
};

use super::requests::{RequestKey, TurnRequest};
use super::run::{Once, OnceState, Record};

/// The next step of a turn that reaches an effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    /// Carry it out, for the first time or again; `round` counts the times.
    Begin {
        /// For [`TurnRequest::Intend`].
        round: u32,
    },
    /// Use the recorded result.
    Result {
        /// The value, or how it failed.
        result: Result<Json, Failure>,
        /// The turn had read untrusted input by then.
        is_tainted: bool,
    },
    /// It was begun, and its outcome is unknown: ask the tool, then the run.
    Unknown {
        /// For [`TurnRequest::Resolve`].
        round: u32,
        /// The intent as recorded, if no person was asked yet: the tool is asked first.
        begun: Option<Intent>,
    },
    /// Follow the decision.
    Resolved {
        /// The decision.
        resolution: Resolution,
        /// The round that it is about.
        round: u32,
    },
}

/// The next step of a turn that reaches the effect `intent` and finds `record` under its ordinal.
///
/// # Errors
/// The record is of something else.
pub(crate) fn next(record: Option<&Record>, intent: &Intent) -> Result<Next, String> {
    match record {
        None => Ok(Next::Begin { round: 0 }),
        // When it was recorded, it was declared repeatable.
        Some(Record::StepStarted { name }) if *name == intent.name => Ok(Next::Begin { round: 0 }),
        Some(Record::Step { name, value, is_tainted }) if *name == intent.name => {
            Ok(Next::Result { result: Ok(value.clone()), is_tainted: *is_tainted })
        }
        Some(Record::StepFailed { name, failure, is_tainted }) if *name == intent.name => {
            Ok(Next::Result { result: Err(failure.clone()), is_tainted: *is_tainted })
        }
        Some(Record::Once(once)) if once.intent.is_same(intent) => {
            let round = once.round;
            Ok(match &once.state {
                OnceState::Begun => Next::Unknown { round, begun: Some((*once.intent).clone()) },
                OnceState::Asked(_) => Next::Unknown { round, begun: None },
                OnceState::Resolved(resolution) => Next::Resolved { resolution: resolution.clone(), round },
            })
        }
        Some(record) => Err(format!("it asks for {intent} where the journal has {}", brief(record))),
    }
}

/// The next step after the tool was asked for the outcome.
#[must_use]
pub(crate) fn after(reconciled: Reconciled, round: u32) -> Next {
    match reconciled {
        Reconciled::Done(value) => Next::Result { result: Ok(value), is_tainted: false },
        Reconciled::NotDone => Next::Begin { round },
        Reconciled::Unknown => Next::Unknown { round, begun: None },
    }
}

/// The decision of a run about a request.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are events, which a box would allocate")]
pub(in crate::supervision::runs) enum Decided {
    /// It is already recorded: the record is the answer.
    Recorded,
    /// This is to be journaled.
    Event(RunEvent),
    /// Something else was recorded under its ordinal.
    Changed(String),
}

/// The facts of the run that the decision needs.
#[derive(Clone, Copy, Debug)]
pub(in crate::supervision::runs) struct Facts {
    pub(in crate::supervision::runs) at: Timestamp,
    pub(in crate::supervision::runs) nonce: u64,
    /// The expiry of a question that is asked now.
    pub(in crate::supervision::runs) expires_at: Timestamp,
    /// The board's rule, for a tool and an agent that set none.
    pub(in crate::supervision::runs) on_unknown: OnUnknown,
}

/// Decides about [`TurnRequest::Intend`] and [`TurnRequest::Resolve`]; `None` for all others.
pub(in crate::supervision::runs) fn decide(
    RequestKey { turn, ordinal }: RequestKey,
    record: Option<&Record>,
    request: &TurnRequest,
    facts: Facts,
) -> Option<Decided> {
    let Facts { at, nonce, expires_at, on_unknown: usual } = facts;
    let ask = |problem: Option<Arc<str>>| {
        let asked = AskedOutcome { nonce, at, expires_at, problem };
        Decided::Event(RunEvent::OutcomeUnknown { turn, ordinal, asked })
    };
    let by_policy =
        |resolution| Decided::Event(RunEvent::OutcomeResolved { turn, ordinal, resolution, by: POLICY.into(), at });
    let (TurnRequest::Intend { intent, round, .. } | TurnRequest::Resolve { intent, round, .. }) = request else {
        return None;
    };
    let begin = |is_tool| {
        let intent = intent.clone();
        Decided::Event(RunEvent::IntentRecorded { turn, ordinal, intent, at, is_tool })
    };
    let changed =
        |record: &Record| Decided::Changed(format!("an earlier attempt asked for {} in this place", brief(record)));
    let once = match record {
        None => None,
        Some(Record::StepStarted { name }) if *name == intent.name => None,
        Some(Record::Once(once)) if once.intent.is_same(intent) => Some(once),
        Some(Record::Step { name, .. } | Record::StepFailed { name, .. }) if *name == intent.name => {
            return Some(Decided::Recorded);
        }
        Some(record) => return Some(changed(record)),
    };
    let is_resolved = once.is_some_and(|once| matches!(once.state, OnceState::Resolved(_)));
    let is_next = once.is_some_and(|once| is_resolved && once.round < *round);
    Some(match (request, once) {
        (TurnRequest::Resolve { problem, .. }, Some(_)) if is_next => ask(problem.clone()),
        (TurnRequest::Resolve { on_unknown, .. }, Some(Once { state: OnceState::Begun, .. })) => {
            match on_unknown.unwrap_or(usual) {
                OnUnknown::Ask => ask(None),
                OnUnknown::Report => by_policy(Resolution::Report),
                OnUnknown::Fail => by_policy(Resolution::GiveUp),
                OnUnknown::Repeat => by_policy(Resolution::Repeat),
            }
        }
        (TurnRequest::Intend { is_tool, .. }, None) => begin(*is_tool),
        (TurnRequest::Intend { is_tool, .. }, Some(_)) if is_next => begin(*is_tool),
        (_, Some(_)) => Decided::Recorded,
        (_, None) => Decided::Changed(format!("{intent} was never begun")),
    })
}

/// The record that replaces `before` after an event about a `once` effect; `None` if the event does not change it.
pub(in crate::supervision::runs) fn recorded(event: &RunEvent, before: Option<&Record>) -> Option<Record> {
    let before = match before {
        Some(Record::Once(once)) => Some(once),
        _ => None,
    };
    let round_after = |once: &Once| once.round + u32::from(matches!(once.state, OnceState::Resolved(_)));
    match (event, before) {
        (RunEvent::IntentRecorded { intent, .. }, before) => {
            let round = before.map_or(0, round_after);
            Some(Record::Once(Once { intent: Box::new(intent.clone()), round, state: OnceState::Begun }))
        }
        (RunEvent::OutcomeUnknown { asked, .. }, Some(once)) => Some(Record::Once(Once {
            intent: once.intent.clone(),
            round: round_after(once),
            state: OnceState::Asked(asked.clone()),
        })),
        (RunEvent::OutcomeResolved { resolution, .. }, Some(once)) => {
            let state = OnceState::Resolved(resolution.clone());
            Some(Record::Once(Once { intent: once.intent.clone(), round: once.round, state }))
        }
        _ => None,
    }
}

fn brief(record: &Record) -> String {
    match record {
        Record::StepStarted { name } | Record::Step { name, .. } | Record::StepFailed { name, .. } => {
            format!("step {name:?}")
        }
        Record::Once(once) => format!("{} with other arguments or another name", once.intent),
        record => format!("{record:?}").chars().take(80).collect(),
    }
}

#[cfg(test)]
mod reference;
