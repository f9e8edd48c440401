//! The requests that were not answered in full yet: kept in a file, so that the next process continues with them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::{AgentName, RunId};
use serde::{Deserialize, Serialize};

use super::request::Form;
use crate::matrix::following::Continued;
use crate::matrix::recent::Recent;

const VERSION: u32 = 1;
/// The most open requests of a room, of an account, and of all rooms.
pub(super) const MAX_OF_ROOM: usize = 64;
pub(super) const MAX_OF_ACCOUNT: usize = 32;
pub(super) const MAX_OPEN: usize = 1_024;
/// The most refusals that wait to be sent. Further ones are dropped.
const MAX_REFUSALS: usize = 256;

/// How a request ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    /// With the result of its run.
    Result,
    /// Without one, for this reason.
    Refused(String),
}

/// What is done for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) room: String,
    pub(super) agent: AgentName,
    pub(super) form: Form,
    /// How the sender names it, or its event.
    pub(super) id: String,
    pub(super) trace_id: Option<String>,
    /// The account of the sender.
    pub(super) account: String,
    /// Whom statuses name: the person, or the account of nobody who is known.
    pub(super) to: String,
    /// `None` if it was refused.
    pub(super) run: Option<RunId>,
    pub(super) is_acknowledged: bool,
    /// The newest news that are left to send.
    notice: Option<String>,
    /// Counts the news: each has a transaction of its own.
    notices: u64,
    /// The number of the last event of the run whose news are noted.
    pub(super) seen: u64,
    /// The last thing that the run waits for and that is noted.
    pub(super) waits_for: Option<String>,
    pub(super) ending: Option<Ending>,
    /// Its room did not take a status. It is sent as soon as the room may take it.
    is_held: bool,
    /// Which one it is of all.
    number: u64,
}

impl Request {
    pub(super) fn new(room: &str, agent: &AgentName, form: Form, (id, account, to): (&str, &str, &str)) -> Self {
        Self {
            room: room.to_owned(),
            agent: agent.clone(),
            form,
            id: id.to_owned(),
            trace_id: None,
            account: account.to_owned(),
            to: to.to_owned(),
            run: None,
            is_acknowledged: false,
            notice: None,
            notices: 0,
            seen: 0,
            waits_for: None,
            ending: None,
            is_held: false,
            number: 0,
        }
    }

    /// What is left to send of it.
    fn step(&self) -> Option<Step> {
        match (&self.ending, &self.notice) {
            (Some(Ending::Refused(why)), _) => Some(Step::Refuse(why.clone())),
            _ if !self.is_acknowledged => Some(Step::Acknowledge),
            (Some(Ending::Result), _) => Some(Step::Result),
            (None, Some(text)) => Some(Step::Notice { number: self.notices, text: text.clone() }),
            (None, None) => None,
        }
    }
}

/// A status that is left to send, in a transaction of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Acknowledge,
    Notice { number: u64, text: String },
    Result,
    Refuse(String),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// The account that statuses are of.
    account: Option<String>,
    since: Option<String>,
    /// The events that were handled: a server may send one again.
    handled: Recent,
    /// The requests, by their events.
    requests: BTreeMap<String, Request>,
    count: u64,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    account: Option<String>,
    since: Option<String>,
    handled: Recent,
    requests: BTreeMap<String, Request>,
    count: u64,
}

