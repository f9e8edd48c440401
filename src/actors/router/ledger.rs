//! The delegation ledger: their statuses, and the messages in agents' inboxes. Pure; the router holds it.
//!
//! It is a cache of the journals of runs: messages arrive as their events are journaled, or are derived from the journals again,
//! and both ways lead to the same message in the same place (SEMANTICS 11).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;

use crate::messages::{AgentName, Json, RequestId, Status, Timestamp, TraceId};

/// A message of an agent's inbox, as [`AgentsHandle::inbox`](crate::runtime::AgentsHandle::inbox) returns it.
#[derive(Clone, Debug, PartialEq)]
pub enum InboxMessage {
    /// A delegation that was admitted, in the inbox of its target.
    Request {
        /// Names the delegation; the same id again is the same delegation.
        request_id: RequestId,
        /// Who asks; stamped by the runtime.
        from_agent: AgentName,
        /// The agent that takes the task, also if the task was addressed to a role or capability.
        to_agent: AgentName,
        /// The trace of the run in which the task was given.
        trace_id: TraceId,
        /// What is asked, in words.
        body: Arc<str>,
        /// The value to work on: the body, unless [`Delegation::input`](crate::actors::Delegation::input) has set
        /// another.
        input: Json,
        /// An outside resource that the task is about, such as an issue or a merge request. Only the requester changes it.
        reference: Option<Arc<str>>,
    },
    /// A new status of a delegation, in the inbox of the agent that gave the task away.
    Status {
        /// The id of the delegation ([`Delegation::request_id`](crate::actors::Delegation::request_id)).
        request_id: RequestId,
        /// The agent that reports. Where none does, as for a refused delegation, it is the asking agent.
        from_agent: AgentName,
        /// The agent that gave the task away.
        to_agent: AgentName,
        /// The status that the delegation has reached with this message.
        status: Status,
        /// A text for people: that of a notice, or why the delegation failed; otherwise empty.
        detail: Arc<str>,
        /// The output of the delegated branch with [`Status::Complete`], and with [`Status::Fail`] if it has one;
        /// otherwise null.
        body: Json,
        /// When it was reported, by the wall clock.
        at: Timestamp,
    },
}

impl InboxMessage {
    /// The agent whose inbox it is for.
    pub(super) fn owner(&self) -> &AgentName {
        match self {
            Self::Request { to_agent, .. } | Self::Status { to_agent, .. } => to_agent,
        }
    }

    pub(super) fn request_id(&self) -> RequestId {
        match self {
            Self::Request { request_id, .. } | Self::Status { request_id, .. } => *request_id,
        }
    }
}

/// A message with its position among all messages.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    /// When its event happened.
    pub(super) at: Timestamp,
    /// The number of its event in the run.
    pub(super) sequence: u64,
    pub(super) message: InboxMessage,
}

/// Orders messages by time, and those of a run by its events. A request comes before the status of the same event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: Timestamp,
    run: uuid::Uuid,
    sequence: u64,
    turn: u32,
    ordinal: u32,
    is_status: bool,
}

impl Placed {
    /// The agent that acknowledges a delegation with this message.
    pub(super) fn acknowledged_by(&self) -> Option<&AgentName> {
        match &self.message {
            InboxMessage::Status { status: Status::Ack, from_agent, .. } => Some(from_agent),
            InboxMessage::Status { .. } | InboxMessage::Request { .. } => None,
        }
    }

    /// The delegation that this is a later status of than its acknowledgement.
    pub(super) fn follows_acknowledgement(&self) -> Option<RequestId> {
        match &self.message {
            InboxMessage::Status { status, request_id, .. } if *status != Status::Ack => Some(*request_id),
            InboxMessage::Status { .. } | InboxMessage::Request { .. } => None,
        }
    }

    fn place(&self) -> Place {
        let RequestId { turn, ordinal } = self.message.request_id();
        let is_status = matches!(self.message, InboxMessage::Status { .. });
        let (at, sequence) = (self.at, self.sequence);
        Place { at, run: turn.run.0, sequence, turn: turn.number, ordinal, is_status }
    }
}

