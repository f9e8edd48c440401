//! A look at what the journal notes beside the records: rows that nobody can read, and that everybody who reads the rest leaves out.

use futures::TryStreamExt;

use crate::storage::{Entry, Key, StorageError, codec};

use super::listed::{LISTED, ended_run};
use super::mail::{MAIL, letter_of};
use super::open::{OpenNote, run_of_note};
use super::skipped::{NO_LETTER, NO_RUN, NOT_LISTED, name_of};
use super::{Journal, OPEN};

/// Why a row cannot be read; `None` if it can.
type Why = fn(&Key, &Entry) -> Option<String>;

impl Journal {
    /// The notes of open runs, the rows of the list of ended runs, and the letters of boards that cannot be read, each by its name, as logs have
    /// it, with the reason, for people. A letter that another build can read counts as readable.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn unreadable_notes(&self) -> Result<Vec<(String, String)>, StorageError> {
        let mut unreadable = Vec::new();
        let kinds: [(&str, Why); 3] = [(OPEN, why_no_open_note), (LISTED, why_not_listed), (MAIL, why_no_letter)];
        for (kind, why) in kinds {
            // That the rows are complete is noted under the key above them.
            let above = Key::new([kind]);
            let rows = self.entries(above.children());
            let found = rows.try_filter_map(async |(key, entry)| {
                let why = if key == above { None } else { why(&key, &entry) };
                Ok(why.map(|why| (name_of(&key), why)))
            });
            unreadable.extend(found.try_collect::<Vec<_>>().await?);
        }
        Ok(unreadable)
    }
}

fn why_no_open_note(key: &Key, entry: &Entry) -> Option<String> {
    if run_of_note(key).is_none() {
        return Some(NO_RUN.to_owned());
    }
    (!OpenNote::is_readable(&entry.value)).then(|| "it is not the note of an open run".to_owned())
}

fn why_not_listed(key: &Key, entry: &Entry) -> Option<String> {
    ended_run(key, &entry.value).is_none().then(|| NOT_LISTED.to_owned())
}

