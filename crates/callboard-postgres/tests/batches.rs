//! Large batches are made as sets of rows: what they answer and leave is that of one write after the other.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use support::Server;
use tokio_postgres::{Client, Row};

mod support;

/// When the batches are written, in milliseconds; what was put before and has expired by then is absent.
const NOW: i64 = 1_000_000;

/// A write, with the number of its key.
#[derive(Clone, Debug)]
enum Write {
    /// An append that expects as many records as there are, or another number, with riders: puts and deletes.
    Append {
        stream: u8,
        wrong: Option<i64>,
        riders: Vec<(u8, bool)>,
    },
    Put {
        key: u8,
        expected: Expected,
        ttl: i64,
    },
    Delete {
        key: u8,
        expected: Expected,
    },
    Purge {
        stream: u8,
    },
}

/// The revision that a write expects.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    Any,
    Absent,
    /// That before the batch.
    Current,
    /// One that the key never had.
    Wrong,
}

/// The arrays of `callboard.write`.
#[derive(Debug, Default)]
struct Steps {
    kinds: Vec<i16>,
    keys: Vec<Vec<u8>>,
    sessions: Vec<i64>,
    firsts: Vec<i64>,
    seconds: Vec<i64>,
    feeds: Vec<bool>,
    bodies: Vec<Vec<u8>>,
}

impl Steps {
    fn push(&mut self, session: i64, kind: i16, key: Vec<u8>, first: i64, second: i64) {
        self.bodies.push([&key[..], &kind.to_be_bytes(), &first.clamp(0, 9).to_be_bytes()].concat());
        self.kinds.push(kind);
        self.sessions.push(session);
        self.firsts.push(first);
        self.seconds.push(second);
        self.feeds.push(key.last().is_some_and(|last| last % 3 == 0));
        self.keys.push(key);
    }
}

/// A schema that the batches are written to.
struct Side {
    client: Client,
    schema: String,
    lane: i64,
    session: i64,
    batch: i64,
}

impl Side {
    async fn open(server: &Server) -> Self {
        let (client, schema) = (server.client().await, server.fresh_schema().await);
        let id = async |sql: String| client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0);
        let lane = id(format!("SELECT {schema}.register_lane()")).await;
        let session = id(format!("SELECT session FROM {schema}.begin_session('a', '', 600000, 'token', 0)")).await;
        Self { client, schema, lane, session, batch: 0 }
    }

    async fn rows(&self, sql: &str) -> Vec<Row> {
        self.client.query(&sql.replace("callboard.", &format!("{}.", self.schema)), &[]).await.unwrap()
    }

    async fn numbers(&self, sql: &str) -> BTreeMap<Vec<u8>, i64> {
        self.rows(sql).await.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn revisions(&self) -> BTreeMap<Vec<u8>, i64> {
        self.numbers("SELECT key, revision FROM callboard.entries").await
    }

    /// The steps of these writes, for what is there now.
    async fn steps(&self, writes: &[Write]) -> Vec<Steps> {
        let lasts = self.numbers("SELECT stream, last FROM callboard.streams").await;
        let revisions = self.revisions().await;
        let first = |key: &[u8], expected| match expected {
            Expected::Any => -1,
            Expected::Absent => 0,
            Expected::Current => revisions.get(key).copied().unwrap_or(0),
            Expected::Wrong => i64::MAX,
        };
        let mut appended = BTreeMap::new();
        let steps = writes.iter().map(|write| {
            let mut steps = Steps::default();
            let mut push = |kind, key, first, second| steps.push(self.session, kind, key, first, second);
            match write {
                Write::Append { stream, wrong, riders } => {
                    let key = vec![b's', *stream];
                    let last = appended.entry(*stream).or_insert_with(|| lasts.get(&key).copied().unwrap_or(0));
                    let first = wrong.unwrap_or(*last);
                    push(1, key, first, 0);
                    *last += i64::from(first == *last);
                    for (rider, is_put) in riders {
                        push(if *is_put { 5 } else { 6 }, vec![b'k', *rider], -1, -1);
                    }
                }
                Write::Put { key, expected, ttl } => {
                    let key = vec![b'k', *key];
                    let first = first(&key, *expected);
                    push(2, key, first, *ttl);
                }
                Write::Delete { key, expected } => {
                    let key = vec![b'k', *key];
                    let first = first(&key, *expected);
                    push(3, key, first, 0);
                }
                Write::Purge { stream } => push(4, vec![b's', *stream], 1, 0),
            }
            steps
        });
        steps.collect()
    }

    /// The outcomes and answers of a batch.
    async fn write(&mut self, at: i64, steps: &Steps) -> Vec<(i16, i64)> {
        self.batch += 1;
        let sql =
            format!("SELECT outcomes, answers FROM {}.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", self.schema);
        let Steps { kinds, keys, sessions, firsts, seconds, feeds, bodies } = steps;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 10] =
            [&self.lane, &self.batch, &at, kinds, keys, sessions, firsts, seconds, feeds, bodies];
        let row = self.client.query_one(&sql, &parameters).await.unwrap();
        row.get::<_, Vec<i16>>(0).into_iter().zip(row.get::<_, Vec<i64>>(1)).collect()
    }

    /// The content, in which revisions are left out.
    async fn content(&self) -> Vec<String> {
        let sql = "
            SELECT format('%s %s %s', stream, last, purged) FROM callboard.streams
            UNION ALL SELECT format('%s %s %s', stream, sequence, body) FROM callboard.journal
            UNION ALL SELECT format('%s %s %s', key, coalesce(expires, -1), value) FROM callboard.entries
            UNION ALL SELECT format('changed %s', key) FROM callboard.changes
            ORDER BY 1";
        self.rows(sql).await.iter().map(|row| row.get(0)).collect()
    }

    /// Whether the last batch was made as sets, which is a transaction within that of the batch.
    async fn has_written_sets(&self) -> bool {
        let sql = "SELECT (SELECT xmin FROM callboard.journal ORDER BY sequence DESC LIMIT 1) <> (SELECT xmin FROM callboard.lanes)";
        self.rows(sql).await[0].get(0)
    }
}

