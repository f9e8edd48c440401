//! Which rows the tree holds: their keys, their bytes, their checksums.
//!
//! One tree, one byte of key in front for the kind of row. A row is a CRC-32 over its key and its body, then the body; the
//! key is part of the checksum, so a row that turns up under another key is as corrupt as one with a flipped bit.

use std::ops::Bound;

use serde::{Deserialize, Serialize};
use sled::IVec;

use super::payloads::PayloadName;
use crate::messages::Timestamp;
use crate::storage::codec::Stored;
use crate::storage::{Key, Revision, Sequence};

const RECORD: u8 = b's';
pub(super) const VALUE: u8 = b'v';
pub(super) const EXPIRY: u8 = b'x';
const PAYLOAD: u8 = b'p';
pub(super) const GROUP: u8 = b'g';

/// The store's own row: how far it has got.
pub(super) const PROGRESS: &[u8] = b"m progress";

/// Ends a key inside a row's key. It sorts before every further segment, so a stream's rows come before its children's.
const KEY_END: [u8; 2] = [0, 0];

fn join(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut row = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    row.push(kind);
    parts.iter().for_each(|part| row.extend_from_slice(part));
    row
}

pub(super) fn value(key: &Key) -> Vec<u8> {
    join(VALUE, &[key.as_bytes()])
}

/// Passes on the key of a value's row, which is not allocated if it is short: for reads.
pub(super) fn with_value<T>(key: &Key, read: impl FnOnce(&[u8]) -> T) -> T {
    let (bytes, mut short) = (key.as_bytes(), [0; 192]);
    match short.get_mut(..=bytes.len()) {
        Some(row) => {
            row[0] = VALUE;
            row[1..].copy_from_slice(bytes);
            read(row)
        }
        None => read(&value(key)),
    }
}

/// All keys of a kind under a prefix of encoded bytes begin like this.
pub(super) fn values_under(prefix: &[u8]) -> Vec<u8> {
    join(VALUE, &[prefix])
}

pub(super) fn streams_under(prefix: &[u8]) -> Vec<u8> {
    join(RECORD, &[prefix])
}

pub(super) fn record(stream: &Key, sequence: Sequence) -> Vec<u8> {
    join(RECORD, &[stream.as_bytes(), &KEY_END, &sequence.to_be_bytes()])
}

/// The rows before and behind which a stream has none.
pub(super) fn all_records(stream: &Key) -> (Vec<u8>, Vec<u8>) {
    (record(stream, 0), record(stream, Sequence::MAX))
}

/// What sorts after all records of a stream, and before those of the next one.
pub(super) fn after_stream(stream: &Key) -> Vec<u8> {
    let mut row = record(stream, Sequence::MAX);
    row.push(0);
    row
}

/// The key of the note that `row` expires at a moment; sorts by the moment.
pub(super) fn expiry(moment: Timestamp, row: &[u8]) -> Vec<u8> {
    join(EXPIRY, &[&moment.as_millis().to_be_bytes(), row])
}

/// The moment and the row of an expiry row.
pub(super) fn parse_expiry(row: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (moment, row) = row.get(1..)?.split_first_chunk::<8>()?;
    Some((Timestamp::from_millis(u64::from_be_bytes(*moment)), row))
}

/// The key of the note that `row` refers to a payload file.
pub(super) fn payload_use(name: &PayloadName, row: &[u8]) -> Vec<u8> {
    join(PAYLOAD, &[name.as_bytes(), row])
}

/// All such notes about a payload file.
pub(super) fn payload_uses(name: &PayloadName) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // No row begins with a byte that high.
    (Bound::Included(join(PAYLOAD, &[name.as_bytes()])), Bound::Excluded(join(PAYLOAD, &[name.as_bytes(), &[u8::MAX]])))
}

/// The rows of a stream that may have a record from one number to another.
pub(super) fn records(stream: &Key, from: Sequence, to: Sequence) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let first = from.saturating_sub(MAX_RECORDS - 1);
    (Bound::Included(record(stream, first)), Bound::Included(record(stream, to)))
}

