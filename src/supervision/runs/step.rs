//! The fold: one event after another makes a run. Pure and deterministic; what it wants done comes back as effects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::messages::state::{Delta, StateRules, join};
use crate::messages::{
    AgentName, Alone, Answer, Command, ContextStrategy, Decision, Envelope, Goto, Json, LateAnswer, Order, Outcome,
    Refusal, RequestId, RunEvent, RunResult, State, Submission, Terms, Timestamp, Update, Verdict,
};

use super::budget::Budget;
use super::glance::Glances;
use super::guard::{Handoff, Mark};
use super::run::{
    Branch, BranchEnd, Brief, ChildDeltas, EndedTurn, HANDOFF_ORDINAL, LATE_ORDINAL, Made, Now, OpenTurn, Origin,
    Outbound, Overwrite, ParkedHandoff, Phase, Record, Run, Standing,
};

/// What an event asks the actors to do, once it is journaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The turn may be taken.
    Start(u32),
    /// The turn waits for a person.
    Interrupted(u32),
    /// The turn may be taken again at this time.
    Retry(u32, Timestamp),
    /// The turn is over. Whoever still works on it is to stop.
    Close {
        /// The turn.
        turn: u32,
        /// Whose it was.
        agent: AgentName,
        /// The turn that waited for its branch, with its agent.
        waiter: Option<(u32, AgentName)>,
    },
    /// The answer to a delegation is to come by then.
    Deadline {
        /// The turn that asked.
        turn: u32,
        /// The request.
        ordinal: u32,
        /// By when.
        at: Timestamp,
    },
    /// A request of the turn has its answer.
    Reply {
        /// The turn.
        turn: u32,
        /// The request.
        ordinal: u32,
    },
    /// A delegation was answered.
    Answered(Box<Answered>),
    /// A decision is needed.
    RequestApproval {
        /// The turn.
        turn: u32,
        /// The request.
        ordinal: u32,
    },
    /// A decision is no longer needed.
    WithdrawApproval(crate::messages::ApprovalId),
    /// The run has its result.
    Ended,
}

impl Effect {
    /// The turn that may be taken, or waits for a person to say so.
    #[must_use]
    pub fn begun(&self) -> Option<u32> {
        match self {
            Self::Start(turn) | Self::Interrupted(turn) => Some(*turn),
            Self::Close { .. }
            | Self::Retry(..)
            | Self::Deadline { .. }
            | Self::Reply { .. }
            | Self::Answered(_)
            | Self::RequestApproval { .. }
            | Self::WithdrawApproval(_)
            | Self::Ended => None,
        }
    }

    /// The turn that is over.
    #[must_use]
    pub fn closed(&self) -> Option<u32> {
        match self {
            Self::Close { turn, .. } => Some(*turn),
            Self::Start(_)
            | Self::Interrupted(_)
            | Self::Retry(..)
            | Self::Deadline { .. }
            | Self::Reply { .. }
            | Self::Answered(_)
            | Self::RequestApproval { .. }
            | Self::WithdrawApproval(_)
            | Self::Ended => None,
        }
    }
}

/// What deciding about an event has worked out already. It follows from the run and the event alone, so replay, which
/// has none of it, works it out anew and comes to the same.
#[derive(Debug, Default)]
pub struct WorkedOut {
    /// The view and the deltas that an ended turn's update makes.
    pub(super) settled: Option<(State, Vec<Delta>)>,
    /// The mark of the handoff that it ends with.
    pub(super) mark: Option<Mark>,
}

/// A delegation and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The asking turn.
    pub turn: u32,
    /// Which of its requests.
    pub ordinal: u32,
    /// Who asked.
    pub asker: AgentName,
    /// Whom, as the asking turn wrote it.
    pub to: Arc<str>,
    /// The answer.
    pub answer: Answer,
}

/// The most consents that a run remembers; of more, those that were given last.
const MAX_STANDING: usize = 256;

/// What a decision approves beyond the question that it answers.
fn standing(envelope: &Envelope, decision: &Decision) -> Option<Standing> {
    let Decision { approved: true, by, terms: Terms::Run { until }, .. } = decision else { return None };
    let (agent, action) = (envelope.agent.clone(), envelope.action.clone());
    Some(Standing { agent, action, by: Arc::clone(by), until: *until })
}

