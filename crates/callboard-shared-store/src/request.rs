//! What a process asks of the store that another one has open, and the answers.

use std::sync::Arc;

use callboard::storage::{
    Append, Change, Delete, Entry, Expected, Key, KeyPrefix, NewSession, Put, Record, Sequence, SessionId, SessionInfo,
    StorageError,
};

use crate::wire::enums;

/// One call of a store.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Append {
        append: Append,
    },
    Read {
        stream: Key,
        from: Sequence,
        limit: usize,
    },
    Streams {
        prefix: KeyPrefix,
        after: Option<Key>,
        limit: usize,
    },
    Purge {
        stream: Key,
        up_to: Sequence,
    },
    Get {
        key: Key,
    },
    Put {
        put: Put,
    },
    Delete {
        delete: Delete,
    },
    Scan {
        prefix: KeyPrefix,
        after: Option<Key>,
        limit: usize,
    },
    BeginSession {
        new: NewSession,
    },
    RenewSession {
        id: SessionId,
        about: Arc<[u8]>,
    },
    EndSession {
        id: SessionId,
        only_if_expired: bool,
    },
    Sessions {},
    ForgetSession {
        id: SessionId,
    },
    /// A session of the process that asks, which the process that has the store open may not know.
    ResumeSession {
        id: SessionId,
        session: NewSession,
    },
    /// From now on, `NextChange` with this number waits for changes under the prefix.
    Watch {
        watch: u64,
        prefix: KeyPrefix,
    },
    NextChange {
        watch: u64,
    },
    Unwatch {
        watch: u64,
    },
}

/// What a call returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done {},
    Number {
        number: u64,
    },
    Records {
        records: Vec<Record>,
    },
    Keys {
        keys: Vec<Key>,
    },
    Entry {
        entry: Option<Entry>,
    },
    Entries {
        entries: Vec<(Key, Entry)>,
    },
    Sessions {
        sessions: Vec<SessionInfo>,
    },
    /// `None` once the store has stopped.
    Change {
        change: Option<Change>,
    },
}

enums! {
    Request {
        0 Append { append },
        1 Read { stream, from, limit },
        2 Streams { prefix, after, limit },
        3 Purge { stream, up_to },
        4 Get { key },
        5 Put { put },
        6 Delete { delete },
        7 Scan { prefix, after, limit },
        11 BeginSession { new },
        12 RenewSession { id, about },
        13 EndSession { id, only_if_expired },
        14 Sessions {},
        15 ForgetSession { id },
        19 ResumeSession { id, session },
        16 Watch { watch, prefix },
        17 NextChange { watch },
        18 Unwatch { watch }
    }
    Answer {
        0 Done {},
        1 Number { number },
        2 Records { records },
        3 Keys { keys },
        4 Entry { entry },
        5 Entries { entries },
        6 Sessions { sessions },
        7 Change { change }
    }
}

/// The list of an answer is sent in parts of about so many bytes.
const PART: usize = 1 << 20;

impl Answer {
    /// The parts in which it is sent: one, unless it is a long list.
    pub(crate) fn parts(self) -> Vec<Self> {
        match self {
            Self::Records { records } => {
                parts(records, |record| record.payload.len(), |records| Self::Records { records })
            }
            Self::Keys { keys } => parts(keys, |key| key.as_bytes().len(), |keys| Self::Keys { keys }),
            Self::Entries { entries } => {
                parts(entries, |(_, entry)| entry.value.len(), |entries| Self::Entries { entries })
            }
            Self::Sessions { sessions } => {
                let size = |session: &SessionInfo| session.name.len() + session.about.len();
                parts(sessions, size, |sessions| Self::Sessions { sessions })
            }
            whole => vec![whole],
        }
    }

    /// Adds the next part; false if it is of another kind.
    pub(crate) fn join(&mut self, next: Self) -> bool {
        match (self, next) {
            (Self::Records { records: all }, Self::Records { records }) => all.extend(records),
            (Self::Keys { keys: all }, Self::Keys { keys }) => all.extend(keys),
            (Self::Entries { entries: all }, Self::Entries { entries }) => all.extend(entries),
            (Self::Sessions { sessions: all }, Self::Sessions { sessions }) => all.extend(sessions),
            _ => return false,
        }
        true
    }
}

fn parts<T>(all: Vec<T>, size: impl Fn(&T) -> usize, part: impl Fn(Vec<T>) -> Answer) -> Vec<Answer> {
    let (mut parts, mut current, mut bytes) = (Vec::new(), Vec::new(), 0);
    for item in all {
        // With its key and numbers.
        let more = size(&item) + 64;
        if bytes + more > PART && !current.is_empty() {
            parts.push(part(std::mem::take(&mut current)));
            bytes = 0;
        }
        bytes += more;
        current.push(item);
    }
    parts.push(part(current));
    parts
}

/// Reads an answer as what the call returns.
macro_rules! answers {
    ($($name:ident -> $type:ty { $pattern:pat => $value:expr })*) => {
        impl Answer {
            $(pub(crate) fn $name(self) -> Result<$type, StorageError> {
                match self {
                    $pattern => Ok($value),
                    other => Err(unexpected(&other)),
                }
            })*
        }
    };
}
answers! {
    done -> () { Self::Done {} => () }
    number -> u64 { Self::Number { number } => number }
    records -> Vec<Record> { Self::Records { records } => records }
    keys -> Vec<Key> { Self::Keys { keys } => keys }
    entry -> Option<Entry> { Self::Entry { entry } => entry }
    entries -> Vec<(Key, Entry)> { Self::Entries { entries } => entries }
    sessions -> Vec<SessionInfo> { Self::Sessions { sessions } => sessions }
    change -> Option<Change> { Self::Change { change } => change }
}

fn unexpected(answer: &Answer) -> StorageError {
    let name = format!("{answer:?}");
    let name = name.split([' ', '{']).next().unwrap_or_default();
    StorageError::Unavailable { detail: format!("the process that has the store open gave another answer: {name}") }
}

impl Request {
    /// What the first attempt of a call may have done already, if the process that had the store open died before it answered: `Some` of
    /// the answer then. `refusal` is that of the second attempt.
    pub(crate) fn done_before(&self, refusal: &StorageError) -> Done {
        match (self, refusal) {
            (Self::Append { append }, StorageError::WrongSequence { expected, actual, .. }) if actual > expected => {
                Done::IfRecord { sequence: append.expected + 1 }
            }
            (Self::Delete { .. }, StorageError::WrongRevision { actual: None, .. }) => Done::Yes,
            (Self::Put { put }, StorageError::WrongRevision { .. }) if put.expected != Expected::Any => Done::Unknown,
            _ => Done::No,
        }
    }
}

/// Whether the first attempt of a repeated call was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    /// If the record of this sequence is the one that was to be appended.
    IfRecord {
        sequence: Sequence,
    },
    /// It cannot be known.
    Unknown,
    No,
}
