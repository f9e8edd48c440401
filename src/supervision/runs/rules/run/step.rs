//! The fold: applies one event after another to a run. Pure and deterministic; it returns effects for the runtime to carry out.

use std::sync::Arc;

use crate::messages::state::{Delta, StateRules};
use crate::messages::{
    AgentName, Answer, AskedOutcome, ContextStrategy, EarlierAnswer, Json, Order, Outcome, Refusal, RunEvent, State,
    Submission, Update, Usage, Verdict,
};
use crate::supervision::runs::rules::budget::{Budget, Call, ReservationKey, UsedBy};
use crate::supervision::runs::rules::once;
use crate::supervision::runs::rules::rare::Rare;
use crate::supervision::runs::rules::requests::{Attempt, RequestKey};

use super::branch::{Branch, Branches, Brief, Now, Origin};
use super::effect::{Effect, WorkedOut};
use super::fold::{Extras, Overwrite, Run};
use super::plan::progress::PlanProgress;
use super::plan::scope::EndStates;
use super::record::{ChildDeltas, ELSEWHERE_ORDINAL, LATE_ORDINAL, QuestionState, Record};
use super::tally::Tally;
use super::turn::{OpenTurn, OpenTurns, Phase};

impl Run {
    /// The run that a submission begins, with its first turns admitted and to be started.
    pub(crate) fn begin(submission: Arc<Submission>, rules: StateRules) -> (Self, Vec<Effect>) {
        Self::begin_watched(submission, rules, None)
    }

    /// As [`Run::begin`]; with `states`, the states are kept that nodes of its plan had when their blocks ended.
    pub(in crate::supervision::runs) fn begin_watched(
        submission: Arc<Submission>,
        rules: StateRules,
        states: Option<Box<EndStates>>,
    ) -> (Self, Vec<Effect>) {
        let input = submission.task.input.clone().unwrap_or_else(|| Json::from(&*submission.task.body));
        let run = Self {
            rules: rules.clone(),
            sequence: 1,
            tally: Tally::default(),
            budget: Budget::of(submission.limits()),
            branches: Branches::default(),
            turns: OpenTurns::new(),
            last_at: submission.at,
            is_tainted: submission.task.is_untrusted,
            result: None,
            plan: PlanProgress::watched(states),
            extras: Rare::default(),
            submission,
        };
        let mut run = run.with_rules(rules);
        let (chain, agent) = (run.submission.chain.clone(), run.submission.agent.clone());
        let mut root = Branch::new(Origin::Root, State::default(), chain);
        if let Some(placed) = run.submission.task.placed.as_deref() {
            (root.view, root.previous_agent) = (placed.view.clone(), placed.previous_agent.clone());
            let answers =
                placed.answers.as_ref().and_then(|answers| answers.parse::<Vec<EarlierAnswer>>().ok()).map(Into::into);
            root = root.with_brief(Brief { answers, ..Brief::default() });
        }
        let root = run.branches.add(root);
        let mut effects = Vec::new();
        if run.submission.task.plan.is_none() {
            effects.push(run.start_turn(root, agent, input));
        } else if run.plan.graph().is_some() {
            run.begin_block(root, 0, input);
            run.drain_agenda(&mut effects);
        } else {
            let outcome = Outcome::Failed { error: "the plan of the run cannot be compiled".to_owned() };
            run.end_branch(root, outcome, Json::null(), &mut effects);
        }
        (run, effects)
    }

