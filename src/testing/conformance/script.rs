//! What a process that is going to die writes, and what of it may be found afterwards.
//!
//! The script is a function of a seed, so the test knows what was written without asking the store: it needs to
//! know only how far the process has come.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, unfold};
use futures::{Stream, StreamExt};
use xxhash_rust::xxh3::xxh3_64;

use super::sessions::new_session;
use super::subject::expect;
use crate::storage::{Append, Durability, Key, Put, Rider, Storage, StorageError, StorageFuture};

/// Writes that are under way at once.
const IN_FLIGHT: usize = 4;

/// A report of a process: one line each, which it wrote before it continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteReport {
    /// A write, counted from 0, is about to be issued to the store.
    Issued(u64),
    /// The store has acknowledged a write, with the sequence, revision or id of a session that it gave out; 0 for none.
    Acknowledged(u64, u64),
}

impl fmt::Display for WriteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issued(write) => write!(f, "issued {write}"),
            Self::Acknowledged(write, number) => write!(f, "acknowledged {write} {number}"),
        }
    }
}

impl FromStr for WriteReport {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split(' ');
        let kind = words.next();
        let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or(());
        match kind {
            Some("issued") => Ok(Self::Issued(number()?)),
            Some("acknowledged") => Ok(Self::Acknowledged(number()?, number()?)),
            _ => Err(()),
        }
    }
}

/// Everything that scripts write, as found in a store: payloads by their hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    streams: BTreeMap<u64, Vec<u64>>,
    values: BTreeMap<u64, u64>,
}

const STREAMS: u64 = 3;
const KEYS: u64 = 5;
/// The values that ride on appends, one for each stream, have the numbers after those that are put by themselves.
const RIDERS: u64 = KEYS;

fn stream(number: u64) -> Key {
    Key::new(["crash", "stream", &number.to_string()])
}

fn key(number: u64) -> Key {
    Key::new(["crash", "value", &number.to_string()])
}

impl Contents {
    /// Reads what scripts have left.
    ///
    /// # Errors
    /// What a read returns.
    pub async fn read(store: &dyn Storage) -> Result<Self, StorageError> {
        let mut found = Self::default();
        for number in 0..STREAMS {
            let records = store.read(&stream(number), 1, usize::MAX).await?;
            if !records.is_empty() {
                found.streams.insert(number, records.iter().map(|record| xxh3_64(&record.payload)).collect());
            }
        }
        for number in 0..RIDERS + STREAMS {
            if let Some(entry) = store.get(&key(number)).await? {
                found.values.insert(number, xxh3_64(&entry.value));
            }
        }
        Ok(found)
    }

    fn payloads(&self) -> impl Iterator<Item = &u64> {
        self.streams.values().flatten().chain(self.values.values())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Append(u64),
    /// An append on which a value rides, and the deletion of another.
    AppendWithRiders(u64),
    Put(u64),
    /// Of a session.
    Begin,
}

struct Write {
    what: What,
    durability: Durability,
    /// Of the payload, in bytes.
    length: usize,
}

/// The writes of one life of a process, on a store that held `base` when it began.
#[derive(Clone, Debug)]
pub struct CrashScript {
    seed: u64,
    base: Contents,
}

impl CrashScript {
    /// Creates the script that follows from `seed`, for a store that holds `base` when the process begins.
    #[must_use]
    pub fn new(seed: u64, base: Contents) -> Self {
        Self { seed, base }
    }

    fn write(&self, number: u64) -> Write {
        let chance = |what: u64| mix(mix(self.seed ^ what).wrapping_add(number));
        let what = match chance(1) % 16 {
            0..8 => What::Append(chance(2) % STREAMS),
            8..12 => What::Put(chance(2) % KEYS),
            12..14 => What::AppendWithRiders(chance(2) % STREAMS),
            _ => What::Begin,
        };
        let durability = [Durability::Sync, Durability::Sync, Durability::Buffered, Durability::Memory];
        let longest = [100, 100, 3000, 3000, 30_000, 80_000][(chance(3) % 6) as usize];
        let length = (8 + chance(5) % longest) as usize;
        Write { what, durability: durability[(chance(6) % 4) as usize], length }
    }