impl Ledger {
    /// # Errors
    /// The bytes are not those of a ledger, or of a later version.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let Stored { version, account, since, handled, requests, count } = stored;
        if version == VERSION {
            Ok(Self { account, since, handled, requests, count })
        } else {
            Err(format!("its version is {version}, and this one reads version {VERSION}"))
        }
    }

    /// The content of the file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Self { account, since, handled, requests, count } = self.clone();
        serde_json::to_vec(&Stored { version: VERSION, account, since, handled, requests, count }).unwrap_or_default()
    }

    /// Forgets the requests in other rooms.
    pub(super) fn retain_rooms(&mut self, is_listed: impl Fn(&str) -> bool) {
        self.requests.retain(|_, request| is_listed(&request.room));
    }

    /// Whether this event was handled.
    pub(super) fn is_handled(&self, event: &str) -> bool {
        self.requests.contains_key(event) || self.handled.has(event)
    }

    /// Why one more request cannot be open.
    pub(super) fn is_full(&self, room: &str, account: &str) -> Option<String> {
        let open = || self.requests.values().filter(|request| request.run.is_some());
        let full = |which: &str, most: usize| format!("too many requests {which} are open: {most} are the most");
        if open().filter(|request| request.room == room).count() >= MAX_OF_ROOM {
            Some(full("in this room", MAX_OF_ROOM))
        } else if open().filter(|request| request.account == account).count() >= MAX_OF_ACCOUNT {
            Some(full("of this account", MAX_OF_ACCOUNT))
        } else if open().count() >= MAX_OPEN {
            Some(full("in all rooms", MAX_OPEN))
        } else {
            None
        }
    }

    /// Notes that an event was handled, with what is to be sent about it; `false` if it is a refusal that there is no room for.
    pub(super) fn handle(&mut self, event: &str, request: Request) -> bool {
        self.handled.is_new(event);
        let refusals = self.requests.values().filter(|request| request.run.is_none()).count();
        let has_room = request.run.is_some() || refusals < MAX_REFUSALS;
        if has_room {
            self.count += 1;
            self.requests.insert(event.to_owned(), Request { number: self.count, ..request });
        }
        has_room
    }

    /// The runs that are under way, by the events that have asked for them.
    pub(super) fn under_way(&self) -> impl Iterator<Item = (&String, &Request, RunId)> {
        let open = self.requests.iter().filter(|(_, request)| request.ending.is_none());
        open.filter_map(|(event, request)| Some((event, request, request.run?)))
    }

    /// Notes news of a run, in place of those that were not sent yet. `seen` is the number of its last event that they are of.
    pub(super) fn notice(&mut self, event: &str, text: &str, (seen, waits_for): (u64, Option<String>)) {
        let Some(request) = self.requests.get_mut(event).filter(|request| request.ending.is_none()) else { return };
        request.notice = Some(text.to_owned());
        (request.notices, request.seen) = (request.notices + 1, seen);
        request.waits_for = waits_for.or(request.waits_for.take());
    }

    /// Notes how a request ends.
    pub(super) fn end(&mut self, event: &str, ending: Ending) {
        if let Some(request) = self.requests.get_mut(event) {
            request.ending.get_or_insert(ending);
        }
    }

    /// The next status that is left to send in these rooms: of several requests, that of the oldest.
    pub(super) fn next(&self, rooms: &BTreeSet<String>) -> Option<(String, Request, Step)> {
        let is_ready = |request: &Request| !request.is_held && rooms.contains(&request.room);
        let left = self.requests.iter().filter(|(_, request)| is_ready(request));
        let left = left.filter_map(|(event, request)| Some((event, request, request.step()?)));
        let (event, request, step) = left.min_by_key(|(_, request, _)| request.number)?;
        Some((event.clone(), request.clone(), step))
    }

    /// Notes that a status was sent.
    pub(super) fn sent(&mut self, event: &str, step: &Step) {
        let Some(request) = self.requests.get_mut(event) else { return };
        match step {
            Step::Acknowledge => request.is_acknowledged = true,
            Step::Notice { number, .. } if request.notices == *number => request.notice = None,
            Step::Notice { .. } => {}
            Step::Result | Step::Refuse(_) => drop(self.requests.remove(event)),
        }
    }

    /// Notes that its room did not take a status.
    pub(super) fn hold(&mut self, event: &str) {
        if let Some(request) = self.requests.get_mut(event) {
            request.is_held = true;
        }
    }

    /// Has statuses sent to a room again that did not take them.
    pub(super) fn retry(&mut self, room: &str) {
        self.requests.values_mut().filter(|request| request.room == room).for_each(|request| request.is_held = false);
    }
}

