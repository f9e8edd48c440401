//! The turns of a run that wait: for delegations, for people and for deadlines.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::messages::{AgentName, Envelope, RequestId, RunEvent, Timestamp, TurnId, Verdict};
use crate::supervision::runs::rules::requests::RequestKey;

use super::branch::{Branch, Origin};
use super::fold::Run;
use super::record::{Once, OnceState, QuestionState, Record};
use super::turn::{OpenTurn, Phase};

impl Run {
    /// The turns that wait for a person, with the reason.
    pub(crate) fn turns_that_need_attention(&self) -> impl Iterator<Item = (TurnId, &str)> {
        self.turns.held_for_people().filter_map(|(number, turn)| match turn.phase() {
            Phase::NeedsAttention { why, .. } => Some((self.turn_id(number), &**why)),
            Phase::Leased | Phase::Backoff { .. } | Phase::Interrupted => None,
        })
    }

    /// Whether every open turn needs attention, or waits for one that does: nothing of the run continues by itself.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let attention = self.turns_that_need_attention().map(|(turn, _)| turn.number);
        let held_up = self.held_up_by(attention.chain(self.placed_that(Run::is_stuck)));
        !held_up.is_empty() && self.turns.numbers().all(|turn| held_up.contains(&turn))
    }

    /// Whether a turn is under way that waits for nothing, or is to be tried again by now.
    pub(in crate::supervision::runs) fn is_at_work(&self, now: Timestamp) -> bool {
        !self.waits_for_conversation()
            && self.turns.iter().any(|(_, open)| match open.phase() {
                Phase::Leased => !open.is_waiting(),
                Phase::Backoff { until } => *until <= now,
                Phase::NeedsAttention { .. } | Phase::Interrupted => false,
            })
    }

    /// These turns, and those that wait for their answers.
    pub(super) fn held_up_by(&self, turns: impl Iterator<Item = u32>) -> BTreeSet<u32> {
        let mut held_up = BTreeSet::new();
        for turn in turns {
            let mut next = Some(turn);
            while let Some(turn) = next.filter(|turn| held_up.insert(*turn)) {
                next = self.turns.get(turn).and_then(|open| self.asker_of(open.branch));
            }
        }
        held_up
    }

    /// The turn that waits for the answer of a branch.
    pub(super) fn asker_of(&self, branch: u32) -> Option<u32> {
        self.waiter_of(branch).map(|(asked, _)| asked.turn.number)
    }

    /// The delegation that the branch works on, if its asking turn waits for the answer, and the agent of that turn.
    pub(crate) fn waiter_of(&self, mut branch: u32) -> Option<(RequestId, &AgentName)> {
        loop {
            match self.branches.get(branch)?.origin {
                Origin::Root => return None,
                Origin::Fork { parent, .. } | Origin::Node { parent, .. } | Origin::Compensation { parent } => {
                    branch = parent
                }
                Origin::Delegation { turn, ordinal } => {
                    let open = self.turns.get(turn)?;
                    let is_detached =
                        matches!(open.record(ordinal), Some(Record::Delegation { order, .. }) if order.is_detached);
                    let request = RequestId { turn: self.turn_id(turn), ordinal };
                    return (!is_detached).then_some((request, &open.agent));
                }
            }
        }
    }

    /// The delegation that an open turn works on, and the agent that asked for it.
    pub(crate) fn delegation_of(&self, turn: &OpenTurn) -> Option<(RequestId, &AgentName)> {
        let request = self.order_key(turn.branch)?;
        let asker = match self.turns.get(request.turn) {
            Some(open) => &open.agent,
            None => &self.branches.with_outbound(request)?.1.agent,
        };
        Some((self.request_id(request), asker))
    }

    /// The open turns that work on a delegation, without those that others of these wait for.
    pub(in crate::supervision::runs) fn workers_on(
        &self,
        request: RequestKey,
    ) -> impl Iterator<Item = (TurnId, &AgentName)> {
        let works = move |turn: &OpenTurn| {
            let mut branch = turn.branch;
            while let Some(key) = self.order_key(branch).filter(|key| *key != request) {
                // A branch waits for what its ended turns have given away.
                let Some((asker, _)) = self.branches.with_outbound(key) else { return false };
                branch = asker;
            }
            self.order_key(branch) == Some(request)
        };
        let working = self.turns.iter().filter(move |(_, turn)| works(turn));
        working.map(|(number, turn)| (self.turn_id(number), &turn.agent))
    }

    /// The outside resource that the delegation of an open turn is about, or the task of the run if it works on none.
    pub(in crate::supervision::runs) fn reference_of(&self, turn: &OpenTurn) -> Option<&Arc<str>> {
        let Some(request) = self.order_key(turn.branch) else { return self.submission.task.reference.as_ref() };
        let order = match self.turns.get(request.turn) {
            Some(open) => match open.record(request.ordinal)? {
                Record::Delegation { order, .. } => order,
                _ => return None,
            },
            None => &self.branches.with_outbound(request)?.1.order,
        };
        order.reference.as_ref()
    }

    /// The delegation that a branch works on.
    fn order_key(&self, mut branch: u32) -> Option<RequestKey> {
        loop {
            branch = match self.branches.get(branch)?.origin {
                Origin::Root => return None,
                Origin::Fork { parent, .. } | Origin::Node { parent, .. } | Origin::Compensation { parent } => parent,
                Origin::Delegation { turn, ordinal } => return Some(RequestKey { turn, ordinal }),
            }
        }
    }

    /// The enclosing branch, or the branch whose delegation it works on.
    pub(super) fn branch_around(&self, branch: &Branch) -> Option<&Branch> {
        match branch.origin {
            Origin::Root => None,
            Origin::Fork { parent, .. } | Origin::Node { parent, .. } | Origin::Compensation { parent } => {
                self.branches.get(parent)
            }
            Origin::Delegation { turn, ordinal } => self.asker_branch(RequestKey { turn, ordinal }),
        }
    }

    /// The turns that wait for a person because of this event: the event's turn, and those that wait for it.
    pub(in crate::supervision::runs) fn waits_for_people_after(&self, event: &RunEvent) -> Vec<u32> {
        let asks = match event {
            RunEvent::Asked { turn, .. }
            | RunEvent::AskedUntil { turn, .. }
            | RunEvent::OutcomeUnknown { turn, .. }
            | RunEvent::NeedsAttention { turn, .. } => Some(*turn),
            RunEvent::ApprovalAsked { turn, ordinal, .. } => {
                let record = self.turns.get(*turn).and_then(|open| open.record(*ordinal));
                matches!(record, Some(Record::Approval { decision: None, .. })).then_some(*turn)
            }
            _ => None,
        };
        let parked = match event {
            RunEvent::TurnEnded { turn, verdict: Verdict::Parked(_), .. } => {
                self.branches.parked_by(*turn).map(|(id, _)| id)
            }
            _ => None,
        };
        let mut waiting: Vec<u32> = asks.into_iter().collect();
        let mut branch = parked.or_else(|| Some(self.turns.get(asks?)?.branch));
        while let Some(asker) = branch.and_then(|branch| self.asker_of(branch)) {
            waiting.push(asker);
            branch = self.turns.get(asker).map(|open| open.branch);
        }
        waiting
    }

    /// The open questions that expire, including those about unknown outcomes, with the time of their expiry.
    pub(in crate::supervision::runs) fn question_deadlines(&self) -> impl Iterator<Item = (RequestKey, Timestamp)> {
        self.turns.requests_for_people().filter_map(|(request, _, record)| match record {
            Record::Once(Once { state: OnceState::Asked(asked), .. }) => Some((request, asked.expires_at)),
            Record::TimedQuestion { expires_at, state: QuestionState::Open, .. } => Some((request, *expires_at)),
            _ => None,
        })
    }

    /// The open delegations with a deadline, and the deadline.
    pub(in crate::supervision::runs) fn delegation_deadlines(&self) -> impl Iterator<Item = (RequestKey, Timestamp)> {
        self.branches.iter().filter_map(|(_, branch)| match branch.origin {
            Origin::Delegation { turn, ordinal } => Some((RequestKey { turn, ordinal }, branch.brief.deadline?)),
            Origin::Root | Origin::Fork { .. } | Origin::Node { .. } | Origin::Compensation { .. } => None,
        })
    }

    /// The run's approvals that wait for a decision.
    pub(crate) fn open_approvals(&self) -> impl Iterator<Item = &Envelope> {
        let parked = self.branches.parked().map(|(_, parked)| &parked.envelope);
        let asked = self.turns.requests_for_people().filter_map(|(_, _, record)| match record {
            Record::Approval { envelope, decision: None, .. } => Some(&**envelope),
            _ => None,
        });
        parked.chain(asked)
    }

    /// The branch that a delegation was asked in, also when its turn did not wait.
    fn asker_branch(&self, request: RequestKey) -> Option<&Branch> {
        if let Some(open) = self.turns.get(request.turn) {
            return Some(self.branch_of(open));
        }
        self.branches.with_outbound(request).and_then(|(id, _)| self.branches.get(id))
    }
}
