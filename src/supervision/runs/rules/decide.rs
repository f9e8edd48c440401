//! What becomes of a turn's outcome or request: the event to journal. Everything from outside comes in as values, so
//! these decisions run in tests without an actor.

use std::sync::Arc;
use std::time::Duration;

use callboard_text::{look_alike, quoted};

use crate::env::Now;
use crate::messages::state::StateError;
use crate::messages::{
    ASK, Action, ActionKind, AgentName, Authority, Backoff, Command, Consent, Decision, EACH_TIME, Envelope, Failure,
    FailureKind, Goto, Json, OnUnknown, Order, Outcome, Refusal, RequestId, RunEvent, Terms, Verdict, handoff_action,
};

use super::directory::AgentDirectory;
use super::expiry;
use super::facts::SharedFacts;
use super::guard::{self, Kind, Mark, Request};
use super::reopen::OverwriteError;
use super::requests::TurnOutcome;
use super::retry::{self, AfterFailure};
use super::run::{HANDOFF_ORDINAL, Now as BranchNow, OpenTurn, Run};
use super::step::{WorkedOut, mark};

/// The largest command, in bytes of its parts as text.
pub const MAX_COMMAND: usize = 8 << 20;

/// What a decision may look at outside the run.
pub struct DecisionContext<'a> {
    /// One reading of the clock for everything that is decided together.
    pub now: Now,
    /// A random number.
    pub random: u64,
    /// The agents.
    pub directory: &'a dyn AgentDirectory,
    /// Breakers and waits.
    pub facts: &'a SharedFacts,
    /// Between attempts.
    pub backoff: &'a Backoff,
    /// How long an approval waits if neither policy nor task says.
    pub approval_ttl: Duration,
    /// How long before that people are reminded.
    pub remind_before: Duration,
    /// What follows an unknown outcome if neither tool nor agent says.
    pub on_unknown: OnUnknown,
    /// The most agents that are made in one run (SEMANTICS 13).
    pub dynamic_agents: usize,
}

/// What becomes of an attempt's outcome; `None` if the attempt is late.
#[must_use]
pub fn on_outcome(
    run: &Run,
    number: u32,
    attempt: u32,
    outcome: TurnOutcome,
    context: &DecisionContext<'_>,
) -> Option<(RunEvent, WorkedOut)> {
    let turn = run.turn(number).filter(|turn| turn.attempt == attempt)?;
    let failure = match outcome {
        TurnOutcome::Command(command) => match on_command(run, number, turn, command, context) {
            Ok(decided) => return Some(decided),
            Err(failure) => failure,
        },
        TurnOutcome::Failed(failure) => failure,
    };
    Some((on_failure(run, number, turn, failure, context), WorkedOut::default()))
}

/// What observers are told of a turn that has ended: its command writes a new channel that looks like a slip of the pen.
#[must_use]
pub fn slips(run: &Run, ended: &RunEvent) -> Vec<String> {
    let RunEvent::TurnEnded { turn, command, .. } = ended else { return Vec::new() };
    let Some(turn) = run.turn(*turn).filter(|_| !command.update.is_empty()) else { return Vec::new() };
    let notice = |(new, known)| format!("the channel {} is new; did you mean {}?", quoted(new), quoted(known));
    run.branch_of(turn).view.slips(&command.update, &run.rules.schema).map(notice).collect()
}

fn on_failure(run: &Run, turn: u32, open: &OpenTurn, failure: Failure, context: &DecisionContext<'_>) -> RunEvent {
    let attempt = open.attempt;
    let at = context.now.wall;
    let has_changed = failure.kind == FailureKind::ChangedTurn;
    let attempts = run.rules_of(turn).and_then(|rules| rules.attempts).unwrap_or(run.submission.limits().attempts);
    match retry::decide(failure.kind, attempt, attempts, context.backoff, context.random) {
        AfterFailure::Retry(after) => RunEvent::AttemptFailed { turn, attempt, failure, retry_at: at + after, at },
        AfterFailure::GiveUp => {
            let (agent, input) = (open.agent.clone(), open.input.clone());
            RunEvent::TurnFailed { turn, agent, input, attempt, failure, at }
        }
        AfterFailure::NeedAttention => RunEvent::NeedsAttention { turn, has_changed, why: failure.text.into(), at },
    }
}

