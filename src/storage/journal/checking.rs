//! A look at what the journal notes beside the records: rows that nobody can read, and that everybody who reads the rest leaves out.

use futures::TryStreamExt;

use crate::storage::{Entry, Key, StorageError, codec};

use super::listed::{LISTED, ended_run};
use super::mail::MAIL;
use super::open::OpenNote;
use super::{Journal, OPEN, run_of};

/// Why a row cannot be read; `None` if it can.
type Why = fn(&Key, &Entry) -> Option<String>;

impl Journal {
    /// The notes of open runs, the rows of the list of ended runs, and the letters of boards that cannot be read, each with the reason, for
    /// people. A letter that another build can read counts as readable.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn unreadable_notes(&self) -> Result<Vec<(Key, String)>, StorageError> {
        let mut unreadable = Vec::new();
        let kinds: [(&str, Why); 3] = [(OPEN, why_no_open_note), (LISTED, why_not_listed), (MAIL, why_no_letter)];
        for (kind, why) in kinds {
            // That the rows are complete is noted under the key above them.
            let above = Key::new([kind]);
            let rows = self.entries(above.children());
            let found = rows.try_filter_map(async |(key, entry)| {
                let why = if key == above { None } else { why(&key, &entry) };
                Ok(why.map(|why| (key, why)))
            });
            unreadable.extend(found.try_collect::<Vec<_>>().await?);
        }
        Ok(unreadable)
    }
}

fn why_no_open_note(key: &Key, entry: &Entry) -> Option<String> {
    if run_of(key).is_none() {
        return Some("its key names no run".to_owned());
    }
    (!OpenNote::is_readable(&entry.value)).then(|| "it is not the note of an open run".to_owned())
}

fn why_not_listed(key: &Key, entry: &Entry) -> Option<String> {
    ended_run(key, &entry.value).is_none().then(|| "it is not the row of an ended run".to_owned())
}

fn why_no_letter(key: &Key, entry: &Entry) -> Option<String> {
    if key.segments().len() != 3 {
        return Some("its key names no letter to a board".to_owned());
    }
    codec::check(&entry.value).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::messages::{AgentName, RunId, Timestamp};
    use crate::storage::journal::Listing;
    use crate::storage::{Memory, Put, Storage as _};

    #[tokio::test]
    async fn rows_that_nobody_can_read_are_found_and_others_are_not() {
        let store = Arc::new(Memory::default());
        let (journal, run) = (Journal::new(Arc::clone(&store) as _), RunId(Uuid::from_u128(7)));
        journal.mark_open(run, "board").await.unwrap();
        let listing = Listing {
            submitted_at: Timestamp::from_millis(5),
            agent: AgentName::new("coder").unwrap(),
            outcome: "finished",
        };
        journal.list(run, &listing).await.unwrap();
        journal.note_all_listed().await.unwrap();
        assert_eq!(journal.unreadable_notes().await, Ok(Vec::new()));
        let id = run.0.as_simple().to_string();
        let wrong: [(&[&str], &[u8]); 6] = [
            (&["open", "nobody"], b"board"),
            (&["open", "019a0000000070008000000000000001"], b"\xff"),
            (&["listed", "soon", &id], b"finished\ncoder"),
            (&["listed", "00000000000000000001", &id], b"finished"),
            (&["mail", "board"], b""),
            (&["mail", "board", &id], b"hello"),
        ];
        for (key, value) in wrong {
            store.put_if_revision(Put::new(Key::new(key.iter().copied()), value.into())).await.unwrap();
        }
        let found: Vec<Key> = journal.unreadable_notes().await.unwrap().into_iter().map(|(key, _)| key).collect();
        let mut expected: Vec<Key> = wrong.map(|(key, _)| Key::new(key.iter().copied())).into();
        expected.sort_by_key(|key| {
            (["open", "listed", "mail"].iter().position(|kind| key.segments()[0] == **kind), key.clone())
        });
        assert_eq!(found, expected);
    }
}