fn why_no_letter(key: &Key, entry: &Entry) -> Option<String> {
    if letter_of(key).is_none() {
        return Some(NO_LETTER.to_owned());
    }
    codec::check(&entry.value).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use uuid::Uuid;

    use super::*;
    use crate::messages::{AgentName, RunId, Timestamp};
    use crate::storage::journal::Listing;
    use crate::storage::{Memory, Put, Storage as _};

    const ID: &str = "019a0000000070008000000000000001";

    fn run(number: u128) -> RunId {
        RunId(Uuid::from_u128(number))
    }

    fn listing(millis: u64) -> Listing {
        let (submitted_at, agent) = (Timestamp::from_millis(millis), AgentName::new("coder").unwrap());
        Listing { submitted_at, agent, outcome: "finished" }
    }

    async fn write(store: &Memory, key: &[&str], value: &[u8]) {
        store.put_if_revision(Put::new(Key::new(key.iter().copied()), value.into())).await.unwrap();
    }

    /// How often what is read twice reports this row.
    async fn reports(row: &str, read: impl AsyncFn()) -> usize {
        #[derive(Clone, Default)]
        struct Log(Arc<Mutex<Vec<u8>>>);

        impl io::Write for Log {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().write(bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        read().await;
        read().await;
        let logged = String::from_utf8(log.0.lock().clone()).unwrap();
        logged.matches(&format!("WARN callboard::storage::journal::skipped: a row of the store cannot be read, and is left out; `callboard store check` lists all of them row={row} why=")).count()
    }

    #[tokio::test]
    async fn rows_that_nobody_can_read_are_found_and_others_are_not() {
        let store = Arc::new(Memory::default());
        let journal = Journal::new(Arc::clone(&store) as _);
        journal.mark_open(run(7), "board").await.unwrap();
        journal.list(run(7), &listing(5)).await.unwrap();
        journal.note_all_listed().await.unwrap();
        assert_eq!(journal.unreadable_notes().await, Ok(Vec::new()));
        let id = run(7).0.as_simple().to_string();
        let wrong: [(&[&str], &[u8]); 10] = [
            (&["open", "019A0000000070008000000000000001"], b"board"),
            (&["open", ID], b"\xff"),
            (&["open", "nobody"], b"board"),
            (&["open", ID, "more"], b"board"),
            (&["listed", "00000000000000000001", &id], b"finished"),
            (&["listed", "1", &id], b"finished\ncoder"),
            (&["listed", "soon", &id], b"finished\ncoder"),
            (&["mail", "board"], b""),
            (&["mail", "board", &id], b"hello"),
            (&["mail", "board", "soon"], b""),
        ];
        for (key, value) in wrong {
            write(&store, key, value).await;
        }
        let found: Vec<String> = journal.unreadable_notes().await.unwrap().into_iter().map(|(name, _)| name).collect();
        let mut expected: Vec<Key> = wrong.map(|(key, _)| Key::new(key.iter().copied())).into();
        expected.sort_by_key(|key| {
            (["open", "listed", "mail"].iter().position(|kind| key.segments()[0] == **kind), key.clone())
        });
        assert_eq!(found, expected.iter().map(|key| key.segments().join("/")).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_row_that_names_no_open_run_is_left_out_and_reported_once() {
        let store = Arc::new(Memory::default());
        let journal = Journal::new(Arc::clone(&store) as _);
        journal.mark_open(run(7), "board").await.unwrap();
        write(&store, &["open", "no\u{1b}body"], b"board").await;
        let named = reports("open/no\\u{1b}body", async || {
            assert_eq!(journal.clone().open_runs().await.unwrap(), [run(7)]);
        });
        assert_eq!(named.await, 1);
    }

    #[tokio::test]
    async fn a_row_that_lists_no_run_is_left_out_of_full_pages_reported_once_and_not_deleted() {
        let store = Arc::new(Memory::default());
        let journal = Journal::new(Arc::clone(&store) as _);
        for number in 1..=3 {
            journal.list(run(number), &listing(number as u64)).await.unwrap();
        }
        // Another spelling of a time: pages after its run would begin before it again.
        write(&store, &["listed", "1", ID], b"finished\ncoder").await;
        write(&store, &["listed", "00000000000000000001", ID], b"finished").await;
        write(&store, &["listed", "soon"], b"").await;
        let pages_of = async |limit: usize| {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = journal.listed(after, limit).await.unwrap();
                after = page.last().map(|ended| (ended.submitted_at, ended.run));
                found.extend(page.iter().map(|ended| ended.run));
                if page.len() < limit || found.len() > 3 {
                    return found;
                }
            }
        };
        let named = reports("listed/soon", async || {
            for limit in 1..=4 {
                assert_eq!(pages_of(limit).await, [run(3), run(2), run(1)], "pages of {limit}");
            }
        });
        assert_eq!(named.await, 1);
        // None of the runs has a journal.
        journal.forget_ended_before(Timestamp::from_millis(9)).await.unwrap();
        assert_eq!(journal.listed(None, 9).await, Ok(Vec::new()));
        let left = journal.unreadable_notes().await.unwrap();
        assert_eq!(left.len(), 3, "{left:?}");
    }

    #[tokio::test]
    async fn a_row_that_is_no_letter_is_left_out_reported_once_and_not_deleted() {
        let store = Arc::new(Memory::default());
        let journal = Journal::new(Arc::clone(&store) as _);
        write(&store, &["mail", "gone", ID], b"x").await;
        write(&store, &["mail", "gone", "soon"], b"x").await;
        let named = reports("mail/gone/soon", async || {
            journal.discard_mail("gone").await.unwrap();
            journal.discard_mail_to_nobody().await.unwrap();
        });
        assert_eq!(named.await, 1);
        let left = store.scan(&Key::new(["mail"]).children(), None, 9).await.unwrap();
        assert_eq!(left.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), [Key::new(["mail", "gone", "soon"])]);
    }
}
