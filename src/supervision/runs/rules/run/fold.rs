//! The run as data: the state of the fold over its journal.

use std::sync::{Arc, LazyLock};

use crate::messages::state::{Delta, RunFigures, StateError, StateRules};
use crate::messages::{
    AgentName, Alone, ConversationId, Json, RequestId, RunId, RunMetrics, RunResult, Submission, Timestamp, TurnId,
    Usage, Verdict,
};
use crate::supervision::runs::rules::budget::{Budget, Call, Money, ReservationKey};
use crate::supervision::runs::rules::rare::{Parts, Rare};
use crate::supervision::runs::rules::requests::RequestKey;
use crate::workflow::graph::Graph;
use serde::{Deserialize, Serialize};

use super::agents::DynamicAgents;
use super::branch::{Branch, Branches};
use super::consents::Consents;
use super::placed::Placed;
use super::plan::progress::PlanProgress;
use super::record::Record;
use super::tally::Tally;
use super::turn::{OpenTurn, OpenTurns, Phase};

/// A run as its history makes it: what it was given, its open turns, what it waits for, what it has used, and its result.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was submitted; never changes.
    pub(super) submission: Arc<Submission>,
    /// Schema, reducers and predicates. Not stored: the code that reads a run supplies them.
    pub(super) rules: StateRules,
    /// The number of events that were applied.
    pub(super) sequence: u64,
    pub(super) tally: Tally,
    pub(super) budget: Budget,
    pub(super) branches: Branches,
    pub(super) turns: OpenTurns,
    /// The time of its last event that has one.
    pub(super) last_at: Timestamp,
    /// It has read untrusted input; never reset.
    pub(super) is_tainted: bool,
    /// Set by the event that ends it; later events change nothing but reservations.
    pub(super) result: Option<Arc<RunResult>>,
    /// Not stored: the compiled plan follows from the submission, and its agenda is empty between events.
    pub(super) plan: PlanProgress,
    pub(super) extras: Rare<Extras>,
}

/// What most runs have not.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    pub(super) agents: DynamicAgents,
    pub(super) consents: Consents,
    /// Turns that finished alone although they had a handoff; moved into the result.
    pub(super) alone: Vec<Alone>,
    /// Set by an overwrite, for the turn that ends with the next event. Not stored.
    pub(super) overwrite: Option<Box<Overwrite>>,
    /// The error of a join that failed at the last event. Not stored.
    pub(super) conflict: Option<Box<StateError>>,
    /// Its part in a conversation. Stored beside the run in its snapshots.
    pub(super) conversing: Option<Box<Conversing>>,
    /// Turns of it that other boards have taken, as far as a reader has looked. Not stored.
    pub(super) placed: Vec<Placed>,
    /// Turns that the last event has closed before the runs that they are at other boards had reported. Not stored: the last event of an
    /// ended run comes after every snapshot.
    pub(super) left_elsewhere: Vec<u32>,
}

impl Parts for Extras {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<Extras> = LazyLock::new(Extras::default);
        &EMPTY
    }

    fn is_empty(&self) -> bool {
        let Self { agents, consents, alone, overwrite, conflict, conversing, placed, left_elsewhere } = self;
        agents.is_empty()
            && consents.is_empty()
            && alone.is_empty()
            && overwrite.is_none()
            && conflict.is_none()
            && conversing.is_none()
            && placed.is_empty()
            && left_elsewhere.is_empty()
    }
}

/// A run's part in a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Conversing {
    /// The conversation in which it stores its messages when it has ended; a fork stores none.
    pub(in crate::supervision::runs) id: Option<ConversationId>,
    /// The messages of the runs before it, an array; `None` until its turns may begin.
    pub(in crate::supervision::runs) read: Option<Json>,
}

/// A person's overwrite of a conflict, and the verdict on the turn at which it was found, if that was not decided then.
#[derive(Clone, Debug)]
pub(in crate::supervision::runs) struct Overwrite {
    pub(in crate::supervision::runs) written: Delta,
    pub(in crate::supervision::runs) verdict: Verdict,
}

