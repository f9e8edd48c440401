//! Rules of streams.

use futures::future::join_all;

use super::subject::{Subject, expect};
use crate::storage::{Key, Record, StorageError};

fn stream() -> Key {
    Key::new(["run", "1"])
}

fn numbered(range: std::ops::RangeInclusive<u64>) -> Vec<(u64, String)> {
    range.map(|number| (number, number.to_string())).collect()
}

impl Subject {
    /// A stream with the records "1" to "`count`".
    async fn filled(&self, stream: &Key, count: u64) {
        for number in 1..=count {
            assert_eq!(self.append(stream, number - 1, &number.to_string()).await, Ok(number));
        }
    }
}

/// The first record has sequence 1.
pub(super) async fn appends_count_from_one(subject: Subject) {
    assert_eq!(subject.records(&stream()).await, []);
    subject.filled(&stream(), 3).await;
    assert_eq!(subject.records(&stream()).await, numbered(1..=3));
}

/// The refusal names both sequences.
pub(super) async fn an_append_that_expects_another_sequence_is_refused_and_writes_nothing(subject: Subject) {
    subject.filled(&stream(), 2).await;
    for expected in [0, 1, 3, u64::MAX] {
        let refused = StorageError::WrongSequence { stream: stream(), expected, actual: 2 };
        assert_eq!(subject.append(&stream(), expected, "late").await, Err(refused));
    }
    assert_eq!(subject.records(&stream()).await, numbered(1..=2));
}

/// Appends are linearisable.
pub(super) async fn of_concurrent_appends_exactly_one_wins(subject: Subject) {
    let results = join_all((0..20).map(|_| async { subject.append(&stream(), 0, "x").await })).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert_eq!(subject.records(&stream()).await.len(), 1);
}

/// `from` and `limit` are kept.
pub(super) async fn reads_start_where_asked_and_stop_at_the_limit(subject: Subject) {
    subject.filled(&stream(), 5).await;
    for (from, limit, expected) in
        [(0, 2, vec![1, 2]), (1, 1, vec![1]), (4, 9, vec![4, 5]), (6, 9, vec![]), (2, 0, vec![])]
    {
        let records = expect(subject.store().read(&stream(), from, limit).await);
        assert_eq!(records.iter().map(|record| record.sequence).collect::<Vec<_>>(), expected, "{from} {limit}");
    }
}

/// Listing takes whole segments or the beginning of one.
pub(super) async fn streams_are_listed_by_prefix_in_order(subject: Subject) {
    let names = [["run", "a"], ["run", "b"], ["run", "ba"], ["runs", "a"]].map(Key::new);
    for name in names.iter().rev() {
        subject.filled(name, 2).await;
    }
    let listed = async |prefix| expect(subject.store().streams(&prefix, None, usize::MAX).await);
    assert_eq!(listed(Key::new([]).children()).await, names);
    assert_eq!(listed(Key::new(["run"]).children()).await, names[..3]);
    assert_eq!(listed(Key::new(["run"]).children_beginning_with("b")).await, names[1..3]);
    assert_eq!(listed(Key::new(["none"]).children()).await, []);
    let page = async |after: &Key, limit| {
        expect(subject.store().streams(&Key::new(["run"]).children(), Some(after), limit).await)
    };
    assert_eq!(page(&Key::new(["a"]), 2).await, names[..2], "a key before the prefix");
    assert_eq!(page(&names[0], 1).await, names[1..2]);
    assert_eq!(page(&Key::new(["run", "aa"]), 9).await, names[1..3], "a key that is no stream");
    assert_eq!(page(&names[2], 9).await, []);
    assert_eq!(page(&names[0], 0).await, []);
}

