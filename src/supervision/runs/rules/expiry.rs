//! The expiry and the reminders of approvals and questions (SEMANTICS 9). Pure.

use std::time::Duration;

use crate::messages::{Consent, Task, Timestamp};

/// The time to live of a question: the policy's, else the task's, else the board's.
#[must_use]
pub(in crate::supervision::runs) fn time_for(task: &Task, consent: &Consent, of_board: Duration) -> Duration {
    consent.time().or(task.approval_ttl).unwrap_or(of_board)
}

/// The time of the reminder about a question that is asked now and expires after `ttl`: `lead` before the expiry, but not before
/// half of `ttl` has passed. `None` if there is no reminder.
#[must_use]
pub(in crate::supervision::runs) fn remind_at(now: Timestamp, ttl: Duration, lead: Duration) -> Option<Timestamp> {
    (!lead.is_zero()).then(|| now + ttl.saturating_sub(lead.min(ttl / 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const BOARD: Duration = Duration::from_secs(7 * 24 * 3600);

    #[test]
    fn the_policy_decides_before_the_task_and_the_task_before_the_board() {
        let (plain, own) = (Task::new("x"), Task::new("x").approval_ttl(HOUR));
        for (task, consent, expected) in [
            (&plain, Consent::Ask, BOARD),
            (&own, Consent::Ask, HOUR),
            (&plain, Consent::AskWithin(HOUR * 2), HOUR * 2),
            (&own, Consent::AskWithin(HOUR * 2), HOUR * 2),
        ] {
            assert_eq!(time_for(task, &consent, BOARD), expected);
        }
    }

    #[test]
    fn people_are_reminded_a_day_before_or_when_half_of_the_time_is_over() {
        let after = |ttl, lead| remind_at(Timestamp::default(), ttl, lead).map(|at| at.since(Timestamp::default()));
        assert_eq!(after(BOARD, HOUR * 24), Some(HOUR * 24 * 6));
        assert_eq!(after(HOUR * 48, HOUR * 24), Some(HOUR * 24));
        assert_eq!(after(HOUR, HOUR * 24), Some(HOUR / 2));
        assert_eq!(after(HOUR, Duration::ZERO), None);
    }
}
