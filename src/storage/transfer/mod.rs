//! Moving everything from one store to another, directly or through a text file.

mod checks;

use std::fmt;
use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;

use crc32fast::Hasher;
use serde::{Deserialize, Serialize};

use self::checks::{Checks, OTHER_COPY};
use super::codec::MAX_PAYLOAD;
use super::{Append, Delete, Durability, Expected, Key, Put, Sequence, Storage, StorageError};
use crate::messages::Timestamp;

/// The version of the text that is written, and the newest that is read.
const VERSION: u32 = 1;
/// The longest line, in bytes: the largest record in hexadecimal digits, and its key.
const MAX_LINE: u64 = 2 * MAX_PAYLOAD as u64 + (1 << 20);

/// Records that may be missing at the beginning of a stream: each costs a write to count past it.
const MAX_PURGED: Sequence = 10_000_000;

/// Records and values that are held in memory at once.
const PAGE: usize = 256;

/// Moves everything from one store to another, directly ([`Transfer::copy`]) or through a text ([`Transfer::export`],
/// [`Transfer::import`]). The value is how much was moved.
///
/// What moves: the records of all streams with their sequences, and all values with their expiry dates. What does not:
/// revisions and sessions, which belong to a store and its processes; and queues, which are derived from the
/// journals and rebuilt from them.
///
/// ```
/// use callboard::storage::{Expected, Durability, Key, Memory, Put, Storage, Transfer};
/// use callboard::messages::Timestamp;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (from, to) = (Memory::default(), Memory::default());
/// let (key, value) = (Key::new(["a"]), b"1".as_slice().into());
/// from.put_if_revision(Put::new(key, value)).await?;
/// let moved = Transfer::copy(&from, &to, Timestamp::default()).await?;
/// assert_eq!(moved.values, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Number of records, over all streams.
    pub records: u64,
    /// Number of values. Those that have expired are not written by [`Transfer::copy`] and [`Transfer::import`], and
    /// not counted in what they return.
    pub values: u64,
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records and {} values", self.records, self.values)
    }
}

/// Why a transfer ended early. What was written by then stays in the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// A call of the source store or the target store failed.
    #[error(transparent)]
    Store(#[from] StorageError),
    /// The text of the export could not be read or written.
    #[error("the export cannot be read or written: {0}")]
    Text(#[from] io::Error),
    /// A line does not belong in an export, or not in this place, or holds what could not be read afterwards, or a newer
    /// version of callboard wrote the export.
    #[error("line {line} of the export is wrong: {detail}")]
    Line {
        /// The number of the line, counted from 1.
        line: u64,
        /// What is wrong with the line and what to do, for people.
        detail: String,
    },
    /// The end of the text is missing, or it counts other than what was read.
    #[error("the export is incomplete: {read} were read, and {}; {OTHER_COPY}", match stated {
        Some(stated) => format!("it had {stated}"),
        None => "it has no end".to_owned(),
    })]
    Incomplete {
        /// The number of records and values that were read.
        read: Transfer,
        /// The count in the last line; `None` if there is none.
        stated: Option<Transfer>,
    },
    /// The text is whole, and other than it was written.
    #[error("the export is damaged: the checksum of its lines does not match; {OTHER_COPY}")]
    Damaged,
    /// The target already holds records or values; nothing was written.
    #[error("the target is not empty; import into a new store")]
    NotEmpty,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Begin {
        callboard: String,
        version: u32,
    },
    Record {
        stream: Vec<String>,
        sequence: Sequence,
        payload: String,
    },
    Value {
        key: Vec<String>,
        value: String,
        expires_at: Option<Timestamp>,
    },
    End {
        end: Transfer,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        crc32: Option<u32>,
    },
}

/// One item of a transfer.
enum Parcel {
    Record { stream: Key, sequence: Sequence, payload: Arc<[u8]> },
    Value { key: Key, value: Arc<[u8]>, expires_at: Option<Timestamp> },
}

impl Transfer {
    /// Copies everything into an empty store.
    ///
    /// Values that have a date of expiry keep it to the second as seen from `now`; those that have passed are left out.
    ///
    /// # Errors
    /// [`TransferError::NotEmpty`], or an error of one of the stores.
    pub async fn copy(from: &dyn Storage, to: &dyn Storage, now: Timestamp) -> Result<Self, TransferError> {
        let mut target = Target::open(to, now).await?;
        let mut source = Source::open(from).await?;
        while let Some(parcels) = source.next_page().await? {
            for parcel in parcels {
                target.put(parcel).await?;
            }
        }
        target.finish().await
    }

