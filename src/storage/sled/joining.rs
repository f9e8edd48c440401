//! Records of a stream that follow each other, and are written to the tree at about the same time, become one row there.

use foldhash::HashSet;
use sled::IVec;

use super::overlay::Rows;
use super::rows::{self, Content, MAX_RECORDS, PayloadRow, Records};

/// The most bytes of records that share a row. Whoever reads one of them reads the row.
const MAX_BYTES: usize = 8 << 10;

/// The row that is being made.
struct Joined {
    /// The key of the first record's row.
    row: Vec<u8>,
    /// The row of the first record alone.
    first: IVec,
    payloads: Vec<u8>,
    count: u64,
    /// The keys of the other records that the tree may have rows of.
    removed: Vec<Vec<u8>>,
}

impl Joined {
    fn add_to(self, rows: &mut Vec<(Vec<u8>, Option<IVec>)>) {
        let Self { row, first, payloads, count, removed } = self;
        let sealed = if count == 1 {
            first
        } else {
            let content = Content::Records(Records::of_pushed(&payloads));
            PayloadRow { revision: 0, expires_at: None, content }.seal(&row)
        };
        rows.push((row, Some(sealed)));
        rows.extend(removed.into_iter().map(|row| (row, None)));
    }

    /// Whether the row of a record is the next one of the stream, and has space here.
    fn takes(&self, row: &[u8], payload: &[u8]) -> bool {
        let follows = || {
            let (stream, number) = self.row.split_last_chunk::<8>()?;
            let (other, next) = row.split_last_chunk::<8>()?;
            Some(stream == other && u64::from_be_bytes(*number) + self.count == u64::from_be_bytes(*next))
        };
        self.count < MAX_RECORDS && self.payloads.len() + payload.len() <= MAX_BYTES && follows() == Some(true)
    }
}

/// The same rows, with records joined. The tree may have rows of the keys in `again`, of other records.
pub(super) fn with_joined_records(rows: &Rows, again: &HashSet<Vec<u8>>) -> Rows {
    let mut joined: Vec<(Vec<u8>, Option<IVec>)> = Vec::with_capacity(rows.len());
    let mut current: Option<Joined> = None;
    for (row, sealed) in rows {
        let record = sealed.as_ref().filter(|_| rows::is_of_stream(row));
        let payload = record.and_then(|sealed| short_payload(row, sealed).map(|payload| (sealed, payload)));
        let Some((sealed, payload)) = payload else {
            current.take().into_iter().for_each(|current| current.add_to(&mut joined));
            joined.push((row.clone(), sealed.clone()));
            continue;
        };
        if let Some(current) = current.as_mut().filter(|current| current.takes(row, payload)) {
            Records::push(&mut current.payloads, payload);
            current.count += 1;
            current.removed.extend(again.get(row).cloned());
            continue;
        }
        current.take().into_iter().for_each(|current| current.add_to(&mut joined));
        let mut payloads = Vec::new();
        Records::push(&mut payloads, payload);
        current = Some(Joined { row: row.clone(), first: sealed.clone(), payloads, count: 1, removed: Vec::new() });
    }
    current.into_iter().for_each(|current| current.add_to(&mut joined));
    // They are in order.
    joined.into_iter().collect()
}

/// The payload of a single record that is in its row.
fn short_payload<'a>(row: &[u8], sealed: &'a IVec) -> Option<&'a [u8]> {
    match PayloadRow::unseal(row, sealed).ok()?.content {
        Content::Inline(payload) if payload.len() < MAX_BYTES => Some(payload),
        Content::Inline(_) | Content::File(_) | Content::Records(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Key;

    fn record(stream: &str, sequence: u64, payload: &[u8]) -> (Vec<u8>, Option<IVec>) {
        let row = rows::record(&Key::new([stream]), sequence);
        let sealed = PayloadRow { revision: 0, expires_at: None, content: Content::Inline(payload) }.seal(&row);
        (row, Some(sealed))
    }

    /// The streams' records, by the keys and contents of their rows.
    fn records(rows: &Rows) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
        let mut found = Vec::new();
        for (row, sealed) in rows {
            let Some(sealed) = sealed.as_ref().filter(|_| rows::is_of_stream(row)) else { continue };
            let (stream, first) = (&row[..row.len() - 8], rows::number_of(row).unwrap());
            match PayloadRow::unseal(row, sealed).unwrap().content {
                Content::Records(records) => {
                    let payloads = (first..).zip(records.payloads());
                    found.extend(payloads.map(|(sequence, payload)| (stream.to_vec(), sequence, payload.to_vec())));
                }
                Content::Inline(payload) => found.push((stream.to_vec(), first, payload.to_vec())),
                Content::File(_) => unreachable!(),
            }
        }
        found
    }

    #[test]
    fn records_that_follow_each_other_share_a_row_and_nothing_else_does() {
        let mut alone: Rows = (1..=4).map(|sequence| record("a", sequence, b"one")).collect();
        alone.extend([record("b", 5, b"other"), record("b", 7, b"gap"), record("b", 8, b"")]);
        let removed = (rows::record(&Key::new(["b"]), 9), None);
        alone.extend([removed.clone(), record("b", 10, b"after a removed one")]);
        alone.extend((1..=200).map(|sequence| record("c", sequence, b"many")));
        alone.extend((1..=5).map(|sequence| record("d", sequence, &[7; 3_000])));
        alone.extend([record("e", 1, &[7; MAX_BYTES]), record("e", 2, b"after a long one")]);
        let value = rows::value(&Key::new(["v"]));
        alone.insert(
            value.clone(),
            Some(PayloadRow { revision: 1, expires_at: None, content: Content::Inline(b"v") }.seal(&value)),
        );
        let again: HashSet<Vec<u8>> = [1, 3].into_iter().map(|sequence| record("a", sequence, b"").0).collect();
        let joined = with_joined_records(&alone, &again);
        assert_eq!(records(&joined), records(&alone));
        assert_eq!(joined.get(&removed.0), Some(&None));
        assert_eq!(joined.get(&record("a", 3, b"").0), Some(&None), "the tree may have another one");
        assert!(!joined.contains_key(&record("a", 2, b"").0));
        let rows_of = |stream: &str| {
            let (start, end) = rows::records(&Key::new([stream]), 0, u64::MAX);
            joined.range((start, end)).filter(|(_, sealed)| sealed.is_some()).count()
        };
        assert_eq!(["a", "b", "c", "d", "e"].map(rows_of), [1, 3, 4, 3, 2]);
    }
}
