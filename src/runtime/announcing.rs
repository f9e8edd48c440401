//! When the other boards on the store get to know that a board's agents have changed. Pure.
//!
//! What a board hosts is written as a whole. A board with few agents writes it with each change. One with many writes it again when
//! half of them have changed, and otherwise after a while: so adding an agent costs the same, however many there are.

use std::time::Duration;

/// With so many agents, each change is written at once.
const FEW: usize = 64;

/// Of so many agents, each adds [`PAUSE`] to the wait.
const PER_PAUSE: usize = 10_000;

/// The least wait for further changes.
const PAUSE: Duration = Duration::from_millis(100);

/// Changes that the other boards do not know yet.
#[derive(Debug, Default)]
pub(super) struct Announcing {
    changes: usize,
    /// An announcement of them is scheduled.
    is_scheduled: bool,
}

/// When a change is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Now,
    /// Together with what else changes in this time.
    After(Duration),
    /// With the announcement that is scheduled.
    WithOthers,
}

impl Announcing {
    /// So many agents were added, replaced or removed; the board has `agents` now.
    pub(super) fn change(&mut self, changed: usize, agents: usize) -> When {
        self.changes += changed;
        if agents <= FEW || self.changes >= agents / 2 {
            When::Now
        } else if std::mem::replace(&mut self.is_scheduled, true) {
            When::WithOthers
        } else {
            When::After(PAUSE * u32::try_from(1 + agents / PER_PAUSE).unwrap_or(u32::MAX))
        }
    }

    /// All changes so far are being announced. One that is still scheduled announces what has changed by then.
    pub(super) fn announced(&mut self) {
        (self.changes, self.is_scheduled) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    proptest! {
        #[test]
        fn adding_agents_one_by_one_writes_a_few_times_as_many_as_there_are(count in 1_000_usize..50_000) {
            let (mut announcing, mut written) = (Announcing::default(), 0);
            for agents in 1..=count {
                if announcing.change(1, agents) == When::Now {
                    written += agents;
                    announcing.announced();
                }
            }
            prop_assert!(written < 4 * count, "{written} for {count}");
        }
    }

    #[test]
    fn a_change_of_few_agents_is_announced_at_once_and_changes_of_many_are_gathered() {
        let mut announcing = Announcing::default();
        assert_eq!(announcing.change(1, FEW), When::Now);
        announcing.announced();
        assert_eq!([announcing.change(1, 1_000), announcing.change(1, 1_000)], [When::After(PAUSE), When::WithOthers]);
        announcing.announced();
        assert_eq!(announcing.change(1, 1_000), When::After(PAUSE));
        assert_eq!(Announcing::default().change(1, 50_000), When::After(6 * PAUSE));
    }
}
