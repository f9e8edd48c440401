//! The requests of programs that a turn has started. Their order among the turn's own requests depends on the programs, so they have
//! numbers of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::{Turn, TurnError};

/// The number of requests of the programs of one step.
const SIZE: u32 = 64;

/// The ordinal from which those of programs begin.
const FIRST: u32 = 1 << 31;

/// The ordinal from which those begin of the second and further turns for programs that a turn makes before one and the same of its requests.
const FURTHER: u32 = FIRST + (1 << 30);

/// How many turns for programs may begin before one request.
const MOST: u32 = 64;

/// The ordinal of a request for which there is no number.
const NONE: u32 = u32::MAX - 3;

/// The turns for programs that were made before the newest request with some: the ordinal of the request, and their number.
pub(super) type Begun = Mutex<(u32, u32)>;

/// The numbers of the requests of programs that one step has started. They depend on the position of the step among the turn's requests,
/// and on how many turns for programs were made before at the same position: two of them have no number in common.
pub(super) struct Block {
    first: u32,
    taken: AtomicU32,
}

impl Block {
    /// The numbers for a step that will be the request with this ordinal, if `before` turns for programs have begun before it.
    fn of(ordinal: u32, before: u32) -> Self {
        let (from, to, position) = match before {
            0 => (FIRST, FURTHER, Some(ordinal)),
            1..MOST => (FURTHER, NONE, ordinal.checked_mul(MOST).and_then(|sum| sum.checked_add(before))),
            MOST.. => (NONE, NONE, None),
        };
        let first = position.and_then(|position| from.checked_add(position.checked_mul(SIZE)?));
        Self { first: first.filter(|first| *first <= to - SIZE).unwrap_or(NONE), taken: AtomicU32::new(0) }
    }

    /// The numbers for what begins next.
    fn next(begun: &Begun, ordinal: u32) -> Self {
        let mut begun = begun.lock();
        let before = if begun.0 == ordinal { begun.1 } else { 0 };
        *begun = (ordinal, before.saturating_add(1));
        Self::of(ordinal, before)
    }

    /// The next number.
    pub(super) fn take(&self) -> u32 {
        let next = |taken: u32| (taken < SIZE).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.ok().and_then(|taken| self.first.checked_add(taken)).filter(|ordinal| *ordinal < NONE).unwrap_or(NONE)
    }
}

/// Refuses a request for which there was no number.
pub(super) fn check_is_numbered(ordinal: u32) -> Result<(), TurnError> {
    if ordinal != NONE {
        return Ok(());
    }
    Err(TurnError::terminal(format!("the programs of one step may make {SIZE} requests, and have made them")))
}

impl Turn {
    /// The turn for requests of programs: those that the next request starts, which has to be a step or an effect, or those that the whole
    /// turn is about. It may be used while the work of that step runs. Its requests, at most 64, are identified by their order among
    /// themselves, so they do not change the order of the turn's own requests; a step that is answered from the journal makes none of them.
    /// Of a turn for programs this is the same one: steps that run at the same time keep the numbers of their own. Two calls before one and the
    /// same request of the turn have different requests, by the order of the calls; those after the 64th make none.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("lead", |turn: Turn| async move {
    ///         let programs = turn.for_programs();
    ///         let work = async { programs.delegate("helper", "look").await };
    ///         Ok(Command::output(turn.step("script", work).await?))
    ///     })
    ///     .agent("helper", |_: Turn| async move { Ok(Command::output("looked")) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("x").to("lead")).await?;
    /// assert_eq!(run.result().await?.output, "looked");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn for_programs(&self) -> Self {
        let block = self.block.clone();
        let ordinal = || self.shared.next_ordinal.load(Ordering::Relaxed);
        let block = block.unwrap_or_else(|| Arc::new(Block::next(&self.shared.uncommon().programs, ordinal())));
        Self { shared: Arc::clone(&self.shared), block: Some(block) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_step_has_numbers_of_its_own_and_none_is_one_of_the_turn() {
        let numbers = |ordinal, before| {
            let block = Block::of(ordinal, before);
            (0..=SIZE).map(|_| block.take()).collect::<Vec<_>>()
        };
        let (first, second) = (numbers(0, 0), numbers(1, 0));
        assert_eq!((first[0], first[63], first[64]), (FIRST, FIRST + 63, NONE));
        assert_eq!((second[0], second[64]), (FIRST + 64, NONE));
        for (ordinal, before) in [(u32::MAX, 0), (1 << 24, 0), (u32::MAX, 1), (1 << 18, 1), (0, MOST), (0, u32::MAX)] {
            assert!(numbers(ordinal, before).iter().all(|number| *number == NONE), "{ordinal} {before}");
        }
    }

    #[test]
    fn turns_for_programs_that_begin_before_one_request_have_no_number_in_common() {
        let all = |begun: &Begun| {
            let of_each = [0, 0, 0, 1, 1, (1 << 24) - 1, 2].map(|ordinal| Block::next(begun, ordinal));
            of_each.into_iter().flat_map(|block| (0..SIZE).map(move |_| block.take()).collect::<Vec<_>>()).collect()
        };
        let (first, again): (Vec<u32>, Vec<u32>) = (all(&Begun::default()), all(&Begun::default()));
        assert_eq!(first, again, "they are the same when the turn is replayed");
        let different: BTreeSet<u32> = first.iter().copied().filter(|number| *number < NONE).collect();
        assert_eq!(different.len(), first.len());
        assert!(first.iter().all(|number| *number >= FIRST));
    }
}
