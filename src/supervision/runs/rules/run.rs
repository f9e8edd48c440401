//! A run as data: what the fold over its journal has come to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::state::{Delta, RunFigures, StateError, StateRules, join, overwrite};
use crate::messages::{
    Action, AgentName, Alone, Answer, AskedOutcome, Authority, Chain, Command, ConversationId, Decision, EarlierAnswer,
    Envelope, Failure, Intent, Json, Order, Outcome, Refusal, RequestId, Resolution, RunEvent, RunId, RunMetrics,
    RunResult, State, Submission, Timestamp, TurnId, Update, Verdict,
};
use crate::workflow::graph::Graph;

use super::budget::{Budget, PurseKey};
use super::directory::AgentDirectory;
use super::glance::Glances;
use super::guard::Handoff;
use super::planned::{Reversible, Scope, Todo, Undo};

/// The ordinal under which the answer to a detached delegation comes with the turn that it caused.
pub(in crate::supervision::runs) const LATE_ORDINAL: u32 = u32::MAX - 1;

pub(crate) use crate::messages::HANDOFF_ORDINAL;

/// The ordinal under which a turn has what its run had used when it was admitted. It is nothing that the turn asked for.
pub(in crate::supervision::runs) const FIGURES_ORDINAL: u32 = u32::MAX - 2;

/// One task being worked on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub(in crate::supervision::runs) submission: Arc<Submission>,
    /// Not stored: whoever reads a run brings them.
    #[serde(skip)]
    pub(in crate::supervision::runs) rules: StateRules,
    pub(in crate::supervision::runs) sequence: u64,
    pub(in crate::supervision::runs) handoffs: u32,
    pub(in crate::supervision::runs) agents: BTreeSet<AgentName>,
    /// Those of its plan who have begun; the limit of agents does not hold for them.
    pub(in crate::supervision::runs) cast: BTreeSet<AgentName>,
    pub(in crate::supervision::runs) budget: Budget,
    pub(in crate::supervision::runs) branches: BTreeMap<u32, Box<Branch>>,
    pub(in crate::supervision::runs) turns: BTreeMap<u32, Box<OpenTurn>>,
    pub(in crate::supervision::runs) next_turn: u32,
    pub(in crate::supervision::runs) next_branch: u32,
    pub(in crate::supervision::runs) next_reservation: u32,
    pub(in crate::supervision::runs) turns_ended: u32,
    pub(in crate::supervision::runs) retries: u32,
    pub(in crate::supervision::runs) last_at: Timestamp,
    /// It has read what strangers wrote.
    pub(in crate::supervision::runs) is_marked: bool,
    /// Agents that its agents have made.
    pub(in crate::supervision::runs) made: BTreeMap<AgentName, Made>,
    /// What people have approved for the whole run, the last last.
    pub(in crate::supervision::runs) standing: VecDeque<Standing>,
    /// Turns that finished alone what they would have handed on.
    pub(in crate::supervision::runs) alone: Vec<Alone>,
    pub(in crate::supervision::runs) result: Option<Arc<RunResult>>,
    /// For the event that its turn ends with.
    #[serde(skip)]
    pub(in crate::supervision::runs) overwrite: Option<Box<Overwrite>>,
    /// The plan, made ready. Not stored: it follows from the plan.
    #[serde(skip)]
    pub(in crate::supervision::runs) graph: Option<Arc<Graph>>,
    /// What is to be done in blocks; empty between events.
    #[serde(skip)]
    pub(in crate::supervision::runs) agenda: VecDeque<Todo>,
    /// The join that failed at the last event.
    #[serde(skip)]
    pub(in crate::supervision::runs) conflict: Option<Box<StateError>>,
    /// The conversation that it belongs to, or has read. Stored beside the run in its snapshots.
    #[serde(skip)]
    pub(in crate::supervision::runs) conversing: Option<Box<Conversing>>,
    /// How nodes stood when their blocks ended, if somebody looks at that.
    #[serde(skip)]
    pub(in crate::supervision::runs) glances: Option<Box<Glances>>,
}

/// A run's part in a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Conversing {
    /// Where its messages go when it has ended; a fork leaves none.
    pub(in crate::supervision::runs) id: Option<ConversationId>,
    /// The messages of the runs before it, an array; none before its turns may begin.
    pub(in crate::supervision::runs) read: Option<Json>,
}

/// An agent that another one has made for the rest of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Made {
    /// What the run's agents call it by.
    pub(in crate::supervision::runs) name: Arc<str>,
    pub(in crate::supervision::runs) draft: Json,
    pub(in crate::supervision::runs) authority: Authority,
}

