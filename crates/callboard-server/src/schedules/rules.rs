//! What a schedule does at a moment: which of the times that have passed are run, and what a run that has not ended does to the next.
//! Pure: the task that starts runs asks these.

use std::collections::VecDeque;
use std::time::Duration;

use callboard::messages::Timestamp;
use serde::{Deserialize, Serialize};

use super::when::Rule;

/// How late a time is run as if it were in time. One that is later was missed.
const ON_TIME: Duration = Duration::from_secs(60);
/// The most missed times that are counted at once.
const MAX_COUNTED: usize = 1_000;
/// The most times that wait for a run to end; more are skipped.
const MAX_WAITING: usize = 100;

/// What happens at a time while the run of the one before has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Overlap {
    /// The time is skipped.
    #[default]
    Skip,
    /// The time waits until the run has ended.
    Queue,
    /// The run is cancelled, and the next one started.
    Replace,
}

/// What happens to times that were missed, as while no server ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Missed {
    /// The newest is run.
    #[default]
    RunOnce,
    /// The newest are run, at most this many, one after another.
    RunAll { most: usize },
    /// None is run.
    Skip,
}

/// How far a schedule has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The last time that was looked at.
    pub(crate) seen: Timestamp,
    /// Times that wait until a run has ended, the oldest first.
    pub(crate) waiting: VecDeque<Timestamp>,
    /// How many runs were started.
    pub(crate) started: u64,
    /// How many times were not run; of times that were missed at once, at most 1,000 are counted.
    pub(crate) skipped: u64,
}

impl Progress {
    /// Of a schedule that fires after this time.
    pub(crate) fn after(seen: Timestamp) -> Self {
        Self { seen, waiting: VecDeque::new(), started: 0, skipped: 0 }
    }
}

/// The times that have passed since a schedule was last looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Those that are to be run, the oldest first.
    run: Vec<Timestamp>,
    skipped: usize,
    newest: Timestamp,
}

/// Which times have passed since `seen`; `None` if none has.
pub(crate) fn due(rule: &Rule, missed: Missed, seen: Timestamp, now: Timestamp) -> Option<Due> {
    let passed = rule.passed(seen, now, MAX_COUNTED);
    let newest = *passed.first()?;
    let count = match missed {
        Missed::RunOnce => 1,
        Missed::RunAll { most } => most.min(passed.len()),
        Missed::Skip => usize::from(now.since(newest) <= ON_TIME),
    };
    let run = passed.iter().take(count).rev().copied().collect();
    Some(Due { run, skipped: passed.len() - count, newest })
}

/// What is done now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The time whose run is started.
    pub(crate) start: Option<Timestamp>,
    /// Whether the last run is cancelled before.
    pub(crate) replaces: bool,
    /// How far the schedule has come then. The start is not counted in it.
    pub(crate) progress: Progress,
}

