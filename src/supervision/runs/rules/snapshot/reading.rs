//! Runs as their journals and snapshots have them: as they are, as they were before each event, or whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::messages::state::StateRules;
use crate::messages::{AgentName, OpenFailure, RunEvent, RunId};
use crate::storage::{History, Journal, Sequence, StorageError, codec};
use crate::supervision::runs::rules::failures::failed_turns;
use crate::supervision::runs::rules::history::{by_effect, in_order_of_effect};
use crate::supervision::runs::rules::run::{Effect, LATE_ORDINAL, OpenTurn, Run, WorkedOut};

use super::Snapshot;

/// A run read back from its journal, and the sequence of the last record.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The run; `None` if nothing is journaled.
    pub run: Option<Run>,
    /// The last record.
    pub last: Sequence,
    /// The turns that failed for good after the snapshot from which the run was read.
    pub failures: Vec<OpenFailure>,
}

/// Reads a run.
///
/// # Errors
/// The journal cannot be read, or does not begin with a submission.
///
/// # Panics
/// When a custom reducer does.
pub(crate) async fn load(journal: &Journal, id: RunId, rules: &StateRules) -> Result<Loaded, StorageError> {
    Ok(read(journal, id, rules).await?.replay())
}

fn replay(mut run: Run, events: Vec<RunEvent>) -> Run {
    for event in in_order_of_effect(events) {
        run.step(&event);
    }
    run
}

/// A run as it is stored: a snapshot or the submission, and the later events.
pub(in crate::supervision::runs) struct Parts {
    pub(in crate::supervision::runs) base: Option<Run>,
    pub(in crate::supervision::runs) tail: Vec<RunEvent>,
    pub(in crate::supervision::runs) last: Sequence,
}

impl Parts {
    /// Panics when a custom reducer does.
    pub(in crate::supervision::runs) fn replay(self) -> Loaded {
        let Self { base, tail, last } = self;
        let failures = base.iter().flat_map(|run| failed_turns(run.submission(), &tail)).collect();
        Loaded { run: base.map(|run| replay(run, tail)), last, failures }
    }
}

/// Reads a run's snapshot, or its submission if there is none, and the events after it.
pub(in crate::supervision::runs) async fn read(
    journal: &Journal,
    id: RunId,
    rules: &StateRules,
) -> Result<Parts, StorageError> {
    let snapshot = journal.snapshot(id).await?.and_then(decoded);
    let tail = journal.read_from(id, from(snapshot.as_ref())).await?;
    parts((journal, id, rules), snapshot, tail).await
}

/// As [`read`], for several runs at once, in their order.
///
/// # Errors
/// What the store reports of the calls; each run has its own errors.
pub(in crate::supervision::runs) async fn read_many(
    journal: &Journal,
    ids: &[RunId],
    rules: &StateRules,
) -> Result<Vec<Result<Parts, StorageError>>, StorageError> {
    let snapshots = journal.snapshots(ids).await?.into_iter();
    let snapshots: Vec<_> = snapshots.map(|read| read.map(|bytes| bytes.and_then(decoded))).collect();
    let begins = snapshots.iter().map(|snapshot| from(snapshot.as_ref().ok().and_then(Option::as_ref)));
    let tails = journal.read_many(&ids.iter().copied().zip(begins).collect::<Vec<_>>()).await?;
    let mut runs = Vec::with_capacity(ids.len());
    for ((id, snapshot), tail) in ids.iter().zip(snapshots).zip(tails) {
        let run = async { parts((journal, *id, rules), snapshot?, tail?).await };
        runs.push(run.await);
    }
    Ok(runs)
}

/// A snapshot; an unreadable one is ignored: the journal has everything.
fn decoded(bytes: Arc<[u8]>) -> Option<Snapshot> {
    codec::decode(&bytes).ok()
}

/// The record from which on the journal is read.
fn from(snapshot: Option<&Snapshot>) -> Sequence {
    snapshot.map_or(1, |snapshot| snapshot.last)
}

/// The parts of a run whose journal was read from its snapshot on, or from the beginning if there is none.
async fn parts(
    (journal, id, rules): (&Journal, RunId, &StateRules),
    snapshot: Option<Snapshot>,
    mut history: History,
) -> Result<Parts, StorageError> {
    if let Some(snapshot) = snapshot {
        // The record that the snapshot was taken after must exist; otherwise the snapshot is ahead of its journal.
        if history.first == Some(snapshot.last) {
            let base = Some(snapshot.whole().with_rules(rules.clone()));
            return Ok(Parts { base, tail: history.events.split_off(history.in_first), last: history.last });
        }
        history = journal.read(id).await?;
    }
    let last = history.last;
    let mut events = history.events.into_iter();
    match events.next() {
        None => Ok(Parts { base: None, tail: Vec::new(), last }),
        Some(RunEvent::Submitted(submission)) => {
            let (run, _) = Run::begin(submission, rules.clone());
            Ok(Parts { base: Some(run), tail: events.collect(), last })
        }
        Some(_) => Err(StorageError::Corrupt {
            key: Journal::stream(id),
            detail: "the journal does not begin with a submission".to_owned(),
        }),
    }
}