    /// Applies the next event. An event about a turn that is no longer open changes nothing.
    pub(crate) fn step(&mut self, event: &RunEvent) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.step_with(event, WorkedOut::default(), &mut effects);
        effects
    }

    /// As [`Run::step`], without repeating the computations in `worked_out`; appends to `effects`.
    pub(crate) fn step_with(&mut self, event: &RunEvent, worked_out: WorkedOut, effects: &mut Vec<Effect>) {
        self.sequence += 1;
        if self.result.is_some() {
            if let RunEvent::Settled { turn, ordinal, usage, at: _, model, is_of_run } = event {
                self.settled((*turn, *ordinal), *usage, model.as_ref(), *is_of_run);
            }
            return;
        }
        if let Some(Extras { conflict, left_elsewhere, overwrite, .. }) = self.extras.get_mut() {
            *conflict = None;
            left_elsewhere.clear();
            if overwrite.as_ref().is_some_and(|over| event.turn() != Some(over.written.turn.number)) {
                *overwrite = None;
            }
        }
        match event {
            RunEvent::Submitted(_) | RunEvent::Noticed { .. } | RunEvent::Summarized { .. } => {}
            RunEvent::StepStarted { turn, ordinal, name, at: _ } => {
                self.turns.record(
                    RequestKey { turn: *turn, ordinal: *ordinal },
                    Record::StepStarted { name: Arc::clone(name) },
                );
            }
            RunEvent::StepFinished { turn, ordinal, name, value, is_tainted, at: _, is_tool } => {
                if *is_tool {
                    self.count_tool(*turn, name);
                }
                let (name, value, is_tainted) = (Arc::clone(name), value.clone(), *is_tainted);
                self.turns
                    .record(RequestKey { turn: *turn, ordinal: *ordinal }, Record::Step { name, value, is_tainted });
            }
            RunEvent::StepFailed { turn, ordinal, name, failure, is_tainted, at: _ } => {
                let (name, failure, is_tainted) = (Arc::clone(name), failure.clone(), *is_tainted);
                self.turns.record(
                    RequestKey { turn: *turn, ordinal: *ordinal },
                    Record::StepFailed { name, failure, is_tainted },
                );
            }
            RunEvent::IntentRecorded { turn, ordinal, at, .. }
            | RunEvent::OutcomeUnknown { turn, ordinal, asked: AskedOutcome { at, .. } }
            | RunEvent::OutcomeResolved { turn, ordinal, at, .. } => {
                self.last_at = *at;
                let before = self.turns.get(*turn).and_then(|open| open.record(*ordinal));
                if let Some(record) = once::recorded(event, before) {
                    if let RunEvent::IntentRecorded { intent, is_tool: true, .. } = event {
                        self.count_tool(*turn, &intent.name);
                    }
                    self.turns.record(RequestKey { turn: *turn, ordinal: *ordinal }, record);
                    effects.push(match event {
                        RunEvent::OutcomeUnknown { asked, .. } => Effect::ArmDeadline {
                            request: RequestKey { turn: *turn, ordinal: *ordinal },
                            at: asked.expires_at,
                        },
                        _ => Effect::Reply(RequestKey { turn: *turn, ordinal: *ordinal }),
                    });
                }
            }
            RunEvent::Delegated { turn, ordinal, order, verdict, at } => {
                self.last_at = *at;
                self.delegated(RequestKey { turn: *turn, ordinal: *ordinal }, order, verdict, effects);
            }
            RunEvent::DelegationExpired { turn, ordinal, at } => {
                self.last_at = *at;
                if let Some(child) = self.branches.of_delegation(RequestKey { turn: *turn, ordinal: *ordinal }) {
                    self.cancel_branch(child, effects);
                    let outcome = Outcome::refused(Refusal::DeadlinePassed);
                    let answer = Answer { outcome, output: Json::null() };
                    self.answered(RequestKey { turn: *turn, ordinal: *ordinal }, answer, Vec::new(), effects);
                }
            }
            RunEvent::Reserved { turn, ordinal, tokens, verdict, at: _, cost, charged: _, is_share } => {
                self.budget.reserved_up_to(ordinal + 1);
                if matches!(verdict, Verdict::Admitted(_)) {
                    let open = self.turns.get(*turn);
                    let sub_budget = open.and_then(|open| self.branch_of(open).extras.brief.sub_budget);
                    let cost = cost.unwrap_or_default().0;
                    let call = Call { agent: open.map(|open| open.agent.clone()), cost };
                    self.budget.reserve((*turn, *ordinal), sub_budget, *tokens, call);
                    if *is_share {
                        self.turns
                            .record(RequestKey { turn: *turn, ordinal: ELSEWHERE_ORDINAL }, Record::TakenElsewhere);
                    }
                }
            }
            RunEvent::Settled { turn, ordinal, usage, at: _, model, is_of_run } => {
                self.settled((*turn, *ordinal), *usage, model.as_ref(), *is_of_run);
            }
            RunEvent::Asked { turn, ordinal, question, nonce, at } => {
                let (question, nonce, asked_at) = (question.clone(), *nonce, *at);
                self.turns.record(
                    RequestKey { turn: *turn, ordinal: *ordinal },
                    Record::Question { question, nonce, asked_at, answer: None },
                );
            }
            RunEvent::AskedUntil { turn, ordinal, question, nonce, expires_at, at } => {
                let (question, state) = (question.clone(), QuestionState::Open);
                let (nonce, asked_at, expires_at) = (*nonce, *at, *expires_at);
                let record = Record::TimedQuestion { question, nonce, asked_at, expires_at, state };
                self.turns.record(RequestKey { turn: *turn, ordinal: *ordinal }, record);
                effects.push(Effect::ArmDeadline {
                    request: RequestKey { turn: *turn, ordinal: *ordinal },
                    at: expires_at,
                });
            }
            RunEvent::Answered { turn, ordinal, answer, at, .. } => {
                self.last_at = *at;
                let request = RequestKey { turn: *turn, ordinal: *ordinal };
                let is_asked = self.turns.change_record(request, |record| match record {
                    Record::Question { answer: slot, .. } => slot.replace(answer.clone()).is_none(),
                    Record::TimedQuestion { state, .. } => {
                        *state = QuestionState::Answered(answer.clone());
                        true
                    }
                    _ => false,
                });
                if is_asked == Some(true) {
                    effects.push(Effect::Reply(request));
                }
            }
            RunEvent::QuestionExpired { turn, ordinal, at } => {
                self.last_at = *at;
                let request = RequestKey { turn: *turn, ordinal: *ordinal };
                let has_expired = self.turns.change_record(request, |record| match record {
                    Record::TimedQuestion { state, .. } => {
                        *state = QuestionState::Expired;
                        true
                    }
                    _ => false,
                });
                if has_expired == Some(true) {
                    effects.push(Effect::Reply(request));
                }
            }
            RunEvent::ApprovalAsked { turn, ordinal, envelope, .. } => {
                let request = RequestKey { turn: *turn, ordinal: *ordinal };
                // A second question under one ordinal is the first one after people have changed it.
                let asked = self.turns.change_record(request, |record| match record {
                    Record::Approval { envelope, asked, .. } => {
                        asked.take().or_else(|| Some(envelope.action.clone().into()))
                    }
                    _ => None,
                });
                let (envelope, asked) = (envelope.clone(), asked.flatten());
                self.turns.record(request, Record::Approval { envelope, asked, decision: None });
                effects.push(Effect::RequestApproval(request));
            }
            RunEvent::Decided { turn, ordinal, decision, verdict, at, .. } => {
                self.last_at = *at;
                let (request, consents) = (RequestKey { turn: *turn, ordinal: *ordinal }, &mut self.extras.consents);
                let is_asked = self.turns.change_record(request, |record| match record {
                    Record::Approval { envelope, decision: slot, .. } => {
                        *slot = Some(Box::new(decision.clone()));
                        consents.keep(envelope, decision);
                        true
                    }
                    _ => false,
                });
                if is_asked == Some(true) {
                    effects.push(Effect::Reply(request));
                } else {
                    self.unpark(*turn, verdict, effects);
                }
            }
            RunEvent::HandoffChecked { turn, ordinal, to, refusal, at } => {
                self.last_at = *at;
                self.turns.record(
                    RequestKey { turn: *turn, ordinal: *ordinal },
                    Record::HandoffCheck { to: to.clone(), refusal: refusal.clone().map(Box::new) },
                );
                effects.push(Effect::Reply(RequestKey { turn: *turn, ordinal: *ordinal }));
            }
            RunEvent::AgentMade { turn, ordinal, name, draft, is_change, authority, made, at } => {
                self.last_at = *at;
                let (name, draft, is_change) = (Arc::clone(name), draft.clone(), *is_change);
                if let Ok(agent) = made {
                    self.extras.agents.insert(agent.clone(), Arc::clone(&name), draft.clone(), *authority);
                }
                self.turns.record(
                    RequestKey { turn: *turn, ordinal: *ordinal },
                    Record::Made { name, draft, is_change, made: made.clone().map_err(Box::new) },
                );
                effects.push(Effect::Reply(RequestKey { turn: *turn, ordinal: *ordinal }));
            }
            RunEvent::Tainted { at, .. } => {
                self.last_at = *at;
                self.is_tainted = true;
            }
            RunEvent::AttemptFailed { turn, retry_at, at, .. } => {
                self.last_at = *at;
                if let Some(open) = self.turns.get_mut(*turn) {
                    self.budget.end_attempt(*turn);
                    open.attempt = open.attempt.next();
                    open.recoveries = 0;
                    self.turns.set_phase(*turn, Phase::Backoff { until: *retry_at });
                    self.tally.retries += 1;
                    effects.push(Effect::Retry(*turn, *retry_at));
                }
            }
            RunEvent::TurnEnded { turn, command, verdict, at, .. } => {
                self.last_at = *at;
                let decided_later = self.extras.overwrite.as_ref().map(|over| over.verdict.clone());
                let verdict = decided_later.as_ref().filter(|later| **later != Verdict::Nothing).unwrap_or(verdict);
                self.turn_ended(*turn, command, verdict, worked_out, effects);
            }
            RunEvent::TurnFailed { turn, failure, at, .. } => {
                self.last_at = *at;
                self.turn_failed(*turn, failure.outcome(), effects);
            }
            RunEvent::Recovered { at, new_process } => {
                self.last_at = *at;
                if *new_process {
                    // The attempts of the earlier process have ended with it.
                    self.turns.numbers().for_each(|turn| self.budget.end_attempt(turn));
                }
                let waits = self.waits_for_conversation();
                let is_at_work = |open: &OpenTurn| *open.phase() == Phase::Leased && !open.is_waiting() && !waits;
                for (_, open) in self.turns.iter_mut().filter(|(_, open)| *new_process && is_at_work(open)) {
                    open.recoveries += 1;
                }
            }
            RunEvent::NeedsAttention { turn, has_changed, why, at } => {
                self.last_at = *at;
                let (has_changed, why) = (*has_changed, Arc::clone(why));
                if self.turns.set_phase(*turn, Phase::NeedsAttention { has_changed, why }).is_some() {
                    self.budget.end_attempt(*turn);
                }
            }
            RunEvent::TurnRestarted { turn, at } => {
                self.last_at = *at;
                if let Some(open) = self.turns.get_mut(*turn) {
                    open.attempt = open.attempt.next();
                    open.recoveries = 0;
                    let before = self.turns.set_phase(*turn, Phase::Leased);
                    effects.push(Effect::Start(*turn));
                    if matches!(before, Some(Phase::NeedsAttention { has_changed: true, .. })) {
                        self.forget_records(*turn);
                    }
                }
            }
            RunEvent::Stopped { outcome, at } => {
                self.last_at = *at;
                self.stop(outcome.clone(), effects);
            }
            RunEvent::Overwritten { turn, update, verdict, .. } => {
                let mut written = self
                    .extras
                    .overwrite
                    .take()
                    .map(|earlier| Update::clone(&earlier.written.update))
                    .unwrap_or_default();
                for write in update.writes() {
                    written.push(&write.channel, write.value.clone(), true);
                }
                let written = Delta { turn: self.turn_id(*turn), update: written.into() };
                self.extras.overwrite = Some(Box::new(Overwrite { written, verdict: verdict.clone() }));
            }
            RunEvent::Resumed { turn, input, update, at, .. } => {
                self.last_at = *at;
                if self.turns.get(*turn).is_some_and(|open| *open.phase() == Phase::Interrupted) {
                    self.turns.set_phase(*turn, Phase::Leased);
                    self.change(*turn, input.as_ref(), update);
                    effects.push(Effect::Start(*turn));
                }
            }
            RunEvent::ConversationEntered { conversation, at } => {
                self.last_at = *at;
                self.extras.conversing.get_or_insert_default().id = Some(conversation.clone());
                if self.waits_for_conversation() {
                    effects.push(Effect::EnterConversation);
                }
            }
            RunEvent::ConversationRead { messages, is_tainted, at, .. } => {
                self.last_at = *at;
                let has_waited = self.waits_for_conversation();
                self.extras.conversing.get_or_insert_default().read = Some(messages.clone());
                self.is_tainted |= is_tainted;
                for (number, open) in self.turns.iter_mut() {
                    // These turns have not begun yet.
                    open.is_tainted |= is_tainted;
                    if has_waited && *open.phase() == Phase::Leased {
                        effects.push(Effect::Start(number));
                    }
                }
            }
            RunEvent::ReferenceChanged { reference, at } => {
                self.last_at = *at;
                Arc::make_mut(&mut self.submission).task.reference.clone_from(reference);
            }
            RunEvent::Forked { turn, input, update, at, .. } => {
                self.last_at = *at;
                self.change(*turn, input.as_ref(), update);
            }
        }
        self.drain_agenda(effects);
    }

    /// A call has reported. If an earlier version has stored its reservation, and its turn has ended since, it counts as used by the run's
    /// first agent.
    fn settled(&mut self, call: ReservationKey, usage: Option<Usage>, model: Option<&Arc<str>>, is_of_run: bool) {
        let agent = self.turns.get(call.0).map_or(&self.submission.agent, OpenTurn::agent);
        self.budget.settle(call, usage, if is_of_run { UsedBy::Run } else { UsedBy::Agent(agent, model) });
    }

    /// Drops the records of a turn that no longer match its requests.
    fn forget_records(&mut self, turn: u32) {
        // These records are not requests of the turn.
        let is_request = |ordinal: u32, _: &Record| !matches!(ordinal, LATE_ORDINAL | ELSEWHERE_ORDINAL);
        let made = self.turns.take_records(turn, is_request).into_iter().filter_map(|(_, record)| match record {
            Record::Made { is_change: false, made: Ok(agent), .. } => Some(agent),
            _ => None,
        });
        // The turn creates these agents again.
        if let Some(extras) = self.extras.get_mut() {
            extras.agents.remove_all(&made.collect::<Vec<AgentName>>());
        }
    }

    /// Applies what a person changed for a turn: it counts as written in the turn's branch. The decision has checked that it can
    /// be applied.
    fn change(&mut self, turn: u32, input: Option<&Json>, update: &Update) {
        let written = Delta { turn: self.turn_id(turn), update: update.clone().into() };
        let Some(open) = self.turns.get_mut(turn) else { return };
        if let Some(input) = input {
            open.input = input.clone();
        }
        let Some(branch) = self.branches.get_mut(open.branch) else { return };
        if branch.view.apply(update, &self.rules).is_ok() && branch.origin != Origin::Root && !update.is_empty() {
            branch.deltas.push(written);
        }
    }

    pub(super) fn start_turn(&mut self, branch: u32, agent: AgentName, input: Json) -> Effect {
        self.tally.agents.insert(agent.clone());
        self.open_turn(branch, agent, input)
    }

    pub(in crate::supervision::runs) fn open_turn(&mut self, branch: u32, agent: AgentName, input: Json) -> Effect {
        let figures = self.rules.schema.shows_metrics().then(|| self.figures());
        let (is_tainted, made) = (self.is_tainted, self.extras.agents.drafts_of(&agent));
        let mut turn = OpenTurn::new(branch, agent, input, Attempt::FIRST).with_figures(figures);
        (turn.is_tainted, turn.made) = (is_tainted, made);
        let number = self.turns.open(turn);
        if let Some(branch) = self.branches.get_mut(branch) {
            branch.now = Now::Turn(number);
        }
        Effect::Start(number)
    }

    fn delegated(&mut self, request: RequestKey, order: &Order, verdict: &Verdict, effects: &mut Vec<Effect>) {
        let (RequestKey { turn, ordinal }, asked) = (request, self.sequence);
        let Some(open) = self.turns.get(turn) else { return };
        let reply = match verdict {
            Verdict::Refused(refusal) => Some(Arc::new(Err(refusal.clone()))),
            Verdict::Admitted(_) | Verdict::Nothing | Verdict::Parked(_) => None,
        };
        let is_answered = reply.is_some();
        let answers = open.earlier_answers();
        let deltas = ChildDeltas { asked, ..ChildDeltas::default() };
        let (from, parent) = (open.agent.clone(), &self.branches[open.branch]);
        self.turns.record(request, Record::Delegation { order: Box::new(order.clone()), reply, deltas });
        let (chain, within) = (parent.chain.clone(), parent.extras.brief.sub_budget);
        let view = match &order.sees {
            ContextStrategy::None => State::default(),
            ContextStrategy::Channels(channels) => parent.view.only(channels),
            ContextStrategy::Full => parent.view.clone(),
        };
        if let Verdict::Admitted(agents) = verdict {
            let sub_budget = order.tokens.map_or(within, |tokens| {
                self.budget.open_sub_budget(request, tokens, within);
                Some(request)
            });
            let deadline = order.deadline.map(|deadline| self.last_at + deadline);
            let brief = Brief { answers, sub_budget, deadline };
            effects.extend(deadline.map(|at| Effect::ArmDeadline { request, at }));
            for agent in agents {
                self.tally.handoffs += 1;
                let chain = chain.add_step(&from, agent, &order.body);
                let branch = Branch::new(Origin::Delegation { turn, ordinal }, view.clone(), chain);
                let previous_agent = Some(from.clone());
                let child = self.branches.add(Branch { previous_agent, ..branch }.with_brief(brief.clone()));
                effects.push(self.start_turn(child, agent.clone(), order.input.clone()));
            }
        }
        if is_answered {
            effects.push(Effect::Reply(request));
        }
    }
}