/// Consent that holds for a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Standing {
    pub(in crate::supervision::runs) agent: AgentName,
    pub(in crate::supervision::runs) action: Action,
    pub(in crate::supervision::runs) by: Arc<str>,
    pub(in crate::supervision::runs) until: Timestamp,
}

/// What a person wrote over a conflict, and where the turn goes at which it was found, if that was not decided then.
#[derive(Clone, Debug)]
pub(in crate::supervision::runs) struct Overwrite {
    pub(in crate::supervision::runs) written: Delta,
    pub(in crate::supervision::runs) verdict: Verdict,
}

/// A line of control: one turn after another, until it forks or ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Branch {
    pub(in crate::supervision::runs) origin: Origin,
    pub(in crate::supervision::runs) view: State,
    /// What its turns wrote, kept for the join; the root has none to come.
    pub(in crate::supervision::runs) deltas: Vec<Delta>,
    /// How many of them there were when they were last taken together.
    pub(in crate::supervision::runs) shortened: usize,
    pub(in crate::supervision::runs) chain: Chain,
    pub(in crate::supervision::runs) recent: Vec<Handoff>,
    pub(in crate::supervision::runs) previous_agent: Option<AgentName>,
    pub(in crate::supervision::runs) now: Now,
    /// Delegations whose asking turns have ended without waiting.
    pub(in crate::supervision::runs) outbound: Vec<Outbound>,
    /// What it was given when it began.
    pub(in crate::supervision::runs) brief: Brief,
    /// What can be taken back of what was done in it and has ended, the first first.
    pub(in crate::supervision::runs) reversible: Vec<Reversible>,
    /// It has failed, and what was done in it is taken back.
    pub(in crate::supervision::runs) undo: Option<Box<Undo>>,
    /// The failure with which it ends tells the node that it comes from.
    pub(in crate::supervision::runs) has_failed_within: bool,
    /// What may be caused in it at most: agents that others made may have passed control on.
    pub(in crate::supervision::runs) authority: Authority,
}

/// What a delegated branch is given beside its input; forks inside it have the same.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Brief {
    /// Answers that its parent had when it asked.
    pub(in crate::supervision::runs) answers: Option<Arc<[EarlierAnswer]>>,
    /// The budget that its reservations count against, beside the run's.
    pub(in crate::supervision::runs) purse: Option<PurseKey>,
    /// When its own time is up.
    pub(in crate::supervision::runs) deadline: Option<Timestamp>,
}

/// A detached delegation after its asking turn: the outbound map of SEMANTICS 11.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Outbound {
    pub(in crate::supervision::runs) turn: u32,
    pub(in crate::supervision::runs) ordinal: u32,
    pub(in crate::supervision::runs) agent: AgentName,
    pub(in crate::supervision::runs) input: Json,
    pub(in crate::supervision::runs) order: Order,
    pub(in crate::supervision::runs) reply: Option<Answer>,
    pub(in crate::supervision::runs) deltas: ChildDeltas,
}

/// Where a branch comes from, and so where its end goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervision::runs) enum Origin {
    Root,
    Fork {
        parent: u32,
        index: usize,
    },
    /// A node of the block that the parent works on.
    Node {
        parent: u32,
        node: u32,
    },
    /// What the parent has done in a node is taken back.
    Compensation {
        parent: u32,
    },
    Delegation {
        turn: u32,
        ordinal: u32,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) enum Now {
    Turn(u32),
    /// Its last turn has ended, and answers to what it gave away are still to come.
    Awaiting,
    /// Its last turn has ended; where it goes waits for a decision.
    Parked(Box<ParkedHandoff>),
    Forked {
        children: Vec<u32>,
        ends: Vec<Option<BranchEnd>>,
        open: usize,
    },
    /// It works on a block of a plan.
    Plan(Box<Scope>),
}

impl Origin {
    /// The branch that it is a part of.
    pub(in crate::supervision::runs) fn parent(self) -> Option<u32> {
        match self {
            Self::Fork { parent, .. } | Self::Node { parent, .. } | Self::Compensation { parent } => Some(parent),
            Self::Root | Self::Delegation { .. } => None,
        }
    }
}

