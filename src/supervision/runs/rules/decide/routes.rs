//! Decides about handoffs and delegations: builds the guard's request for them.

use crate::messages::{
    Action, ActionKind, AgentName, Command, Consent, Decision, Envelope, Goto, Order, POLICY, Rationale, Refusal,
    RequestId, RunEvent, Verdict,
};
use crate::supervision::runs::rules::guard::{self, Fingerprint, Kind, Request, fingerprint};
use crate::supervision::runs::rules::requests::RequestKey;
use crate::supervision::runs::rules::run::{HANDOFF_ORDINAL, OpenTurn, Run};

use super::approvals::{denial, envelope};
use super::context::DecisionContext;

/// The fingerprint of the handoff that a command asks for, if it asks for one.
pub(super) fn handoff_fingerprint(turn: &OpenTurn, command: &Command) -> Option<Fingerprint> {
    matches!(command.goto, Goto::Agent(_)).then(|| fingerprint(command.output.as_ref().unwrap_or(&turn.input), command))
}

/// The refusal that the guard would give to where a command goes, as far as it is known before the turn has ended.
#[must_use]
pub(crate) fn on_handoff_check(
    run: &Run,
    number: u32,
    turn: &OpenTurn,
    command: &Command,
    context: &DecisionContext<'_>,
) -> Option<Refusal> {
    if let Err(refusal) = run.check_goto(run.branch_of(turn), command) {
        return Some(refusal);
    }
    match route(run, number, turn, command, handoff_fingerprint(turn, command), CheckTime::Before, context) {
        Ok(Verdict::Refused(refusal)) | Err(refusal) => Some(refusal),
        Ok(Verdict::Admitted(_) | Verdict::Parked(_) | Verdict::Nothing) => None,
    }
}

/// The time at which the target of a command is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckTime {
    /// While the turn runs: no breaker or wait is changed.
    Before,
    /// When the turn ends.
    AtTheEnd,
    /// After a person has approved it.
    Approved,
}

/// Decides where a command goes. An unknown target ends the turn, as the unknown target of a mandatory delegation does: no agent
/// has that name now, and another attempt would not change it. Every other result is a verdict.
pub(super) fn route(
    run: &Run,
    number: u32,
    turn: &OpenTurn,
    command: &Command,
    fingerprint: Option<Fingerprint>,
    check_time: CheckTime,
    context: &DecisionContext<'_>,
) -> Result<Verdict, Refusal> {
    if run.is_planned(turn) {
        // The plan determines where its nodes' commands go, and it declares their targets.
        return Ok(Verdict::Nothing);
    }
    let named = command.goto.targets();
    let mut targets: Vec<AgentName> = Vec::with_capacity(named.size_hint().0);
    let mut last: Option<&str> = None;
    for target in named {
        // Of targets in a row that are one name, the first is looked up.
        let repeats = last.replace(target) == Some(&**target);
        let resolved = match targets.last() {
            Some(agent) if repeats => Ok(agent.clone()),
            Some(_) | None => resolve(run, target, context),
        };
        match resolved {
            Ok(agent) => targets.push(agent),
            Err(unknown @ Refusal::UnknownAgent { .. }) => return Err(unknown),
            Err(refusal) => return Ok(Verdict::Refused(refusal)),
        }
    }
    if targets.is_empty() && !matches!(command.goto, Goto::Many(_)) {
        return Ok(Verdict::Nothing);
    }
    let branch = run.branch_of(turn);
    let carried = command.output.as_ref().unwrap_or(&turn.input);
    let kind = match command.goto {
        Goto::Many(_) => Kind::FanOut,
        Goto::Agent(_) | Goto::Next | Goto::End => {
            Kind::Handoff { fingerprint: fingerprint.unwrap_or_default(), recent: &branch.recent }
        }
    };
    let input_of = |position: usize| match &command.goto {
        Goto::Many(sends) => &sends[position].input,
        Goto::Agent(_) | Goto::Next | Goto::End => carried,
    };
    let actions = targets.iter().enumerate().map(|(position, to)| Action::handoff(to, input_of(position)));
    let consent = match check_time {
        CheckTime::Approved => Consent::Auto,
        CheckTime::Before | CheckTime::AtTheEnd if context.directory.allows_all(ActionKind::Handoff) => Consent::Auto,
        CheckTime::Before | CheckTime::AtTheEnd => strictest(&turn.agent, actions.clone(), context),
    };
    let waiter = run.waiter_of(turn.branch);
    let request = request(run, turn, kind, &targets, waiter, &consent, context);
    let answer = match check_time {
        CheckTime::Before => guard::would_admit(&request, &context.facts.lock()),
        CheckTime::AtTheEnd | CheckTime::Approved => guard::admit(&request, &mut context.facts.lock()),
    };
    Ok(match answer {
        guard::Admission::Admit => Verdict::Admitted(targets),
        guard::Admission::Refuse(refusal) => Verdict::Refused(refusal),
        guard::Admission::Park => {
            let action = match <[Action; 1]>::try_from(actions.collect::<Vec<_>>()) {
                Ok([action]) => action,
                Err(actions) => {
                    let inputs = actions.iter().map(|action| action.arguments.value().clone());
                    let names: Vec<&str> = actions.iter().map(|action| &*action.target).collect();
                    Action::new("handoff", &names.join(", "), inputs.collect::<Vec<_>>())
                }
            };
            let (asked, handoff) = (
                (ActionKind::Handoff, consent, Rationale::default()),
                RequestKey { turn: number, ordinal: HANDOFF_ORDINAL },
            );
            Verdict::Parked(Box::new(envelope(run, handoff, &turn.agent, action, asked, context)))
        }
    })
}