/// The sequence or position at the end of a row's key.
pub(super) fn number_of(row: &[u8]) -> Option<u64> {
    row.last_chunk::<8>().map(|number| u64::from_be_bytes(*number))
}

/// The stream of a record's row.
pub(super) fn stream_of(row: &[u8]) -> Option<Key> {
    Key::from_bytes(row.get(1..row.len().checked_sub(8 + KEY_END.len())?)?)
}

/// The encoded bytes of the key of a value's row.
pub(super) fn key_bytes_of(row: &[u8]) -> Option<&[u8]> {
    row.get(1..)
}

/// The key of a group of writes, as stores of format 2 have them.
#[cfg(test)]
pub(super) fn group(number: u64) -> Vec<u8> {
    join(GROUP, &[&number.to_be_bytes()])
}

/// Whether a row is a stream's.
pub(super) fn is_of_stream(row: &[u8]) -> bool {
    row.first() == Some(&RECORD)
}

/// The bytes of a row with this body.
pub(super) fn seal(row: &[u8], body: &[&[u8]]) -> IVec {
    let mut sealed = Vec::with_capacity(4 + body.iter().map(|part| part.len()).sum::<usize>());
    sealed.extend_from_slice(&[0; 4]);
    body.iter().for_each(|part| sealed.extend_from_slice(part));
    let sum = checksum(row, &sealed[4..]);
    sealed[..4].copy_from_slice(&sum.to_le_bytes());
    IVec::from(sealed)
}

/// The body of a row, if its checksum is right.
pub(super) fn unseal<'a>(row: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], String> {
    match sealed.split_first_chunk::<4>() {
        Some((sum, body)) if checksum(row, body) == u32::from_le_bytes(*sum) => Ok(body),
        Some(_) | None => Err("the checksum does not match: it is damaged".to_owned()),
    }
}

fn checksum(row: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(row);
    hasher.update(body);
    hasher.finalize()
}

/// A caller's bytes, or where they are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    Inline(&'a [u8]),
    File(PayloadName),
    /// Several records of a stream, of which the row's key names the first.
    Records(Records<'a>),
}

/// The most records in one row.
pub(super) const MAX_RECORDS: u64 = 64;

/// The payloads of records that follow each other: each after its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// The records in these bytes; `None` if they are none.
    fn of_bytes(bytes: &'a [u8]) -> Option<Self> {
        let (mut rest, mut count) = (bytes, 0);
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk::<4>()?;
            rest = after.get(usize::try_from(u32::from_le_bytes(*length)).ok()?..)?;
            count += 1;
        }
        (1..=MAX_RECORDS).contains(&count).then_some(Self(bytes))
    }

    /// Writes the payload of a record behind those of others.
    pub(super) fn push(bytes: &mut Vec<u8>, payload: &[u8]) {
        bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(payload);
    }

    /// Records that were written by [`Records::push`].
    pub(super) fn of_pushed(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Without the first ones; `None` if there is no other.
    pub(super) fn after(self, count: u64) -> Option<Self> {
        let mut rest = self.0;
        for _ in 0..count {
            let (length, after) = rest.split_first_chunk::<4>()?;
            rest = after.get(usize::try_from(u32::from_le_bytes(*length)).ok()?..)?;
        }
        (!rest.is_empty()).then_some(Self(rest))
    }

    pub(super) fn payloads(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let (payload, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
            rest = after;
            Some(payload)
        })
    }
}

/// A row with a caller's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PayloadRow<'a> {
    pub(super) revision: Revision,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) content: Content<'a>,
}

/// Flags in front of a payload row's body.
const IN_FILE: u8 = 1;
const HAS_REVISION: u8 = 2;
const EXPIRES: u8 = 4;
const HAS_RECORDS: u8 = 8;