/// The status of a delegation, as [`Callboard::status`](crate::Callboard::status) returns it: the newest of the status messages
/// about it ([`InboxMessage::Status`]), in the inbox of the requester.
#[derive(Clone, Debug, PartialEq)]
pub struct DelegationStatus {
    /// The id of the delegation.
    pub request_id: RequestId,
    /// Who reports: the agent that works on it, or the requester where nothing has reached an agent.
    pub from_agent: AgentName,
    /// The requester: an agent, or the name of [`Task::from_agent`](crate::messages::Task::from_agent).
    pub to_agent: AgentName,
    /// The newest status; a [terminal](Status::is_terminal) one does not change any more.
    pub status: Status,
    /// A text for people: that of a notice, or why the delegation failed; otherwise empty.
    pub detail: Arc<str>,
    /// The output of the delegated branch with [`Status::Complete`], and with [`Status::Fail`] if it has one; otherwise null.
    pub body: Json,
    /// When that status was reported, by the wall clock.
    pub at: Timestamp,
    /// There was no news of it for (10 minutes; see
    /// [`Timings::stale_after`](crate::runtime::Timings::stale_after)). That is not an end: the answer may still come.
    pub is_stale: bool,
}

/// The bounds of the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerLimits {
    /// The messages of an inbox that are kept in memory, the newest.
    pub(crate) inbox: usize,
    /// How long a delegation may be silent before it is shown as stale.
    pub(crate) stale_after: Duration,
}

#[derive(Debug)]
pub(super) struct DelegationLedger {
    limits: LedgerLimits,
    delegations: HashMap<RequestId, Entered>,
    inboxes: HashMap<AgentName, BTreeMap<Place, InboxMessage>>,
    /// Acknowledgements of agents that are not there.
    held: BTreeMap<RequestId, Placed>,
}

/// The messages about a delegation that an inbox still has.
#[derive(Clone, Debug, Default)]
struct Entered {
    request: Option<Place>,
    /// The newest status, its place, and the inbox that it is in.
    last: Option<(Status, Place, AgentName)>,
}

impl DelegationLedger {
    pub(super) fn new(limits: LedgerLimits) -> Self {
        Self { limits, delegations: HashMap::default(), inboxes: HashMap::default(), held: BTreeMap::new() }
    }

    /// Inserts a message at its position. A request is inserted once, and statuses only move forward: later messages than the
    /// end, and duplicates, are dropped.
    pub(super) fn enter(&mut self, placed: Placed) {
        let place = placed.place();
        let owner = placed.message.owner().clone();
        let inbox = self.inboxes.entry(owner.clone()).or_default();
        let Entry::Vacant(vacant) = inbox.entry(place) else { return };
        let entered = self.delegations.entry(placed.message.request_id()).or_default();
        match &placed.message {
            InboxMessage::Request { .. } if entered.request.is_some() => return,
            InboxMessage::Request { .. } => entered.request = Some(place),
            InboxMessage::Status { status, .. } => match &entered.last {
                // The later message was derived first.
                Some((after, later, _)) if place < *later => {
                    if !status.may_become(*after) {
                        return;
                    }
                }
                Some((before, ..)) if !before.may_become(*status) => return,
                Some(_) | None => entered.last = Some((*status, place, owner)),
            },
        }
        if matches!(placed.message, InboxMessage::Status { .. }) {
            self.held.remove(&placed.message.request_id());
        }
        vacant.insert(placed.message);
        if inbox.len() > self.limits.inbox
            && let Some((place, forgotten)) = inbox.pop_first()
        {
            self.forget(forgotten.request_id(), place);
        }
    }

    /// Keeps an acknowledgement until its agent is there. Those of delegations that were silent for so long that they are stale are
    /// dropped: most of their runs were cancelled.
    pub(super) fn hold(&mut self, placed: Placed) {
        let (now, stale_after) = (placed.at, self.limits.stale_after);
        self.held.retain(|_, held| now.since(held.at) < stale_after);
        let request = placed.message.request_id();
        if self.delegations.get(&request).is_none_or(|entered| entered.last.is_none()) {
            self.held.insert(request, placed);
        }
    }

