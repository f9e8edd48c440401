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

    /// The turns that may be executed now, and so may be what has ended their board: an attempt has begun, or was to begin by now, and the
    /// journal has neither its end nor something that it waits for.
    pub(in crate::supervision::runs) fn turns_at_work(&self, now: Timestamp) -> impl Iterator<Item = u32> {
        let is_at_work = move |open: &OpenTurn| match open.phase() {
            Phase::Leased => open.may_be_executed(),
            Phase::Backoff { until } => *until <= now,
            Phase::NeedsAttention { .. } | Phase::Interrupted => false,
        };
        let at_work = self.turns.iter().filter(move |(_, open)| is_at_work(open) && !self.waits_for_conversation());
        at_work.map(|(turn, _)| turn)
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
                Record::Delegation { order, .. } => &**order,
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
            Origin::Delegation { turn, ordinal } => Some((RequestKey { turn, ordinal }, branch.extras.brief.deadline?)),
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::messages::state::StateRules;
    use crate::messages::{
        AskedOutcome, Chain, Failure, FailureKind, Intent, Json, Order, RunId, Submission, Task, TraceId,
    };

    const AT: Timestamp = Timestamp::from_millis(1_000);
    const NONE: [u32; 0] = [];

    fn agent() -> AgentName {
        AgentName::new("lead").unwrap()
    }

    /// The turns at work at this time of a run after these events.
    fn at_work_at(now: Timestamp, events: &[RunEvent]) -> Vec<u32> {
        let id = Uuid::from_u128(7);
        let (run, trace, task) = (RunId(id), TraceId(id), Task::new("x"));
        let submission =
            Submission { run, trace, task, agent: agent(), cast: Vec::new(), chain: Chain::default(), at: AT };
        let (mut run, _) = Run::begin(Arc::new(submission), StateRules::default());
        for event in events {
            run.step(event);
        }
        run.turns_at_work(now).collect()
    }

    fn at_work(events: &[RunEvent]) -> Vec<u32> {
        at_work_at(AT, events)
    }

    fn asked(ordinal: u32) -> RunEvent {
        RunEvent::Asked { turn: 1, ordinal, question: Json::from("well?"), nonce: 1, at: AT }
    }

    fn step_started(ordinal: u32) -> RunEvent {
        RunEvent::StepStarted { turn: 1, ordinal, name: "shell".into(), at: None }
    }

    fn step_finished(ordinal: u32) -> RunEvent {
        let (name, value, is_tainted, is_tool) = ("shell".into(), Json::null(), false, false);
        RunEvent::StepFinished { turn: 1, ordinal, name, value, is_tainted, at: None, is_tool }
    }

    fn reserved(is_share: bool) -> RunEvent {
        let (verdict, at, cost, charged) = (Verdict::Admitted(Vec::new()), None, None, None);
        RunEvent::Reserved { turn: 1, ordinal: 0, tokens: 9, verdict, at, cost, charged, is_share }
    }

    fn delegated(is_detached: bool) -> RunEvent {
        let order = Order { is_detached, ..Order::new("lead", "review") };
        RunEvent::Delegated { turn: 1, ordinal: 0, order, verdict: Verdict::Admitted(vec![agent()]), at: AT }
    }

    #[test]
    fn a_turn_is_at_work_from_its_admission_to_its_end_but_for_its_waits() {
        assert_eq!(at_work(&[]), [1]);
        assert_eq!(at_work(&[step_started(0)]), [1]);
        assert_eq!(at_work(&[step_started(0), step_finished(0)]), [1]);
        assert_eq!(at_work(&[reserved(false)]), [1], "a call of a model");
        assert_eq!(at_work(&[asked(0)]), NONE);
        let answered = RunEvent::Answered { turn: 1, ordinal: 0, answer: Json::null(), by: "ann".into(), at: AT };
        assert_eq!(at_work(&[asked(0), answered]), [1]);
        assert_eq!(at_work(&[reserved(true)]), NONE, "another board takes it");
        assert_eq!(at_work(&[delegated(false)]), [2], "the one that it waits for");
        assert_eq!(at_work(&[delegated(true)]), [1, 2]);
        let attention = RunEvent::NeedsAttention { turn: 1, has_changed: false, why: "x".into(), at: AT };
        assert_eq!(at_work(&[attention]), NONE);
        let stopped = RunEvent::Stopped { outcome: crate::messages::Outcome::Finished, at: AT };
        assert_eq!(at_work(&[stopped]), NONE);
    }

    #[test]
    fn a_turn_that_waits_is_at_work_while_something_beside_its_wait_has_begun_and_has_no_end() {
        assert_eq!(at_work(&[asked(0), step_started(1)]), [1]);
        assert_eq!(at_work(&[asked(0), step_started(1), step_finished(1)]), NONE);
        assert_eq!(at_work(&[delegated(false), step_started(1)]), [1, 2]);
        let intent = Intent::new("pay", "ann", &Json::null());
        let begun = RunEvent::IntentRecorded { turn: 1, ordinal: 1, intent, at: AT, is_tool: false };
        assert_eq!(at_work(&[asked(0), begun.clone()]), [1]);
        let asked_outcome = AskedOutcome { nonce: 1, at: AT, expires_at: AT, problem: None };
        let unknown = RunEvent::OutcomeUnknown { turn: 1, ordinal: 1, asked: asked_outcome };
        assert_eq!(at_work(&[asked(0), begun, unknown]), NONE);
    }

    #[test]
    fn a_turn_that_is_to_be_tried_again_is_at_work_from_that_time_on() {
        let (later, failure) = (Timestamp::from_millis(2_000), Failure::new(FailureKind::Transient, "away"));
        let failed = RunEvent::AttemptFailed { turn: 1, attempt: 1, failure, retry_at: later, at: AT };
        assert_eq!(at_work_at(AT, std::slice::from_ref(&failed)), NONE);
        assert_eq!(at_work_at(later, &[failed]), [1]);
    }
}
