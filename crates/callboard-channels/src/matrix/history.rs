//! What `/sync` has left out of a room: read from its history, from the newest event to the oldest. Pure.

use std::collections::BTreeSet;

use super::synced::Event;

/// The events of a room that were left out, as far as they are read.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The events that show open questions, of those that were not read yet: nobody replies to a question before.
    shown: BTreeSet<String>,
    /// Whether each open question has such an event.
    is_each: bool,
    /// What concerns the channel, the newest first.
    events: Vec<Event>,
    is_whole: bool,
}

impl History {
    pub(super) fn new((shown, is_each): (BTreeSet<String>, bool)) -> Self {
        Self { shown, is_each, ..Self::default() }
    }

    /// Takes events, the newest first: those of the account, and those that concern it. Those from before the account has joined are not read.
    pub(super) fn take(&mut self, events: Vec<Event>, account: &str, concerns: impl Fn(&Event) -> bool) {
        for event in events {
            self.is_whole |= event.is_join_of(account);
            if self.is_whole {
                return;
            }
            self.is_whole = self.shown.remove(&event.id) && self.shown.is_empty() && self.is_each;
            if event.sender == account || concerns(&event) {
                self.events.push(event);
            }
        }
    }

    /// Notes that there are no others.
    pub(super) fn end(&mut self) {
        self.is_whole = true;
    }

    /// Whether everything that is needed was read.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The events, the oldest first.
    pub(super) fn into_events(self) -> impl Iterator<Item = Event> {
        self.events.into_iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::reply::reply;

    const ACCOUNT: &str = "@bot:b";

    fn event(id: &str, sender: &str) -> Event {
        let content =
            r#"{ "msgtype": "m.text", "body": "approve", "m.relates_to": { "m.in_reply_to": { "event_id": "$q" } } }"#;
        let kind = "m.room.message".to_owned();
        Event { id: id.to_owned(), kind, sender: sender.to_owned(), content: content.to_owned(), ..Event::default() }
    }

    fn is_reply(event: &Event) -> bool {
        reply(event, "a.b").is_some()
    }

    fn ids(history: History) -> Vec<String> {
        history.into_events().map(|event| event.id).collect()
    }

    #[test]
    fn it_ends_with_the_oldest_open_question() {
        let events = || ["$4", "$3", "$2", "$1", "$0"].map(|id| event(id, "@a:b")).to_vec();
        let shown = BTreeSet::from(["$3".to_owned(), "$1".to_owned()]);
        let mut history = History::new((shown.clone(), true));
        history.take(events(), ACCOUNT, is_reply);
        assert!(history.is_whole());
        assert_eq!(ids(history), ["$1", "$2", "$3", "$4"]);
        // The message of another one is not known yet.
        let mut history = History::new((shown, false));
        history.take(events(), ACCOUNT, is_reply);
        assert!(!history.is_whole());
        history.end();
        assert!(history.is_whole());
        assert_eq!(ids(history).len(), 5);
    }

    #[test]
    fn it_ends_where_the_account_has_joined_and_has_nothing_that_is_of_no_use() {
        let join = Event {
            kind: "m.room.member".to_owned(),
            state_key: Some(ACCOUNT.to_owned()),
            content: r#"{ "membership": "join" }"#.to_owned(),
            ..event("$2", ACCOUNT)
        };
        let chat = Event { content: "{}".to_owned(), ..event("$4", "@a:b") };
        let mut history = History::new((BTreeSet::new(), false));
        history.take(
            vec![event("$5", "@a:b"), chat, event("$3", ACCOUNT), join, event("$1", "@a:b")],
            ACCOUNT,
            is_reply,
        );
        assert!(history.is_whole());
        assert_eq!(ids(history), ["$3", "$5"]);
    }
}