fn on_command(
    run: &Run,
    number: u32,
    turn: &OpenTurn,
    command: Command,
    context: &DecisionContext<'_>,
) -> Result<(RunEvent, WorkedOut), Failure> {
    let invalid = |text: String| Failure::new(FailureKind::InvalidCommand, text);
    if let Some(reason) = &command.unserializable {
        return Err(invalid(format!("its output or a write has no JSON form: {reason}")));
    }
    if command.is_too_deep() {
        return Err(invalid("its output, a write or a send is nested too deeply".into()));
    }
    let goes_elsewhere = matches!(command.goto, Goto::Agent(_) | Goto::Many(_));
    if goes_elsewhere && (turn.has_detached() || !run.branch_of(turn).outbound.is_empty()) {
        return Err(invalid(
            "it hands control on while answers to detached delegations are to come; end with `Next`, or wait for them"
                .into(),
        ));
    }
    let size = command.size();
    if size > MAX_COMMAND {
        return Err(invalid(format!("the command has {size} bytes; at most {MAX_COMMAND} are allowed")));
    }
    if run.is_planned(turn)
        && let Some(twice) = command.goto.target_named_twice()
    {
        let twice = quoted(twice);
        return Err(invalid(format!("two sends go to the node {twice}, which is begun once; do it in a map")));
    }
    run.check_goto(run.branch_of(turn), &command).map_err(Failure::refused)?;
    let mark = handoff_mark(turn, &command);
    let (settled, verdict) = match run.settle(number, turn.branch, &turn.children(), &command.update) {
        Ok(settled) => {
            run.check_writes(number, &settled.0, &command).map_err(invalid)?;
            let verdict = route(run, number, turn, &command, mark, Asked::AtTheEnd, context);
            (Some(settled), verdict.map_err(Failure::refused)?)
        }
        // The join's own failure: the same children would fail every attempt, so the fold ends the branch.
        Err(StateError::ConcurrentWrite { .. }) => (None, Verdict::Nothing),
        Err(error) => return Err(invalid(error.to_string())),
    };
    let at = context.now.wall;
    let (agent, attempt) = (turn.agent.clone(), turn.attempt);
    let event = RunEvent::TurnEnded { turn: number, agent, attempt, command: Arc::new(command), verdict, at };
    Ok((event, WorkedOut { settled, mark }))
}

/// Where a turn goes whose end is applied again, with something written over what its children wrote.
///
/// # Errors
/// Their writes conflict all the same, or a target is not known any more.
pub(in crate::supervision::runs) fn on_resumed_end(
    run: &Run,
    number: u32,
    command: &Command,
    context: &DecisionContext<'_>,
) -> Result<Verdict, OverwriteError> {
    let Some(turn) = run.turn(number) else { return Ok(Verdict::Nothing) };
    run.settle(number, turn.branch, &run.children_of(turn), &command.update)?;
    let verdict = route(run, number, turn, command, handoff_mark(turn, command), Asked::AtTheEnd, context);
    verdict.map_err(|refusal| OverwriteError::CannotGoOn(refusal.to_string()))
}

/// The mark of the handoff that a command asks for, if it asks for one.
fn handoff_mark(turn: &OpenTurn, command: &Command) -> Option<Mark> {
    matches!(command.goto, Goto::Agent(_)).then(|| mark(command.output.as_ref().unwrap_or(&turn.input), command))
}

/// Why control may not go where a command has it go, as far as that can be known before the turn has ended.
#[must_use]
pub fn on_handoff_check(
    run: &Run,
    number: u32,
    turn: &OpenTurn,
    command: &Command,
    context: &DecisionContext<'_>,
) -> Option<Refusal> {
    if let Err(refusal) = run.check_goto(run.branch_of(turn), command) {
        return Some(refusal);
    }
    match route(run, number, turn, command, handoff_mark(turn, command), Asked::Before, context) {
        Ok(Verdict::Refused(refusal)) | Err(refusal) => Some(refusal),
        Ok(Verdict::Admitted(_) | Verdict::Parked(_) | Verdict::Nothing) => None,
    }
}

/// When it is asked where a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// While its turn is under way: nothing is taken.
    Before,
    /// As its turn ends.
    AtTheEnd,
    /// After somebody has approved of it.
    Approved,
}