/// What two handoffs are compared by: canonical input and update, without what the runtime or every turn changes.
#[must_use]
pub fn mark(input: &Json, command: &Command) -> Mark {
    const LEFT_OUT: [&str; 3] = ["metrics", "workflow_state", "messages"];
    let mut text = String::with_capacity(128);
    input.write_canonical(&mut text);
    for write in command.update.writes().iter().filter(|write| !LEFT_OUT.contains(&&*write.channel)) {
        text.push('\n');
        text.push_str(&write.channel);
        text.push('=');
        write.value.write_canonical(&mut text);
    }
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

impl Run {
    /// The run that a submission begins, with its first turns admitted and to be started.
    #[must_use]
    pub fn begin(submission: Arc<Submission>, rules: StateRules) -> (Self, Vec<Effect>) {
        Self::begin_watched(submission, rules, None)
    }

    /// As [`Run::begin`]; with `glances`, it is remembered how nodes of its plan stood when their blocks ended.
    pub(super) fn begin_watched(
        submission: Arc<Submission>,
        rules: StateRules,
        glances: Option<Box<Glances>>,
    ) -> (Self, Vec<Effect>) {
        let input = submission.task.input.clone().unwrap_or_else(|| Json::from(&*submission.task.body));
        let run = Self {
            rules: rules.clone(),
            sequence: 1,
            handoffs: 0,
            agents: BTreeSet::new(),
            cast: BTreeSet::new(),
            budget: Budget::new(submission.limits().tokens),
            branches: BTreeMap::new(),
            turns: BTreeMap::new(),
            next_turn: 1,
            next_branch: 0,
            next_reservation: 0,
            turns_ended: 0,
            retries: 0,
            last_at: submission.at,
            is_marked: submission.task.is_untrusted,
            made: BTreeMap::new(),
            standing: VecDeque::new(),
            alone: Vec::new(),
            result: None,
            overwrite: None,
            conflict: None,
            graph: None,
            agenda: VecDeque::new(),
            glances,
            submission,
        };
        let mut run = run.with_rules(rules);
        let (chain, agent) = (run.submission.chain.clone(), run.submission.agent.clone());
        let root = run.add_branch(Branch::new(Origin::Root, State::default(), chain));
        let mut effects = Vec::new();
        if run.submission.task.plan.is_none() {
            effects.push(run.start_turn(root, agent, input));
        } else if run.graph.is_some() {
            run.begin_block(root, 0, input);
            run.work_off(&mut effects);
        } else {
            let outcome = Outcome::Failed { error: "the plan of the run cannot be made ready".to_owned() };
            run.end_branch(root, outcome, Json::null(), &mut effects);
        }
        (run, effects)
    }

    /// Applies the next event. An event about a turn that is no longer open changes nothing.
    pub fn step(&mut self, event: &RunEvent) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.step_with(event, WorkedOut::default(), &mut effects);
        effects
    }

    /// As [`Run::step`], without working out again what is worked out; adds to what is there.
    pub fn step_with(&mut self, event: &RunEvent, worked_out: WorkedOut, effects: &mut Vec<Effect>) {
        self.sequence += 1;
        if self.result.is_some() {
            if let RunEvent::Settled { turn, ordinal, usage } = event {
                self.budget.settle((*turn, *ordinal), *usage);
            }
            return;
        }
        self.conflict = None;
        if self.overwrite.as_ref().is_some_and(|over| event.turn() != Some(over.written.turn.number)) {
            self.overwrite = None;
        }
        match event {
            RunEvent::Submitted(_) | RunEvent::Noticed { .. } => {}
            RunEvent::StepStarted { turn, ordinal, name } => {
                self.record(*turn, *ordinal, Record::StepStarted { name: Arc::clone(name) });
            }
            RunEvent::StepFinished { turn, ordinal, name, value, is_marked } => {
                let (name, value, is_marked) = (Arc::clone(name), value.clone(), *is_marked);
                self.record(*turn, *ordinal, Record::Step { name, value, is_marked });
            }
            RunEvent::Delegated { turn, ordinal, order, verdict, at } => {
                self.last_at = *at;
                self.delegated(*turn, *ordinal, order, verdict, effects);
            }
            RunEvent::DelegationExpired { turn, ordinal, at } => {
                self.last_at = *at;
                if let Some(child) = self.delegated_branch(*turn, *ordinal) {
                    self.cancel_branch(child, effects);
                    let outcome = Outcome::refused(Refusal::DeadlinePassed);
                    let answer = Answer { outcome, output: Json::null() };
                    self.answered(*turn, *ordinal, answer, Vec::new(), effects);
                }
            }
            RunEvent::Reserved { turn, ordinal, tokens, verdict } => {
                self.next_reservation = self.next_reservation.max(ordinal + 1);
                if matches!(verdict, Verdict::Admitted(_)) {
                    let purse = self.turns.get(turn).and_then(|open| self.branch_of(open).brief.purse);
                    self.budget.reserve((*turn, *ordinal), purse, *tokens);
                }
            }
            RunEvent::Settled { turn, ordinal, usage } => self.budget.settle((*turn, *ordinal), *usage),
            RunEvent::Asked { turn, ordinal, question, nonce, at } => {
                let (question, nonce, asked_at) = (question.clone(), *nonce, *at);
                self.record(*turn, *ordinal, Record::Question { question, nonce, asked_at, answer: None });
            }
            RunEvent::Answered { turn, ordinal, answer, at, .. } => {
                self.last_at = *at;
                if let Some(Record::Question { answer: slot, .. }) = self.record_mut(*turn, *ordinal) {
                    *slot = Some(answer.clone());
                    effects.push(Effect::Reply { turn: *turn, ordinal: *ordinal });
                }
            }
            RunEvent::ApprovalAsked { turn, ordinal, envelope, .. } => {
                // A second question in one place is the first one as people have changed it.
                let asked = match self.record_mut(*turn, *ordinal) {
                    Some(Record::Approval { envelope, asked, .. }) => {
                        asked.take().or_else(|| Some(envelope.action.clone().into()))
                    }
                    _ => None,
                };
                self.record(*turn, *ordinal, Record::Approval { envelope: envelope.clone(), asked, decision: None });
                effects.push(Effect::RequestApproval { turn: *turn, ordinal: *ordinal });
            }
            RunEvent::Decided { turn, ordinal, decision, verdict, at, .. } => {
                self.last_at = *at;
                if let Some(Record::Approval { envelope, decision: slot, .. }) = self.record_mut(*turn, *ordinal) {
                    *slot = Some(decision.clone());
                    let standing = standing(envelope, decision);
                    self.standing.extend(standing);
                    if self.standing.len() > MAX_STANDING {
                        self.standing.pop_front();
                    }
                    effects.push(Effect::Reply { turn: *turn, ordinal: *ordinal });
                } else {
                    self.unpark(*turn, verdict, effects);
                }
            }
            RunEvent::HandoffChecked { turn, ordinal, to, refusal, at } => {
                self.last_at = *at;
                self.record(*turn, *ordinal, Record::HandoffCheck { to: to.clone(), refusal: refusal.clone() });
                effects.push(Effect::Reply { turn: *turn, ordinal: *ordinal });
            }
            RunEvent::AgentMade { turn, ordinal, name, draft, is_change, authority, made, at } => {
                self.last_at = *at;
                let (name, draft, is_change) = (Arc::clone(name), draft.clone(), *is_change);
                if let Ok(agent) = made {
                    let made = Made { name: Arc::clone(&name), draft: draft.clone(), authority: *authority };
                    self.made.insert(agent.clone(), made);
                }
                self.record(*turn, *ordinal, Record::Made { name, draft, is_change, made: made.clone() });
                effects.push(Effect::Reply { turn: *turn, ordinal: *ordinal });
            }
            RunEvent::Marked { at, .. } => {
                self.last_at = *at;
                self.is_marked = true;
            }
            RunEvent::AttemptFailed { turn, retry_at, at, .. } => {
                self.last_at = *at;
                if let Some(open) = self.turns.get_mut(turn) {
                    self.budget.end_attempt(*turn);
                    open.attempt += 1;
                    open.phase = Phase::Backoff { until: *retry_at };
                    open.recoveries = 0;
                    self.retries += 1;
                    effects.push(Effect::Retry(*turn, *retry_at));
                }
            }
            RunEvent::TurnEnded { turn, command, verdict, at, .. } => {
                self.last_at = *at;
                let decided_later = self.overwrite.as_ref().map(|over| over.verdict.clone());
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
                    // The attempts that were under way have gone with the old one.
                    self.turns.keys().for_each(|turn| self.budget.end_attempt(*turn));
                }
                let is_at_work = |open: &OpenTurn| open.phase == Phase::Leased && !open.is_waiting();
                for open in self.turns.values_mut().filter(|open| *new_process && is_at_work(open)) {
                    open.recoveries += 1;
                }
            }
            RunEvent::NeedsAttention { turn, has_changed, why, at } => {
                self.last_at = *at;
                if let Some(open) = self.turns.get_mut(turn) {
                    self.budget.end_attempt(*turn);
                    open.phase = Phase::NeedsAttention { has_changed: *has_changed, why: Arc::clone(why) };
                }
            }
            RunEvent::TurnRestarted { turn, at } => {
                self.last_at = *at;
                if let Some(open) = self.turns.get_mut(turn) {
                    open.attempt += 1;
                    open.recoveries = 0;
                    let before = std::mem::replace(&mut open.phase, Phase::Leased);
                    effects.push(Effect::Start(*turn));
                    if matches!(before, Phase::NeedsAttention { has_changed: true, .. }) {
                        self.forget_records(*turn);
                    }
                }
            }
            RunEvent::Stopped { outcome, at } => {
                self.last_at = *at;
                self.stop(outcome.clone(), effects);
            }
            RunEvent::Overwritten { turn, update, verdict, .. } => {
                let mut written =
                    self.overwrite.take().map(|earlier| (*earlier.written.update).clone()).unwrap_or_default();
                for write in update.writes() {
                    written.push(&write.channel, write.value.clone(), true);
                }
                let written = Delta { turn: self.turn_id(*turn), update: Arc::new(written) };
                self.overwrite = Some(Box::new(Overwrite { written, verdict: verdict.clone() }));
            }
            RunEvent::Resumed { turn, input, update, at, .. } => {
                self.last_at = *at;
                if let Some(open) = self.turns.get_mut(turn).filter(|open| open.phase == Phase::Interrupted) {
                    open.phase = Phase::Leased;
                    self.change(*turn, input.as_ref(), update);
                    effects.push(Effect::Start(*turn));
                }
            }
            RunEvent::Forked { turn, input, update, at, .. } => {
                self.last_at = *at;
                self.change(*turn, input.as_ref(), update);
            }
        }
        self.work_off(effects);
    }

    /// What a turn has asked for does not fit it any more.
    fn forget_records(&mut self, turn: u32) {
        let Some(open) = self.turns.get_mut(&turn) else { return };
        let made = open.records.values().filter_map(|record| match &**record {
            Record::Made { is_change: false, made: Ok(agent), .. } => Some(agent.clone()),
            _ => None,
        });
        // It makes them again.
        let made: Vec<AgentName> = made.collect();
        let comes_from =
            |agent: &AgentName, maker: &AgentName| agent == maker || agent.makers().any(|name| name == maker.as_str());
        self.made.retain(|agent, _| !made.iter().any(|maker| comes_from(agent, maker)));
        // The answer that a late turn is about is not something that it asked for.
        open.records.retain(|ordinal, _| *ordinal == LATE_ORDINAL);
    }

    /// What was changed for a turn counts as written in its branch; whoever changed it has found that it can be.
    fn change(&mut self, turn: u32, input: Option<&Json>, update: &Update) {
        let written = Delta { turn: self.turn_id(turn), update: Arc::new(update.clone()) };
        let Some(open) = self.turns.get_mut(&turn) else { return };
        if let Some(input) = input {
            open.input = input.clone();
        }
        let Some(branch) = self.branches.get_mut(&open.branch) else { return };
        if branch.view.apply(update, &self.rules).is_ok() && branch.origin != Origin::Root && !update.is_empty() {
            branch.deltas.push(written);
        }
    }

    fn record(&mut self, turn: u32, ordinal: u32, record: Record) {
        if let Some(open) = self.turns.get_mut(&turn) {
            open.records.insert(ordinal, Box::new(record));
        }
    }

    fn record_mut(&mut self, turn: u32, ordinal: u32) -> Option<&mut Record> {
        self.turns.get_mut(&turn)?.records.get_mut(&ordinal).map(|record| &mut **record)
    }

    pub(super) fn add_branch(&mut self, branch: Branch) -> u32 {
        let id = self.next_branch;
        self.next_branch += 1;
        self.branches.insert(id, Box::new(branch));
        id
    }

    fn start_turn(&mut self, branch: u32, agent: AgentName, input: Json) -> Effect {
        self.agents.insert(agent.clone());
        self.open_turn(branch, agent, input)
    }

    pub(super) fn open_turn(&mut self, branch: u32, agent: AgentName, input: Json) -> Effect {
        let number = self.next_turn;
        self.next_turn += 1;
        if let Some(branch) = self.branches.get_mut(&branch) {
            branch.now = Now::Turn(number);
        }
        let (phase, records) = (Phase::Leased, BTreeMap::new());
        let (is_marked, made) = (self.is_marked, self.drafts_of(&agent));
        let turn = OpenTurn { branch, agent, input, attempt: 1, phase, records, recoveries: 0, is_marked, made };
        self.turns.insert(number, Box::new(turn));
        Effect::Start(number)
    }

    fn delegated(&mut self, turn: u32, ordinal: u32, order: &Order, verdict: &Verdict, effects: &mut Vec<Effect>) {
        let asked = self.sequence;
        let Some(open) = self.turns.get_mut(&turn) else { return };
        let reply = match verdict {
            Verdict::Refused(refusal) => Some(Err(refusal.clone())),
            Verdict::Admitted(_) | Verdict::Nothing | Verdict::Parked(_) => None,
        };
        let is_answered = reply.is_some();
        let answers = open.earlier_answers();
        let deltas = ChildDeltas { asked, ..ChildDeltas::default() };
        let record = Record::Delegation { order: order.clone(), reply, deltas };
        open.records.insert(ordinal, Box::new(record));
        let from = open.agent.clone();
        let parent = &self.branches[&open.branch];
        let (chain, within) = (parent.chain.clone(), parent.brief.purse);
        let view = match &order.sees {
            ContextStrategy::None => State::default(),
            ContextStrategy::Channels(channels) => parent.view.only(channels),
            ContextStrategy::Full => parent.view.clone(),
        };
        if let Verdict::Admitted(agents) = verdict {
            let purse = order.tokens.map_or(within, |tokens| {
                self.budget.open_purse((turn, ordinal), tokens, within);
                Some((turn, ordinal))
            });
            let deadline = order.deadline.map(|deadline| self.last_at + deadline);
            let brief = Brief { answers, purse, deadline };
            effects.extend(deadline.map(|at| Effect::Deadline { turn, ordinal, at }));
            for agent in agents {
                self.handoffs += 1;
                let chain = chain.add_step(&from, agent, &order.body);
                let branch = Branch::new(Origin::Delegation { turn, ordinal }, view.clone(), chain);
                let previous_agent = Some(from.clone());
                let child = self.add_branch(Branch { previous_agent, brief: brief.clone(), ..branch });
                effects.push(self.start_turn(child, agent.clone(), order.input.clone()));
            }
        }
        if is_answered {
            effects.push(Effect::Reply { turn, ordinal });
        }
    }

    fn turn_ended(
        &mut self,
        number: u32,
        command: &Arc<Command>,
        verdict: &Verdict,
        worked_out: WorkedOut,
        effects: &mut Vec<Effect>,
    ) {
        let Some(children) = self.turns.get(&number).map(|turn| self.children_of(turn)) else { return };
        self.keep_outbound(number);
        let Some(open) = self.close_turn(number, effects) else { return };
        if let (Some((to, refusal)), Goto::Next) = (open.refused_handoff(), &command.goto) {
            let (to, refusal) = (to.to_vec(), refusal.clone());
            self.alone.push(Alone { turn: number, agent: open.agent.clone(), to, refusal });
        }
        self.turns_ended += 1;
        let ended = EndedTurn { number, agent: open.agent, input: open.input, command: Arc::clone(command), children };
        if let Verdict::Parked(envelope) = verdict {
            effects.push(Effect::RequestApproval { turn: number, ordinal: HANDOFF_ORDINAL });
            if let Some(branch) = self.branches.get_mut(&open.branch) {
                branch.now = Now::Parked(Box::new(ParkedHandoff { ended, envelope: (**envelope).clone() }));
            }
        } else {
            self.go_on(open.branch, ended, verdict, worked_out, effects);
        }
    }

    /// What an ended turn gave away without waiting stays open with its branch.
    fn keep_outbound(&mut self, number: u32) {
        let Some(open) = self.turns.get_mut(&number) else { return };
        let (id, agent, input) = (open.branch, open.agent.clone(), open.input.clone());
        let is_detached = |record: &Record| matches!(record, Record::Delegation { order, reply, .. } if order.is_detached && !matches!(reply, Some(Err(_))));
        let ordinals: Vec<u32> =
            open.records.iter().filter(|(_, record)| is_detached(record)).map(|(ordinal, _)| *ordinal).collect();
        for ordinal in ordinals {
            let record = open.records.remove(&ordinal).map(|record| *record);
            let Some(Record::Delegation { order, reply, deltas }) = record else { continue };
            let reply = reply.and_then(Result::ok);
            let (agent, input) = (agent.clone(), input.clone());
            if let Some(branch) = self.branches.get_mut(&id) {
                branch.outbound.push(Outbound { turn: number, ordinal, agent, input, order, reply, deltas });
            }
        }
    }

    /// The asking agent gets a turn with the first answer that has come, if the branch has nothing else to do.
    fn take_answer(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let request = |outbound: &Outbound| RequestId { turn: self.turn_id(outbound.turn), ordinal: outbound.ordinal };
        let Some(branch) = self.branches.get(&id).filter(|branch| matches!(branch.now, Now::Awaiting)) else { return };
        let Some(position) = branch.outbound.iter().position(|outbound| outbound.reply.is_some()) else { return };
        let request = request(&branch.outbound[position]);
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let Outbound { agent, input, mut order, reply, deltas, .. } = branch.outbound.remove(position);
        let Some(answer) = reply else { return };
        let late = LateAnswer {
            request: request.to_string(),
            to: Arc::clone(&order.to),
            body: Arc::clone(&order.body),
            answer: answer.clone(),
            original_input: input,
        };
        // Every part of it is JSON already.
        let input = Json::of(late).unwrap_or_default();
        let number = self.next_turn;
        effects.push(self.start_turn(id, agent, input));
        order.is_detached = false;
        self.record(number, LATE_ORDINAL, Record::Delegation { order, reply: Some(Ok(answer)), deltas });
    }

    /// A decision about the handoff that `turn` ended with.
    fn unpark(&mut self, turn: u32, verdict: &Verdict, effects: &mut Vec<Effect>) {
        let parked_here = |branch: &Branch| matches!(&branch.now, Now::Parked(parked) if parked.ended.number == turn);
        let Some((&id, branch)) = self.branches.iter_mut().find(|(_, branch)| parked_here(branch)) else { return };
        let Now::Parked(parked) = std::mem::replace(&mut branch.now, Now::Turn(turn)) else { return };
        self.go_on(id, parked.ended, verdict, WorkedOut::default(), effects);
    }

    /// Applies what an ended turn wrote, unless where it goes was denied, and follows where it goes.
    fn go_on(
        &mut self,
        id: u32,
        ended: EndedTurn,
        verdict: &Verdict,
        mut worked_out: WorkedOut,
        effects: &mut Vec<Effect>,
    ) {
        let EndedTurn { number, agent, input, command, mut children } = ended;
        let (nothing, mut update) = (Update::default(), &command.update);
        if matches!(verdict, Verdict::Refused(refusal) if refusal.is_denial()) {
            update = &nothing;
            children.clear();
            worked_out.settled = None;
        }
        let output = command.output.clone();
        let settled = match worked_out.settled {
            Some(settled) => Ok(settled),
            None => self.settle(number, id, &children, update),
        };
        match settled {
            Err(error) => {
                let outcome = Outcome::Failed { error: error.to_string() };
                self.conflict = Some(Box::new(error));
                return self.end_branch(id, outcome, output.unwrap_or_default(), effects);
            }
            Ok((view, deltas)) => {
                let Some(branch) = self.branches.get_mut(&id) else { return };
                branch.view = view;
                branch.deltas.extend(deltas);
                branch.previous_agent = Some(agent.clone());
                // Whoever gets control from an agent that was made is bound as that one is.
                if let Some(made) = self.made.get(&agent) {
                    branch.authority = branch.authority.and(made.authority);
                }
            }
        }
        if self.escalate(id, &command, output.clone().unwrap_or_default()) {
            return self.end_branch(id, Outcome::Finished, output.unwrap_or_default(), effects);
        }
        self.note_goto(id, &command);
        match verdict {
            Verdict::Nothing | Verdict::Parked(_) => match command.goto {
                Goto::End => self.end_scope(id, output.unwrap_or_default(), effects),
                Goto::Next if self.branches.get(&id).is_some_and(|branch| !branch.outbound.is_empty()) => {
                    if let Some(branch) = self.branches.get_mut(&id) {
                        branch.now = Now::Awaiting;
                    }
                    self.take_answer(id, effects);
                }
                Goto::Next | Goto::Agent(_) | Goto::Many(_) => {
                    self.end_branch(id, Outcome::Finished, output.unwrap_or_default(), effects);
                }
            },
            Verdict::Refused(refusal) => {
                self.end_branch(id, Outcome::refused(refusal.clone()), output.unwrap_or_default(), effects);
            }
            Verdict::Admitted(agents) => {
                self.handoffs += u32::try_from(agents.len()).unwrap_or(u32::MAX);
                match (&command.goto, agents.as_slice()) {
                    (Goto::Many(sends), agents) => {
                        let inputs = sends.iter().map(|send| send.input.clone());
                        self.fork(id, &agent, agents.iter().cloned().zip(inputs), effects);
                    }
                    (Goto::Agent(_) | Goto::Next | Goto::End, agents) => {
                        let carried = output.unwrap_or(input);
                        let Some(to) = agents.first() else { return };
                        let mark = worked_out.mark.unwrap_or_else(|| mark(&carried, &command));
                        let window = self.submission.limits().repeat_window;
                        if let Some(branch) = self.branches.get_mut(&id) {
                            branch.recent.push(Handoff { from: agent, to: to.clone(), mark });
                            let surplus = branch.recent.len().saturating_sub(window);
                            branch.recent.drain(..surplus);
                        }
                        effects.push(self.start_turn(id, to.clone(), carried));
                    }
                }
            }
        }
    }

    fn fork(
        &mut self,
        id: u32,
        from: &AgentName,
        sends: impl Iterator<Item = (AgentName, Json)>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(parent) = self.branches.get(&id) else { return };
        let sibling = Branch {
            recent: parent.recent.clone(),
            previous_agent: Some(from.clone()),
            brief: Brief { deadline: None, ..parent.brief.clone() },
            ..Branch::new(Origin::Root, parent.view.clone(), parent.chain.clone())
        };
        let mut children = Vec::new();
        for (index, (agent, input)) in sends.enumerate() {
            let origin = Origin::Fork { parent: id, index };
            let child = self.add_branch(Branch { origin, ..sibling.clone() });
            effects.push(self.start_turn(child, agent, input));
            children.push(child);
        }
        let (open, ends) = (children.len(), vec![None; children.len()]);
        if let Some(parent) = self.branches.get_mut(&id) {
            parent.now = Now::Forked { children, ends, open };
        }
        if open == 0 {
            self.end_branch(id, Outcome::Finished, Json::from(Vec::<serde_json::Value>::new()), effects);
        }
    }

    fn turn_failed(&mut self, number: u32, outcome: Outcome, effects: &mut Vec<Effect>) {
        if let Some(open) = self.close_turn(number, effects) {
            self.turns_ended += 1;
            self.end_branch(open.branch, outcome, Json::null(), effects);
        }
    }

    /// Ends a branch, and with it whatever only waited for it: joins of forks, the run, or the answer to a delegation.
    pub(super) fn end_branch(&mut self, id: u32, outcome: Outcome, output: Json, effects: &mut Vec<Effect>) {
        self.cascade(id, outcome, output, None, effects);
    }

    /// Ends the run, or the delegation, that the branch belongs to; its siblings are cancelled and what they wrote so far
    /// is dropped.
    fn end_scope(&mut self, id: u32, output: Json, effects: &mut Vec<Effect>) {
        let (mut child, mut open) = (id, Vec::new());
        while let Some(Origin::Fork { parent, .. }) = self.branches.get(&child).map(|branch| branch.origin) {
            let Some(branch) = self.branches.get_mut(&parent) else { break };
            let Now::Forked { children, ends, open: left } = &mut branch.now else { break };
            for (sibling, end) in children.iter().zip(ends.iter_mut()) {
                if *sibling != child && end.is_none() {
                    let outcome = Outcome::Cancelled { reason: "another branch ended the run".into() };
                    let (deltas, reversible) = (Vec::new(), Vec::new());
                    *end = Some(BranchEnd { outcome, output: Json::null(), deltas, reversible });
                    open.push(*sibling);
                }
            }
            *left = 1;
            child = parent;
        }
        for sibling in open {
            self.cancel_branch(sibling, effects);
        }
        self.cascade(id, Outcome::Finished, output.clone(), Some(&output), effects);
    }

    /// With `forced`, every join on the way up finishes with that output.
    fn cascade(&mut self, id: u32, outcome: Outcome, output: Json, forced: Option<&Json>, effects: &mut Vec<Effect>) {
        let (mut id, mut outcome, mut output) = (id, outcome, output);
        loop {
            self.cancel_outbound(id, effects);
            self.note_end_of(id);
            let Some(mut branch) = self.branches.remove(&id) else { return };
            let end = BranchEnd::of(&mut branch, outcome, output);
            match branch.origin {
                Origin::Node { .. } => return self.node_branch_ended(branch, end, forced.is_some()),
                Origin::Compensation { parent } => {
                    if end.outcome.is_finished() {
                        self.note_undone(parent);
                    }
                    return self.take_back_next(parent, effects);
                }
                Origin::Root => return self.finish(end.outcome, end.output, branch.view, effects),
                Origin::Delegation { turn, ordinal } => {
                    let answer = Answer { outcome: end.outcome, output: end.output };
                    return self.answered(turn, ordinal, answer, end.deltas, effects);
                }
                Origin::Fork { parent, index } => {
                    let Some(around) = self.branches.get_mut(&parent) else { return };
                    let is_map = matches!(around.origin, Origin::Node { .. });
                    // An item of a map that fails ends the map.
                    if !end.outcome.is_finished() && is_map {
                        around.has_failed_within = branch.has_failed_within;
                        return self.take_back(parent, end.outcome, effects);
                    }
                    let Now::Forked { ends, open, .. } = &mut around.now else { return };
                    ends[index] = Some(end);
                    *open -= 1;
                    if *open > 0 {
                        return;
                    }
                    let ends = std::mem::take(ends);
                    (outcome, output) = self.join_ends(parent, ends, forced);
                    if !outcome.is_finished() && is_map {
                        return self.take_back(parent, outcome, effects);
                    }
                    id = parent;
                }
            }
        }
    }

    /// A delegated branch has ended: its asking turn is told, or the branch that the turn left behind.
    fn answered(&mut self, turn: u32, ordinal: u32, answer: Answer, written: Vec<Delta>, effects: &mut Vec<Effect>) {
        self.budget.close_purse((turn, ordinal));
        let (answered, is_marked) = (Some(self.sequence), self.is_marked);
        let told = |asker: &AgentName, to: &Arc<str>| {
            let (asker, to, answer) = (asker.clone(), Arc::clone(to), answer.clone());
            Effect::Answered(Box::new(Answered { turn, ordinal, asker, to, answer }))
        };
        if let Some(open) = self.turns.get_mut(&turn) {
            let record = open.records.get_mut(&ordinal).map(|record| &mut **record);
            if let Some(Record::Delegation { order, reply, deltas }) = record {
                effects.push(told(&open.agent, &order.to));
                *deltas = ChildDeltas { answered, deltas: written, is_marked, ..*deltas };
                *reply = Some(Ok(answer));
                effects.push(Effect::Reply { turn, ordinal });
            }
            return;
        }
        let is_asked = |outbound: &Outbound| (outbound.turn, outbound.ordinal) == (turn, ordinal);
        let found = self
            .branches
            .iter_mut()
            .find_map(|(id, branch)| Some((*id, branch.outbound.iter_mut().find(|outbound| is_asked(outbound))?)));
        if let Some((id, outbound)) = found {
            effects.push(told(&outbound.agent, &outbound.order.to));
            outbound.deltas = ChildDeltas { answered, deltas: written, ..outbound.deltas };
            outbound.reply = Some(answer);
            self.take_answer(id, effects);
        }
    }

    /// Nobody will take the answers to what the branch gave away.
    fn cancel_outbound(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(branch) = self.branches.get(&id).filter(|branch| !branch.outbound.is_empty()) else { return };
        let open = branch.outbound.iter().filter(|outbound| outbound.reply.is_none());
        let children: Vec<u32> =
            open.filter_map(|outbound| self.delegated_branch(outbound.turn, outbound.ordinal)).collect();
        for child in children {
            self.cancel_branch(child, effects);
        }
    }

    /// Joins what the children of a forked branch wrote into its view, in the order of the sends. With `forced`, only a
    /// join that fails keeps the branch from finishing with that output.
    pub(super) fn join_ends(
        &mut self,
        parent: u32,
        ends: Vec<Option<BranchEnd>>,
        forced: Option<&Json>,
    ) -> (Outcome, Json) {
        let mut ends: Vec<BranchEnd> = ends.into_iter().flatten().collect();
        self.put_overwrite(ends.iter_mut().map(|end| &mut end.deltas));
        let outputs: Vec<serde_json::Value> = ends.iter().map(|end| end.output.value().clone()).collect();
        let mut outcome = ends
            .iter()
            .map(|end| &end.outcome)
            .find(|outcome| !outcome.is_finished())
            .cloned()
            .unwrap_or(Outcome::Finished);
        let mut output = Json::from(outputs);
        if let Some(forced) = forced {
            (outcome, output) = (Outcome::Finished, forced.clone());
        }
        let Some(branch) = self.branches.get_mut(&parent) else { return (outcome, output) };
        let writers: Vec<&[_]> = ends.iter().map(|end| end.deltas.as_slice()).collect();
        match join(&branch.view, &writers, |_, _| true, &self.rules) {
            Ok(view) => branch.view = view,
            Err(error) => {
                outcome = Outcome::Failed { error: error.to_string() };
                self.conflict = Some(Box::new(error));
            }
        }
        let is_root = branch.origin == Origin::Root;
        for mut end in ends {
            branch.reversible.append(&mut end.reversible);
            if !is_root {
                branch.deltas.append(&mut end.deltas);
            }
        }
        (outcome, output)
    }

    fn finish(&mut self, outcome: Outcome, output: Json, view: State, effects: &mut Vec<Effect>) {
        let metrics = self.metrics();
        let (alone, handoffs) = (std::mem::take(&mut self.alone), self.submission.task.handoffs);
        let (run, state) = (self.id(), view.into());
        let is_marked = self.is_marked;
        let result = RunResult { run, outcome, output, state, metrics, handoffs, is_marked, alone };
        self.result = Some(Arc::new(result));
        effects.push(Effect::Ended);
    }

    fn stop(&mut self, outcome: Outcome, effects: &mut Vec<Effect>) {
        let view = self.state_so_far();
        self.cancel_branch(0, effects);
        self.finish(outcome, Json::null(), view, effects);
    }

    /// Takes a turn out, with everything that only it waits for.
    fn close_turn(&mut self, number: u32, effects: &mut Vec<Effect>) -> Option<Box<OpenTurn>> {
        let waiter = self.waiter_of(self.turns.get(&number)?.branch).map(|(waiter, agent)| (waiter, agent.clone()));
        let open = self.turns.remove(&number)?;
        self.budget.end_attempt(number);
        effects.push(Effect::Close { turn: number, agent: open.agent.clone(), waiter });
        for (ordinal, record) in &open.records {
            match &**record {
                Record::Delegation { reply: None, .. } => {
                    if let Some(child) = self.delegated_branch(number, *ordinal) {
                        self.cancel_branch(child, effects);
                    }
                }
                Record::Approval { envelope, decision: None, .. } => {
                    effects.push(Effect::WithdrawApproval(envelope.id()))
                }
                _ => {}
            }
        }
        Some(open)
    }

    /// Takes a branch out with all its turns and children.
    pub(super) fn cancel_branch(&mut self, id: u32, effects: &mut Vec<Effect>) {
        self.note_end_of(id);
        let mut ids = vec![id];
        while let Some(id) = ids.pop() {
            self.cancel_outbound(id, effects);
            let Some(branch) = self.branches.get(&id) else { continue };
            if let Origin::Delegation { turn, ordinal } = branch.origin {
                self.budget.close_purse((turn, ordinal));
            }
            ids.extend(branch.undo.as_ref().and_then(|undo| undo.by));
            match &branch.now {
                Now::Turn(turn) => {
                    let turn = *turn;
                    self.close_turn(turn, effects);
                }
                Now::Parked(parked) => effects.push(Effect::WithdrawApproval(parked.envelope.id())),
                Now::Forked { children, .. } => ids.extend(children),
                Now::Plan(scope) => ids.extend(scope.children.values()),
                Now::Awaiting => {}
            }
            self.branches.remove(&id);
        }
    }
}