/// A turn that returned its command and is no longer leased.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct EndedTurn {
    pub(in crate::supervision::runs) number: u32,
    pub(in crate::supervision::runs) agent: AgentName,
    pub(in crate::supervision::runs) input: Json,
    pub(in crate::supervision::runs) command: Arc<Command>,
    pub(in crate::supervision::runs) children: Vec<ChildDeltas>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct ParkedHandoff {
    pub(in crate::supervision::runs) ended: EndedTurn,
    pub(in crate::supervision::runs) envelope: Envelope,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct BranchEnd {
    pub(in crate::supervision::runs) outcome: Outcome,
    pub(in crate::supervision::runs) output: Json,
    pub(in crate::supervision::runs) deltas: Vec<Delta>,
    pub(in crate::supervision::runs) reversible: Vec<Reversible>,
}

impl BranchEnd {
    /// What a branch leaves that ends so.
    pub(in crate::supervision::runs) fn of(branch: &mut Branch, outcome: Outcome, output: Json) -> Self {
        let (deltas, reversible) = (std::mem::take(&mut branch.deltas), std::mem::take(&mut branch.reversible));
        Self { outcome, output, deltas, reversible }
    }
}

/// A turn that was admitted and has not ended: a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenTurn {
    pub(in crate::supervision::runs) branch: u32,
    pub(in crate::supervision::runs) agent: AgentName,
    pub(in crate::supervision::runs) input: Json,
    pub(in crate::supervision::runs) attempt: u32,
    pub(in crate::supervision::runs) phase: Phase,
    pub(in crate::supervision::runs) records: BTreeMap<u32, Box<Record>>,
    pub(in crate::supervision::runs) recoveries: u32,
    /// The run had read what strangers wrote when the turn was admitted. What comes later does not change it: an attempt that
    /// is repeated meets what the first one met.
    pub(in crate::supervision::runs) is_marked: bool,
    /// If others made its agent: what each of them is, from the one that the host made. A change counts for later turns.
    pub(in crate::supervision::runs) made: Option<Arc<[Json]>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervision::runs) enum Phase {
    Leased,
    Backoff {
        until: Timestamp,
    },
    NeedsAttention {
        /// What it had asked for before does not fit.
        has_changed: bool,
        why: Arc<str>,
    },
    /// Its node starts when a person says so.
    Interrupted,
}

/// What a turn asked for, and the answer if there is one yet. A repeated attempt is answered from here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// A step that has begun.
    StepStarted {
        /// Its name.
        name: Arc<str>,
    },
    /// A step and its result.
    Step {
        /// Its name.
        name: Arc<str>,
        /// Its result.
        value: Json,
        /// The turn had read what strangers wrote by then, so whoever is given the result is marked too.
        is_marked: bool,
    },
    /// A delegation.
    Delegation {
        /// What was asked.
        order: Order,
        /// The answer, or why there will be none.
        reply: Option<Result<Answer, Refusal>>,
        /// When it was asked and answered, in events; what the child wrote.
        deltas: ChildDeltas,
    },
    /// A question to people.
    Question {
        /// What was asked.
        question: Json,
        /// Part of the question's id.
        nonce: u64,
        /// When.
        asked_at: Timestamp,
        /// The answer.
        answer: Option<Json>,
    },
    /// A request for consent.
    Approval {
        /// The exact question.
        envelope: Box<Envelope>,
        /// What the turn asked for, if people have changed it.
        asked: Option<Box<Action>>,
        /// The decision.
        decision: Option<Decision>,
    },
    /// An agent that was made, or changed.
    Made {
        /// What it is called by.
        name: Arc<str>,
        /// What it is.
        draft: Json,
        /// It was there before.
        is_change: bool,
        /// The agent, or why there is none.
        made: Result<AgentName, Refusal>,
    },
    /// Whether control might go.
    HandoffCheck {
        /// To whom.
        to: Vec<Arc<str>>,
        /// Why not, if not.
        refusal: Option<Refusal>,
    },
    /// Something that must not be repeated by itself was begun.
    Once(Once),
    /// Something that must not be repeated by itself has failed.
    StepFailed {
        /// Its name.
        name: Arc<str>,
        /// How.
        failure: Failure,
        /// As for a step.
        is_marked: bool,
    },
    /// A question to people that expires.
    TimedQuestion {
        /// What was asked.
        question: Json,
        /// Part of the question's id.
        nonce: u64,
        /// When.
        asked_at: Timestamp,
        /// When the turn continues without an answer.
        expires_at: Timestamp,
        /// What came of it.
        state: QuestionState,
    },
    /// What the run had used when the turn was admitted.
    Figures(RunFigures),
}

/// What came of a question that expires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum QuestionState {
    /// Nothing yet.
    Open,
    /// An answer.
    Answered(Json),
    /// Nobody answered in time.
    Expired,
}

/// An effect that must not be repeated by itself and whose result the runtime does not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Once {
    /// What was begun.
    pub intent: Intent,
    /// How often it was begun or asked about before: tells a repeated request from a new one.
    pub round: u32,
    /// What is known about it.
    pub state: OnceState,
}

/// What is known about a `once` effect without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OnceState {
    /// It was begun.
    Begun,
    /// A person is asked.
    Asked(AskedOutcome),
    /// This is to follow.
    Resolved(Resolution),
}