/// Where a command goes. An unknown target ends the turn, as that of a delegation does which the turn insists on: nobody
/// has that name now, and the same attempt again would not change it. Everything else is a verdict.
fn route(
    run: &Run,
    number: u32,
    turn: &OpenTurn,
    command: &Command,
    mark: Option<Mark>,
    asked: Asked,
    context: &DecisionContext<'_>,
) -> Result<Verdict, Refusal> {
    if run.is_planned(turn) {
        // The plan says where its nodes' commands go, and its author has said where they may.
        return Ok(Verdict::Nothing);
    }
    let mut targets = Vec::new();
    for target in command.goto.targets() {
        match resolve(run, target, context) {
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
            Kind::Handoff { mark: mark.unwrap_or_default(), recent: &branch.recent }
        }
    };
    let input_of = |position: usize| match &command.goto {
        Goto::Many(sends) => &sends[position].input,
        Goto::Agent(_) | Goto::Next | Goto::End => carried,
    };
    let actions = targets.iter().enumerate().map(|(position, to)| handoff_action(to, input_of(position)));
    let consent = match asked {
        Asked::Approved => Consent::Auto,
        Asked::Before | Asked::AtTheEnd => strictest(&turn.agent, actions.clone(), context),
    };
    let request = Request {
        kind,
        from: &turn.agent,
        targets: &targets,
        first: run.turn_id(run.next_turn),
        chain: &branch.chain,
        waiter: run.waiter_of(turn.branch),
        switch: run.submission.task.handoffs,
        limits: run.submission.limits(),
        handoffs: run.handoffs,
        agents: &run.agents,
        budget: &run.budget,
        purse: branch.brief.purse,
        consent,
        now: context.now.monotonic,
    };
    let answer = match asked {
        Asked::Before => guard::probe(&request, &context.facts.lock()),
        Asked::AtTheEnd | Asked::Approved => guard::admit(&request, &mut context.facts.lock()),
    };
    Ok(match answer {
        guard::Answer::Admit => Verdict::Admitted(targets),
        guard::Answer::Refuse(refusal) => Verdict::Refused(refusal),
        guard::Answer::Park => {
            let action = match <[Action; 1]>::try_from(actions.collect::<Vec<_>>()) {
                Ok([action]) => action,
                Err(actions) => {
                    let inputs = actions.iter().map(|action| action.arguments.value().clone());
                    let names: Vec<&str> = actions.iter().map(|action| &*action.target).collect();
                    Action::new("handoff", &names.join(", "), inputs.collect::<Vec<_>>())
                }
            };
            let asked = (ActionKind::Handoff, consent);
            Verdict::Parked(Box::new(envelope(run, number, HANDOFF_ORDINAL, &turn.agent, action, asked, context)))
        }
    })
}

fn strictest(agent: &AgentName, actions: impl Iterator<Item = Action>, context: &DecisionContext<'_>) -> Consent {
    let consents = actions.map(|action| context.directory.consent(agent, ActionKind::Handoff, &action, false));
    consents.fold(Consent::Auto, Consent::strictest)
}

fn envelope(
    run: &Run,
    turn: u32,
    ordinal: u32,
    agent: &AgentName,
    action: Action,
    (kind, consent): (ActionKind, Consent),
    context: &DecisionContext<'_>,
) -> Envelope {
    let (now, ttl) = (context.now.wall, expiry::time_for(&run.submission.task, consent, context.approval_ttl));
    Envelope {
        version: Envelope::VERSION,
        kind,
        request: RequestId { turn: run.turn_id(turn), ordinal },
        agent: agent.clone(),
        action,
        policy: ASK.into(),
        nonce: context.random,
        expires_at: now + ttl,
        remind_at: expiry::remind_at(now, ttl, context.remind_before),
    }
}

/// The agent that a name stands for: one that was made in this run, or one of the board.
fn resolve(run: &Run, target: &str, context: &DecisionContext<'_>) -> Result<AgentName, Refusal> {
    match run.made_agent(target) {
        Some(made) => context.directory.resolve(made.host()).map(|_| made.clone()),
        None => context.directory.resolve(target),
    }
}

