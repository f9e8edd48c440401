//! The branches of a run. A branch is a line of control: one turn after another, until it forks or ends.

use std::ops::Index;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::messages::state::Delta;
use crate::messages::{
    AgentName, Answer, Authority, Chain, Command, EarlierAnswer, Envelope, Json, Order, Outcome, State, Timestamp,
};
use crate::supervision::runs::rules::guard::Handoff;
use crate::supervision::runs::rules::numbered::Numbered;
use crate::supervision::runs::rules::rare::{Parts, Rare};
use crate::supervision::runs::rules::requests::{Attempt, RequestKey};
use crate::supervision::runs::rules::small_map::SmallSet;

use super::plan::scope::{Reversible, Scope, Undo};
use super::record::ChildDeltas;
use super::turn::OpenTurn;

/// The open branches of a run by their numbers, which are given in the order in which branches begin, from 0: the root.
#[derive(Clone, Debug, Default)]
pub(in crate::supervision::runs) struct Branches {
    open: Numbered<Box<Branch>>,
    /// The number of the next branch; every lower one has been given.
    next: u32,
    /// The branches whose handoff waits for a decision.
    parked: SmallSet<u32>,
}

impl Branches {
    pub(super) fn of_parts(open: Numbered<Box<Branch>>, next: u32) -> Self {
        let parked = open.iter().filter(|(_, branch)| branch.parked().is_some()).map(|(id, _)| *id).collect();
        Self { open, next, parked }
    }

    pub(super) fn parts(&self) -> (&Numbered<Box<Branch>>, u32) {
        (&self.open, self.next)
    }

    pub(in crate::supervision::runs) fn get(&self, id: u32) -> Option<&Branch> {
        self.open.get(id).map(|branch| &**branch)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Branch> {
        self.open.get_mut(id).map(|branch| &mut **branch)
    }

    pub(in crate::supervision::runs) fn contains(&self, id: u32) -> bool {
        self.open.get(id).is_some()
    }

    /// In the order in which they began.
    pub(in crate::supervision::runs) fn iter(&self) -> impl Iterator<Item = (u32, &Branch)> {
        self.open.iter().map(|(id, branch)| (*id, &**branch))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Branch)> {
        self.open.iter_mut().map(|(id, branch)| (*id, &mut **branch))
    }

    /// Begins a branch; returns its number.
    pub(super) fn add(&mut self, branch: Branch) -> u32 {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, Box::new(branch));
        id
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Box<Branch>> {
        if self.parked.len() > 0 {
            self.parked.remove(&id);
        }
        self.open.remove(id)
    }

    /// Has a branch wait for a decision about the handoff of its last turn.
    pub(super) fn park(&mut self, id: u32, handoff: ParkedHandoff) {
        if let Some(branch) = self.get_mut(id) {
            branch.now = Now::Parked(Box::new(handoff));
            self.parked.insert(id);
        }
    }

    /// Ends the wait for a decision about the handoff that a turn ended with; returns the branch and the handoff.
    pub(super) fn unpark(&mut self, turn: u32) -> Option<(u32, Box<ParkedHandoff>)> {
        let (id, _) = self.parked_by(turn)?;
        match std::mem::replace(&mut self.get_mut(id)?.now, Now::Turn(turn)) {
            Now::Parked(handoff) => {
                self.parked.remove(&id);
                Some((id, handoff))
            }
            Now::Turn(_) | Now::Awaiting | Now::Forked(_) | Now::Plan(_) => None,
        }
    }

    /// The handoffs that wait for a decision, with their branches, in the order of these.
    pub(in crate::supervision::runs) fn parked(&self) -> impl Iterator<Item = (u32, &ParkedHandoff)> {
        self.parked.iter().filter_map(|id| Some((*id, self.get(*id)?.parked()?)))
    }

    /// The branch that works on a delegation.
    pub(in crate::supervision::runs) fn of_delegation(&self, RequestKey { turn, ordinal }: RequestKey) -> Option<u32> {
        let origin = Origin::Delegation { turn, ordinal };
        self.iter().find(|(_, branch)| branch.origin == origin).map(|(id, _)| id)
    }

    /// The branch that has this detached delegation outbound: the asking turn has ended without waiting.
    pub(in crate::supervision::runs) fn with_outbound(&self, request: RequestKey) -> Option<(u32, &Outbound)> {
        self.iter().find_map(|(id, branch)| Some((id, branch.outbound(request)?)))
    }

    /// The branch whose handoff was parked when this turn ended.
    pub(in crate::supervision::runs) fn parked_by(&self, turn: u32) -> Option<(u32, &ParkedHandoff)> {
        self.parked().find(|(_, parked)| parked.ended.number == turn)
    }
}

impl Index<u32> for Branches {
    type Output = Branch;