/// What a delegated branch wrote, and when it ran as seen by its parent (event numbers).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildDeltas {
    pub(in crate::supervision::runs) asked: u64,
    pub(in crate::supervision::runs) answered: Option<u64>,
    pub(in crate::supervision::runs) deltas: Vec<Delta>,
    /// When it was answered, the run had read what strangers wrote.
    pub(in crate::supervision::runs) is_marked: bool,
}

impl AsRef<[Delta]> for ChildDeltas {
    fn as_ref(&self) -> &[Delta] {
        &self.deltas
    }
}

impl Run {
    /// The run with the schema and reducers that its updates go through; a task's own schema comes first.
    #[must_use]
    pub fn with_rules(mut self, rules: StateRules) -> Self {
        let task = &self.submission.task;
        self.rules = match task.schema.as_ref().or(task.plan.as_ref().map(|plan| &plan.schema)) {
            Some(schema) => StateRules { schema: Arc::clone(schema), ..rules },
            None => rules,
        };
        // One that cannot be made ready was refused when it was submitted; a run of it ends at once.
        self.graph = self.submission.task.plan.as_ref().and_then(|plan| Graph::of(plan).ok());
        self
    }

    /// The run's id.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.submission.run
    }

    /// The conversation that its messages go to.
    #[must_use]
    pub fn conversation(&self) -> Option<&ConversationId> {
        self.conversing.as_ref()?.id.as_ref()
    }

    /// Whether its turns wait until the runs before it in its conversation have ended.
    #[must_use]
    pub fn waits_for_conversation(&self) -> bool {
        self.result.is_none() && self.conversing.as_ref().is_some_and(|conversing| conversing.read.is_none())
    }

    /// The messages of its conversation that a turn sees: turns that work on a delegation are given what the asking agent says.
    pub(in crate::supervision::runs) fn conversation_of(&self, turn: &OpenTurn) -> Option<&Json> {
        let read = self.conversing.as_ref()?.read.as_ref()?;
        self.delegation_of(turn).is_none().then_some(read)
    }

    /// The agent or workflow that it was submitted to, which its conversation belongs to.
    #[must_use]
    pub fn owner(&self) -> Arc<str> {
        self.submission.owner()
    }

    /// What was submitted.
    #[must_use]
    pub fn submission(&self) -> &Arc<Submission> {
        &self.submission
    }

    /// How many events it is the fold of.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether it has read what strangers wrote.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// What it came to, once it has ended.
    #[must_use]
    pub fn result(&self) -> Option<&Arc<RunResult>> {
        self.result.as_ref()
    }

    /// When its last event happened.
    #[must_use]
    pub fn last_at(&self) -> Timestamp {
        self.last_at
    }

    /// The turns that are admitted and have not ended.
    pub fn open_turns(&self) -> impl Iterator<Item = u32> {
        self.turns.keys().copied()
    }

    /// The turns that wait for a person, with the reason.
    pub fn turns_that_need_attention(&self) -> impl Iterator<Item = (TurnId, &str)> {
        self.turns.iter().filter_map(|(number, turn)| match &turn.phase {
            Phase::NeedsAttention { why, .. } => Some((self.turn_id(*number), &**why)),
            Phase::Leased | Phase::Backoff { .. } | Phase::Interrupted => None,
        })
    }

    /// Whether every open turn needs attention, or waits for one that does: nothing of the run goes on by itself.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let asker = |turn: &u32| self.waiter_of(self.turns.get(turn)?.branch).map(|(asked, _)| asked.turn.number);
        let held_up = self.turns_that_need_attention();
        let held_up: BTreeSet<u32> = held_up.flat_map(|(turn, _)| iter::successors(Some(turn.number), asker)).collect();
        !held_up.is_empty() && self.turns.keys().all(|turn| held_up.contains(turn))
    }

    /// An open turn.
    #[must_use]
    pub fn turn(&self, number: u32) -> Option<&OpenTurn> {
        self.turns.get(&number).map(|turn| &**turn)
    }

    /// The id of one of its turns.
    #[must_use]
    pub fn turn_id(&self, number: u32) -> TurnId {
        TurnId { run: self.id(), number }
    }

    /// The branch of an open turn.
    #[must_use]
    pub fn branch_of(&self, turn: &OpenTurn) -> &Branch {
        &self.branches[&turn.branch]
    }

    /// When the time is up for a branch: the run's deadline, or that of a delegation that it lies within.
    #[must_use]
    pub fn deadline_of(&self, branch: &Branch) -> Option<Timestamp> {
        let mut deadline = self.submission.task.deadline.map(|deadline| self.submission.at + deadline);
        let mut next = Some(branch);
        while let Some(branch) = next {
            deadline = [deadline, branch.brief.deadline].into_iter().flatten().min();
            next = self.branch_around(branch);
        }
        deadline
    }

    /// The branch that a delegation was asked in, also when its turn did not wait.
    fn asker_branch(&self, turn: u32, ordinal: u32) -> Option<&Branch> {
        if let Some(open) = self.turns.get(&turn) {
            return Some(self.branch_of(open));
        }
        self.branches.values().map(|branch| &**branch).find(|branch| branch.outbound(turn, ordinal).is_some())
    }

    /// Who has approved for the whole run that an agent does exactly this, if that still holds.
    pub(in crate::supervision::runs) fn standing_consent(
        &self,
        agent: &AgentName,
        action: &Action,
        now: Timestamp,
    ) -> Option<&Arc<str>> {
        let is_this =
            |standing: &&Standing| standing.until > now && standing.agent == *agent && standing.action == *action;
        self.standing.iter().rev().find(is_this).map(|standing| &standing.by)
    }

    /// The agent that others of the run call by this name, if one of them made it.
    pub(in crate::supervision::runs) fn made_agent(&self, name: &str) -> Option<&AgentName> {
        self.made.iter().find(|(agent, made)| *made.name == *name || agent.as_str() == name).map(|(agent, _)| agent)
    }

    /// What an agent that was made is, from what its host has made.
    pub(in crate::supervision::runs) fn drafts_of(&self, agent: &AgentName) -> Option<Arc<[Json]>> {
        agent.maker()?;
        let mut drafts = Vec::new();
        let mut next = self.made.get(agent);
        let mut name = agent.as_str();
        while let (Some(made), Some(maker)) = (next, AgentName::maker_of(name)) {
            drafts.push(made.draft.clone());
            (name, next) = (maker, self.made.get(maker));
        }
        drafts.reverse();
        Some(drafts.into())
    }

    /// What an agent may cause in a branch: what the run was granted, and everybody in the chain has, and whoever passed control
    /// on or made it.
    pub(in crate::supervision::runs) fn authority_of(
        &self,
        branch: &Branch,
        agent: &AgentName,
        directory: &dyn AgentDirectory,
    ) -> Authority {
        let own = |agent: &AgentName| {
            let made = match (self.made.get(agent), agent.maker()) {
                (Some(made), _) => made.authority,
                // It was kept, or made by a turn of which a fork knows nothing.
                (None, Some(_)) => directory.kept(agent).map_or(Authority::of([]), |kept| kept.authority),
                (None, None) => Authority::ALL,
            };
            made.and(directory.authority(agent.host()))
        };
        let mut authority = self.submission.task.grant.and(own(agent));
        // What led to the run is in its grant.
        let own_steps = branch.chain.len() - self.submission.chain.len();
        for step in branch.chain.newest_first().take(own_steps) {
            authority = authority.and(own(&step.from)).and(own(&step.to));
        }
        let mut next = Some(branch);
        while let Some(branch) = next {
            authority = authority.and(branch.authority);
            next = self.branch_around(branch);
        }
        authority
    }

    /// The branch that a branch is a part of, or works for.
    fn branch_around(&self, branch: &Branch) -> Option<&Branch> {
        match branch.origin {
            Origin::Root => None,
            Origin::Fork { parent, .. } | Origin::Node { parent, .. } | Origin::Compensation { parent } => {
                self.branches.get(&parent).map(|parent| &**parent)
            }
            Origin::Delegation { turn, ordinal } => self.asker_branch(turn, ordinal),
        }
    }

    /// The open branch that works on a delegation.
    pub(in crate::supervision::runs) fn delegated_branch(&self, turn: u32, ordinal: u32) -> Option<u32> {
        let origin = Origin::Delegation { turn, ordinal };
        self.branches.iter().find(|(_, branch)| branch.origin == origin).map(|(id, _)| *id)
    }

    /// The open questions that expire, about unknown outcomes too, with their turn and ordinal, and when nobody waits for an
    /// answer any more.
    pub(in crate::supervision::runs) fn question_deadlines(&self) -> impl Iterator<Item = (u32, u32, Timestamp)> {
        self.turns.iter().flat_map(|(turn, open)| {
            open.records.iter().filter_map(|(ordinal, record)| match &**record {
                Record::Once(Once { state: OnceState::Asked(asked), .. }) => Some((*turn, *ordinal, asked.expires_at)),
                Record::TimedQuestion { expires_at, state: QuestionState::Open, .. } => {
                    Some((*turn, *ordinal, *expires_at))
                }
                _ => None,
            })
        })
    }

    /// The open delegations that were given a time, with their turn and ordinal.
    pub(in crate::supervision::runs) fn delegation_deadlines(&self) -> impl Iterator<Item = (u32, u32, Timestamp)> {
        self.branches.values().filter_map(|branch| match branch.origin {
            Origin::Delegation { turn, ordinal } => Some((turn, ordinal, branch.brief.deadline?)),
            Origin::Root | Origin::Fork { .. } | Origin::Node { .. } | Origin::Compensation { .. } => None,
        })
    }

    /// The delegation that the branch works on, if its asking turn waits for the answer, and the agent of that turn.
    #[must_use]
    pub fn waiter_of(&self, mut branch: u32) -> Option<(RequestId, &AgentName)> {
        loop {
            match self.branches.get(&branch)?.origin {
                Origin::Root => return None,
                Origin::Fork { parent, .. } | Origin::Node { parent, .. } | Origin::Compensation { parent } => {
                    branch = parent
                }
                Origin::Delegation { turn, ordinal } => {
                    let open = self.turns.get(&turn)?;
                    let is_detached =
                        matches!(open.record(ordinal), Some(Record::Delegation { order, .. }) if order.is_detached);
                    let request = RequestId { turn: self.turn_id(turn), ordinal };
                    return (!is_detached).then_some((request, &open.agent));
                }
            }
        }
    }

    /// The turns that wait for a person since this event, whether their own turn does or one that they wait for.
    pub(in crate::supervision::runs) fn waits_for_people_after(&self, event: &RunEvent) -> Vec<u32> {
        let asks = match event {
            RunEvent::Asked { turn, .. }
            | RunEvent::AskedUntil { turn, .. }
            | RunEvent::OutcomeUnknown { turn, .. }
            | RunEvent::NeedsAttention { turn, .. } => Some(*turn),
            RunEvent::ApprovalAsked { turn, ordinal, .. } => {
                let record = self.turns.get(turn).and_then(|open| open.record(*ordinal));
                matches!(record, Some(Record::Approval { decision: None, .. })).then_some(*turn)
            }
            _ => None,
        };
        let parked = match event {
            RunEvent::TurnEnded { turn, verdict: Verdict::Parked(_), .. } => {
                let is_it =
                    |branch: &Branch| matches!(&branch.now, Now::Parked(parked) if parked.ended.number == *turn);
                self.branches.iter().find(|(_, branch)| is_it(branch)).map(|(id, _)| *id)
            }
            _ => None,
        };
        let mut waiting: Vec<u32> = asks.into_iter().collect();
        let mut branch = parked.or_else(|| Some(self.turns.get(&asks?)?.branch));
        while let Some((asked, _)) = branch.and_then(|branch| self.waiter_of(branch)) {
            waiting.push(asked.turn.number);
            branch = self.turns.get(&asked.turn.number).map(|open| open.branch);
        }
        waiting
    }

    /// The delegation that an open turn works on, and who asked for it.
    #[must_use]
    pub fn delegation_of(&self, turn: &OpenTurn) -> Option<(RequestId, &AgentName)> {
        let mut branch = self.branches.get(&turn.branch)?;
        loop {
            match branch.origin {
                Origin::Root => return None,
                Origin::Fork { parent, .. } | Origin::Node { parent, .. } | Origin::Compensation { parent } => {
                    branch = self.branches.get(&parent)?
                }
                Origin::Delegation { turn, ordinal } => {
                    let asker = match self.turns.get(&turn) {
                        Some(open) => &open.agent,
                        None => &self.branches.values().find_map(|branch| branch.outbound(turn, ordinal))?.agent,
                    };
                    return Some((RequestId { turn: self.turn_id(turn), ordinal }, asker));
                }
            }
        }
    }

    /// Whether a turn is that of a node of its plan.
    #[must_use]
    pub fn is_planned(&self, turn: &OpenTurn) -> bool {
        matches!(self.branch_of(turn).origin, Origin::Node { .. } | Origin::Compensation { .. })
    }

    /// Whether a turn takes back what its node has done.
    #[must_use]
    pub fn is_compensation(&self, turn: &OpenTurn) -> bool {
        matches!(self.branch_of(turn).origin, Origin::Compensation { .. })
    }

    /// The way to the node of the plan that an open turn belongs to: names from the outermost block on, as in
    /// `group/review`, with the iteration of a loop (`implement#2`) and the place of an item (`each[0]`). `None` for a turn
    /// that agents brought about.
    #[must_use]
    pub fn node_of(&self, turn: u32) -> Option<String> {
        let turn = self.turns.get(&turn).filter(|turn| self.is_planned(turn))?;
        Some(self.way_to(turn.branch, None))
    }

    /// What the author of its plan said about the turns of a node.
    pub(in crate::supervision::runs) fn rules_of(&self, turn: u32) -> Option<&crate::workflow::graph::Rules> {
        let branch = self.branch_of(self.turns.get(&turn)?);
        self.station(self.graph.as_deref()?, branch).map(|(_, _, station)| &station.rules)
    }

    /// What it took so far.
    #[must_use]
    pub fn metrics(&self) -> RunMetrics {
        RunMetrics {
            turns: self.turns_ended,
            handoffs: self.handoffs,
            agents: u32::try_from(self.agents.len() + self.cast.difference(&self.agents).count()).unwrap_or(u32::MAX),
            retries: self.retries,
            usage: self.budget.usage(),
            tokens_spent: self.budget.spent(),
            overrun: self.budget.overrun(),
            elapsed: self.last_at.since(self.submission.at),
        }
    }

    /// What it has used so far, as turns see it that are admitted now.
    #[must_use]
    pub fn figures(&self) -> RunFigures {
        RunFigures {
            tokens_used: self.budget.spent(),
            time_elapsed: self.last_at.since(self.submission.at),
            retry_count: self.retries,
        }
    }

    /// Whether turns see in their state who had control before.
    pub(in crate::supervision::runs) fn shows_previous_agent(&self) -> bool {
        self.rules.schema.shows_previous_agent()
    }

    /// The state as an open turn sees it: what the turns before it wrote, and what the runtime writes (SEMANTICS 6). Every
    /// attempt of the turn sees the same.
    #[must_use]
    pub fn seen_by(&self, turn: &OpenTurn) -> State {
        let branch = self.branch_of(turn);
        let previous = branch.previous_agent.as_ref().filter(|_| self.shows_previous_agent());
        branch.view.with_runtime(previous.map(AgentName::as_str), turn.figures())
    }

    /// The run's approvals that wait for a decision.
    pub fn open_approvals(&self) -> impl Iterator<Item = &Envelope> {
        let parked = self.branches.values().filter_map(|branch| match &branch.now {
            Now::Parked(parked) => Some(&parked.envelope),
            Now::Turn(_) | Now::Awaiting | Now::Forked { .. } | Now::Plan(_) => None,
        });
        let asked = self.turns.values().flat_map(|turn| turn.records.values()).filter_map(|record| match &**record {
            Record::Approval { envelope, decision: None, .. } => Some(&**envelope),
            _ => None,
        });
        parked.chain(asked)
    }

    /// What the children of an open turn wrote, or a person in their place.
    pub(in crate::supervision::runs) fn children_of(&self, turn: &OpenTurn) -> Vec<ChildDeltas> {
        let mut children = turn.children();
        self.put_overwrite(children.iter_mut().map(|child| &mut child.deltas));
        children
    }

    /// Puts what a person wrote over a conflict in the place of what several writers wrote.
    pub(in crate::supervision::runs) fn put_overwrite<'a>(&self, writers: impl Iterator<Item = &'a mut Vec<Delta>>) {
        if let Some(over) = &self.overwrite {
            overwrite(writers, &over.written);
        }
    }

    /// What the turn's end would make of its branch: the new view, and what goes to the join. Children's writes come
    /// before the turn's own, in the order in which they were asked.
    pub(in crate::supervision::runs) fn settle(
        &self,
        number: u32,
        branch: u32,
        children: &[ChildDeltas],
        update: &Update,
    ) -> Result<(State, Vec<Delta>), StateError> {
        let branch = &self.branches[&branch];
        let mut view = if children.is_empty() {
            branch.view.clone()
        } else {
            let concurrent =
                |a: usize, b: usize| children[a].answered.is_none_or(|answered| answered > children[b].asked);
            join(&branch.view, children, concurrent, &self.rules)?
        };
        view.apply(update, &self.rules)?;
        if branch.origin == Origin::Root {
            return Ok((view, Vec::new()));
        }
        let mut deltas: Vec<Delta> = children.iter().flat_map(|child| child.deltas.iter().cloned()).collect();
        if !update.is_empty() {
            deltas.push(Delta { turn: self.turn_id(number), update: Arc::new(update.clone()) });
        }
        Ok((view, deltas))
    }
}