/// What becomes of an agent that a turn wants to make, or to change, and what that one may cause at most.
///
/// # Errors
/// [`Refusal::AgentNotMade`].
pub fn on_make(
    run: &Run,
    turn: &OpenTurn,
    name: &str,
    draft: &Json,
    is_change: bool,
    context: &DecisionContext<'_>,
) -> (Result<AgentName, Refusal>, Authority) {
    let authority = run.authority_of(run.branch_of(turn), &turn.agent, context.directory);
    let made = made(run, turn, name, draft, is_change, context);
    (made.map_err(|why| Refusal::AgentNotMade { name: name.to_owned(), why }), authority)
}

fn made(
    run: &Run,
    turn: &OpenTurn,
    name: &str,
    draft: &Json,
    is_change: bool,
    context: &DecisionContext<'_>,
) -> Result<AgentName, String> {
    let agent = turn.agent.of_made(name).map_err(|error| error.to_string())?;
    match (is_change, run.made_agent(name)) {
        (true, Some(there)) if *there == agent => {}
        (true, Some(_)) => return Err("only the agent that made it may change it".to_owned()),
        (true, None) => return Err("no agent of this name was made in this run".to_owned()),
        (false, Some(_)) => return Err("an agent of this run has the name".to_owned()),
        (false, None) => {
            if !matches!(context.directory.resolve(name), Err(Refusal::UnknownAgent { .. })) {
                return Err("the name is in use".to_owned());
            }
            let made = look_alike(name, run.made.values().map(|made| &*made.name)).map(str::to_owned);
            if let Some(other) = made.or_else(|| context.directory.look_alike(name).map(|other| other.to_string())) {
                return Err(format!("the name looks like that of {other}; choose another one"));
            }
            let most = context.dynamic_agents;
            let noun = if most == 1 { "agent" } else { "agents" };
            if run.made.len() >= most {
                return Err(format!("the run has made {most} {noun}, which is the most; change one of them"));
            }
        }
    }
    let host = turn.agent.host();
    if context.facts.lock().non_reentrant.contains(host) {
        return Err(format!(
            "{host} takes no other turn while one of its turns waits, and so has no place for another"
        ));
    }
    let kept = || context.directory.kept(&turn.agent).map(|kept| kept.drafts);
    let made = turn.made.as_deref().filter(|made| !made.is_empty()).map(<[Json]>::to_vec);
    let mut drafts = made.or_else(kept).unwrap_or_default();
    drafts.push(draft.clone());
    context.directory.check_made(host, &drafts)?;
    Ok(agent)
}

/// What becomes of a delegation that an open turn asks for.
#[must_use]
pub fn on_delegation(
    run: &Run,
    number: u32,
    turn: &OpenTurn,
    ordinal: u32,
    order: Order,
    context: &DecisionContext<'_>,
) -> RunEvent {
    let verdict = match admit_delegation(run, RequestId { turn: run.turn_id(number), ordinal }, turn, &order, context) {
        Ok(agent) => Verdict::Admitted(vec![agent]),
        Err(refusal) => Verdict::Refused(refusal),
    };
    RunEvent::Delegated { turn: number, ordinal, order, verdict, at: context.now.wall }
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
    let branch = run.branch_of(turn);
    let action = Action::new("delegation", &order.to, order.input.clone());
    let consent = match context.directory.consent(&turn.agent, ActionKind::Delegation, &action, false) {
        Consent::Auto => Consent::Auto,
        Consent::Deny => Consent::Deny,
        // Its turn goes on while it is under way, so it is not parked; what nobody can be asked about does not happen.
        Consent::Ask | Consent::AskWithin(_) => {
            let reason = "a delegation is not put before people; ask with Turn::approve before it".to_owned();
            let action = format!("delegation to {target}");
            return Err(Refusal::Denied { action, by: "policy".into(), reason });
        }
    };
    let request = Request {
        kind: Kind::Delegation,
        from: &turn.agent,
        targets: std::slice::from_ref(&target),
        first: run.turn_id(run.next_turn),
        chain: &branch.chain,
        waiter: (!order.is_detached).then_some((asked, &turn.agent)),
        switch: run.submission.task.handoffs,
        limits: run.submission.limits(),
        handoffs: run.handoffs,
        agents: &run.agents,
        budget: &run.budget,
        purse: branch.brief.purse,
        consent,
        now: context.now.monotonic,
    };
    match guard::admit(&request, &mut context.facts.lock()) {
        guard::Answer::Admit => Ok(target),
        guard::Answer::Refuse(refusal) => Err(refusal),
        guard::Answer::Park => unreachable!("a delegation is allowed or denied"),
    }
}