/// The guard's request for an open turn that hands off to `targets`, or delegates to them.
fn request<'a>(
    run: &'a Run,
    turn: &'a OpenTurn,
    kind: Kind<'a>,
    targets: &'a [AgentName],
    waiter: Option<(RequestId, &'a AgentName)>,
    consent: &'a Consent,
    context: &DecisionContext<'_>,
) -> Request<'a> {
    let branch = run.branch_of(turn);
    Request {
        kind,
        from: &turn.agent,
        targets,
        first: run.turn_id(run.turns().next_number()),
        chain: &branch.chain,
        waiter,
        switch: run.submission().task.handoffs,
        limits: run.submission().limits(),
        handoffs: run.tally().handoffs(),
        agents: run.tally().agents(),
        budget: run.budget(),
        sub_budget: branch.brief.sub_budget,
        consent,
        now: context.now.monotonic,
    }
}

fn strictest(agent: &AgentName, actions: impl Iterator<Item = Action>, context: &DecisionContext<'_>) -> Consent {
    let consents = actions.map(|action| context.directory.consent(agent, ActionKind::Handoff, &action, false));
    consents.fold(Consent::Auto, Consent::strictest)
}

/// The agent that a name stands for: a dynamic agent of this run, or one of the board.
fn resolve(run: &Run, target: &str, context: &DecisionContext<'_>) -> Result<AgentName, Refusal> {
    match run.agents().named(target) {
        Some(made) => context.directory.resolve(made.host()).map(|_| made.clone()),
        None => context.directory.resolve(target).map(|agent| agent.apart()),
    }
}

/// Decides about a delegation that an open turn asks for.
#[must_use]
pub(crate) fn on_delegation(
    run: &Run,
    turn: &OpenTurn,
    request: RequestKey,
    order: Order,
    context: &DecisionContext<'_>,
) -> RunEvent {
    let verdict = match admit_delegation(run, run.request_id(request), turn, &order, context) {
        Ok(agent) => Verdict::Admitted(vec![agent]),
        Err(refusal) => Verdict::Refused(refusal),
    };
    let RequestKey { turn, ordinal } = request;
    RunEvent::Delegated { turn, ordinal, order, verdict, at: context.now.wall }
}

fn admit_delegation(
    run: &Run,
    asked: RequestId,
    turn: &OpenTurn,
    order: &Order,
    context: &DecisionContext<'_>,
) -> Result<AgentName, Refusal> {
    let target = resolve(run, &order.to, context)?;
    context.directory.check_room(&target)?;
    let asked_for = || {
        let action = Action::new("delegation", &order.to, order.input.clone());
        context.directory.consent(&turn.agent, ActionKind::Delegation, &action, false)
    };
    let is_allowed = context.directory.allows_all(ActionKind::Delegation);
    let consent = match if is_allowed { Consent::Auto } else { asked_for() } {
        Consent::Auto => Consent::Auto,
        Consent::Deny => Consent::Deny,
        // The turn continues meanwhile, so its delegation cannot be parked. It is refused if nobody can be asked.
        Consent::Ask | Consent::AskWithin(_) | Consent::AskOf { .. } => {
            let reason = "a delegation is not put before people; ask with TurnPeople::approve before it".to_owned();
            let action = format!("delegation to {target}");
            return Err(Refusal::Denied { action, by: POLICY.into(), reason });
        }
    };
    let waiter = (!order.is_detached).then_some((asked, &turn.agent));
    let request = request(run, turn, Kind::Delegation, std::slice::from_ref(&target), waiter, &consent, context);
    match guard::admit(&request, &mut context.facts.lock()) {
        guard::Admission::Admit => Ok(target),
        guard::Admission::Refuse(refusal) => Err(refusal),
        guard::Admission::Park => unreachable!("a delegation is allowed or denied"),
    }
}

/// Decides about a decision on a handoff that was parked after its turn; the whole guard runs again.
#[must_use]
pub(crate) fn on_parked_decision(
    run: &Run,
    envelope: &Envelope,
    decision: Decision,
    context: &DecisionContext<'_>,
) -> Option<RunEvent> {
    let number = envelope.request.turn.number;
    let at = context.now.wall;
    let (id, parked) = run.branches().parked_by(number)?;
    let verdict = if decision.approved {
        let turn = parked.ended.reopened(id);
        let command = &parked.ended.command;
        route(run, number, &turn, command, handoff_fingerprint(&turn, command), CheckTime::Approved, context)
            .unwrap_or_else(Verdict::Refused)
    } else {
        Verdict::Refused(denial(&envelope.action, &decision))
    };
    let (ordinal, approval) = (HANDOFF_ORDINAL, envelope.id());
    Some(RunEvent::Decided { turn: number, ordinal, approval, decision, verdict, at })
}