    /// Enters the acknowledgements of an agent that is there since this time.
    pub(super) fn acknowledge(&mut self, agent: &AgentName, since: Timestamp) {
        let is_of = |placed: &Placed| placed.acknowledged_by().is_some_and(|by| by.host() == agent.as_str());
        for mut placed in self.held.extract_if(.., |_, held| is_of(held)).map(|(_, held)| held).collect::<Vec<_>>() {
            placed.at = since;
            if let InboxMessage::Status { at, .. } = &mut placed.message {
                *at = since;
            }
            self.enter(placed);
        }
    }

    /// Forgets a delegation that no inbox shows any more: many are never answered, because their runs were cancelled.
    fn forget(&mut self, request: RequestId, place: Place) {
        let Some(entered) = self.delegations.get_mut(&request) else { return };
        entered.request = entered.request.filter(|entered| *entered != place);
        entered.last.take_if(|(_, entered, _)| *entered == place);
        if entered.request.is_none() && entered.last.is_none() {
            self.delegations.remove(&request);
        }
    }

    /// Removes the terminal status of a delegation that continues. The next reader of its status derives it from the journal.
    pub(super) fn reopen(&mut self, request: RequestId) {
        let last = self.delegations.get(&request).and_then(|entered| entered.last.clone());
        if let Some((status, place, owner)) = last
            && status.is_terminal()
        {
            self.inboxes.get_mut(&owner).map(|inbox| inbox.remove(&place));
            self.forget(request, place);
        }
    }

    /// The newest messages of an inbox, oldest first.
    pub(super) fn inbox(&self, agent: &str) -> Vec<InboxMessage> {
        self.inboxes.get(agent).map(|inbox| inbox.values().cloned().collect()).unwrap_or_default()
    }

    /// Whether an inbox is full of messages after this time, so that it has no room for an earlier one.
    pub(super) fn is_full_since(&self, agent: &str, time: Timestamp) -> bool {
        let Some(inbox) = self.inboxes.get(agent) else { return self.limits.inbox == 0 };
        inbox.len() >= self.limits.inbox && inbox.first_key_value().is_none_or(|(oldest, _)| oldest.at > time)
    }

    /// The status of a delegation that has messages in an inbox.
    pub(super) fn status(&self, request: RequestId, now: Timestamp) -> Option<DelegationStatus> {
        let (_, place, owner) = self.delegations.get(&request)?.last.as_ref()?;
        self.limits.status(self.inboxes.get(owner)?.get(place)?, now)
    }
}

impl LedgerLimits {
    /// The status that a message reports; `None` for a request.
    fn status(self, message: &InboxMessage, now: Timestamp) -> Option<DelegationStatus> {
        let InboxMessage::Status { request_id, from_agent, to_agent, status, detail, body, at } = message else {
            return None;
        };
        Some(DelegationStatus {
            request_id: *request_id,
            from_agent: from_agent.clone(),
            to_agent: to_agent.clone(),
            status: *status,
            detail: Arc::clone(detail),
            body: body.clone(),
            at: *at,
            is_stale: !status.is_terminal() && now.since(*at) >= self.stale_after,
        })
    }

