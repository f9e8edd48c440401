//! Whether what several boards did with one shared value could have happened one after the other: a check of linearizability for a
//! register with compare-and-set. Each write has a value of its own, so a value says which write it is of.
//!
//! The history is the order of the lines in one file: a line before an operation begins, and one after it was answered.

use std::collections::{BTreeMap, BTreeSet};

/// A write, by its number.
pub(crate) type Value = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Invoked {
        op: u64,
        who: String,
        kind: Kind,
    },
    Answered {
        op: u64,
        answer: Answer,
    },
    /// From here on nothing of this board takes effect.
    Fenced {
        who: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Set,
    /// Writes if this is there.
    CompareAndSet(Option<Value>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Read(Option<Value>),
    Written,
    /// Something else was there.
    Changed,
}

struct Operation {
    number: u64,
    kind: Kind,
    /// Without one it may have taken effect or not.
    answer: Option<Answer>,
    begins: usize,
    /// By when it has taken effect, or never does.
    ends: usize,
}

impl Operation {
    /// What is there afterwards; `None` if it cannot have taken effect where this is there.
    fn applied_to(&self, there: Option<Value>) -> Option<Option<Value>> {
        let fits = match (self.kind, self.answer) {
            (Kind::Read, Some(Answer::Read(read))) => return (read == there).then_some(there),
            (Kind::CompareAndSet(expected), Some(Answer::Changed)) => return (expected != there).then_some(there),
            (Kind::Set, Some(Answer::Written) | None) => true,
            (Kind::CompareAndSet(expected), Some(Answer::Written) | None) => expected == there,
            (Kind::Read, _) | (Kind::Set, _) | (Kind::CompareAndSet(_), Some(Answer::Read(_))) => false,
        };
        fits.then_some(Some(self.number))
    }
}

/// What may be there, and which of the operations under way have taken effect.
type Possible = (Option<Value>, BTreeSet<usize>);

/// Checks the history of one key, which begins without a value.
pub(crate) fn check(history: &[Event]) -> Result<(), String> {
    let operations = operations(history)?;
    let mut points: Vec<(usize, bool, usize)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        points.push((operation.begins, false, index));
        points.push((operation.ends, true, index));
    }
    points.sort_unstable();
    let mut under_way = BTreeSet::new();
    let mut possible: BTreeSet<Possible> = [(None, BTreeSet::new())].into();
    for (at, ends, index) in points {
        if !ends {
            under_way.insert(index);
            continue;
        }
        if at == usize::MAX {
            break;
        }
        let is_certain = operations[index].answer.is_some();
        let before = possible.clone();
        possible = reachable(possible, &under_way, &operations)
            .into_iter()
            .filter(|(_, done)| !is_certain || done.contains(&index))
            .map(|(there, mut done)| {
                done.remove(&index);
                (there, done)
            })
            .collect();
        under_way.remove(&index);
        if possible.is_empty() {
            let Operation { number, kind, answer, .. } = &operations[index];
            let there: BTreeSet<_> = before.into_iter().map(|(there, _)| there).collect();
            return Err(format!("operation {number} ({kind:?}: {answer:?}) fits nowhere: there was one of {there:?}"));
        }
    }
    Ok(())
}

/// Everything that operations under way can have made of this.
fn reachable(
    possible: BTreeSet<Possible>,
    under_way: &BTreeSet<usize>,
    operations: &[Operation],
) -> BTreeSet<Possible> {
    let mut new: Vec<Possible> = possible.iter().cloned().collect();
    let mut reached = possible;
    while let Some((there, done)) = new.pop() {
        for index in under_way.difference(&done) {
            let Some(after) = operations[*index].applied_to(there) else { continue };
            let mut done = done.clone();
            done.insert(*index);
            if reached.insert((after, done.clone())) {
                new.push((after, done));
            }
        }
    }
    reached
}