impl Branch {
    /// The detached delegation that a turn of it left behind under this ordinal.
    pub(in crate::supervision::runs) fn outbound(&self, turn: u32, ordinal: u32) -> Option<&Outbound> {
        self.outbound.iter().find(|outbound| (outbound.turn, outbound.ordinal) == (turn, ordinal))
    }

    /// A branch whose first turn is to come.
    pub(in crate::supervision::runs) fn new(origin: Origin, view: State, chain: Chain) -> Self {
        let (deltas, recent, outbound) = (Vec::new(), Vec::new(), Vec::new());
        let (previous_agent, now, brief) = (None, Now::Turn(0), Brief::default());
        let (shortened, reversible, undo, has_failed_within) = (0, Vec::new(), None, false);
        let authority = Authority::ALL;
        Self {
            origin,
            view,
            deltas,
            shortened,
            chain,
            recent,
            previous_agent,
            now,
            outbound,
            brief,
            reversible,
            undo,
            has_failed_within,
            authority,
        }
    }
}

impl OpenTurn {
    /// Whose turn it is.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// What it works on.
    #[must_use]
    pub fn input(&self) -> &Json {
        &self.input
    }

    /// What it asked for under an ordinal.
    #[must_use]
    pub fn record(&self, ordinal: u32) -> Option<&Record> {
        self.records.get(&ordinal).map(|record| &**record)
    }