    /// The status of a delegation from all messages of its run, in the order of the events.
    pub(super) fn last_of(self, request: RequestId, messages: &[Placed], now: Timestamp) -> Option<DelegationStatus> {
        let mut last: Option<(Status, &InboxMessage)> = None;
        for Placed { message, .. } in messages {
            if let InboxMessage::Status { request_id, status, .. } = message
                && *request_id == request
                && last.is_none_or(|(before, _)| before.may_become(*status))
            {
                last = Some((*status, message));
            }
        }
        self.status(last?.1, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{RunId, TurnId};

    const LIMITS: LedgerLimits = LedgerLimits { inbox: 200, stale_after: Duration::from_secs(600) };

    fn request(ordinal: u32) -> RequestId {
        RequestId { turn: TurnId { run: RunId(uuid::Uuid::nil()), number: 1 }, ordinal }
    }

    /// A status of a delegation from the event of this number.
    fn update(ordinal: u32, status: Status, secs: u64, sequence: u64) -> Placed {
        let [from_agent, to_agent] = ["coder", "lead"].map(|name| AgentName::new(name).unwrap());
        let at = Timestamp::from_millis(secs * 1000);
        let request_id = request(ordinal);
        let message = InboxMessage::Status {
            request_id,
            from_agent,
            to_agent,
            status,
            detail: "".into(),
            body: Json::null(),
            at,
        };
        Placed { at, sequence, message }
    }

    fn statuses(ledger: &DelegationLedger) -> Vec<Status> {
        let status = |message| match message {
            InboxMessage::Status { status, .. } => Some(status),
            InboxMessage::Request { .. } => None,
        };
        ledger.inbox("lead").into_iter().filter_map(status).collect()
    }

    #[test]
    fn statuses_only_move_forward_and_end_once() {
        let mut ledger = DelegationLedger::new(LIMITS);
        let come =
            [Status::Ack, Status::Notice, Status::Ack, Status::Notice, Status::Complete, Status::Fail, Status::Notice];
        for (sequence, status) in (1..).zip(come) {
            ledger.enter(update(0, status, 1, sequence));
        }
        assert_eq!(statuses(&ledger), [Status::Ack, Status::Notice, Status::Notice, Status::Complete]);
    }

    #[test]
    fn what_is_derived_again_is_there_once_and_in_its_place() {
        let history = [
            update(0, Status::Ack, 1, 2),
            update(0, Status::Notice, 2, 3),
            update(0, Status::Notice, 2, 4),
            update(0, Status::Complete, 3, 6),
        ];
        for live in 0..=history.len() {
            let mut ledger = DelegationLedger::new(LIMITS);
            history[live..].iter().chain(&history).for_each(|placed| ledger.enter(placed.clone()));
            assert_eq!(statuses(&ledger), [Status::Ack, Status::Notice, Status::Notice, Status::Complete], "{live}");
            let status = ledger.status(request(0), Timestamp::default()).unwrap();
            assert_eq!(LIMITS.last_of(request(0), &history, Timestamp::default()), Some(status.clone()));
            assert_eq!((status.status, status.at.as_millis()), (Status::Complete, 3000));
        }
    }

    #[test]
    fn a_silent_delegation_is_shown_as_stale_and_an_answered_one_is_not() {
        let mut ledger = DelegationLedger::new(LIMITS);
        ledger.enter(update(0, Status::Ack, 0, 1));
        ledger.enter(update(1, Status::Complete, 0, 2));
        let is_stale =
            |ordinal, secs: u64| ledger.status(request(ordinal), Timestamp::from_millis(secs * 1000)).unwrap().is_stale;
        assert_eq!((is_stale(0, 599), is_stale(0, 600), is_stale(1, 9999)), (false, true, false));
    }

    #[test]
    fn an_inbox_keeps_its_newest_two_hundred_messages() {
        let mut ledger = DelegationLedger::new(LIMITS);
        (0..250).for_each(|ordinal| ledger.enter(update(ordinal, Status::Complete, 1, u64::from(ordinal))));
        assert_eq!(ledger.inbox("lead").len(), 200);
        assert_eq!(ledger.status(request(49), Timestamp::default()), None);
        assert!(ledger.status(request(50), Timestamp::default()).is_some());
        assert!(ledger.is_full_since("lead", Timestamp::default()));
        assert!(!ledger.is_full_since("lead", Timestamp::from_millis(1000)), "one of the same time has its place");
        ledger.enter(update(300, Status::Complete, 0, 0));
        assert_eq!((ledger.inbox("lead").len(), ledger.delegations.len()), (200, 200), "it is older than all of them");
    }

    #[test]
    fn a_delegation_that_is_never_answered_is_forgotten_with_its_last_message() {
        let mut ledger = DelegationLedger::new(LIMITS);
        ledger.enter(update(0, Status::Ack, 0, 1));
        ledger.enter(update(0, Status::Notice, 1, 2));
        (1..=199).for_each(|ordinal| ledger.enter(update(ordinal, Status::Ack, 2, u64::from(ordinal) + 2)));
        assert_eq!(ledger.status(request(0), Timestamp::default()).unwrap().status, Status::Notice);
        (200..1000).for_each(|ordinal| ledger.enter(update(ordinal, Status::Ack, 2, u64::from(ordinal) + 2)));
        assert_eq!((ledger.status(request(0), Timestamp::default()), ledger.delegations.len()), (None, 200));
    }
}
