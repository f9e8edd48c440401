//! Requests for consent, and decisions about them.

use std::sync::Arc;

use crate::messages::{
    Action, ActionKind, AgentName, Consent, Deciders, Decision, EXPIRY, Envelope, POLICY, Rationale, Refusal,
    RequestId, RunEvent, Terms, Verdict, Vote,
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
    (kind, consent, rationale): (ActionKind, Consent, Rationale),
    context: &DecisionContext<'_>,
) -> Envelope {
    let task = &run.submission().task;
    let (now, ttl) = (context.now.wall, expiry::time_for(task, &consent, context.approval_ttl));
    let deciders = consent.deciders().map(|deciders| Deciders::clone(deciders)).unwrap_or_default();
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
        escalates_at: deciders.escalation.as_ref().map(|escalation| now + escalation.after),
        deciders,
        requester: task.from_agent.as_ref().map(Into::into),
        edited_by: None,
        rationale,
    }
}

/// The rules by which nobody is asked, as reasons of decisions.
const ANALYSES: &str = "nobody is asked: the agent only analyses";
const NOT_ASKED: &str = "nobody is asked: the approval policy allows it";

/// Decides about a request for consent: a person is asked, or the policy decides at once.
#[must_use]
pub(crate) fn on_approval(
    run: &Run,
    turn: &OpenTurn,
    request: RequestKey,
    action: Action,
    (each_time, rationale): (bool, Rationale),
    context: &DecisionContext<'_>,
) -> Vec<RunEvent> {
    let at = context.now.wall;
    let consent = context.directory.consent(&turn.agent, ActionKind::Requested, &action, each_time);
    let granted_by = run.consents().given_by(&turn.agent, &action, at).filter(|_| !each_time).cloned();
    let asked = (ActionKind::Requested, consent.clone(), rationale);
    let mut envelope = envelope(run, request, &turn.agent, action, asked, context);
    if each_time {
        envelope.policy = Envelope::EACH_TIME.into();
    }
    let (approval, RequestKey { turn: number, ordinal }) = (envelope.id(), request);
    let asked = RunEvent::ApprovalAsked { turn: number, ordinal, envelope: Box::new(envelope), at };
    let (approved, by, reason): (bool, Arc<str>, &str) = match (consent, granted_by) {
        (Consent::Ask | Consent::AskWithin(_) | Consent::AskOf { .. }, None) => return vec![asked],
        (Consent::Ask | Consent::AskWithin(_) | Consent::AskOf { .. }, Some(by)) => (true, by, "for the whole run"),
        (Consent::Auto, _) => {
            let only_analyses = context.directory.only_analyses(&turn.agent);
            (true, POLICY.into(), if only_analyses { ANALYSES } else { NOT_ASKED })
        }
        (Consent::Deny, _) => (false, POLICY.into(), ""),
    };
    let (votes, via) = (Vec::new(), "".into());
    let decision = Decision { approved, by, reason: reason.into(), at, terms: Terms::Once, votes, via };
    vec![asked, RunEvent::Decided { turn: number, ordinal, approval, decision, verdict: Verdict::Nothing, at }]
}

/// Decides about a decision that a turn waits for. A decision with edited arguments becomes a question of its own: with its answer if
/// one person decides, or with the first of its votes.
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
            let deciders = match decide_both(&envelope.deciders, consent) {
                Ok(deciders) => deciders,
                Err(reason) => return refuse(reason),
            };
            let is_decided = deciders == Deciders { at_least: 1, ..envelope.deciders.clone() };
            let edited_by = Vote { by: Arc::clone(&decision.by), at: decision.at, until: None };
            let changed = Envelope {
                version: Envelope::VERSION,
                action,
                nonce: context.random,
                // What escalates does so when it would have.
                escalates_at: envelope.escalates_at.filter(|_| deciders.escalation.is_some()),
                deciders,
                edited_by: Some(edited_by),
                ..envelope.clone()
            };
            let approval = changed.id();
            let asked = RunEvent::ApprovalAsked { turn, ordinal, envelope: Box::new(changed), at };
            if is_decided { vec![asked, decided(approval, decision)] } else { vec![asked] }
        }
        Terms::Once | Terms::Run { .. } | Terms::Edited { .. } => vec![decided(envelope.id(), decision)],
    }
}

/// Who decides about an action that another was changed to: those who decide about both.
fn decide_both(deciders: &Deciders, consent: Consent) -> Result<Deciders, &'static str> {
    if consent == Consent::Deny {
        return Err("the policy does not allow what it was changed to");
    }
    let before = Consent::AskOf { deciders: Arc::new(deciders.clone()), within: None };
    let both = before.strictest(consent);
    let deciders =
        both.deciders().ok_or("people of different groups decide about what it was and what it was changed to")?;
    Ok(Deciders::clone(deciders))
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