    /// Writes everything as text: JSON, one object per line, bytes in hexadecimal.
    ///
    /// ```text
    /// {"callboard":"export","version":1}
    /// {"stream":["run","1"],"sequence":1,"payload":"7b7d"}
    /// {"key":["context","a"],"value":"7b7d","expires_at":1767225600000}
    /// {"end":{"records":1,"values":1},"crc32":1234567890}
    /// ```
    ///
    /// `crc32` is that of all lines before, with their ends. Exports of older versions have none.
    ///
    /// # Errors
    /// An error of the store or of the writer.
    pub async fn export(from: &dyn Storage, to: &mut (dyn Write + Send)) -> Result<Self, TransferError> {
        let mut lines = Hasher::new();
        write_line(to, &mut lines, &Line::Begin { callboard: "export".to_owned(), version: VERSION })?;
        let mut moved = Self::default();
        let mut source = Source::open(from).await?;
        while let Some(parcels) = source.next_page().await? {
            for parcel in parcels {
                let line = match parcel {
                    Parcel::Record { stream, sequence, payload } => {
                        moved.records += 1;
                        Line::Record { stream: stream.segments(), sequence, payload: to_hex(&payload) }
                    }
                    Parcel::Value { key, value, expires_at } => {
                        moved.values += 1;
                        Line::Value { key: key.segments(), value: to_hex(&value), expires_at }
                    }
                };
                write_line(to, &mut lines, &line)?;
            }
        }
        let crc32 = Some(lines.clone().finalize());
        write_line(to, &mut lines, &Line::End { end: moved, crc32 })?;
        to.flush()?;
        Ok(moved)
    }

    /// Reads an export into an empty store; see [`Transfer::copy`] for expiry.
    ///
    /// A line is checked before it is written: the sequences of a stream follow one another, records of runs decode, and the
    /// board's other values have their length and checksum. What is stored under other keys is not looked into.
    ///
    /// # Errors
    /// [`TransferError::NotEmpty`], [`TransferError::Line`] with the number of the first wrong line, which may be one after the end,
    /// [`TransferError::Incomplete`] if the text was cut, or [`TransferError::Damaged`] if it was changed.
    pub async fn import(
        from: &mut (dyn BufRead + Send),
        to: &dyn Storage,
        now: Timestamp,
    ) -> Result<Self, TransferError> {
        let mut target = Target::open(to, now).await?;
        let (mut number, mut lines) = (0, Hasher::new());
        let (mut text, mut checks) = (Vec::new(), Checks::default());
        // Written once the next line is checked: one that contradicts it is refused before a purged beginning is filled.
        let mut held: Option<(u64, Parcel)> = None;
        loop {
            text.clear();
            if (&mut *from).take(MAX_LINE).read_until(b'\n', &mut text)? == 0 {
                return Err(TransferError::Incomplete { read: checks.read, stated: None });
            }
            number += 1;
            let wrong = |detail: String| TransferError::Line { line: number, detail };
            if text.len() as u64 == MAX_LINE && !text.ends_with(b"\n") {
                return Err(wrong(format!("it is longer than a line of an export; {OTHER_COPY}")));
            }
            let bytes = |hex: &str, what: &str| {
                from_hex(hex).ok_or_else(|| wrong(format!("the {what} is not hexadecimal; {OTHER_COPY}")))
            };
            let line = serde_json::from_slice(&text).map_err(|_| wrong(unknown_line(number)))?;
            let parcel = match line {
                Line::Begin { callboard, version } if number == 1 && callboard == "export" && version == VERSION => {
                    lines.update(&text);
                    continue;
                }
                Line::Begin { version, .. } if number == 1 && version > VERSION => {
                    let newer = format!(
                        "written by a newer version of callboard (format {version}); import it with that version"
                    );
                    return Err(wrong(newer));
                }
                Line::Record { stream, sequence, payload } if number > 1 => Parcel::Record {
                    stream: Key::new(stream.iter().map(String::as_str)),
                    sequence,
                    payload: bytes(&payload, "payload")?,
                },
                Line::Value { key, value, expires_at } if number > 1 => Parcel::Value {
                    key: Key::new(key.iter().map(String::as_str)),
                    value: bytes(&value, "value")?,
                    expires_at,
                },
                Line::End { end, .. } if number > 1 && end != checks.read => {
                    return Err(TransferError::Incomplete { read: checks.read, stated: Some(end) });
                }
                Line::End { crc32: Some(crc32), .. } if number > 1 && crc32 != lines.clone().finalize() => {
                    return Err(TransferError::Damaged);
                }
                Line::End { .. } if number > 1 => {
                    check_end(from, number)?;
                    target.put_line(held).await?;
                    return target.finish().await;
                }
                Line::Begin { .. } if number > 1 => {
                    return Err(wrong(
                        "an export begins in it, and another has not ended; import each export by itself".to_owned(),
                    ));
                }
                Line::Begin { .. } | Line::Record { .. } | Line::Value { .. } | Line::End { .. } => {
                    return Err(wrong(unknown_line(number)));
                }
            };
            checks.check(&parcel).map_err(wrong)?;
            lines.update(&text);
            target.put_line(held.replace((number, parcel))).await?;
        }
    }
}

