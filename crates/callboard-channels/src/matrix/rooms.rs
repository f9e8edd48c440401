//! Which rooms are used, and why others are not. Pure.

use std::collections::{BTreeMap, BTreeSet};

use callboard::messages::visible;

/// Why nobody is asked in a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is encrypted.
    Encrypted,
    /// The account is not in it, or may not read or send there: what the server says.
    NotIn(String),
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
        }
    }
}

/// The rooms that the channel has tried.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    ready: BTreeSet<String>,
    unusable: BTreeMap<String, Trouble>,
}

impl Rooms {
    /// Those in which questions are asked.
    pub(super) fn ready(&self) -> &BTreeSet<String> {
        &self.ready
    }

    pub(super) fn is_ready(&self, room: &str) -> bool {
        self.ready.contains(room)
    }

    /// Notes whether a room can be used. An encrypted one stays so. Returns whether that is new.
    pub(super) fn set(&mut self, room: &str, found: Result<(), Trouble>) -> bool {
        if self.unusable.get(room) == Some(&Trouble::Encrypted) {
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

    /// A text for each room that cannot be used.
    pub(super) fn texts(&self, account: &str) -> Vec<String> {
        self.unusable.iter().map(|(room, trouble)| trouble.text(room, account)).collect()
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
    }
}