    /// Whether the run had read what strangers wrote when it was admitted.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// What the run had used when it was admitted, if its schema shows that.
    #[must_use]
    pub fn figures(&self) -> Option<RunFigures> {
        match self.record(FIGURES_ORDINAL) {
            Some(Record::Figures(figures)) => Some(*figures),
            Some(_) | None => None,
        }
    }

    /// The first handoff that it was refused when it asked.
    pub(in crate::supervision::runs) fn refused_handoff(&self) -> Option<(&[Arc<str>], &Refusal)> {
        self.records.values().find_map(|record| match &**record {
            Record::HandoffCheck { to, refusal: Some(refusal) } => Some((to.as_slice(), refusal)),
            Record::HandoffCheck { refusal: None, .. }
            | Record::StepStarted { .. }
            | Record::Step { .. }
            | Record::Delegation { .. }
            | Record::Question { .. }
            | Record::TimedQuestion { .. }
            | Record::Made { .. }
            | Record::Once(_)
            | Record::StepFailed { .. }
            | Record::Figures(_)
            | Record::Approval { .. } => None,
        })
    }

    /// The attempt under way or to come, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The turn that a parked handoff ended, as the guard sees it.
    pub(in crate::supervision::runs) fn ended(branch: u32, ended: &EndedTurn) -> Self {
        let (agent, input) = (ended.agent.clone(), ended.input.clone());
        let (phase, records) = (Phase::Leased, BTreeMap::new());
        Self { branch, agent, input, attempt: 0, phase, records, recoveries: 0, is_marked: false, made: None }
    }