    fn payload(&self, number: u64) -> Vec<u8> {
        let length = self.write(number).length;
        let begin = mix(self.seed ^ mix(number));
        let mut payload = Vec::with_capacity(length + 8);
        while payload.len() < length {
            payload.extend_from_slice(&mix(begin.wrapping_add(payload.len() as u64)).to_le_bytes());
        }
        payload.truncate(length);
        payload
    }

    fn apply(&self, state: &mut Contents, number: u64) {
        let hash = || xxh3_64(&self.payload(number));
        match self.write(number).what {
            What::Append(to) => state.streams.entry(to).or_default().push(hash()),
            What::Put(to) => drop(state.values.insert(to, hash())),
            What::AppendWithRiders(to) => {
                state.streams.entry(to).or_default().push(hash());
                state.values.insert(RIDERS + to, hash());
                state.values.remove(&to);
            }
            What::Begin => {}
        }
    }

    /// Issues write after write to the store, and reports each before it is issued and after it is acknowledged. Dropping the
    /// stream leaves what is in flight as it is.
    ///
    /// # Panics
    /// If the store refuses a write.
    pub fn play<'a>(&'a self, store: &'a dyn Storage, writes: u64) -> impl Stream<Item = WriteReport> + 'a {
        let lengths = self.base.streams.iter().map(|(number, records)| (*number, records.len() as u64)).collect();
        let (to_issue, in_flight) = (0..writes, FuturesUnordered::new());
        let play = Play { script: self, store, lengths, to_issue, reported: None, in_flight };
        unfold(play, |mut play| async move { play.next().await.map(|report| (report, play)) })
    }

    /// What a store holds after the first `writes` writes.
    #[must_use]
    pub fn contents_after(&self, writes: u64) -> Contents {
        let mut state = self.base.clone();
        (0..writes).for_each(|number| self.apply(&mut state, number));
        state
    }

    /// How many writes, from the first one on, have to be there: up to the last acknowledged one that was to be synced.
    #[must_use]
    pub fn certain(&self, reports: &[WriteReport]) -> u64 {
        let synced = reports.iter().filter_map(|report| match report {
            WriteReport::Acknowledged(number, _) if self.is_synced(*number) => Some(number + 1),
            WriteReport::Acknowledged(..) | WriteReport::Issued(_) => None,
        });
        synced.max().unwrap_or(0)
    }

    fn is_synced(&self, number: u64) -> bool {
        let Write { what, durability, .. } = self.write(number);
        durability == Durability::Sync && what != What::Begin
    }

    /// The greatest numbers that the store had acknowledged for values and for sessions.
    pub(super) fn given_out(&self, reports: &[WriteReport]) -> [u64; 2] {
        let greatest = |is_meant: fn(What) -> bool| {
            let numbers = reports.iter().filter_map(|report| match report {
                WriteReport::Acknowledged(number, given) if is_meant(self.write(*number).what) => Some(*given),
                WriteReport::Acknowledged(..) | WriteReport::Issued(_) => None,
            });
            numbers.max().unwrap_or(0)
        };
        let is_put = |what| matches!(what, What::Put(_));
        [greatest(is_put), greatest(|what| what == What::Begin)]
    }

    /// How many writes, from the first one on, are in the store; `None` if it holds something else than a beginning of what
    /// was issued.
    #[must_use]
    pub fn kept(&self, reports: &[WriteReport], found: &Contents) -> Option<u64> {
        let mut state = self.base.clone();
        let mut kept = None;
        for number in 0..=issued(reports) {
            if state == *found {
                kept = Some(number);
            }
            self.apply(&mut state, number);
        }
        kept
    }

    /// As [`CrashScript::kept`].
    ///
    /// # Errors
    /// The error if the store holds less than it has to, a write that is not whole, or a later one without an
    /// earlier one.
    pub fn judge(&self, reports: &[WriteReport], found: &Contents) -> Result<u64, String> {
        let (issued, certain) = (issued(reports), self.certain(reports));
        match self.kept(reports, found) {
            Some(kept) if kept >= certain => Ok(kept),
            Some(kept) => {
                Err(format!("of {certain} writes that were acknowledged and synced, {} are lost", certain - kept))
            }
            None => {
                let written = (0..issued).map(|number| xxh3_64(&self.payload(number)));
                let known: HashSet<u64> = self.base.payloads().copied().chain(written).collect();
                let unknown = found.payloads().filter(|payload| !known.contains(payload)).count();
                Err(format!(
                    "it holds no beginning of the {issued} writes that were issued, {certain} of them certain; {unknown} \
                     payloads were never written"
                ))
            }
        }
    }
}

/// A script that is being played.
struct Play<'a> {
    script: &'a CrashScript,
    store: &'a dyn Storage,
    /// Of the streams.
    lengths: BTreeMap<u64, u64>,
    to_issue: Range<u64>,
    /// Reported, and not issued yet.
    reported: Option<u64>,
    in_flight: FuturesUnordered<BoxFuture<'static, WriteReport>>,
}

