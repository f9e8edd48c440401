//! The ids of runs, turns, requests and traces.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::fmt::Hyphenated;
use uuid::{Builder, Uuid};
use xxhash_rust::xxh3::xxh3_128;

/// Names a run: a UUID of version 7, which sorts by the time of submission. Of its random bits, ten are the number of its cell
/// ([`RunId::cell`]). A run that follows from something else has an id of version 8, so that it is begun once: [`RunId::of_hash`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

/// Names a turn: its run and its number in it, from 1 in order of admission. All attempts of a turn share it; it is the
/// idempotency key for what a turn causes outside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TurnId {
    /// The run that the turn belongs to.
    pub run: RunId,
    /// The turn's number in the run, from 1; 0 in the id of a run that is a delegation ([`RequestId::of_run`]).
    pub number: u32,
}

impl TurnId {
    /// The id of the run that the turn begins if its agent is a workflow: the same for all attempts.
    pub(crate) fn workflow_run(self) -> RunId {
        self.run.child(xxh3_128(format!("{self}/workflow").as_bytes()))
    }
}

/// Names something that a turn asked for: a step, delegation, question, reservation or approval. Ordinals count from 0
/// in the order of the calls, so a repeated attempt asks under the same ids; those of reservations count over the whole run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// The turn that made the request.
    pub turn: TurnId,
    /// The position of the request among those of its turn, from 0; `u32::MAX` for a handoff at the end of the turn.
    pub ordinal: u32,
}

/// Follows a task through everything that it causes, also across runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TraceId(pub Uuid);

/// The bits of a run's id that are its cell: the last ten of the twelve random ones after the time and the version.
const CELL: u128 = 0x3ff << 64;

/// The bits of a run's id that are its time, in milliseconds since 1970.
const TIME: u128 = 0xffff_ffff_ffff << 80;

impl RunId {
    /// A new id of cell 0, from the time of submission, in milliseconds since 1970, and random bits.
    pub(crate) fn new(millis: u64, random: [u8; 10]) -> Self {
        let id = Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
        Self(Uuid::from_u128(id.as_u128() & !CELL))
    }

    /// This id, or the one next to it that belongs to a shard ([`RunId::shard`]).
    pub(crate) fn in_shard(self, shard: usize, shards: usize) -> Self {
        /// What is random of the lower half. The bits before are the variant.
        const RANDOM: u64 = u64::MAX >> 2;
        let ((high, low), shards) = (self.0.as_u64_pair(), shards as u64);
        let next = low - low % shards + shard as u64;
        let next = match next {
            next if next > low | RANDOM => next - shards,
            next if next < low & !RANDOM => next + shards,
            next => next,
        };
        Self(Uuid::from_u64_pair(high, next))
    }

    /// The shard of so many that the run belongs to. The last bytes of an id are random, so runs spread evenly.
    pub(crate) fn shard(self, shards: usize) -> usize {
        (self.0.as_u64_pair().1 % shards as u64) as usize
    }

    /// The id of a run that follows from what the hash is of, so that it is begun once however often it is asked for: in cell 0,
    /// without a time. 112 of the bits of the hash are in it.
    ///
    /// ```
    /// use callboard::messages::RunId;
    ///
    /// let run = RunId::of_hash([0xff; 16]);
    /// assert_eq!(run.to_string(), "ffffffff-ffff-8c00-bfff-ffffffffffff");
    /// assert_eq!(run.cell(), 0);
    /// ```
    #[must_use]
    pub fn of_hash(hash: [u8; 16]) -> Self {
        Self(Uuid::from_u128(Builder::from_custom_bytes(hash).into_uuid().as_u128() & !CELL))
    }

    /// The id of a run that follows from this one: in the cell of this run, with its time, so that stores keep it near.
    pub(crate) fn child(self, hash: u128) -> Self {
        let own = Builder::from_custom_bytes(hash.to_be_bytes()).into_uuid().as_u128();
        Self(Uuid::from_u128(self.0.as_u128() & (TIME | CELL) | own & !(TIME | CELL)))
    }