impl<'a> PayloadRow<'a> {
    pub(super) fn seal(&self, row: &[u8]) -> IVec {
        let mut flags = 0;
        let (mut numbers, mut length) = ([0; 16], 0);
        let mut push = |flag: u8, number: u64| {
            flags |= flag;
            numbers[length..length + 8].copy_from_slice(&number.to_le_bytes());
            length += 8;
        };
        if self.revision != 0 {
            push(HAS_REVISION, self.revision);
        }
        if let Some(moment) = self.expires_at {
            push(EXPIRES, moment.as_millis());
        }
        let content = match &self.content {
            Content::Inline(bytes) => bytes,
            Content::File(name) => {
                flags |= IN_FILE;
                name.as_bytes()
            }
            Content::Records(Records(bytes)) => {
                flags |= HAS_RECORDS;
                bytes
            }
        };
        seal(row, &[&[flags], &numbers[..length], content])
    }

    pub(super) fn unseal(row: &[u8], sealed: &'a [u8]) -> Result<Self, String> {
        let short = || "it is too short".to_owned();
        let (flags, mut rest) = unseal(row, sealed)?.split_first().ok_or_else(short)?;
        let mut number = |wanted: u8| {
            if flags & wanted == 0 {
                return Ok(None);
            }
            let (number, after) = rest.split_first_chunk::<8>().ok_or_else(short)?;
            rest = after;
            Ok::<_, String>(Some(u64::from_le_bytes(*number)))
        };
        let revision = number(HAS_REVISION)?.unwrap_or(0);
        let expires_at = number(EXPIRES)?.map(Timestamp::from_millis);
        let content = if flags & HAS_RECORDS != 0 {
            Content::Records(Records::of_bytes(rest).ok_or_else(|| "its records cannot be read".to_owned())?)
        } else if flags & IN_FILE == 0 {
            Content::Inline(rest)
        } else {
            Content::File(PayloadName::from_bytes(rest).ok_or_else(short)?)
        };
        Ok(Self { revision, expires_at, content })
    }

    /// How many records the row has.
    pub(super) fn records(&self) -> u64 {
        match self.content {
            Content::Inline(_) | Content::File(_) => 1,
            Content::Records(records) => records.payloads().count() as u64,
        }
    }
}

/// How far the store has got; written before every sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Syncs so far.
    pub(super) sync: u64,
    /// The last revision or id of a session that was given out.
    pub(super) last_number: u64,
    /// How often the store has been opened.
    pub(super) session: u64,
}

impl Stored for Progress {
    const SCHEMA: u16 = 0xF001;
    const VERSION: u16 = 1;
    const NAME: &'static str = "sled-progress";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::golden;

    fn plain(bytes: &[u8]) -> PayloadRow<'_> {
        PayloadRow { revision: 0, expires_at: None, content: Content::Inline(bytes) }
    }

    #[test]
    fn rows_of_this_version_keep_their_bytes() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        golden::check(folder, &Progress { sync: 300, last_number: 1 << 40, session: 3 });
    }

    #[test]
    fn a_payload_row_keeps_its_bytes() {
        let row = value(&Key::new(["a"]));
        let payload_row =
            PayloadRow { revision: 9, expires_at: Some(Timestamp::from_millis(4)), content: Content::Inline(b"hello") };
        let sealed = payload_row.seal(&row);
        assert_eq!(sealed[4..], *b"\x06\x09\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0hello");
        assert_eq!(PayloadRow::unseal(&row, &sealed), Ok(payload_row));
        let plain = plain(b"");
        assert_eq!(PayloadRow::unseal(&row, &plain.seal(&row)), Ok(plain));
    }

    #[test]
    fn a_row_under_another_key_or_with_a_flipped_bit_is_damaged() {
        let row = record(&Key::new(["a"]), 1);
        let sealed = plain(b"hello").seal(&row);
        let is_damaged = |read: Result<PayloadRow, String>| {
            read.is_err_and(|why| why == "the checksum does not match: it is damaged")
        };
        assert!(is_damaged(PayloadRow::unseal(&record(&Key::new(["a"]), 2), &sealed)));
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(is_damaged(PayloadRow::unseal(&row, &damaged)), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(is_damaged(PayloadRow::unseal(&row, &sealed[..length])), "{length} bytes");
        }
    }
}