    fn index(&self, id: u32) -> &Branch {
        let Some(branch) = self.get(id) else { panic!("branch {id} is not open") };
        branch
    }
}

/// A line of control: one turn after another, until it forks or ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Branch {
    pub(in crate::supervision::runs) origin: Origin,
    pub(in crate::supervision::runs) view: State,
    /// The writes of its turns, kept for the join; empty for the root, which has no join.
    pub(in crate::supervision::runs) deltas: Vec<Delta>,
    /// The number of deltas after their last compaction.
    pub(in crate::supervision::runs) shortened: usize,
    pub(in crate::supervision::runs) chain: Chain,
    pub(in crate::supervision::runs) recent: Vec<Handoff>,
    pub(in crate::supervision::runs) previous_agent: Option<AgentName>,
    pub(in crate::supervision::runs) now: Now,
    pub(in crate::supervision::runs) extras: Rare<BranchExtras>,
    /// The most authority that turns in it have: dynamic agents may have passed control on.
    pub(in crate::supervision::runs) authority: Authority,
}

/// What most branches have not. The order of these fields is the stored form.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct BranchExtras {
    /// Delegations whose asking turns have ended without waiting.
    pub(in crate::supervision::runs) outbound: Vec<Outbound>,
    /// The inputs that it was given when it began.
    pub(in crate::supervision::runs) brief: Brief,
    /// The finished nodes in it that can be compensated, oldest first.
    pub(in crate::supervision::runs) reversible: Vec<Reversible>,
    /// Set when it has failed and its finished nodes are being compensated.
    pub(in crate::supervision::runs) undo: Option<Box<Undo>>,
    /// The failure with which it ends names the node that failed.
    pub(in crate::supervision::runs) has_failed_within: bool,
}

impl Parts for BranchExtras {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<BranchExtras> = LazyLock::new(BranchExtras::default);
        &EMPTY
    }

    fn is_empty(&self) -> bool {
        let Self { outbound, brief, reversible, undo, has_failed_within } = self;
        outbound.is_empty() && brief.is_empty() && reversible.is_empty() && undo.is_none() && !has_failed_within
    }
}

impl Branch {
    /// The detached delegation with this request, if a turn of the branch left it behind.
    pub(in crate::supervision::runs) fn outbound(&self, request: RequestKey) -> Option<&Outbound> {
        self.extras.outbound.iter().find(|outbound| outbound.request() == request)
    }

    /// Whether it works on a node of a plan, or compensates one.
    pub(in crate::supervision::runs) fn is_planned(&self) -> bool {
        matches!(self.origin, Origin::Node { .. } | Origin::Compensation { .. })
    }

    /// The parked handoff of its last turn, if it waits for a decision.
    pub(in crate::supervision::runs) fn parked(&self) -> Option<&ParkedHandoff> {
        match &self.now {
            Now::Parked(parked) => Some(parked),
            Now::Turn(_) | Now::Awaiting | Now::Forked(_) | Now::Plan(_) => None,
        }
    }

    /// A branch whose first turn is to come.
    pub(in crate::supervision::runs) fn new(origin: Origin, view: State, chain: Chain) -> Self {
        let (deltas, shortened, recent, previous_agent) = (Vec::new(), 0, Vec::new(), None);
        let (now, extras, authority) = (Now::Turn(0), Rare::default(), Authority::ALL);
        Self { origin, view, deltas, shortened, chain, recent, previous_agent, now, extras, authority }
    }

