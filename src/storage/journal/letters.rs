//! What people decided about dead letters. The letters themselves are events; these notes are kept beside the journal,
//! because their run has mostly ended.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::messages::{Durability, RunId, TurnId};

use super::super::codec::{self, Stored};
use super::super::{Entry, Expected, Key, Put, StorageError};
use super::Journal;

/// What became of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LetterNote {
    /// A run with this id takes over.
    Retried(RunId),
    /// It was dismissed and is no longer listed.
    Dropped,
}

impl Stored for LetterNote {
    const SCHEMA: u16 = 5;
    const VERSION: u16 = 1;
    const NAME: &'static str = "letter-note";
}

const LETTER: &str = "letter";

impl Journal {
    /// What was decided about the dead letters of a run, by the numbers of their turns.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn letter_notes(&self, run: RunId) -> Result<BTreeMap<u32, LetterNote>, StorageError> {
        let prefix = Self::key_of(LETTER, run).children();
        let note = async |(key, entry): (Key, Entry)| {
            let turn = key.segments().get(2).and_then(|turn| turn.parse().ok());
            turn.map(|turn| Ok((turn, decode(&key, &entry.value)?))).transpose()
        };
        self.entries(prefix).try_filter_map(note).try_collect().await
    }

    /// Notes what becomes of a letter, and returns what holds now: the first retry stays, and a drop replaces it.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn note_letter(
        &self,
        letter: TurnId,
        note: LetterNote,
        durability: Durability,
    ) -> Result<LetterNote, StorageError> {
        let key = letter_key(letter);
        loop {
            let entry = self.storage.get(&key).await?;
            let before = entry.as_ref().map(|entry| decode(&key, &entry.value)).transpose()?;
            if let (Some(before), LetterNote::Retried(_)) | (Some(before @ LetterNote::Dropped), _) = (before, note) {
                return Ok(before);
            }
            let expected = entry.map_or(Expected::Absent, |entry| Expected::Revision(entry.revision));
            let value = codec::encode_shared(&note);
            let put = Put { expected, durability, ..Put::new(key.clone(), value) };
            match self.storage.put_if_revision(put).await {
                Ok(_) => return Ok(note),
                // Another write was first: look at what it wrote.
                Err(StorageError::WrongRevision { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Forgets what was decided about the letters of a run.
    pub(super) async fn forget_letters(&self, run: RunId) -> Result<(), StorageError> {
        // Most runs have none.
        if self.storage.scan(&Self::key_of(LETTER, run).children(), None, 1).await?.is_empty() {
            return Ok(());
        }
        for turn in self.letter_notes(run).await?.into_keys() {
            self.delete(letter_key(TurnId { run, number: turn })).await?;
        }
        Ok(())
    }
}

fn letter_key(letter: TurnId) -> Key {
    Journal::key_of(LETTER, letter.run).child(&letter.number.to_string())
}

fn decode(key: &Key, bytes: &[u8]) -> Result<LetterNote, StorageError> {
    codec::decode(bytes).map_err(|error| StorageError::Corrupt { key: key.clone(), detail: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_bytes_of_a_note_are_golden() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        crate::testing::golden::check(folder, &LetterNote::Retried(RunId(Uuid::from_u128(7))));
    }
}