impl Continued for Ledger {
    fn since(&self) -> Option<&str> {
        self.since.as_deref()
    }

    fn continue_at(&mut self, since: Option<String>) {
        self.since = since;
    }

    fn set_account(&mut self, account: &str) {
        if self.account.replace(account.to_owned()).is_some_and(|before| before != account) {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ROOM: &str = "!r:b";

    fn request(account: &str, number: u128) -> Request {
        let agent = AgentName::new("writer").unwrap();
        let request = Request::new(ROOM, &agent, Form::Request, ("req", account, "ann"));
        Request { run: Some(RunId(Uuid::from_u128(number))), ..request }
    }

    fn steps(ledger: &mut Ledger) -> Vec<Step> {
        let rooms = BTreeSet::from([ROOM.to_owned()]);
        let mut steps = Vec::new();
        while let Some((event, _, step)) = ledger.next(&rooms) {
            ledger.sent(&event, &step);
            steps.push(step);
        }
        steps
    }

    #[test]
    fn the_newest_news_alone_are_sent_and_the_next_process_continues() {
        let mut ledger = Ledger::default();
        assert!(ledger.handle("$1", request("@a:b", 1)) && ledger.is_handled("$1"));
        ledger.notice("$1", "first", (4, None));
        ledger.notice("$1", "second", (5, Some("question".to_owned())));
        let mut ledger = Ledger::read(&ledger.bytes()).unwrap();
        assert!(ledger.next(&BTreeSet::new()).is_none(), "its room is not ready");
        let news = Step::Notice { number: 2, text: "second".to_owned() };
        assert_eq!(steps(&mut ledger), [Step::Acknowledge, news]);
        let (_, known, _) = ledger.under_way().next().unwrap();
        assert_eq!((known.seen, known.waits_for.as_deref()), (5, Some("question")));
        ledger.notice("$1", "third", (6, None));
        ledger.end("$1", Ending::Result);
        ledger.end("$1", Ending::Refused("late".to_owned()));
        assert_eq!(steps(&mut ledger), [Step::Result]);
        assert!(ledger.under_way().next().is_none() && ledger.is_handled("$1"));
    }

    #[test]
    fn open_requests_are_limited_and_refusals_are_dropped_where_there_are_too_many() {
        let mut ledger = Ledger::default();
        for number in 0..MAX_OF_ROOM as u128 {
            let account = format!("@{}:b", number % 2);
            assert!(number < 2 * MAX_OF_ACCOUNT as u128 && ledger.is_full(ROOM, &account).is_none());
            ledger.handle(&format!("${number}"), request(&account, number));
        }
        assert!(ledger.is_full(ROOM, "@3:b").unwrap().contains("in this room"));
        assert!(ledger.is_full("!other:b", "@1:b").unwrap().contains("of this account"));
        assert_eq!(ledger.is_full("!other:b", "@3:b"), None);
        let refusal = || Request { run: None, ending: Some(Ending::Refused("no".to_owned())), ..request("@e:b", 0) };
        let kept = (0..1_000).filter(|number| ledger.handle(&format!("$refused{number}"), refusal())).count();
        assert_eq!(kept, MAX_REFUSALS);
    }

    #[test]
    fn what_a_room_did_not_take_is_sent_as_soon_as_it_may() {
        let mut ledger = Ledger::default();
        ledger.handle("$1", request("@a:b", 1));
        ledger.hold("$1");
        assert!(steps(&mut ledger).is_empty());
        ledger.retry(ROOM);
        assert_eq!(steps(&mut ledger), [Step::Acknowledge]);
    }

    #[test]
    fn a_later_version_is_refused() {
        let text = String::from_utf8(Ledger::default().bytes()).unwrap().replace("\"version\":1", "\"version\":2");
        let refused = Ledger::read(text.as_bytes()).unwrap_err();
        assert_eq!(refused, "its version is 2, and this one reads version 1");
    }
}
