//! The requests of programs that a turn has started. Their order among the turn's own requests depends on the programs, so they have
//! numbers of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Turn, TurnError};

/// The number of requests of the programs of one step.
const SIZE: u32 = 64;

/// The ordinal from which those of programs begin.
const FIRST: u32 = 1 << 31;

/// The ordinal of a request for which there is no number.
const NONE: u32 = u32::MAX - 3;

/// The numbers of the requests of programs that one step has started. They depend on the position of the step among the turn's requests.
pub(super) struct Block {
    first: u32,
    taken: AtomicU32,
}

impl Block {
    /// The numbers for a step that will be the request with this ordinal.
    fn of(ordinal: u32) -> Self {
        Self { first: FIRST.saturating_add(ordinal.saturating_mul(SIZE)), taken: AtomicU32::new(0) }
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
    /// Of a turn for programs this is the same one: steps that run at the same time keep the numbers of their own.
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
        let block = block.unwrap_or_else(|| Arc::new(Block::of(self.shared.next_ordinal.load(Ordering::Relaxed))));
        Self { shared: Arc::clone(&self.shared), block: Some(block) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_numbers_of_its_own_and_none_is_one_of_the_turn() {
        let numbers = |ordinal| {
            let block = Block::of(ordinal);
            (0..=SIZE).map(|_| block.take()).collect::<Vec<_>>()
        };
        let (first, second) = (numbers(0), numbers(1));
        assert_eq!((first[0], first[63], first[64]), (FIRST, FIRST + 63, NONE));
        assert_eq!((second[0], second[64]), (FIRST + 64, NONE));
        let last = numbers(u32::MAX);
        assert!(last.iter().all(|ordinal| *ordinal == NONE));
    }
}