/// Decides what is done with the times that are due and those that wait. At most one run is started at a time.
pub(crate) fn decide(progress: &Progress, due: Option<Due>, overlap: Overlap, is_last_open: bool) -> Decision {
    let mut progress = progress.clone();
    let mut run = match due {
        Some(due) => {
            progress.seen = due.newest;
            progress.skipped += due.skipped as u64;
            due.run
        }
        None => Vec::new(),
    };
    let (start, replaces) = match overlap {
        Overlap::Skip if is_last_open => (None, false),
        Overlap::Skip => (run.pop(), false),
        Overlap::Replace => (run.pop(), is_last_open),
        Overlap::Queue => {
            let room = MAX_WAITING.saturating_sub(progress.waiting.len()).min(run.len());
            progress.waiting.extend(run.drain(..room));
            let start = if is_last_open { None } else { progress.waiting.pop_front() };
            (start, false)
        }
    };
    progress.skipped += run.len() as u64;
    Decision { replaces: replaces && start.is_some(), start, progress }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1_000)
    }

    /// Fires every 100 s, from 100 s on.
    const EVERY: Rule = Rule::Every { ms: 100_000, from: Timestamp::from_millis(0) };

    fn found(missed: Missed, now: u64) -> (Vec<u64>, usize, u64) {
        let due = due(&EVERY, missed, at(100), at(now)).unwrap();
        let secs = |time: &Timestamp| time.as_millis() / 1_000;
        (due.run.iter().map(secs).collect(), due.skipped, secs(&due.newest))
    }

    #[test]
    fn a_time_that_has_just_passed_is_run_whatever_was_missed() {
        for missed in [Missed::RunOnce, Missed::RunAll { most: 3 }, Missed::Skip] {
            assert_eq!(due(&EVERY, missed, at(100), at(199)), None);
            assert_eq!(found(missed, 200), (vec![200], 0, 200), "{missed:?}");
            assert_eq!(found(missed, 260), (vec![200], 0, 200), "{missed:?}");
        }
    }

    #[test]
    fn missed_times_are_run_once_all_up_to_a_bound_or_skipped() {
        assert_eq!(found(Missed::RunOnce, 570), (vec![500], 3, 500));
        assert_eq!(found(Missed::RunAll { most: 3 }, 570), (vec![300, 400, 500], 1, 500));
        assert_eq!(found(Missed::RunAll { most: 100 }, 570), (vec![200, 300, 400, 500], 0, 500));
        assert_eq!(found(Missed::Skip, 570), (vec![], 4, 500));
        assert_eq!(found(Missed::Skip, 510), (vec![500], 3, 500), "the newest of them is not late");
    }

    #[test]
    fn a_clock_that_was_set_back_runs_nothing_twice() {
        assert_eq!(due(&EVERY, Missed::RunAll { most: 9 }, at(500), at(250)), None);
    }

    fn decided(
        overlap: Overlap,
        is_last_open: bool,
        waiting: &[u64],
        run: &[u64],
    ) -> (Option<u64>, bool, Vec<u64>, u64) {
        let waiting = waiting.iter().map(|secs| at(*secs)).collect();
        let progress = Progress { waiting, ..Progress::after(at(0)) };
        let run: Vec<Timestamp> = run.iter().map(|secs| at(*secs)).collect();
        let due = run.last().map(|newest| Due { newest: *newest, skipped: 0, run: run.clone() });
        let Decision { start, replaces, progress } = decide(&progress, due, overlap, is_last_open);
        let secs = |time: Timestamp| time.as_millis() / 1_000;
        (start.map(secs), replaces, progress.waiting.into_iter().map(secs).collect(), progress.skipped)
    }

    #[test]
    fn a_run_that_has_not_ended_is_waited_for_replaced_or_has_the_next_skipped() {
        for overlap in [Overlap::Skip, Overlap::Queue, Overlap::Replace] {
            assert_eq!(decided(overlap, false, &[], &[200]), (Some(200), false, vec![], 0), "{overlap:?}");
            assert_eq!(decided(overlap, true, &[], &[]), (None, false, vec![], 0), "{overlap:?}");
        }
        assert_eq!(decided(Overlap::Skip, true, &[], &[200]), (None, false, vec![], 1));
        assert_eq!(decided(Overlap::Replace, true, &[], &[200]), (Some(200), true, vec![], 0));
        assert_eq!(decided(Overlap::Queue, true, &[], &[200]), (None, false, vec![200], 0));
    }

    #[test]
    fn times_that_wait_are_run_in_order_and_their_number_is_bounded() {
        assert_eq!(decided(Overlap::Queue, false, &[200, 300], &[400]), (Some(200), false, vec![300, 400], 0));
        assert_eq!(decided(Overlap::Queue, false, &[200], &[]), (Some(200), false, vec![], 0));
        let full: Vec<u64> = (0..100).collect();
        assert_eq!(decided(Overlap::Queue, true, &full, &[200, 300]), (None, false, full, 2));
    }
}
