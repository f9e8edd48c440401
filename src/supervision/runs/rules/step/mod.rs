//! The fold: one event after another makes a run. Pure and deterministic; what it wants done comes back as effects.

mod branches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::messages::state::{Delta, StateRules};
use crate::messages::{
    AgentName, Answer, AskedOutcome, Command, ContextStrategy, Decision, Envelope, Json, Order, Outcome, Refusal,
    RunEvent, State, Submission, Terms, Timestamp, Update, Verdict,
};

use super::budget::Budget;
use super::glance::Glances;
use super::guard::Mark;
use super::once;
use super::run::{
    Branch, Brief, ChildDeltas, FIGURES_ORDINAL, LATE_ORDINAL, Made, Now, OpenTurn, Origin, Overwrite, Phase,
    QuestionState, Record, Run, Standing,
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
    /// It is to be found out when the run's turn in its conversation comes.
    EnterConversation,
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
            | Self::EnterConversation
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
            | Self::EnterConversation
            | Self::Ended => None,
        }
    }
}

/// What deciding about an event has worked out already. It follows from the run and the event alone, so replay, which
/// has none of it, works it out anew and comes to the same.
#[derive(Debug, Default)]
pub struct WorkedOut {
    /// The view and the deltas that an ended turn's update makes.
    pub(in crate::supervision::runs) settled: Option<(State, Vec<Delta>)>,
    /// The mark of the handoff that it ends with.
    pub(in crate::supervision::runs) mark: Option<Mark>,
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
    /// When the event that brought it happened.
    pub at: Timestamp,
    /// How many events the run had with it.
    pub sequence: u64,
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
    pub(in crate::supervision::runs) fn begin_watched(
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
            conversing: None,
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
            if let RunEvent::Settled { turn, ordinal, usage, at: _ } = event {
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
            RunEvent::StepStarted { turn, ordinal, name, at: _ } => {
                self.record(*turn, *ordinal, Record::StepStarted { name: Arc::clone(name) });
            }
            RunEvent::StepFinished { turn, ordinal, name, value, is_marked, at: _ } => {
                let (name, value, is_marked) = (Arc::clone(name), value.clone(), *is_marked);
                self.record(*turn, *ordinal, Record::Step { name, value, is_marked });
            }
            RunEvent::StepFailed { turn, ordinal, name, failure, is_marked, at: _ } => {
                let (name, failure, is_marked) = (Arc::clone(name), failure.clone(), *is_marked);
                self.record(*turn, *ordinal, Record::StepFailed { name, failure, is_marked });
            }
            RunEvent::IntentRecorded { turn, ordinal, at, .. }
            | RunEvent::OutcomeUnknown { turn, ordinal, asked: AskedOutcome { at, .. } }
            | RunEvent::OutcomeResolved { turn, ordinal, at, .. } => {
                self.last_at = *at;
                let before = self.turns.get(turn).and_then(|open| open.record(*ordinal));
                if let Some(record) = once::recorded(event, before) {
                    self.record(*turn, *ordinal, record);
                    effects.push(match event {
                        RunEvent::OutcomeUnknown { asked, .. } => {
                            Effect::Deadline { turn: *turn, ordinal: *ordinal, at: asked.expires_at }
                        }
                        _ => Effect::Reply { turn: *turn, ordinal: *ordinal },
                    });
                }
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
            RunEvent::Reserved { turn, ordinal, tokens, verdict, at: _ } => {
                self.next_reservation = self.next_reservation.max(ordinal + 1);
                if matches!(verdict, Verdict::Admitted(_)) {
                    let purse = self.turns.get(turn).and_then(|open| self.branch_of(open).brief.purse);
                    self.budget.reserve((*turn, *ordinal), purse, *tokens);
                }
            }
            RunEvent::Settled { turn, ordinal, usage, at: _ } => self.budget.settle((*turn, *ordinal), *usage),
            RunEvent::Asked { turn, ordinal, question, nonce, at } => {
                let (question, nonce, asked_at) = (question.clone(), *nonce, *at);
                self.record(*turn, *ordinal, Record::Question { question, nonce, asked_at, answer: None });
            }
            RunEvent::AskedUntil { turn, ordinal, question, nonce, expires_at, at } => {
                let (question, state) = (question.clone(), QuestionState::Open);
                let (nonce, asked_at, expires_at) = (*nonce, *at, *expires_at);
                let record = Record::TimedQuestion { question, nonce, asked_at, expires_at, state };
                self.record(*turn, *ordinal, record);
                effects.push(Effect::Deadline { turn: *turn, ordinal: *ordinal, at: expires_at });
            }
            RunEvent::Answered { turn, ordinal, answer, at, .. } => {
                self.last_at = *at;
                let is_asked = match self.record_mut(*turn, *ordinal) {
                    Some(Record::Question { answer: slot, .. }) => slot.replace(answer.clone()).is_none(),
                    Some(Record::TimedQuestion { state, .. }) => {
                        *state = QuestionState::Answered(answer.clone());
                        true
                    }
                    _ => false,
                };
                if is_asked {
                    effects.push(Effect::Reply { turn: *turn, ordinal: *ordinal });
                }
            }
            RunEvent::QuestionExpired { turn, ordinal, at } => {
                self.last_at = *at;
                if let Some(Record::TimedQuestion { state, .. }) = self.record_mut(*turn, *ordinal) {
                    *state = QuestionState::Expired;
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
                let waits = self.waits_for_conversation();
                let is_at_work = |open: &OpenTurn| open.phase == Phase::Leased && !open.is_waiting() && !waits;
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
            RunEvent::ConversationEntered { conversation, at } => {
                self.last_at = *at;
                self.conversing.get_or_insert_default().id = Some(conversation.clone());
                if self.waits_for_conversation() {
                    effects.push(Effect::EnterConversation);
                }
            }
            RunEvent::ConversationRead { messages, is_marked, at, .. } => {
                self.last_at = *at;
                let has_waited = self.waits_for_conversation();
                self.conversing.get_or_insert_default().read = Some(messages.clone());
                self.is_marked |= is_marked;
                for (number, open) in &mut self.turns {
                    // None has begun.
                    open.is_marked |= is_marked;
                    if has_waited && open.phase == Phase::Leased {
                        effects.push(Effect::Start(*number));
                    }
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
        open.records.retain(|ordinal, _| matches!(*ordinal, LATE_ORDINAL | FIGURES_ORDINAL));
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

    fn start_turn(&mut self, branch: u32, agent: AgentName, input: Json) -> Effect {
        self.agents.insert(agent.clone());
        self.open_turn(branch, agent, input)
    }

    pub(in crate::supervision::runs) fn open_turn(&mut self, branch: u32, agent: AgentName, input: Json) -> Effect {
        let number = self.next_turn;
        self.next_turn += 1;
        if let Some(branch) = self.branches.get_mut(&branch) {
            branch.now = Now::Turn(number);
        }
        let figures = self.rules.schema.shows_metrics().then(|| Box::new(Record::Figures(self.figures())));
        let records = figures.map(|figures| (FIGURES_ORDINAL, figures)).into_iter().collect();
        let phase = Phase::Leased;
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
}