    /// The number of the cell in which the run is, at most 1023: the database and the boards that work on it. callboard makes ids of
    /// cell 0, as it has one database. What an earlier build made, or a caller chose ([`Task::id`](super::Task::id)), has any number here.
    ///
    /// ```
    /// use callboard::messages::RunId;
    ///
    /// let run: RunId = "019a0000-0000-7805-8000-000000000001".parse().unwrap();
    /// assert_eq!(run.cell(), 5);
    /// ```
    #[must_use]
    pub const fn cell(self) -> u16 {
        ((self.0.as_u128() & CELL) >> 64) as u16
    }

    /// The namespace of the shared context that belongs to the run: `run:` and its id. The run's agents, if they were
    /// granted no others, call it `run`; it is removed together with the run (SEMANTICS 12).
    ///
    /// ```
    /// use callboard::messages::RunId;
    ///
    /// let run: RunId = "019a0000-0000-7000-8000-000000000001".parse().unwrap();
    /// assert_eq!(run.namespace(), "run:019a0000-0000-7000-8000-000000000001");
    /// ```
    #[must_use]
    pub fn namespace(self) -> String {
        let mut name = String::with_capacity("run:".len() + Hyphenated::LENGTH);
        name.push_str("run:");
        name.push_str(self.0.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        name
    }
}

impl RequestId {
    /// The id of a run as a delegation from outside ([`Task::from_agent`](super::Task::from_agent)): no turn of a board has asked for
    /// it, so its turn has the number 0.
    #[must_use]
    pub const fn of_run(run: RunId) -> Self {
        Self { turn: TurnId { run, number: 0 }, ordinal: 0 }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for RunId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.number)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.ordinal)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

macro_rules! debug_as_display {
    ($($id:ty),*) => {$(
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_as_display!(RunId, TurnId, RequestId, TraceId);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_new_id_has_its_time_and_cell_0_and_the_rest_is_random() {
        let run = RunId::new(0x0123_4567_89ab, [0xff; 10]);
        assert_eq!(run.to_string(), "01234567-89ab-7c00-bfff-ffffffffffff");
        assert_eq!(run.cell(), 0);
        assert!(run < RunId::new(0x0123_4567_89ac, [0; 10]));
    }

    proptest! {
        #[test]
        fn an_id_in_a_shard_is_near_and_keeps_all_that_is_not_random(
            random in prop_oneof![any::<u64>(), 0..9_u64, (u64::MAX - 9)..=u64::MAX],
            (shards, shard) in (1..9_usize).prop_flat_map(|shards| (Just(shards), 0..shards)),
        ) {
            let mut bytes = [0xff; 10];
            bytes[2..].copy_from_slice(&random.to_be_bytes());
            let run = RunId::new(0x0123_4567_89ab, bytes);
            let near = run.in_shard(shard, shards);
            prop_assert_eq!(near.shard(shards), shard);
            prop_assert!(near.0.as_u128().abs_diff(run.0.as_u128()) < shards as u128);
            prop_assert_eq!((near.0.get_version_num(), near.0.get_variant()), (7, uuid::Variant::RFC4122));
            prop_assert_eq!(near.0.as_u128() >> 64, run.0.as_u128() >> 64);
        }
    }

    #[test]
    fn a_run_that_follows_from_another_is_in_its_cell_and_has_its_time() {
        let parent: RunId = "01234567-89ab-7fff-8000-000000000001".parse().unwrap();
        let child = parent.child(u128::MAX);
        assert_eq!(child.to_string(), "01234567-89ab-8fff-bfff-ffffffffffff");
        assert_eq!((parent.cell(), child.cell()), (1023, 1023));
        assert_eq!(child, parent.child(u128::MAX));
        assert_eq!(parent.child(0).to_string(), "01234567-89ab-83ff-8000-000000000000");
        assert_eq!(parent.child(0).child(u128::MAX), child, "a child of a child has the time of the first");
    }

    #[test]
    fn an_id_that_a_caller_chose_has_any_cell() {
        assert_eq!(RunId(Uuid::from_u128(7)).cell(), 0);
        assert_eq!(RunId(Uuid::max()).cell(), 1023);
        assert_eq!(RunId(Uuid::from_u128(CELL)).cell(), 1023);
        assert_eq!(RunId(Uuid::from_u128(!CELL)).cell(), 0);
    }
}