/// What becomes of a request for consent: asked, or decided by the policy at once.
#[must_use]
pub fn on_approval(
    run: &Run,
    (number, turn): (u32, &OpenTurn),
    ordinal: u32,
    action: Action,
    each_time: bool,
    context: &DecisionContext<'_>,
) -> Vec<RunEvent> {
    let at = context.now.wall;
    let consent = context.directory.consent(&turn.agent, ActionKind::Requested, &action, each_time);
    let standing = run.standing_consent(&turn.agent, &action, at).filter(|_| !each_time).cloned();
    let mut envelope = envelope(run, number, ordinal, &turn.agent, action, (ActionKind::Requested, consent), context);
    if each_time {
        envelope.policy = EACH_TIME.into();
    }
    let approval = envelope.id();
    let asked = RunEvent::ApprovalAsked { turn: number, ordinal, envelope: Box::new(envelope), at };
    let (approved, by, reason): (bool, Arc<str>, &str) = match (consent, standing) {
        (Consent::Ask | Consent::AskWithin(_), None) => return vec![asked],
        (Consent::Ask | Consent::AskWithin(_), Some(by)) => (true, by, "for the whole run"),
        (Consent::Auto, _) => (true, "policy".into(), ""),
        (Consent::Deny, _) => (false, "policy".into(), ""),
    };
    let decision = Decision { approved, by, reason: reason.into(), at, terms: Terms::Once };
    vec![asked, RunEvent::Decided { turn: number, ordinal, approval, decision, verdict: Verdict::Nothing, at }]
}

/// What becomes of a decision that a turn waits for. One with other arguments answers a question of its own.
#[must_use]
pub fn on_decision(envelope: &Envelope, decision: Decision, context: &DecisionContext<'_>) -> Vec<RunEvent> {
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
            let each_time = *envelope.policy == *EACH_TIME;
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

/// What becomes of a decision about a handoff that was parked after its turn; the whole guard runs again.
#[must_use]
pub fn on_parked_decision(
    run: &Run,
    envelope: &Envelope,
    decision: Decision,
    context: &DecisionContext<'_>,
) -> Option<RunEvent> {
    let number = envelope.request.turn.number;
    let at = context.now.wall;
    let (id, parked) = run.branches.iter().find_map(|(id, branch)| match &branch.now {
        BranchNow::Parked(parked) if parked.ended.number == number => Some((*id, parked)),
        BranchNow::Parked(_)
        | BranchNow::Turn(_)
        | BranchNow::Awaiting
        | BranchNow::Forked { .. }
        | BranchNow::Plan(_) => None,
    })?;
    let verdict = if decision.approved {
        let turn = OpenTurn::ended(id, &parked.ended);
        let command = &parked.ended.command;
        route(run, number, &turn, command, handoff_mark(&turn, command), Asked::Approved, context)
            .unwrap_or_else(Verdict::Refused)
    } else {
        Verdict::Refused(denial(&envelope.action, &decision))
    };
    let (ordinal, approval) = (HANDOFF_ORDINAL, envelope.id());
    Some(RunEvent::Decided { turn: number, ordinal, approval, decision, verdict, at })
}

/// The refusal that a denial, or a decision that never came, amounts to.
#[must_use]
pub fn denial(action: &Action, decision: &Decision) -> Refusal {
    let action = action.to_string();
    if &*decision.by == EXPIRY {
        Refusal::ApprovalExpired { action }
    } else {
        Refusal::Denied { action, by: decision.by.to_string(), reason: decision.reason.to_string() }
    }
}

/// Who decides when nobody did in time.
pub const EXPIRY: &str = "expiry";

/// What a deadline that has passed does to a run.
#[must_use]
pub fn on_deadline(context: &DecisionContext<'_>) -> RunEvent {
    RunEvent::Stopped { outcome: Outcome::refused(Refusal::DeadlinePassed), at: context.now.wall }
}