impl Play<'_> {
    async fn next(&mut self) -> Option<WriteReport> {
        if let Some(number) = self.reported.take() {
            let answer = self.issue(number);
            self.in_flight.push(Box::pin(async move { WriteReport::Acknowledged(number, expect(answer.await)) }));
        }
        if self.in_flight.len() < IN_FLIGHT {
            self.reported = self.to_issue.next();
        }
        match self.reported {
            Some(number) => Some(WriteReport::Issued(number)),
            None => self.in_flight.next().await,
        }
    }

    fn issue(&mut self, number: u64) -> StorageFuture<u64> {
        let Write { what, durability, .. } = self.script.write(number);
        let payload: Arc<[u8]> = self.script.payload(number).into();
        match what {
            What::Append(to) | What::AppendWithRiders(to) => {
                let length = self.lengths.entry(to).or_default();
                let expected = *length;
                *length += 1;
                let riders = match what {
                    What::AppendWithRiders(_) => {
                        vec![Rider::put(key(RIDERS + to), Arc::clone(&payload)), Rider::Delete { key: key(to) }]
                    }
                    What::Append(_) | What::Put(_) | What::Begin => Vec::new(),
                };
                self.store.append(Append { durability, riders, ..Append::new(stream(to), expected, payload) })
            }
            What::Put(to) => self.store.put_if_revision(Put { durability, ..Put::new(key(to), payload) }),
            What::Begin => {
                let id = self.store.begin_session(new_session(&format!("{} {number}", self.script.seed)));
                Box::pin(async move { id.await.map(|id| id.0) })
            }
        }
    }
}

fn issued(reports: &[WriteReport]) -> u64 {
    reports.iter().filter(|report| matches!(report, WriteReport::Issued(_))).count() as u64
}

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::storage::Memory;

    fn played(writes: u64) -> (CrashScript, Vec<WriteReport>, Contents) {
        let (script, store) = (CrashScript::new(1, Contents::default()), Memory::default());
        let reports = script.play(&store, writes).collect().now_or_never().unwrap();
        let found = Contents::read(&store).now_or_never().unwrap().unwrap();
        (script, reports, found)
    }

    #[test]
    fn a_store_may_hold_less_than_was_issued_but_not_than_was_synced() {
        let (script, reports, found) = played(40);
        assert_eq!(script.judge(&reports, &found), Ok(40));
        let certain = script.certain(&reports);
        assert!((30..=40).contains(&certain));
        assert!(script.judge(&reports, &played(certain).2).is_ok_and(|kept| kept >= certain));
        let lost = script.judge(&reports, &played(20).2).unwrap_err();
        assert!(lost.starts_with(&format!("of {certain} writes that were acknowledged and synced, ")), "{lost}");
        let unacknowledged: Vec<WriteReport> =
            reports.into_iter().filter(|report| matches!(report, WriteReport::Issued(_))).collect();
        assert_eq!(script.judge(&unacknowledged, &played(20).2), Ok(20));
    }

    #[test]
    fn a_store_that_lost_an_earlier_write_or_holds_another_is_found_out() {
        let (script, reports, found) = played(40);
        let mut without_one = found.clone();
        without_one.values.remove(&RIDERS).unwrap();
        assert!(script.judge(&reports, &without_one).unwrap_err().ends_with("0 payloads were never written"));
        let mut torn = found;
        *torn.values.values_mut().next().unwrap() ^= 1;
        assert!(script.judge(&reports, &torn).unwrap_err().ends_with("1 payloads were never written"));
    }

    #[test]
    fn what_a_process_reports_is_read_back() {
        for report in [WriteReport::Issued(3), WriteReport::Acknowledged(3, 9)] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        assert_eq!("acknowledged 3".parse::<WriteReport>(), Err(()), "a line that was cut");
    }
}
