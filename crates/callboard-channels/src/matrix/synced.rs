//! What `/sync` returns, as far as the channel reads it. What cannot be read is left out, so that it holds up nothing.

use ruma_identifiers_validation::ID_MAX_BYTES;
use serde_json::Value;

/// An event in a room.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) kind: String,
    /// The account that has sent it, as the homeserver reports it.
    pub(super) sender: String,
    pub(super) content: Value,
    pub(super) state_key: Option<String>,
    /// Of a member: what it was before.
    pub(super) before: Option<String>,
}

impl Event {
    fn of(value: &Value) -> Option<Self> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let id = |key: &str| text(key).filter(|id| id.len() <= ID_MAX_BYTES);
        Some(Self {
            id: id("event_id")?,
            kind: text("type")?,
            sender: id("sender")?,
            content: value.get("content")?.clone(),
            state_key: text("state_key"),
            before: value["unsigned"]["prev_content"]["membership"].as_str().map(str::to_owned),
        })
    }

    /// Whether the room is encrypted from this one on.
    pub(super) fn encrypts(&self) -> bool {
        self.kind == "m.room.encryption" && self.state_key.as_deref() == Some("")
    }

    /// Whether this account has joined by it.
    fn is_join_of(&self, account: &str) -> bool {
        let is_own = self.kind == "m.room.member" && self.state_key.as_deref() == Some(account);
        is_own && self.content["membership"] == "join" && self.before.as_deref() != Some("join")
    }
}

/// What is new in a room that the account is in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Room {
    pub(super) id: String,
    /// The events, of which the server leaves out the oldest if there are too many.
    pub(super) events: Vec<Event>,
    pub(super) is_cut: bool,
    pub(super) is_encrypted: bool,
}

impl Room {
    fn of(id: &str, value: &Value) -> Self {
        let events = |part: &str| -> Vec<Event> {
            value[part]["events"].as_array().into_iter().flatten().filter_map(Event::of).collect()
        };
        let (state, events) = (events("state"), events("timeline"));
        let is_encrypted = state.iter().chain(&events).any(Event::encrypts);
        Self { id: id.to_owned(), events, is_cut: value["timeline"]["limited"] == true, is_encrypted }
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

impl Synced {
    /// `None` without the place where the next call continues.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let rooms = |part: &str| value["rooms"][part].as_object().into_iter().flatten();
        let ids = |part: &str| rooms(part).map(|(id, _)| id.clone()).collect();
        Some(Self {
            next: value.get("next_batch")?.as_str()?.to_owned(),
            joined: rooms("join").map(|(id, room)| Room::of(id, room)).collect(),
            invited: ids("invite"),
            left: ids("leave"),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.joined.is_empty() && self.invited.is_empty() && self.left.is_empty()
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
        let synced = Synced::of(&value).unwrap();
        assert_eq!((&*synced.next, &*synced.left), ("s1", &["!3:b".to_owned()][..]));
        assert_eq!((synced.joined[0].events.len(), synced.joined[0].is_cut), (1, true));
        assert!(synced.joined[1].events.is_empty() && synced.invited.is_empty());
        assert_eq!(Synced::of(&json!({ "next_batch": 1 })), None);
    }

    #[test]
    fn what_came_before_the_join_is_not_read() {
        let event = |id: &str, kind: &str, before: Option<&str>| {
            json!({ "event_id": id, "type": kind, "sender": "@bot:b", "state_key": "@bot:b", "content": { "membership": "join" },
                    "unsigned": { "prev_content": { "membership": before } } })
        };
        let room = |events: Value| Room::of("!1:b", &json!({ "timeline": { "events": events } }));
        let joins =
            json!([event("$1", "m.x", None), event("$2", "m.room.member", Some("invite")), event("$3", "m.x", None)]);
        let ids = |room: &Room| room.since_joined("@bot:b").0.iter().map(|event| event.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&room(joins)), ["$3"]);
        let renames = json!([event("$1", "m.x", None), event("$2", "m.room.member", Some("join"))]);
        assert_eq!(ids(&room(renames)), ["$1", "$2"]);
    }
}