impl Run {
    /// The run with the schema and reducers for its updates; a task's own schema has precedence.
    pub(in crate::supervision::runs) fn with_rules(mut self, rules: StateRules) -> Self {
        let task = &self.submission.task;
        self.rules = match task.schema.as_ref().or(task.plan.as_ref().map(|plan| &plan.schema)) {
            Some(schema) => StateRules { schema: Arc::clone(schema), ..rules },
            None => rules,
        };
        // A submission with a plan that does not compile is refused; if there is such a run nevertheless, it ends at once.
        self.plan.set_graph(self.submission.task.plan.as_ref().and_then(|plan| Graph::of(plan).ok()));
        self
    }

    /// Returns the run's id, which [`Callboard::run`](crate::Callboard::run) takes.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.submission.run
    }

    /// The conversation that its messages go to.
    #[must_use]
    pub fn conversation(&self) -> Option<&ConversationId> {
        self.extras.conversing.as_ref()?.id.as_ref()
    }

    /// Whether its turns wait until the runs before it in its conversation have ended.
    #[must_use]
    pub fn waits_for_conversation(&self) -> bool {
        self.result.is_none() && self.extras.conversing.as_ref().is_some_and(|conversing| conversing.read.is_none())
    }

    /// The agent or workflow that it was submitted to, which its conversation belongs to.
    #[must_use]
    pub fn owner(&self) -> Arc<str> {
        self.submission.owner()
    }

    /// Returns the submission that the run began with: the task, the agents that its target and plan were resolved to,
    /// the run's id and the time.
    #[must_use]
    pub fn submission(&self) -> &Arc<Submission> {
        &self.submission
    }

    /// Returns how many events the run is the fold of, which is the number of the last one.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the taint: whether the run has read untrusted input, or its task is untrusted. It is never reset.
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        self.is_tainted
    }

    /// Returns the result of the run; `None` until it has ended.
    #[must_use]
    pub fn result(&self) -> Option<&Arc<RunResult>> {
        self.result.as_ref()
    }

    /// Returns when its last event happened, by the wall clock. Events about steps, tokens and notices do not count,
    /// nor do overwrites and the questions and approvals that turns ask for.
    #[must_use]
    pub fn last_at(&self) -> Timestamp {
        self.last_at
    }

    /// The turns that are admitted and have not ended.
    pub fn open_turns(&self) -> impl Iterator<Item = u32> {
        self.turns.numbers()
    }

    /// Returns the agent of an open turn; `None` if the turn has ended, or there is none of this number.
    #[must_use]
    pub fn agent_of(&self, turn: u32) -> Option<&AgentName> {
        self.turns.get(turn).map(OpenTurn::agent)
    }

    /// An open turn.
    pub(crate) fn turn(&self, number: u32) -> Option<&OpenTurn> {
        self.turns.get(number)
    }

    /// Returns the id of the turn of this number, whether or not there is such a turn.
    #[must_use]
    pub fn turn_id(&self, number: u32) -> TurnId {
        TurnId { run: self.id(), number }
    }

    /// The id of a request of one of its turns.
    pub(crate) fn request_id(&self, RequestKey { turn, ordinal }: RequestKey) -> RequestId {
        RequestId { turn: self.turn_id(turn), ordinal }
    }

    /// The record of a request of an open turn.
    pub(in crate::supervision::runs) fn record(&self, RequestKey { turn, ordinal }: RequestKey) -> Option<&Record> {
        self.turn(turn)?.record(ordinal)
    }

    /// The branch of an open turn.
    pub(in crate::supervision::runs) fn branch_of(&self, turn: &OpenTurn) -> &Branch {
        &self.branches[turn.branch]
    }

    /// Returns what the run has used so far: turns, handoffs, agents, retries, tokens, and the time until its last
    /// event.
    #[must_use]
    pub fn metrics(&self) -> RunMetrics {
        RunMetrics {
            turns: self.tally.turns_ended,
            handoffs: self.tally.handoffs,
            agents: self.tally.participants(),
            retries: self.tally.retries,
            usage: self.budget.usage(),
            tokens_spent: self.budget.spent(),
            overrun: self.budget.overrun(),
            elapsed: self.last_at.since(self.submission.at),
        }
    }

    /// Returns what each agent has used of each model, without the runs that its turns began: those have it among their own. The model is
    /// `None` if it is not known; of what an earlier version has stored, the agent is that of the submission.
    #[must_use]
    pub fn used_by_agents(&self) -> Vec<(&AgentName, Option<&str>, Usage)> {
        let (used, unknown) = self.budget.used();
        let known = used.iter().map(|used| (&used.agent, used.model.as_deref(), used.usage));
        let unknown = (unknown != Usage::default()).then_some((&self.submission.agent, None, unknown));
        known.chain(unknown).collect()
    }

    /// The run's figures for turns that are admitted now.
    #[must_use]
    pub(crate) fn figures(&self) -> RunFigures {
        RunFigures {
            tokens_used: self.budget.spent(),
            time_elapsed: self.last_at.since(self.submission.at),
            retry_count: self.tally.retries,
            tools_used: self.tally.tools.clone(),
        }
    }

    /// Its tokens.
    pub(in crate::supervision::runs) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The use of its limits other than tokens.
    pub(in crate::supervision::runs) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The agents that its agents have created.
    pub(in crate::supervision::runs) fn agents(&self) -> &DynamicAgents {
        &self.extras.agents
    }

    /// The approvals of people for the whole run.
    pub(in crate::supervision::runs) fn consents(&self) -> &Consents {
        &self.extras.consents
    }

    /// Its open branches.
    pub(in crate::supervision::runs) fn branches(&self) -> &Branches {
        &self.branches
    }

    /// Its open turns.
    pub(in crate::supervision::runs) fn turns(&self) -> &OpenTurns {
        &self.turns
    }

    /// Schema, reducers and predicates.
    pub(in crate::supervision::runs) fn rules(&self) -> &StateRules {
        &self.rules
    }

    /// The join that failed at the last event.
    pub(in crate::supervision::runs) fn conflict(&self) -> Option<&StateError> {
        self.extras.conflict.as_deref()
    }

    /// Its part in a conversation, for a snapshot.
    pub(in crate::supervision::runs) fn conversing(&self) -> Option<&Conversing> {
        self.extras.conversing.as_deref()
    }

    /// The run with what is stored beside its budget, from a snapshot.
    pub(in crate::supervision::runs) fn with_beside(
        mut self,
        money: Option<Box<Money>>,
        calls: Vec<(ReservationKey, Call)>,
    ) -> Self {
        self.budget.put_beside(money, calls);
        self
    }

    /// The run with its part in a conversation, from a snapshot.
    pub(in crate::supervision::runs) fn with_conversing(mut self, conversing: Option<Box<Conversing>>) -> Self {
        if conversing.is_some() {
            self.extras.conversing = conversing;
        }
        self
    }

    /// Whether an open turn waits until exactly this time before its next attempt.
    pub(in crate::supervision::runs) fn waits_until(&self, number: u32, at: Timestamp) -> Option<&OpenTurn> {
        self.turn(number).filter(|turn| matches!(turn.phase(), Phase::Backoff { until } if *until == at))
    }

    /// Begins its next attempt. There is no event for it, since a repeated start would only wait again.
    pub(in crate::supervision::runs) fn begin_attempt(&mut self, number: u32) {
        self.turns.set_phase(number, Phase::Leased);
    }

    /// The run in its form before turns had the figures of their run.
    #[cfg(test)]
    pub(in crate::supervision::runs) fn without_figures(mut self) -> Self {
        let turns: Vec<u32> = self.turns.numbers().collect();
        for turn in turns {
            self.turns.forget_figures(turn);
        }
        self
    }
}
