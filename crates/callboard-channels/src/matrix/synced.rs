//! What `/sync` returns, as far as the channel reads it. What cannot be read is left out, so that it holds up nothing.

use std::collections::BTreeMap;

use ruma_identifiers_validation::ID_MAX_BYTES;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub(super) const MESSAGE: &str = "m.room.message";
pub(super) const MEMBER: &str = "m.room.member";
pub(super) const ENCRYPTION: &str = "m.room.encryption";
pub(super) const TOMBSTONE: &str = "m.room.tombstone";
pub(super) const POWER_LEVELS: &str = "m.room.power_levels";
pub(super) const JOIN_RULES: &str = "m.room.join_rules";
pub(super) const CREATE: &str = "m.room.create";
/// The longest content of an event, in bytes: those of Matrix have at most so many altogether.
const MAX_CONTENT: usize = 64 << 10;
/// The longest place in the history of rooms, in bytes.
const MAX_PLACE: usize = 8 << 10;

/// A part of an answer, which is read by itself: it holds up no other, for example by how deep it is.
type Part<'a> = Option<&'a RawValue>;

/// The part as this type, or what is there without it.
fn read<'a, T: Default + Deserialize<'a>>(part: Part<'a>) -> T {
    part.and_then(|part| serde_json::from_str(part.get()).ok()).unwrap_or_default()
}

/// A place that can be used in an address.
fn place(part: Part<'_>) -> Option<String> {
    read::<Option<String>>(part).filter(|place| (1..=MAX_PLACE).contains(&place.len()))
}

/// An event in a room.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) kind: String,
    /// The account that has sent it, as the homeserver reports it.
    pub(super) sender: String,
    /// The content as JSON, which is read when it is needed: read, it can be many times as large.
    pub(super) content: String,
    pub(super) state_key: Option<String>,
    /// Of a member: what it was before.
    pub(super) before: Option<String>,
    /// Whether somebody has redacted it.
    pub(super) is_redacted: bool,
}

#[derive(Deserialize)]
struct Head<'a> {
    event_id: String,
    #[serde(rename = "type")]
    kind: String,
    sender: String,
    #[serde(borrow)]
    content: Part<'a>,
    #[serde(borrow)]
    state_key: Part<'a>,
    #[serde(borrow)]
    unsigned: Part<'a>,
}

impl Event {
    fn of(event: &RawValue) -> Option<Self> {
        let head: Head<'_> = serde_json::from_str(event.get()).ok()?;
        let is_id = |id: &str| id.len() <= ID_MAX_BYTES;
        let unsigned = read::<Value>(head.unsigned);
        let before = || unsigned["prev_content"]["membership"].as_str().map(str::to_owned);
        let content = head.content.map(RawValue::get).filter(|content| content.len() <= MAX_CONTENT);
        (is_id(&head.event_id) && is_id(&head.sender)).then(|| Self {
            before: if head.kind == MEMBER { before() } else { None },
            is_redacted: !unsigned["redacted_because"].is_null(),
            content: content.unwrap_or_default().to_owned(),
            state_key: read(head.state_key),
            id: head.event_id,
            kind: head.kind,
            sender: head.sender,
        })
    }

    /// Its content; `null` if that cannot be read.
    pub(super) fn content(&self) -> Value {
        serde_json::from_str(&self.content).unwrap_or_default()
    }

    /// Whether it sets this part of the state of its room.
    fn sets(&self, kind: &str) -> bool {
        self.kind == kind && self.state_key.as_deref() == Some("")
    }

    /// Whether this account has joined by it.
    pub(super) fn is_join_of(&self, account: &str) -> bool {
        let is_own = self.kind == MEMBER && self.state_key.as_deref() == Some(account);
        is_own && self.before.as_deref() != Some("join") && self.content()["membership"] == "join"
    }
}

/// The events of a list.
fn events(list: Part<'_>) -> Vec<Event> {
    read::<Vec<&RawValue>>(list).into_iter().filter_map(Event::of).collect()
}

/// What is new in a room that the account is in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Room {
    pub(super) id: String,
    /// The events, of which the server leaves out the oldest if there are too many.
    pub(super) events: Vec<Event>,
    pub(super) is_cut: bool,
    /// The place before these events.
    pub(super) before: Option<String>,
    pub(super) is_encrypted: bool,
    /// Whether it may be replaced by another room now.
    pub(super) is_replaced: bool,
    /// Whether others may send there now than before.
    pub(super) has_other_powers: bool,
    /// Whether others may enter it now than before.
    pub(super) has_other_join_rules: bool,
}

#[derive(Default, Deserialize)]
struct RoomPart<'a> {
    #[serde(borrow)]
    state: Part<'a>,
    #[serde(borrow)]
    timeline: Part<'a>,
}

#[derive(Default, Deserialize)]
struct Timeline<'a> {
    #[serde(borrow)]
    events: Part<'a>,
    #[serde(borrow)]
    limited: Part<'a>,
    #[serde(borrow)]
    prev_batch: Part<'a>,
}

impl Room {
    fn of(id: String, part: &RawValue) -> Self {
        let RoomPart { state, timeline } = read(Some(part));
        let (state, timeline): (Timeline<'_>, Timeline<'_>) = (read(state), read(timeline));
        let (state, new) = (events(state.events), events(timeline.events));
        let sets = |kind: &str| state.iter().chain(&new).any(|event| event.sets(kind));
        Self {
            is_encrypted: sets(ENCRYPTION),
            is_replaced: sets(TOMBSTONE),
            has_other_powers: sets(POWER_LEVELS),
            has_other_join_rules: sets(JOIN_RULES),
            is_cut: read(timeline.limited),
            before: place(timeline.prev_batch),
            id,
            events: new,
        }
    }

