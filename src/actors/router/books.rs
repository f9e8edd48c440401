//! The router's books: where delegations stand, and what agents' inboxes hold. Pure; the router's actor keeps them.

use std::collections::VecDeque;
use std::time::Duration;

use foldhash::HashMap;

use crate::messages::{AgentName, DelegationRequest, RequestId, Status, StatusUpdate, Timestamp};

/// Messages that an agent's inbox keeps in memory; all of them are in the journals.
const INBOX: usize = 200;

/// How long a delegation may be silent before it is shown as stale.
const TTL: Duration = Duration::from_secs(600);

/// What an agent's inbox holds.
#[derive(Clone, Debug, PartialEq)]
pub enum InboxMessage {
    /// A task for the agent.
    Request(DelegationRequest),
    /// News of a task that the agent gave away.
    Status(StatusUpdate),
}

impl InboxMessage {
    /// Whose inbox it is for.
    pub(super) fn owner(&self) -> &AgentName {
        match self {
            Self::Request(request) => &request.to_agent,
            Self::Status(update) => &update.to_agent,
        }
    }
}

/// Where a delegation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its last status.
    pub status: Status,
    /// Since when.
    pub at: Timestamp,
    /// Nothing was heard of it for (10 minutes). That is not an end: the answer may still come.
    pub is_stale: bool,
}

#[derive(Debug, Default)]
pub(super) struct Books {
    delegations: HashMap<RequestId, Entered>,
    inboxes: HashMap<AgentName, VecDeque<InboxMessage>>,
}

/// What was entered of a delegation.
#[derive(Debug, Default)]
struct Entered {
    request: bool,
    last: Option<(Status, Timestamp)>,
}

impl Books {
    /// Enters a message. A request is entered once, and statuses only move forward; what does not is dropped.
    pub(super) fn enter(&mut self, message: InboxMessage) {
        match &message {
            InboxMessage::Request(request) => {
                let entered = self.delegations.entry(request.request_id).or_default();
                if std::mem::replace(&mut entered.request, true) {
                    return;
                }
            }
            InboxMessage::Status(update) => {
                let last = &mut self.delegations.entry(update.request_id).or_default().last;
                if last.is_some_and(|(before, _)| !before.may_become(update.status)) {
                    return;
                }
                *last = Some((update.status, update.at));
            }
        }
        let inbox = self.inboxes.entry(message.owner().clone()).or_default();
        inbox.push_back(message);
        if inbox.len() > INBOX
            && let Some(InboxMessage::Status(forgotten)) = inbox.pop_front()
            && let Some(entered) = self.delegations.get(&forgotten.request_id)
            && entered.last == Some((forgotten.status, forgotten.at))
        {
            // Nothing later is in the inbox: many are never answered, because their runs were cancelled.
            self.delegations.remove(&forgotten.request_id);
        }
    }

    pub(super) fn inbox(&self, agent: &str) -> Vec<InboxMessage> {
        self.inboxes.get(agent).map(|inbox| inbox.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn standing(&self, request: RequestId, now: Timestamp) -> Option<Standing> {
        let (status, at) = self.delegations.get(&request)?.last?;
        Some(Standing { status, at, is_stale: !status.is_terminal() && now.since(at) >= TTL })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Json, RunId, TurnId};

    fn request(ordinal: u32) -> RequestId {
        RequestId { turn: TurnId { run: RunId(uuid::Uuid::nil()), number: 1 }, ordinal }
    }

    fn update(ordinal: u32, status: Status, secs: u64) -> InboxMessage {
        let [from_agent, to_agent] = ["coder", "lead"].map(|name| AgentName::new(name).unwrap());
        let at = Timestamp::from_millis(secs * 1000);
        let request_id = request(ordinal);
        InboxMessage::Status(StatusUpdate {
            request_id,
            from_agent,
            to_agent,
            status,
            detail: "".into(),
            body: Json::null(),
            at,
        })
    }

    #[test]
    fn statuses_only_move_forward_and_end_once() {
        let mut books = Books::default();
        for status in
            [Status::Ack, Status::Notice, Status::Ack, Status::Notice, Status::Complete, Status::Fail, Status::Notice]
        {
            books.enter(update(0, status, 1));
        }
        let statuses: Vec<Status> = books
            .inbox("lead")
            .into_iter()
            .filter_map(|message| match message {
                InboxMessage::Status(update) => Some(update.status),
                InboxMessage::Request(_) => None,
            })
            .collect();
        assert_eq!(statuses, [Status::Ack, Status::Notice, Status::Notice, Status::Complete]);
    }

    #[test]
    fn a_silent_delegation_is_shown_as_stale_and_an_answered_one_is_not() {
        let mut books = Books::default();
        books.enter(update(0, Status::Ack, 0));
        books.enter(update(1, Status::Complete, 0));
        let is_stale = |ordinal, secs: u64| {
            books.standing(request(ordinal), Timestamp::from_millis(secs * 1000)).unwrap().is_stale
        };
        assert_eq!((is_stale(0, 599), is_stale(0, 600), is_stale(1, 9999)), (false, true, false));
    }

    #[test]
    fn an_inbox_keeps_its_last_two_hundred_messages() {
        let mut books = Books::default();
        (0..250).for_each(|ordinal| books.enter(update(ordinal, Status::Complete, 0)));
        assert_eq!(books.inbox("lead").len(), 200);
        assert_eq!(books.standing(request(49), Timestamp::default()), None);
        assert!(books.standing(request(50), Timestamp::default()).is_some());
    }

    #[test]
    fn a_delegation_that_is_never_answered_is_forgotten_with_its_last_message() {
        let mut books = Books::default();
        books.enter(update(0, Status::Ack, 0));
        books.enter(update(0, Status::Notice, 1));
        (1..=199).for_each(|ordinal| books.enter(update(ordinal, Status::Ack, 2)));
        assert_eq!(books.standing(request(0), Timestamp::default()).unwrap().status, Status::Notice);
        (200..1000).for_each(|ordinal| books.enter(update(ordinal, Status::Ack, 2)));
        assert_eq!((books.standing(request(0), Timestamp::default()), books.delegations.len()), (None, 200));
    }
}