/// Reads a store page by page: streams, then values.
struct Source<'a> {
    store: &'a dyn Storage,
    /// A page of streams that are still to be read, and the last of the page.
    streams: std::vec::IntoIter<Key>,
    last_of_page: Option<Key>,
    /// The stream being read, and from where on.
    stream: Option<(Key, Sequence)>,
    /// The last key read.
    after: Option<Key>,
    ended: bool,
}

impl<'a> Source<'a> {
    async fn open(store: &'a dyn Storage) -> Result<Self, StorageError> {
        let streams = Vec::new().into_iter();
        let mut source = Self { store, streams, last_of_page: None, stream: None, after: None, ended: false };
        source.next_streams().await?;
        Ok(source)
    }

    /// Reads the next page of streams.
    async fn next_streams(&mut self) -> Result<(), StorageError> {
        let page = self.store.streams(&Key::new([]).children(), self.last_of_page.as_ref(), PAGE).await?;
        self.last_of_page = page.last().filter(|_| page.len() == PAGE).cloned();
        self.streams = page.into_iter();
        Ok(())
    }

    /// The next stream.
    async fn next_stream(&mut self) -> Result<Option<Key>, StorageError> {
        if self.streams.len() == 0 && self.last_of_page.is_some() {
            self.next_streams().await?;
        }
        Ok(self.streams.next())
    }

    async fn next_page(&mut self) -> Result<Option<Vec<Parcel>>, StorageError> {
        loop {
            let (stream, from) = match self.stream.take() {
                Some(under_way) => under_way,
                None => match self.next_stream().await? {
                    Some(stream) => (stream, 1),
                    None => break,
                },
            };
            let records = self.store.read(&stream, from, PAGE).await?;
            let Some(last) = records.last() else { continue };
            let parcel = |record: super::Record| Parcel::Record {
                stream: stream.clone(),
                sequence: record.sequence,
                payload: record.payload,
            };
            let next = last.sequence + 1;
            let page = records.into_iter().map(parcel).collect();
            self.stream = Some((stream, next));
            return Ok(Some(page));
        }
        if self.ended {
            return Ok(None);
        }
        let page = self.store.scan(&Key::new([]).children(), self.after.as_ref(), PAGE).await?;
        self.ended = page.len() < PAGE;
        self.after = page.last().map(|(key, _)| key.clone());
        let parcel =
            |(key, entry): (Key, super::Entry)| Parcel::Value { key, value: entry.value, expires_at: entry.expires_at };
        Ok(Some(page.into_iter().map(parcel).collect()))
    }
}

/// Fills an empty store.
struct Target<'a> {
    store: &'a dyn Storage,
    now: Timestamp,
    /// The stream that is being filled, and its last sequence.
    stream: Option<(Key, Sequence)>,
    /// What was written.
    moved: Transfer,
}

impl<'a> Target<'a> {
    async fn open(store: &'a dyn Storage, now: Timestamp) -> Result<Self, TransferError> {
        let all = Key::new([]).children();
        if !store.streams(&all, None, 1).await?.is_empty() || !store.scan(&all, None, 1).await?.is_empty() {
            return Err(TransferError::NotEmpty);
        }
        Ok(Self { store, now, stream: None, moved: Transfer::default() })
    }