/// The answers in a form that is the same where revisions have other numbers: those of puts and deletes only as whether there is one.
fn comparable(steps: &Steps, answers: &[(i16, i64)]) -> Vec<(i16, i64)> {
    let steps = steps.kinds.iter().zip(answers);
    steps
        .map(|(kind, (outcome, answer))| (*outcome, if *kind == 1 { *answer } else { i64::from(*answer > 0) }))
        .collect()
}

/// Writes to one side each batch as a whole, and to the other each write as a batch.
async fn compare(batches: &[Vec<Write>]) -> TestCaseResult {
    let server = Server::of_this_process();
    let (mut whole, mut each) = (Side::open(server).await, Side::open(server).await);
    for (index, batch) in batches.iter().enumerate() {
        let at = NOW * index as i64;
        let mut joined = Steps::default();
        for steps in whole.steps(batch).await {
            joined.kinds.extend(steps.kinds);
            joined.keys.extend(steps.keys);
            joined.sessions.extend(steps.sessions);
            joined.firsts.extend(steps.firsts);
            joined.seconds.extend(steps.seconds);
            joined.feeds.extend(steps.feeds);
            joined.bodies.extend(steps.bodies);
        }
        let answers = whole.write(at, &joined).await;
        let mut expected = Vec::new();
        each.client.batch_execute("BEGIN").await.unwrap();
        for steps in each.steps(batch).await {
            let answers = each.write(at, &steps).await;
            expected.extend(comparable(&steps, &answers));
        }
        each.client.batch_execute("COMMIT").await.unwrap();
        prop_assert_eq!(comparable(&joined, &answers), expected);
        prop_assert_eq!(whole.content().await, each.content().await);
        // The last put of a key has the revision that the key has now.
        let revisions = whole.revisions().await;
        let written = joined.keys.iter().zip(&joined.kinds).zip(&answers);
        let written = written.filter(|((_, kind), (outcome, _))| matches!(kind, 2 | 5) && *outcome == 0);
        let written: BTreeMap<_, _> = written.map(|((key, _), (_, revision))| (key, revision)).collect();
        for (key, revision) in revisions {
            prop_assert!(written.get(&key).is_none_or(|written| **written == revision));
        }
    }
    Ok(())
}

impl Write {
    fn keys(&mut self) -> Vec<&mut u8> {
        match self {
            Self::Append { stream, riders, .. } => {
                std::iter::once(stream).chain(riders.iter_mut().map(|(key, _)| key)).collect()
            }
            Self::Put { key, .. } | Self::Delete { key, .. } | Self::Purge { stream: key } => vec![key],
        }
    }
}

