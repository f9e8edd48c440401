//! Where everything durable lives: streams of records, keys with revisions, sessions of boards.
//!
//! [`Storage`] is the only seam between the runtime and a disk or a cluster. It promises no more than what a stream and a
//! key-value bucket with revisions can do: one write is one record in one stream, with values that ride on it, or one value under one key; there are no
//! other transactions. Payloads are bytes that the storage does not look into; the journal and the actors above encode them.

pub(crate) mod board_store;
pub(crate) mod codec;
mod contract;
mod conversations;
mod error;
mod journal;
mod key;
mod limits;
mod memory;
pub(crate) mod recent;
pub(crate) mod sessions;
mod shared;
mod shutdown;
#[cfg(feature = "sled")]
mod sled;
mod stream_head;
mod stream_names;
mod transfer;
mod watchers;

pub use self::contract::{
    Append, Change, Delete, Entry, EntryRef, Expected, NewSession, Put, Record, Revision, Rider, Sequence, SessionId,
    SessionInfo, Storage, StorageFuture, Watch,
};
pub(crate) use self::conversations::{AllConversations, Conversations, Copying, Taken, Ticket, TicketEnd};
pub use self::error::StorageError;
pub use self::journal::Journal;
pub(crate) use self::journal::{
    CONTEXT, Forgotten, History, LetterNote, Listing, Losses, Noted, OpenNote, newest_format,
};
pub use self::key::{Key, KeyPrefix};
pub use self::limits::{check_append, check_put};
pub use self::memory::Memory;
pub use self::shutdown::ShutdownPolicy;
#[cfg(feature = "sled")]
pub use self::sled::{Sled, SledStats};
pub use self::transfer::{Transfer, TransferError};
pub use self::watchers::Watchers;
pub use crate::messages::Durability;