    /// Whether it waits for an answer from outside it: being found so by a new process says nothing against it.
    pub(in crate::supervision::runs) fn is_waiting(&self) -> bool {
        self.records.values().any(|record| match &**record {
            Record::Delegation { order, reply, .. } => reply.is_none() && !order.is_detached,
            Record::Question { answer, .. } => answer.is_none(),
            Record::TimedQuestion { state, .. } => matches!(state, QuestionState::Open),
            Record::Approval { decision, .. } => decision.is_none(),
            Record::Once(once) => matches!(once.state, OnceState::Asked(_)),
            Record::StepStarted { .. }
            | Record::Step { .. }
            | Record::StepFailed { .. }
            | Record::HandoffCheck { .. }
            | Record::Figures(_)
            | Record::Made { .. } => false,
        })
    }

    /// Whether it gave something away that is not answered and that it does not wait for.
    pub(in crate::supervision::runs) fn has_detached(&self) -> bool {
        self.records
            .values()
            .any(|record| matches!(&**record, Record::Delegation { order, reply: None, .. } if order.is_detached))
    }

    /// What its delegations have come to so far, in the order in which they were asked.
    pub(in crate::supervision::runs) fn earlier_answers(&self) -> Option<Arc<[EarlierAnswer]>> {
        let answered = |record: &Record| match record {
            Record::Delegation { order, reply: Some(Ok(answer)), .. } => {
                let (to, body) = (Arc::clone(&order.to), Arc::clone(&order.body));
                Some(EarlierAnswer { to, body, answer: answer.clone() })
            }
            _ => None,
        };
        let mut answers = Vec::with_capacity(self.records.len());
        answers.extend(self.records.values().filter_map(|record| answered(record)));
        (!answers.is_empty()).then(|| answers.into())
    }

    /// What the children that were answered wrote.
    pub(in crate::supervision::runs) fn children(&self) -> Vec<ChildDeltas> {
        let answered = |record: &Record| match record {
            Record::Delegation { deltas, order, .. } if deltas.answered.is_some() && !order.is_detached => {
                Some(deltas.clone())
            }
            _ => None,
        };
        self.records.values().filter_map(|record| answered(record)).collect()
    }
}
