//! Looks into sled's log before sled does.
//!
//! When sled finds a broken message near the end of its log, it takes the end for torn by a crash and overwrites what
//! follows. That is right for what was never synced and wrong for what was. So the log is read here first, in the way sled
//! will read it: if that would not reach the progress row of the last sync, the store is left as it is.
//!
//! This reads the format of sled 0.34 and nothing more of it than segment headers, message headers and checksums.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::folder::SEGMENT;
use super::rows::Progress;
use crate::storage::codec;

const SEGMENT_HEADER: usize = 20;
/// No message begins this close to the end of a segment.
const LONGEST_HEADER: usize = 32;
/// Kinds of messages: never written, and "the rest of this segment is unused".
const CORRUPTED: u8 = 0;
const CAP: u8 = 2;

/// Whether sled will find the progress row of a sync, or of a later one, in the log.
pub(super) fn reaches(folder: &Path, sync: u64) -> io::Result<bool> {
    let mut db = match File::open(folder.join("db")) {
        Ok(db) => db,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(sync == 0),
        Err(error) => return Err(error),
    };
    let segments = Segments::read(&mut db)?;
    let snapshot = snapshot_position(folder)?;
    let (end, found) = segments.read_tail(&mut db, snapshot)?;
    if found.is_some_and(|found| found >= sync) || sync == 0 {
        return Ok(true);
    }
    // It may lie before the tail, or the snapshot may have been taken after it.
    for (&position, &offset) in segments.offsets.range(..=end) {
        let segment = read_segment(&mut db, offset)?;
        let readable = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX).min(segment.len());
        if newest_sync(&segment[..readable]).is_some_and(|found| found >= sync) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The segments of a log: position in the log (what sled calls the lsn) and offset in the file.
struct Segments {
    offsets: BTreeMap<u64, u64>,
    /// By position: up to where the log was written when the segment was begun.
    stable: BTreeMap<u64, u64>,
}

impl Segments {
    fn read(db: &mut File) -> io::Result<Self> {
        let length = db.metadata()?.len();
        let mut segments = Self { offsets: BTreeMap::new(), stable: BTreeMap::new() };
        for offset in (0..length).step_by(SEGMENT) {
            let mut header = [0; SEGMENT_HEADER];
            db.seek(SeekFrom::Start(offset))?;
            if db.read_exact(&mut header).is_err() {
                break;
            }
            let (sum, numbers) = header.split_at(4);
            if (crc32fast::hash(numbers) ^ u32::MAX).to_le_bytes() != sum {
                continue;
            }
            let number = |at: usize| {
                numbers[at..at + 8].try_into().map(i64::from_le_bytes).map(|number| number ^ i64::MAX).unwrap_or(-1)
            };
            if let Ok(position) = u64::try_from(number(0)) {
                segments.offsets.insert(position, offset);
                segments.stable.insert(position, u64::try_from(number(8)).unwrap_or(0));
            }
        }
        Ok(segments)
    }

    /// Reads on from where sled starts to look for torn writes; the position of the first message that is not whole, and
    /// the newest progress row before it.
    fn read_tail(&self, db: &mut File, snapshot: u64) -> io::Result<(u64, Option<u64>)> {
        let begin = |position: u64| position / SEGMENT as u64 * SEGMENT as u64;
        let first = begin(snapshot);
        let newest_stable = self.stable.range(first..).map(|(_, stable)| *stable).max().unwrap_or(0);
        let mut position = begin(newest_stable.max(first));
        let (mut end, mut newest) = (position, None);
        while let Some(&offset) = self.offsets.get(&position) {
            let segment = read_segment(db, offset)?;
            let (length, is_whole) = whole_messages(&segment, position / SEGMENT as u64);
            newest = newest.max(newest_sync(&segment[..length]));
            end = position + length as u64;
            if !is_whole {
                break;
            }
            position += SEGMENT as u64;
        }
        Ok((end, newest))
    }
}

fn read_segment(db: &mut File, offset: u64) -> io::Result<Vec<u8>> {
    let mut segment = Vec::new();
    db.seek(SeekFrom::Start(offset))?;
    db.take(SEGMENT as u64).read_to_end(&mut segment)?;
    Ok(segment)
}

/// The length of the whole messages at the beginning of a segment, and whether they fill it.
fn whole_messages(segment: &[u8], number: u64) -> (usize, bool) {
    let mut at = SEGMENT_HEADER.min(segment.len());
    while at + LONGEST_HEADER <= SEGMENT {
        match whole_message(&segment[at..], number) {
            Some((CAP, _)) => return (segment.len(), true),
            Some((_, length)) => at += length,
            None => return (at, false),
        }
    }
    (at, true)
}

/// Kind and length of a message, if it is whole and belongs to this segment.
fn whole_message(bytes: &[u8], segment_number: u64) -> Option<(u8, usize)> {
    let (sum, mut rest) = bytes.split_first_chunk::<4>()?;
    let kind = *rest.first()?;
    rest = &rest[1..];
    let length = usize::try_from(read_number(&mut rest)?).ok()?;
    let number = read_number(&mut rest)?;
    let _page = read_number(&mut rest)?;
    let header = bytes.len() - rest.len();
    let body = rest.get(..length)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    hasher.update(&bytes[4..header]);
    let is_whole =
        kind != CORRUPTED && number == segment_number && hasher.finalize() ^ u32::MAX == u32::from_le_bytes(*sum);
    is_whole.then_some((kind, header + length))
}

/// sled's integers of variable length.
fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    let byte = |at: usize| rest.get(at).map(|byte| u64::from(*byte));
    let (number, used) = match first {
        0..=240 => (u64::from(first), 0),
        241..=248 => (240 + 256 * (u64::from(first) - 241) + byte(0)?, 1),
        249 => (2288 + 256 * byte(0)? + byte(1)?, 2),
        250.. => {
            let size = usize::from(first) - 247;
            let mut number = [0; 8];
            number[..size].copy_from_slice(rest.get(..size)?);
            (u64::from_le_bytes(number), size)
        }
    };
    *bytes = &rest[used..];
    Some(number)
}

/// The newest progress row anywhere in these bytes.
fn newest_sync(bytes: &[u8]) -> Option<u64> {
    let begins = codec::first_bytes::<Progress>();
    let found = bytes.windows(begins.len()).enumerate().filter(|(_, window)| *window == begins);
    found.filter_map(|(at, _)| codec::decode_first::<Progress>(&bytes[at..]).ok()).map(|found| found.sync).max()
}

/// The position up to which sled's newest snapshot covers the log; it is the snapshot's name.
fn snapshot_position(folder: &Path) -> io::Result<u64> {
    let mut newest = 0;
    for file in fs::read_dir(folder)? {
        let name = file?.file_name();
        let position = name.to_string_lossy().strip_prefix("snap.").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        newest = newest.max(position.unwrap_or(0));
    }
    Ok(newest)
}