fn operations(history: &[Event]) -> Result<Vec<Operation>, String> {
    let mut answers = BTreeMap::new();
    let mut fences = BTreeMap::new();
    for (at, event) in history.iter().enumerate() {
        match event {
            Event::Invoked { .. } => {}
            Event::Answered { op, answer } => drop(answers.insert(*op, (at, *answer))),
            Event::Fenced { who } => drop(fences.entry(who).or_insert(at)),
        }
    }
    let mut operations = Vec::new();
    for (begins, event) in history.iter().enumerate() {
        let Event::Invoked { op, who, kind } = event else { continue };
        let fence = fences.get(who).copied().unwrap_or(usize::MAX);
        let (ends, answer) = match answers.get(op) {
            Some((at, answer @ Answer::Written)) if fence < begins => {
                return Err(format!("operation {op} ({answer:?} at {at}) was begun by {who} after it was fenced"));
            }
            Some((at, answer @ Answer::Written)) => (fence.min(*at), Some(*answer)),
            Some((at, answer)) => (*at, Some(*answer)),
            None if *kind == Kind::Read || fence < begins => continue,
            None => (fence, None),
        };
        operations.push(Operation { number: *op, kind: *kind, answer, begins, ends });
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invoked(op: u64, kind: Kind) -> Event {
        Event::Invoked { op, who: format!("board {}", op % 2), kind }
    }

    fn answered(op: u64, answer: Answer) -> Event {
        Event::Answered { op, answer }
    }

    /// An operation that is over before the next one begins.
    fn alone(op: u64, kind: Kind, answer: Answer) -> [Event; 2] {
        [invoked(op, kind), answered(op, answer)]
    }

    fn history<const N: usize>(parts: [&[Event]; N]) -> Vec<Event> {
        parts.concat()
    }

    fn fenced(op: u64) -> [Event; 1] {
        [Event::Fenced { who: format!("board {}", op % 2) }]
    }

    const CREATE: Kind = Kind::CompareAndSet(None);

    #[test]
    fn operations_one_after_the_other_are_taken() {
        let taken = history([
            &alone(1, Kind::Read, Answer::Read(None)),
            &alone(2, CREATE, Answer::Written),
            &alone(3, Kind::Read, Answer::Read(Some(2))),
            &alone(4, Kind::CompareAndSet(Some(2)), Answer::Written),
            &alone(5, Kind::CompareAndSet(Some(2)), Answer::Changed),
            &alone(6, Kind::Set, Answer::Written),
            &alone(7, Kind::Read, Answer::Read(Some(6))),
        ]);
        assert_eq!(check(&taken), Ok(()));
    }

    #[test]
    fn operations_side_by_side_are_taken_in_the_order_that_fits() {
        let taken = history([
            &[invoked(1, Kind::Set), invoked(2, Kind::Read), invoked(3, Kind::Set), invoked(4, Kind::Read)],
            &[answered(4, Answer::Read(Some(3))), answered(3, Answer::Written)],
            &[answered(2, Answer::Read(Some(1))), answered(1, Answer::Written)],
            &alone(5, Kind::Read, Answer::Read(Some(1))),
        ]);
        assert_eq!(check(&taken), Ok(()));
    }

    #[test]
    fn a_stale_read_is_refused() {
        let begin = history([&alone(1, Kind::Set, Answer::Written), &alone(2, Kind::Set, Answer::Written)]);
        for stale in [None, Some(1)] {
            let wrong = history([&begin, &alone(3, Kind::Read, Answer::Read(stale))]);
            assert!(check(&wrong).is_err(), "{stale:?}");
        }
    }

    #[test]
    fn reads_that_go_back_are_refused() {
        let wrong = history([
            &[invoked(1, Kind::Set)],
            &alone(2, Kind::Read, Answer::Read(Some(1))),
            &alone(3, Kind::Read, Answer::Read(None)),
            &[answered(1, Answer::Written)],
        ]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn a_lost_update_is_refused() {
        let wrong = history([
            &alone(1, Kind::Set, Answer::Written),
            &[invoked(2, Kind::CompareAndSet(Some(1))), invoked(3, Kind::CompareAndSet(Some(1)))],
            &[answered(2, Answer::Written), answered(3, Answer::Written)],
        ]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn a_change_that_nobody_made_is_refused() {
        let wrong =
            history([&alone(1, Kind::Set, Answer::Written), &alone(2, Kind::CompareAndSet(Some(1)), Answer::Changed)]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn a_write_that_was_refused_and_is_read_is_refused() {
        let wrong = history([
            &alone(1, Kind::Set, Answer::Written),
            &alone(2, CREATE, Answer::Changed),
            &alone(3, Kind::Read, Answer::Read(Some(2))),
        ]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn what_was_not_answered_may_have_been_done_or_not() {
        for read in [Some(1), Some(2)] {
            let taken = history([
                &alone(1, Kind::Set, Answer::Written),
                &[invoked(2, Kind::Set)],
                &alone(3, Kind::Read, Answer::Read(read)),
            ]);
            assert_eq!(check(&taken), Ok(()));
        }
    }

    #[test]
    fn what_was_not_answered_is_not_done_after_its_board_was_fenced() {
        let late = |fence: &[Event]| {
            history([
                &alone(1, Kind::Set, Answer::Written),
                &[invoked(2, Kind::Set)],
                fence,
                &alone(3, Kind::Read, Answer::Read(Some(1))),
                &alone(5, Kind::Read, Answer::Read(Some(2))),
            ])
        };
        assert_eq!(check(&late(&[])), Ok(()));
        assert!(check(&late(&fenced(2))).is_err());
    }

    #[test]
    fn what_was_answered_after_the_fence_was_done_before_it() {
        let late = |read| {
            history([
                &[invoked(2, Kind::Set)],
                &fenced(2),
                &alone(3, Kind::Read, Answer::Read(read)),
                &[answered(2, Answer::Written)],
            ])
        };
        assert_eq!(check(&late(Some(2))), Ok(()));
        assert!(check(&late(None)).is_err());
    }

    #[test]
    fn a_write_that_began_after_the_fence_is_refused() {
        let wrong = history([&fenced(2), &alone(2, Kind::Set, Answer::Written)]);
        assert!(check(&wrong).is_err());
        let unanswered = history([&fenced(2), &[invoked(2, Kind::Set)], &alone(3, Kind::Read, Answer::Read(Some(2)))]);
        assert!(check(&unanswered).is_err());
    }
}
