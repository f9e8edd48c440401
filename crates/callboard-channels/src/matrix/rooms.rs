//! Which rooms are used, and why others are not. Pure.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::visible;

/// Why nobody is asked in a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is encrypted.
    Encrypted,
    /// The account is not in it, or may not read there: what the server says.
    NotIn(String),
    /// Another room has replaced it: its id.
    Replaced(String),
    /// Others than those who are invited may enter it, by this rule.
    Open(String),
    /// The account may not send messages there.
    Mute,
    /// The server does not look at it now, though it answers: why.
    Failed(String),
}

impl Trouble {
    /// Which room, why, and what to do.
    pub(super) fn text(&self, room: &str, account: &str) -> String {
        let (room, account) = (visible(room), visible(account));
        match self {
            Self::Encrypted => format!(
                "the room {room} is encrypted, and callboard neither reads nor writes encrypted messages: make a room without \
                 encryption, and name it in its place"
            ),
            Self::NotIn(why) => format!("the account {account} is not in the room {room} ({why}): invite it there"),
            Self::Replaced(by) => format!(
                "the room {room} was replaced by {}: invite the account {account} there, and name that one in its place",
                visible(by)
            ),
            Self::Open(rule) => format!(
                "others than those who are invited may enter the room {room} (its join rule is {}): let only those who are invited enter",
                visible(rule)
            ),
            Self::Mute => {
                format!("the account {account} may not send messages to the room {room}: let it send messages there")
            }
            Self::Failed(why) => format!("the homeserver cannot use the room {room} ({why}): it is tried again"),
        }
    }
}

/// The rooms that the channel has tried.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    ready: BTreeSet<String>,
    unusable: BTreeMap<String, Trouble>,
    /// The rooms that are ready and have refused a message, with what the server says.
    refusing: BTreeMap<String, String>,
    /// What else the rooms lack, as a person reads it, by what that is.
    lacking: BTreeMap<String, String>,
}

impl Rooms {
    /// Those in which questions are asked.
    pub(super) fn ready(&self) -> &BTreeSet<String> {
        &self.ready
    }

    pub(super) fn is_ready(&self, room: &str) -> bool {
        self.ready.contains(room)
    }

    pub(super) fn is_encrypted(&self, room: &str) -> bool {
        self.unusable.get(room) == Some(&Trouble::Encrypted)
    }

    /// Those to try again.
    pub(super) fn failed(&self) -> Vec<String> {
        let failed = self.unusable.iter().filter(|(_, trouble)| matches!(trouble, Trouble::Failed(_)));
        failed.map(|(room, _)| room.clone()).collect()
    }

    /// Has each room looked at again before it is used: the server was not reached, and what happened there meanwhile is not known.
    pub(super) fn suspend(&mut self) {
        self.ready.clear();
    }

    /// Notes whether a room takes messages: `why` not. Returns whether that is new.
    pub(super) fn set_refusing(&mut self, room: &str, why: Option<&str>) -> bool {
        match why {
            Some(why) => self.refusing.insert(room.to_owned(), why.to_owned()).is_none(),
            None => self.refusing.remove(room).is_some(),
        }
    }

    /// Notes what something lacks; `None` if nothing. Returns whether that is new.
    pub(super) fn set_lacking(&mut self, what: &str, why: Option<String>) -> bool {
        match why {
            Some(why) => self.lacking.insert(what.to_owned(), why.clone()) != Some(why),
            None => self.lacking.remove(what).is_some(),
        }
    }

    /// Notes whether a room can be used. An encrypted one stays so. Returns whether that is new.
    pub(super) fn set(&mut self, room: &str, found: Result<(), Trouble>) -> bool {
        if self.is_encrypted(room) {
            return false;
        }
        match found {
            Ok(()) => {
                self.unusable.remove(room);
                self.ready.insert(room.to_owned())
            }
            Err(trouble) => {
                self.ready.remove(room);
                self.unusable.insert(room.to_owned(), trouble.clone()) != Some(trouble)
            }
        }
    }

    /// A text for each room that cannot be used, and for what others lack.
    pub(super) fn texts(&self, account: &str) -> Vec<String> {
        let refusing = self.refusing.iter().filter(|(room, _)| self.is_ready(room)).map(|(room, why)| {
            let (room, account) = (visible(room), visible(account));
            format!(
                "the room {room} does not take a message of the account {account} ({why}): let it send messages there"
            )
        });
        let unusable = self.unusable.iter().map(|(room, trouble)| trouble.text(room, account));
        unusable.chain(refusing).chain(self.lacking.values().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_that_was_encrypted_once_is_not_used_again() {
        let mut rooms = Rooms::default();
        assert!(rooms.set("!a:b", Err(Trouble::NotIn("no".to_owned()))) && !rooms.is_ready("!a:b"));
        assert!(rooms.set("!a:b", Ok(())) && rooms.is_ready("!a:b") && rooms.texts("@c:b").is_empty());
        assert!(rooms.set("!a:b", Err(Trouble::Encrypted)) && !rooms.is_ready("!a:b"));
        assert!(!rooms.set("!a:b", Ok(())) && !rooms.is_ready("!a:b"));
        assert!(rooms.texts("@c:b")[0].contains("the room !a:b is encrypted"));
        rooms.suspend();
        assert!(rooms.is_encrypted("!a:b") && !rooms.set("!a:b", Err(Trouble::Failed("no".to_owned()))));
    }
}