/// A write to any key. Every `odd`th or so is of a kind that no set has.
fn write(odd: u32) -> impl Strategy<Value = Write> {
    let key = any::<u8>;
    let ttl = prop_oneof![Just(-1), Just(0), Just(NOW / 2), Just(NOW * 2)];
    let current = prop_oneof![9 => Just(Expected::Current), 1 => Just(Expected::Wrong)];
    let conditional = prop_oneof![Just(Expected::Absent), Just(Expected::Current), Just(Expected::Wrong)];
    let riders = || prop::collection::vec((key(), any::<bool>()), 0..4);
    prop_oneof![
        2 * odd => (key(), riders()).prop_map(|(stream, riders)| Write::Append { stream, wrong: None, riders }),
        odd => (key(), ttl).prop_map(|(key, ttl)| Write::Put { key, expected: Expected::Any, ttl }),
        odd => (key(), current).prop_map(|(key, expected)| Write::Delete { key, expected }),
        1 => (key(), riders(), 0..3_i64)
            .prop_map(|(stream, riders, wrong)| Write::Append { stream, wrong: Some(wrong), riders }),
        1 => (key(), conditional).prop_map(|(key, expected)| Write::Put { key, expected, ttl: -1 }),
        1 => key().prop_map(|stream| Write::Purge { stream }),
    ]
}

/// A batch of which all keys are different, except for some that are like the first ones.
fn batch(odd: u32) -> impl Strategy<Value = Vec<Write>> {
    let repeated = prop::collection::vec(0..128_usize, 0..3);
    let numbers = Just((0..128).collect::<Vec<u8>>()).prop_shuffle();
    (prop::collection::vec(write(odd), 24..40), numbers, repeated).prop_map(|(mut writes, numbers, repeated)| {
        let mut keys: Vec<_> = writes.iter_mut().flat_map(Write::keys).collect();
        keys.iter_mut().zip(numbers.iter().cycle()).for_each(|(key, number)| **key = *number);
        for (place, number) in repeated.into_iter().zip(&numbers) {
            if let Some(key) = keys.get_mut(place) {
                **key = *number;
            }
        }
        writes
    })
}

fn batches() -> impl Strategy<Value = Vec<Vec<Write>>> {
    prop_oneof![Just(20), Just(200), Just(2000)].prop_flat_map(|odd| prop::collection::vec(batch(odd), 2..5))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_large_batch_is_what_its_writes_are_one_after_the_other(
        batches in batches()
    ) {
        tokio::runtime::Runtime::new().unwrap().block_on(compare(&batches))?;
    }
}

#[test]
fn writes_of_one_key_in_a_large_batch_are_made_in_their_order() {
    let put = |key, ttl| Write::Put { key, expected: Expected::Any, ttl };
    let delete = |expected| Write::Delete { key: 200, expected };
    let append = |wrong| Write::Append { stream: 200, wrong, riders: Vec::new() };
    let others = || (0..40).map(|key| put(key, -1));
    let orders = [
        [delete(Expected::Wrong), delete(Expected::Current)],
        [delete(Expected::Current), delete(Expected::Current)],
        [delete(Expected::Current), put(200, 0)],
        [delete(Expected::Current), put(200, -1)],
        [put(200, -1), delete(Expected::Current)],
        [append(Some(1)), append(Some(0))],
        [append(None), append(None)],
    ];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for order in orders {
        let batches = [vec![put(200, -1)], others().chain(order).collect()];
        runtime.block_on(compare(&batches)).unwrap();
    }
}

#[tokio::test]
async fn a_large_batch_of_different_keys_is_made_as_sets() {
    let mut side = Side::open(Server::of_this_process()).await;
    for batch in 0..3_u8 {
        let mut steps = Steps::default();
        for number in 0..20_u8 {
            steps.push(side.session, 1, vec![b's', number], i64::from(batch), 0);
            steps.push(side.session, 5, vec![b'k', batch, number], -1, -1);
            steps.push(side.session, 6, vec![b'k', batch.wrapping_sub(1), number], -1, -1);
        }
        let answers = side.write(NOW, &steps).await;
        assert!(answers.iter().all(|(outcome, _)| *outcome == 0));
        assert!(side.has_written_sets().await);
    }
    let mut refused = Steps::default();
    (0..40).for_each(|number| refused.push(side.session, 1, vec![b's', number % 20], 3, 0));
    let answers = side.write(NOW, &refused).await;
    assert!(
        answers[..20].iter().all(|answer| *answer == (0, 4)) && answers[20..].iter().all(|answer| *answer == (1, 4))
    );
    assert!(!side.has_written_sets().await);
}