/// A run as far back as its journal has it, to step through the later events.
#[derive(Debug)]
pub(crate) struct Past {
    /// The run before the events.
    pub run: Run,
    /// The events, in the order in which they take effect.
    pub events: Vec<RunEvent>,
    /// How many of them are in the run's first record: those of a fork are copied from another run.
    pub in_first: usize,
}

/// Reads a run from its submission; if its first turns were trimmed, from its snapshot. `None` if nothing is journaled.
///
/// # Errors
/// As [`load`].
pub(crate) async fn past(journal: &Journal, id: RunId, rules: &StateRules) -> Result<Option<Past>, StorageError> {
    let history = journal.read(id).await?;
    let in_first = history.in_first.saturating_sub(1);
    let mut events = history.events.into_iter();
    if let Some(RunEvent::Submitted(submission)) = events.next() {
        let (run, _) = Run::begin(submission, rules.clone());
        return Ok(Some(Past { run, events: in_order_of_effect(events.collect()), in_first }));
    }
    let Parts { base, tail, .. } = read(journal, id, rules).await?;
    Ok(base.map(|run| Past { run, events: in_order_of_effect(tail), in_first: 0 }))
}

/// Reads a run and all its events at once; `None` if nothing is journaled. `begun` receives each turn that begins, with the run by
/// then; of a run whose first turns were trimmed, those that are open.
///
/// # Errors
/// As [`load`].
///
/// # Panics
/// When a custom reducer does.
pub(crate) async fn whole(
    journal: &Journal,
    id: RunId,
    rules: &StateRules,
    mut begun: impl FnMut(&Run, u32) + Send,
) -> Result<Option<(Vec<RunEvent>, Run)>, StorageError> {
    let history = journal.read(id).await?.events;
    let run = match history.split_first() {
        None => return Ok(None),
        Some((RunEvent::Submitted(submission), later)) => {
            let (mut run, mut effects) = Run::begin(Arc::clone(submission), rules.clone());
            let mut report = |run: &Run, effects: &mut Vec<Effect>| {
                effects.drain(..).filter_map(|effect| effect.begun()).for_each(|turn| begun(run, turn));
            };
            report(&run, &mut effects);
            for event in &*by_effect(later) {
                run.step_with(event, WorkedOut::default(), &mut effects);
                report(&run, &mut effects);
            }
            run
        }
        Some(_) => {
            let Some(run) = read(journal, id, rules).await?.replay().run else { return Ok(None) };
            run.open_turns().for_each(|turn| begun(&run, turn));
            run
        }
    };
    Ok(Some((history, run)))
}

impl Run {
    /// The run that a whole history makes; `None` if it does not begin with a submission.
    ///
    /// # Panics
    /// When a custom reducer or a predicate does.
    #[must_use]
    pub fn of(history: Vec<RunEvent>, rules: &StateRules) -> Option<Self> {
        let mut events = history.into_iter();
        let Some(RunEvent::Submitted(submission)) = events.next() else { return None };
        let (run, _) = Self::begin(submission, rules.clone());
        Some(replay(run, events.collect()))
    }

    /// The turns of a history that took the answers to detached delegations, and those of a plan, with their agents: no event
    /// names them when they begin. [`Flow::of`](crate::messages::Flow::of) needs them. Empty if the history does not begin with a
    /// submission.
    ///
    /// # Panics
    /// When a custom reducer or a predicate does.
    #[must_use]
    pub fn late_turns(history: &[RunEvent], rules: &StateRules) -> BTreeMap<u32, AgentName> {
        late_turns(history, rules)
    }
}

fn late_turns(events: &[RunEvent], rules: &StateRules) -> BTreeMap<u32, AgentName> {
    let events = in_order_of_effect(events.to_vec());
    let Some((RunEvent::Submitted(submission), events)) = events.split_first() else { return BTreeMap::new() };
    let (mut run, mut effects) = Run::begin(Arc::clone(submission), rules.clone());
    let mut late = BTreeMap::new();
    for event in events.iter().map(Some).chain([None]) {
        for effect in effects {
            let Some(number) = effect.begun() else { continue };
            let is_unnamed = |turn: &&OpenTurn| turn.record(LATE_ORDINAL).is_some() || run.is_planned(turn);
            let turn = run.turn(number).filter(is_unnamed);
            late.extend(turn.map(|turn| (number, turn.agent().clone())));
        }
        effects = event.map(|event| run.step(event)).unwrap_or_default();
    }
    late
}
