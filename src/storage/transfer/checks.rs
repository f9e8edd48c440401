//! What an import refuses before it writes it: records that contradict the line before them, and what no board could read
//! afterwards. Keys that are not the board's may hold anything.

use crate::messages::RunEvent;
use crate::storage::codec::{self, CodecError};
use crate::storage::{Journal, Key, Sequence, StorageError, limits};

use super::{MAX_PURGED, Parcel, Transfer};

/// The remedy for a line that is not as it was written.
pub(super) const OTHER_COPY: &str = "use another copy of the export";

/// Values that boards write in the encoding of the codec: the first segment of their keys, and how many segments these have.
const ENCODED: [(&str, usize); 10] = [
    ("approval", 2),
    ("context", 3),
    ("conversation", 3),
    ("conversation-messages", 3),
    ("day-ledger", 2),
    ("failures", 4),
    ("kept-agent", 3),
    ("letter", 3),
    ("snapshot", 2),
    ("workflow", 2),
];

/// The lines of an import so far.
#[derive(Default)]
pub(super) struct Checks {
    /// The stream of the last record, and its sequence.
    stream: Option<(Key, Sequence)>,
    /// How much was read.
    pub(super) read: Transfer,
}

impl Checks {
    /// Checks what the next line holds.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub(super) fn check(&mut self, parcel: &Parcel) -> Result<(), String> {
        match parcel {
            Parcel::Record { stream, sequence, payload } => {
                self.read.records += 1;
                self.check_sequence(stream, *sequence)?;
                check_record(stream, *sequence, payload)
            }
            Parcel::Value { key, value, .. } => {
                self.read.values += 1;
                check_value(key, value)
            }
        }
    }

    /// Only the beginning of a stream may be missing; a gap further on is damage.
    fn check_sequence(&mut self, stream: &Key, sequence: Sequence) -> Result<(), String> {
        limits::check_key(stream).map_err(|error| with_remedy(&error))?;
        let last = self.stream.take().filter(|(name, _)| name == stream).map(|(_, last)| last);
        match last {
            Some(last) if last.checked_add(1) != Some(sequence) => {
                Err(format!("record {sequence} of {stream} follows record {last}; {OTHER_COPY}"))
            }
            None if sequence == 0 => Err(format!("the sequence of a record is 1 or more; {OTHER_COPY}")),
            None if sequence - 1 > MAX_PURGED => Err(format!(
                "the first record of {stream} has the sequence {sequence}, and at most {MAX_PURGED} may be missing before it; \
                 {OTHER_COPY}"
            )),
            Some(_) | None => {
                self.stream = Some((stream.clone(), sequence));
                Ok(())
            }
        }
    }
}

fn check_record(stream: &Key, sequence: Sequence, payload: &[u8]) -> Result<(), String> {
    let Some(run) = Journal::run_of_stream(stream) else { return Ok(()) };
    let events = Journal::decode(payload)
        .map_err(|error| format!("record {sequence} of run {run} cannot be read: {error}{}", remedy(&error)))?;
    let is_first = sequence == 1;
    match events.first() {
        Some(RunEvent::Submitted(_)) if !is_first => {
            Err(format!("the first record of run {run} has the sequence {sequence}; {OTHER_COPY}"))
        }
        Some(RunEvent::Submitted(submission)) if submission.run != run => {
            Err(format!("record 1 of run {run} is that of run {}; {OTHER_COPY}", submission.run))
        }
        Some(RunEvent::Submitted(_)) => Ok(()),
        Some(_) | None if is_first => {
            Err(format!("record 1 of run {run} does not begin with the submission of its task; {OTHER_COPY}"))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_value(key: &Key, value: &[u8]) -> Result<(), String> {
    limits::check_key(key).map_err(|error| with_remedy(&error))?;
    let segments = key.segments();
    let is_encoded = segments.first().is_some_and(|kind| ENCODED.contains(&(kind.as_str(), segments.len())));
    if !is_encoded {
        return Ok(());
    }
    codec::check(value).map_err(|error| format!("the value of {key} cannot be read: {error}{}", remedy(&error)))
}

/// The text of a refusal, with what to do.
pub(super) fn with_remedy(error: &StorageError) -> String {
    format!("{error}; {OTHER_COPY}")
}

/// What to do about a record that cannot be read, to be put behind the error; nothing where the error itself has it.
fn remedy(error: &CodecError) -> String {
    match error {
        CodecError::NewerVersion { .. } => "; import it with that version".to_owned(),
        CodecError::RetiredVersion { .. } => String::new(),
        CodecError::NotARecord
        | CodecError::WrongLength { .. }
        | CodecError::TooLong { .. }
        | CodecError::Damaged
        | CodecError::WrongSchema { .. }
        | CodecError::Malformed { .. } => format!("; {OTHER_COPY}"),
    }
}
