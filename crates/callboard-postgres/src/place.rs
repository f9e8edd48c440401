//! Places: where the watches of other handles see what is written, and the channels by which the server wakes them.

use std::sync::LazyLock;

use callboard::storage::{Key, KeyPrefix};

/// The shared context of boards is one place.
static CONTEXT: LazyLock<KeyPrefix> = LazyLock::new(|| Key::new(["context"]).children());
/// The mail of each board is a place: the second segment is the board.
static MAIL: LazyLock<KeyPrefix> = LazyLock::new(|| Key::new(["mail"]).children());

/// Whether watches of other handles see a change of this key. That a letter is gone interests nobody but its reader, who deletes it.
pub(crate) fn is_fed(key: &Key, is_deletion: bool) -> bool {
    key.starts_with(&CONTEXT) || (key.starts_with(&MAIL) && !is_deletion)
}

/// In which places the keys under a prefix are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    None,
    One(Channel),
    /// No channel has all of them.
    Several,
}

impl Places {
    pub(crate) fn of(schema: &str, prefix: &KeyPrefix) -> Self {
        let bytes = prefix.as_bytes();
        let is_below = |place: &KeyPrefix| bytes.starts_with(place.as_bytes());
        let is_above = |place: &KeyPrefix| place.as_bytes().starts_with(bytes);
        if is_below(&CONTEXT) {
            return Self::One(Channel::of_place(schema, &CONTEXT));
        }
        match Key::from_bytes(bytes).and_then(|key| Channel::of_key(schema, &key)) {
            Some(channel) => Self::One(channel),
            None if is_below(&MAIL) || is_above(&MAIL) || is_above(&CONTEXT) => Self::Several,
            None => Self::None,
        }
    }

    pub(crate) fn channel(self) -> Option<Channel> {
        match self {
            Self::One(channel) => Some(channel),
            Self::None | Self::Several => None,
        }
    }
}

/// The channel of one place. Channels are of the whole database, so a schema has its own. Two places may have the same one: then their
/// watches look in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Channel(u64);

impl Channel {
    /// That of a key's place, if it has one.
    pub(crate) fn of_key(schema: &str, key: &Key) -> Option<Self> {
        if key.starts_with(&CONTEXT) {
            Some(Self::of_place(schema, &CONTEXT))
        } else if key.starts_with(&MAIL) {
            let segments = key.segments();
            let board = Key::new(["mail", segments.get(1)?]).children();
            Some(Self::of_place(schema, &board))
        } else {
            None
        }
    }

    /// FNV-1a, which is the same in every build.
    fn of_place(schema: &str, place: &KeyPrefix) -> Self {
        let bytes = schema.bytes().chain([0]).chain(place.as_bytes().iter().copied());
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }

    /// A word of SQL.
    pub(crate) fn name(self) -> String {
        format!("callboard_{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_key(segments: &[&str]) -> Option<Channel> {
        Channel::of_key("schema", &Key::new(segments.iter().copied()))
    }

    fn of_prefix(prefix: &KeyPrefix) -> Places {
        Places::of("schema", prefix)
    }

    #[test]
    fn a_board_has_one_channel_for_its_mail_and_all_boards_one_for_the_context() {
        let mail = of_key(&["mail", "a", "1"]).unwrap();
        assert_eq!(of_key(&["mail", "a", "2"]), Some(mail));
        assert_eq!(of_prefix(&Key::new(["mail", "a"]).children()), Places::One(mail));
        assert_ne!(of_key(&["mail", "b", "1"]), Some(mail));
        assert_ne!(Channel::of_key("other", &Key::new(["mail", "a", "1"])), Some(mail));
        let context = of_key(&["context", "a", "1"]).unwrap();
        assert_ne!(context, mail);
        assert_eq!(of_key(&["context"]), Some(context));
        assert_eq!(of_prefix(&Key::new(["context", "b"]).children_beginning_with("c")), Places::One(context));
        assert_eq!(of_key(&["letter", "a", "1"]), None);
    }

    #[test]
    fn a_prefix_of_several_places_has_no_channel() {
        for prefix in [
            Key::new([]).children(),
            Key::new(["mail"]).children(),
            Key::new(["mail"]).children_beginning_with("a"),
            Key::new([]).children_beginning_with("cont"),
        ] {
            assert_eq!(of_prefix(&prefix), Places::Several);
        }
        assert_eq!(of_prefix(&Key::new(["agents"]).children()), Places::None);
    }

    #[test]
    fn the_name_of_a_channel_is_the_same_in_every_build() {
        assert_eq!(of_key(&["context"]).unwrap().name(), "callboard_815a9aa6f64c3062");
    }
}