/// Several keys or streams at once, some of which are not there, one of them twice.
pub(super) async fn what_is_read_at_once_is_what_single_reads_return(subject: Subject) {
    let store = subject.store();
    let keys = ["b", "none", "a", "b"].map(|name| Key::new([name]));
    for (key, records) in [(&keys[0], 5), (&keys[2], 2)] {
        subject.filled(key, records).await;
        expect(store.put_if_revision(crate::storage::Put::new(key.clone(), key.as_bytes().into())).await);
    }
    let entries = expect(store.get_many(&keys).await);
    let streams: Vec<_> = keys.iter().cloned().zip([3, 1, 1, 1]).collect();
    let records = expect(store.read_many(&streams, 2).await);
    assert_eq!((entries.len(), records.len()), (4, 4));
    for ((entry, records), (key, from)) in entries.into_iter().zip(records).zip(&streams) {
        assert_eq!(entry, store.get(key).await, "{key}");
        assert_eq!(records, store.read(key, *from, 2).await, "{key}");
    }
    assert_eq!((store.get_many(&[]).await, store.read_many(&[], 1).await), (Ok(Vec::new()), Ok(Vec::new())));
}

/// Names that are prefixes of each other, or differ in where a segment ends, are different streams.
pub(super) async fn a_stream_does_not_show_records_of_streams_with_similar_names(subject: Subject) {
    let hostile = ["", "a", "a/b", "b", "a\0b", "a\0", "\0", "\u{1}", "ä", "\0\u{1}"];
    let mut names = vec![Key::new([])];
    names.extend(hostile.iter().map(|name| Key::new([*name])));
    names.extend(hostile.iter().flat_map(|left| hostile.iter().map(move |right| Key::new([*left, *right]))));
    for (number, name) in names.iter().enumerate() {
        assert_eq!(subject.append(name, 0, &number.to_string()).await, Ok(1), "{name}");
    }
    for (number, name) in names.iter().enumerate() {
        assert_eq!(subject.records(name).await, [(1, number.to_string())], "{name}");
    }
    names.sort();
    assert_eq!(expect(subject.store().streams(&Key::new([]).children(), None, usize::MAX).await), names);
}

/// Empty, binary and long payloads; lengths near powers of two and near 64 KiB.
pub(super) async fn payloads_return_byte_for_byte(subject: Subject) {
    let sizes = [0, 1, 255, 4096, 65_000, 65_535, 65_536, 65_537, 200_000, 3_000_000];
    for (last, size) in (0..).zip(sizes) {
        let payload: Vec<u8> = (0..size).map(|byte| (byte * 31 % 251) as u8).collect();
        let append = crate::storage::Append::new(stream(), last, payload.clone().into());
        expect(subject.store().append(append).await);
        let records = expect(subject.store().read(&stream(), last + 1, 1).await);
        assert!(records[0].payload[..] == payload[..], "{size} bytes");
    }
}

/// A purge removes a beginning of the stream and leaves the rest with its sequences.
pub(super) async fn purged_records_are_gone_and_sequences_continue(subject: Subject) {
    subject.filled(&stream(), 4).await;
    for up_to in [2, 1, 0, 2] {
        expect(subject.store().purge(&stream(), up_to).await);
        assert_eq!(subject.records(&stream()).await, numbered(3..=4));
    }
    assert_eq!(subject.append(&stream(), 4, "5").await, Ok(5));
    assert_eq!(subject.records(&stream()).await, numbered(3..=5));
    expect(subject.store().purge(&Key::new(["unknown"]), 7).await);
}

/// Purging everything ends a stream; its name can be used again from sequence 1.
pub(super) async fn a_stream_without_records_is_forgotten(subject: Subject) {
    subject.filled(&stream(), 3).await;
    expect(subject.store().purge(&stream(), u64::MAX).await);
    assert_eq!(subject.records(&stream()).await, []);
    assert_eq!(expect(subject.store().streams(&Key::new([]).children(), None, usize::MAX).await), []);
    subject.filled(&stream(), 1).await;
    assert_eq!(subject.records(&stream()).await, numbered(1..=1));
}

/// The limits are the same for every store.
pub(super) async fn what_is_too_large_is_refused(subject: Subject) {
    let too_large = |result| assert!(matches!(result, Err(StorageError::TooLarge { .. })), "{result:?}");
    too_large(subject.append(&Key::new([&*"k".repeat(Key::MAX)]), 0, "x").await);
    too_large(subject.append(&stream(), 0, &"x".repeat(Record::MAX + 1)).await);
    let longest = Key::new([&*"k".repeat(Key::MAX - 2)]);
    assert_eq!(subject.append(&longest, 0, "x").await, Ok(1));
    assert_eq!(subject.records(&stream()).await, []);
}