    /// Puts what a line of an export holds. What the store refuses of it is wrong with the line.
    async fn put_line(&mut self, held: Option<(u64, Parcel)>) -> Result<(), TransferError> {
        let Some((line, parcel)) = held else { return Ok(()) };
        let wrong = |detail: String| TransferError::Line { line, detail };
        self.put(parcel).await.map_err(|error| match error {
            StorageError::WrongSequence { stream, .. } => {
                wrong(format!("an earlier line has records of {stream}, and another is between them; {OTHER_COPY}"))
            }
            StorageError::WrongRevision { key, .. } => {
                wrong(format!("an earlier line has a value of {key}; {OTHER_COPY}"))
            }
            StorageError::TooLarge { .. } => wrong(format!("{error}; {OTHER_COPY}")),
            StorageError::NameTaken { .. }
            | StorageError::SessionLives { .. }
            | StorageError::Corrupt { .. }
            | StorageError::Unavailable { .. }
            | StorageError::Open { .. }
            | StorageError::InUse { .. }
            | StorageError::Stopped { .. }
            | StorageError::Closed => TransferError::Store(error),
        })
    }

    async fn put(&mut self, parcel: Parcel) -> Result<(), StorageError> {
        match parcel {
            Parcel::Record { stream, sequence, payload } => {
                let last = match self.stream.take() {
                    Some((name, last)) if name == stream => last,
                    Some(_) | None => 0,
                };
                // Only the beginning of a stream may be missing; a gap further on is damage.
                let purged = if last == 0 { sequence.saturating_sub(1) } else { last };
                if purged + 1 != sequence {
                    return Err(StorageError::WrongSequence {
                        stream,
                        expected: sequence.saturating_sub(1),
                        actual: last,
                    });
                }
                if last == 0 {
                    self.stand_in(&stream, purged).await?;
                }
                self.append(&stream, purged, payload).await?;
                if last == 0 && purged > 0 {
                    self.store.purge(&stream, purged).await?;
                }
                self.stream = Some((stream, sequence));
                self.moved.records += 1;
            }
            Parcel::Value { key, value, expires_at } => {
                let ttl_secs = expires_at.map(|moment| moment.since(self.now).as_millis().div_ceil(1000) as u64);
                if ttl_secs != Some(0) {
                    let (expected, durability) = (Expected::Absent, Durability::Buffered);
                    self.store.put_if_revision(Put { expected, ttl_secs, durability, ..Put::new(key, value) }).await?;
                    self.moved.values += 1;
                }
            }
        }
        Ok(())
    }

    /// Puts empty records in the place of purged ones. They are purged once a real one follows, which keeps the count.
    async fn stand_in(&self, stream: &Key, purged: Sequence) -> Result<(), StorageError> {
        if purged > MAX_PURGED {
            let (what, size) =
                (format!("the purged beginning of {stream}"), usize::try_from(purged).unwrap_or(usize::MAX));
            return Err(StorageError::TooLarge { what, size, max: MAX_PURGED as usize });
        }
        for last in 0..purged {
            self.append(stream, last, Arc::from([])).await?;
        }
        Ok(())
    }

    async fn append(&self, stream: &Key, expected: Sequence, payload: Arc<[u8]>) -> Result<Sequence, StorageError> {
        let (stream, durability) = (stream.clone(), Durability::Buffered);
        self.store.append(Append { durability, ..Append::new(stream, expected, payload) }).await
    }

    /// Makes everything durable: a synced write takes all earlier ones with it.
    async fn finish(self) -> Result<Transfer, TransferError> {
        let (key, value, durability) = (Key::new(["callboard", "transferred"]), Arc::from([]), Durability::Sync);
        let put = Put { expected: Expected::Absent, durability, ..Put::new(key.clone(), value) };
        let revision = self.store.put_if_revision(put).await?;
        self.store.delete_if_revision(Delete::new(key, revision, durability)).await?;
        Ok(self.moved)
    }
}

/// Checks that only blank lines follow the end of an export, which is in the line `end`.
fn check_end(from: &mut (dyn BufRead + Send), end: u64) -> Result<(), TransferError> {
    let (mut line, mut text) = (end, Vec::new());
    loop {
        text.clear();
        if from.read_until(b'\n', &mut text)? == 0 {
            return Ok(());
        }
        line += 1;
        if !text.trim_ascii().is_empty() {
            let detail =
                format!("the export has ended in line {end}, and nothing may follow; import each export by itself");
            return Err(TransferError::Line { line, detail });
        }
    }
}

/// The detail of a line that is in no export, or not in this position.
fn unknown_line(number: u64) -> String {
    if number == 1 {
        "an export begins with {\"callboard\":\"export\",\"version\":1}; name the file that `runs export` has written"
            .to_owned()
    } else {
        format!("it is no record, no value and no end; {OTHER_COPY}")
    }
}

fn write_line(to: &mut dyn Write, lines: &mut Hasher, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    lines.update(&text);
    to.write_all(&text)
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn from_hex(text: &str) -> Option<Arc<[u8]>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}