    /// The events since this account has joined, and whether the server left out some of them.
    pub(super) fn since_joined(&self, account: &str) -> (&[Event], bool) {
        match self.events.iter().rposition(|event| event.is_join_of(account)) {
            Some(joined) => (&self.events[joined + 1..], false),
            None => (&self.events, self.is_cut),
        }
    }
}

/// What is new.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Synced {
    /// Where the next call continues.
    pub(super) next: String,
    pub(super) joined: Vec<Room>,
    pub(super) invited: Vec<String>,
    pub(super) left: Vec<String>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    next_batch: Part<'a>,
    #[serde(borrow)]
    rooms: Part<'a>,
}

#[derive(Default, Deserialize)]
struct RoomParts<'a> {
    #[serde(borrow)]
    join: Part<'a>,
    #[serde(borrow)]
    invite: Part<'a>,
    #[serde(borrow)]
    leave: Part<'a>,
}

impl Synced {
    /// `None` without the place where the next call continues.
    pub(super) fn of(answer: &[u8]) -> Option<Self> {
        let Answer { next_batch, rooms } = serde_json::from_slice(answer).ok()?;
        let RoomParts { join, invite, leave } = read(rooms);
        let ids = |part| read::<BTreeMap<String, &RawValue>>(part).into_keys().collect();
        let joined = read::<BTreeMap<String, &RawValue>>(join);
        Some(Self {
            next: place(next_batch)?,
            joined: joined.into_iter().map(|(id, room)| Room::of(id, room)).collect(),
            invited: ids(invite),
            left: ids(leave),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.joined.is_empty() && self.invited.is_empty() && self.left.is_empty()
    }
}

/// A piece of the history of a room.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    /// The newest first.
    pub(super) events: Vec<Event>,
    /// The place before these events; `None` where the history begins.
    pub(super) before: Option<String>,
}

#[derive(Deserialize)]
struct PagePart<'a> {
    #[serde(borrow)]
    chunk: Part<'a>,
    #[serde(borrow)]
    end: Part<'a>,
}

impl Page {
    pub(super) fn of(answer: &[u8]) -> Option<Self> {
        let PagePart { chunk, end } = serde_json::from_slice(answer).ok()?;
        Some(Self { events: events(chunk), before: place(end) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let message = json!({ "event_id": "$1", "type": "m.room.message", "sender": "@a:b", "content": {} });
        let value = json!({ "next_batch": "s1", "rooms": { "join": {
            "!1:b": { "timeline": { "events": [7, {}, { "event_id": 1 }, message], "limited": true }, "state": [] },
            "!2:b": [],
        }, "invite": 3, "leave": { "!3:b": {} } } });
        let synced = Synced::of(value.to_string().as_bytes()).unwrap();
        assert_eq!((&*synced.next, &*synced.left), ("s1", &["!3:b".to_owned()][..]));
        assert_eq!((synced.joined[0].events.len(), synced.joined[0].is_cut), (1, true));
        assert!(synced.joined[1].events.is_empty() && synced.invited.is_empty());
        assert_eq!(Synced::of(br#"{ "next_batch": 1 }"#), None);
        assert_eq!(Synced::of(json!({ "next_batch": "s".repeat(1 << 14) }).to_string().as_bytes()), None);
    }

    #[test]
    fn what_came_before_the_join_is_not_read() {
        let event = |id: &str, kind: &str, before: Option<&str>| {
            json!({ "event_id": id, "type": kind, "sender": "@bot:b", "state_key": "@bot:b", "content": { "membership": "join" },
                    "unsigned": { "prev_content": { "membership": before } } })
        };
        let room = |events: Value| {
            let part = RawValue::from_string(json!({ "timeline": { "events": events } }).to_string()).unwrap();
            Room::of("!1:b".to_owned(), &part)
        };
        let joins =
            json!([event("$1", "m.x", None), event("$2", "m.room.member", Some("invite")), event("$3", "m.x", None)]);
        let ids = |room: &Room| room.since_joined("@bot:b").0.iter().map(|event| event.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&room(joins)), ["$3"]);
        let renames = json!([event("$1", "m.x", None), event("$2", "m.room.member", Some("join"))]);
        assert_eq!(ids(&room(renames)), ["$1", "$2"]);
    }

    #[test]
    fn a_content_that_is_too_deep_too_long_or_no_json_is_none_and_its_event_is_there() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        for content in [deep, format!("\"{}\"", "a".repeat(MAX_CONTENT)), "1e999".to_owned(), "null".to_owned()] {
            let event = format!(
                r#"{{ "event_id": "$1", "type": "m.room.encryption", "state_key": "", "sender": "@a:b", "content": {content} }}"#
            );
            let answer = format!(
                r#"{{ "next_batch": "s1", "rooms": {{ "join": {{ "!1:b": {{ "timeline": {{ "events": [{event}] }} }} }} }} }}"#
            );
            let room = Synced::of(answer.as_bytes()).unwrap().joined.remove(0);
            assert!(
                room.is_encrypted && room.events[0].content() == Value::Null,
                "{}",
                &content[..5.min(content.len())]
            );
        }
    }
}
