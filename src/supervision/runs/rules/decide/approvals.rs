//! Requests for consent, and decisions about them.

use std::sync::Arc;

use crate::messages::{
    Action, ActionKind, AgentName, Consent, Decision, EXPIRY, Envelope, POLICY, Refusal, RequestId, RunEvent, Terms,
    Verdict,
};
use crate::supervision::runs::rules::expiry;
use crate::supervision::runs::rules::requests::RequestKey;
use crate::supervision::runs::rules::run::{OpenTurn, Run};

use super::context::DecisionContext;

pub(super) fn envelope(
    run: &Run,
    request: RequestKey,
    agent: &AgentName,
    action: Action,
    (kind, consent): (ActionKind, Consent),
    context: &DecisionContext<'_>,
) -> Envelope {
    let (now, ttl) = (context.now.wall, expiry::time_for(&run.submission().task, consent, context.approval_ttl));
    Envelope {
        version: Envelope::VERSION,
        kind,
        request: run.request_id(request),
        agent: agent.clone(),
        action,
        policy: Envelope::ASK.into(),
        nonce: context.random,
        expires_at: now + ttl,
        remind_at: expiry::remind_at(now, ttl, context.remind_before),
    }
}

/// Decides about a request for consent: a person is asked, or the policy decides at once.
#[must_use]
pub(crate) fn on_approval(
    run: &Run,
    turn: &OpenTurn,
    request: RequestKey,
    action: Action,
    each_time: bool,
    context: &DecisionContext<'_>,
) -> Vec<RunEvent> {
    let at = context.now.wall;
    let consent = context.directory.consent(&turn.agent, ActionKind::Requested, &action, each_time);
    let granted_by = run.consents().given_by(&turn.agent, &action, at).filter(|_| !each_time).cloned();
    let mut envelope = envelope(run, request, &turn.agent, action, (ActionKind::Requested, consent), context);
    if each_time {
        envelope.policy = Envelope::EACH_TIME.into();
    }
    let (approval, RequestKey { turn: number, ordinal }) = (envelope.id(), request);
    let asked = RunEvent::ApprovalAsked { turn: number, ordinal, envelope: Box::new(envelope), at };
    let (approved, by, reason): (bool, Arc<str>, &str) = match (consent, granted_by) {
        (Consent::Ask | Consent::AskWithin(_), None) => return vec![asked],
        (Consent::Ask | Consent::AskWithin(_), Some(by)) => (true, by, "for the whole run"),
        (Consent::Auto, _) => (true, POLICY.into(), ""),
        (Consent::Deny, _) => (false, POLICY.into(), ""),
    };
    let decision = Decision { approved, by, reason: reason.into(), at, terms: Terms::Once };
    vec![asked, RunEvent::Decided { turn: number, ordinal, approval, decision, verdict: Verdict::Nothing, at }]
}

/// Decides about a decision that a turn waits for. A decision with edited arguments becomes a question of its own, with its
/// answer.
#[must_use]
pub(crate) fn on_decision(envelope: &Envelope, decision: Decision, context: &DecisionContext<'_>) -> Vec<RunEvent> {
    let (RequestId { turn, ordinal }, at) = (envelope.request, context.now.wall);
    let turn = turn.number;
    let decided =
        |approval, decision| RunEvent::Decided { turn, ordinal, approval, decision, verdict: Verdict::Nothing, at };
    let refuse = |reason: &str| {
        let decision = Decision { approved: false, reason: reason.into(), terms: Terms::Once, ..decision.clone() };
        vec![decided(envelope.id(), decision)]
    };
    match &decision.terms {
        Terms::Edited { arguments } if decision.approved => {
            let Some(action) = envelope.action.edited(arguments.clone()) else {
                return refuse("nobody can say what it would be done to");
            };
            let each_time = *envelope.policy == *Envelope::EACH_TIME;
            let consent = context.directory.consent(&envelope.agent, ActionKind::Requested, &action, each_time);
            if consent == Consent::Deny {
                return refuse("the policy does not allow what it was changed to");
            }
            let changed = Envelope { action, nonce: context.random, ..envelope.clone() };
            let approval = changed.id();
            vec![
                RunEvent::ApprovalAsked { turn, ordinal, envelope: Box::new(changed), at },
                decided(approval, decision),
            ]
        }
        Terms::Once | Terms::Run { .. } | Terms::Edited { .. } => vec![decided(envelope.id(), decision)],
    }
}

/// The refusal that follows from a denial, or from an expiry without a decision.
#[must_use]
pub(crate) fn denial(action: &Action, decision: &Decision) -> Refusal {
    let action = action.to_string();
    if &*decision.by == EXPIRY {
        Refusal::ApprovalExpired { action }
    } else {
        Refusal::Denied { action, by: decision.by.to_string(), reason: decision.reason.to_string() }
    }
}