    /// Sets the finished nodes in it that can be compensated.
    pub(in crate::supervision::runs) fn keep_reversible(&mut self, reversible: Vec<Reversible>) {
        if !reversible.is_empty() || !self.extras.reversible.is_empty() {
            self.extras.reversible = reversible;
        }
    }

    /// The branch with what it was given besides its input.
    pub(in crate::supervision::runs) fn with_brief(mut self, brief: Brief) -> Self {
        if !brief.is_empty() {
            self.extras.brief = brief;
        }
        self
    }
}

/// What a delegated branch receives beside its input; its forks receive the same.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Brief {
    /// Answers that its parent had when it asked.
    pub(in crate::supervision::runs) answers: Option<Arc<[EarlierAnswer]>>,
    /// The sub-budget in which its reservations count, besides the run's budget.
    pub(in crate::supervision::runs) sub_budget: Option<RequestKey>,
    /// The deadline of the delegation.
    pub(in crate::supervision::runs) deadline: Option<Timestamp>,
}

impl Brief {
    fn is_empty(&self) -> bool {
        let Self { answers, sub_budget, deadline } = self;
        answers.is_none() && sub_budget.is_none() && deadline.is_none()
    }
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

impl Outbound {
    /// The delegation.
    pub(in crate::supervision::runs) fn request(&self) -> RequestKey {
        RequestKey { turn: self.turn, ordinal: self.ordinal }
    }
}

/// The origin of a branch, which determines where its result goes.
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
    /// It compensates a finished node of the parent.
    Compensation {
        parent: u32,
    },
    Delegation {
        turn: u32,
        ordinal: u32,
    },
}

impl Origin {
    /// The parent of a branch that is part of another one.
    pub(in crate::supervision::runs) fn parent(self) -> Option<u32> {
        match self {
            Self::Fork { parent, .. } | Self::Node { parent, .. } | Self::Compensation { parent } => Some(parent),
            Self::Root | Self::Delegation { .. } => None,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) enum Now {
    Turn(u32),
    /// Its last turn has ended, and answers to detached delegations are outstanding.
    Awaiting,
    /// Its last turn has ended, and its handoff waits for a decision.
    Parked(Box<ParkedHandoff>),
    Forked(Box<Forked>),
    /// It works on a block of a plan.
    Plan(Box<Scope>),
}

/// The branches that a branch has forked into.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Forked {
    pub(in crate::supervision::runs) children: Vec<u32>,
    /// In the order of the children; `None` while a child is open.
    pub(in crate::supervision::runs) ends: Vec<Option<BranchEnd>>,
    /// How many children are open.
    pub(in crate::supervision::runs) open: usize,
}

impl Forked {
    /// Into these branches, which have just begun.
    pub(in crate::supervision::runs) fn into(children: Vec<u32>) -> Now {
        let (ends, open) = (vec![None; children.len()], children.len());
        Now::Forked(Box::new(Self { children, ends, open }))
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

impl EndedTurn {
    /// The turn as the guard sees it when its handoff is decided.
    pub(in crate::supervision::runs) fn reopened(&self, branch: u32) -> OpenTurn {
        OpenTurn::new(branch, self.agent.clone(), self.input.clone(), Attempt(0))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct BranchEnd {
    pub(in crate::supervision::runs) outcome: Outcome,
    pub(in crate::supervision::runs) output: Json,
    pub(in crate::supervision::runs) deltas: Vec<Delta>,
    pub(in crate::supervision::runs) reversible: Vec<Reversible>,
}

impl BranchEnd {
    /// The end of a branch with this outcome.
    pub(in crate::supervision::runs) fn of(branch: &mut Branch, outcome: Outcome, output: Json) -> Self {
        let reversible = branch.extras.get_mut().map(|extras| std::mem::take(&mut extras.reversible));
        let (deltas, reversible) = (std::mem::take(&mut branch.deltas), reversible.unwrap_or_default());
        Self { outcome, output, deltas, reversible }
    }
}
