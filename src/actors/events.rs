//! Events of runs for observers: bounded buffers, and a marker in place of the events that a slow observer missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::messages::{AgentEvent, AgentName, Plan, RunEvent, RunId, TurnId};

use super::stream_mode::StreamMode;

/// An item of the streams that [`Callboard::watch`](crate::Callboard::watch) and
/// [`RunHandle::events`](crate::RunHandle::events) return.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched {
    /// A run has journaled an event that one of the watcher's modes includes.
    Event {
        /// The run in whose journal the event is.
        run: RunId,
        /// The event's number in its run, from 1.
        sequence: u64,
        /// The event as it was journaled.
        event: Arc<RunEvent>,
    },
    /// An agent does something in its turn, with [`StreamMode::Live`].
    Live {
        /// The turn in which the agent works.
        turn: TurnId,
        /// The agent that takes the turn.
        agent: AgentName,
        /// What the agent does at this moment; it is not journaled.
        event: Arc<AgentEvent>,
    },
    /// The watcher was slow: this many events are lost to it. Those of runs are in the journal.
    Missed(u64),
}

/// Sends events to watchers.
#[derive(Default)]
pub(crate) struct Hub {
    watching: Mutex<Watching>,
    /// The number of watchers, so that publishing without watchers takes no lock. Code that also reads past events watches first,
    /// and reads the journal then.
    count: AtomicUsize,
}

#[derive(Default)]
struct Watching {
    /// A dropped stream is removed at the next event, or when the next stream is added.
    watchers: Vec<Watcher>,
    /// The board has ended: later streams end at once.
    is_closed: bool,
}

/// Whose events a watcher receives.
#[derive(Debug)]
pub(crate) enum Subject {
    /// Those of all runs.
    All,
    Run(RunId),
    /// Those of the turns of an agent, and of the submissions of runs that begin with it.
    Agent(AgentName),
}

impl Subject {
    fn has(&self, run: RunId, agent: Option<&AgentName>) -> bool {
        match self {
            Self::All => true,
            Self::Run(wanted) => *wanted == run,
            Self::Agent(wanted) => agent == Some(wanted),
        }
    }
}

struct Watcher {
    subject: Subject,
    modes: Vec<StreamMode>,
    sender: mpsc::Sender<Watched>,
    missed: Missed,
}

/// The number of events that found no room in the buffer and were not reported yet. Locked while an event is sent, and while the
/// watcher finds the buffer empty: so the watcher receives the marker directly after the events before the gap.
type Missed = Arc<Mutex<u64>>;

impl Hub {
    /// Events from now on, in any of the modes.
    pub(crate) fn watch(
        &self,
        subject: Subject,
        modes: &[StreamMode],
        buffer: usize,
    ) -> impl Stream<Item = Watched> + Send + Unpin + use<> {
        let (sender, mut receiver) = mpsc::channel(buffer.max(2));
        let missed = Missed::default();
        let mut watching = self.watching.lock();
        if !watching.is_closed {
            watching.watchers.retain(|watcher| !watcher.sender.is_closed());
            watching.watchers.push(Watcher { subject, modes: modes.to_vec(), sender, missed: Arc::clone(&missed) });
            self.count.store(watching.watchers.len(), Ordering::Release);
        }
        drop(watching);
        futures::stream::poll_fn(move |context| {
            let mut missed = missed.lock();
            match receiver.poll_recv(context) {
                // Pending may also mean that tokio's cooperative budget is used up.
                Poll::Pending | Poll::Ready(None) if *missed > 0 && receiver.is_empty() => {
                    Poll::Ready(Some(Watched::Missed(std::mem::take(&mut *missed))))
                }
                polled => polled,
            }
        })
    }

    /// Sends an event of a run with this plan; `agent` has the turn that it is about.
    pub(crate) fn publish<'a>(
        &self,
        (run, plan): (RunId, Option<&Plan>),
        sequence: u64,
        event: &RunEvent,
        agent: impl FnOnce() -> Option<&'a AgentName>,
    ) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let agent = agent();
        let watchers = &mut self.watching.lock().watchers;
        let mut shared: Option<Arc<RunEvent>> = None;
        watchers.retain_mut(|watcher| {
            let is_wanted =
                watcher.subject.has(run, agent) && watcher.modes.iter().any(|mode| mode.includes_in(plan, event));
            if is_wanted {
                let event = Arc::clone(shared.get_or_insert_with(|| Arc::new(event.clone())));
                watcher.send(Watched::Event { run, sequence, event });
            }
            !watcher.sender.is_closed()
        });
        self.count.store(watchers.len(), Ordering::Release);
    }

    /// Whether there may be an observer of what agents do.
    pub(crate) fn is_watched(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Sends what an agent does to the current watchers.
    pub(crate) fn show(&self, turn: TurnId, agent: &AgentName, event: AgentEvent) {
        if !self.is_watched() {
            return;
        }
        let event = Arc::new(event);
        for watcher in &self.watching.lock().watchers {
            if watcher.subject.has(turn.run, Some(agent)) && watcher.modes.contains(&StreamMode::Live) {
                watcher.send(Watched::Live { turn, agent: agent.clone(), event: Arc::clone(&event) });
            }
        }
    }

    /// Ends the streams that watch only this run.
    pub(crate) fn ended(&self, run: RunId) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let watchers = &mut self.watching.lock().watchers;
        watchers.retain(|watcher| !matches!(watcher.subject, Subject::Run(watched) if watched == run));
        self.count.store(watchers.len(), Ordering::Release);
    }

    /// Ends all streams, and later ones at once: the board has ended.
    pub(crate) fn close(&self) {
        let mut watching = self.watching.lock();
        watching.is_closed = true;
        watching.watchers.clear();
        self.count.store(0, Ordering::Release);
    }
}

impl Watcher {
    fn send(&self, watched: Watched) {
        let mut missed = self.missed.lock();
        // Capacity for the event, and for the marker if there is one to send.
        let needed = 1 + usize::from(*missed > 0);
        if self.sender.capacity() < needed {
            *missed += 1;
            return;
        }
        if *missed > 0 {
            let _ = self.sender.try_send(Watched::Missed(std::mem::take(&mut *missed)));
        }
        // There is room, so only a closed receiver refuses it.
        let _ = self.sender.try_send(watched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Timestamp;
    use futures::{FutureExt, StreamExt};

    #[test]
    fn streams_that_were_dropped_are_not_kept_until_the_next_event() {
        let hub = Hub::default();
        for _ in 0..10 {
            drop(hub.watch(Subject::All, &[StreamMode::Debug], 1));
        }
        let _kept = hub.watch(Subject::All, &[StreamMode::Debug], 1);
        assert_eq!(hub.count.load(Ordering::Acquire), 1);
    }

    #[test]
    fn a_slow_watcher_receives_how_much_it_missed() {
        let hub = Hub::default();
        let run = RunId(uuid::Uuid::nil());
        let mut watched = hub.watch(Subject::Run(run), &[StreamMode::Messages], 2);
        let notice = RunEvent::Noticed { turn: 1, text: "x".into(), at: Timestamp::default() };
        let mut next = || match watched.next().now_or_never() {
            Some(Some(Watched::Event { sequence, .. })) => format!("event {sequence}"),
            Some(Some(Watched::Live { event, .. })) => format!("{event:?}"),
            Some(Some(Watched::Missed(count))) => format!("missed {count}"),
            Some(None) => "end".into(),
            None => "nothing".into(),
        };
        (1..=5).for_each(|sequence| hub.publish((run, None), sequence, &notice, || None));
        hub.publish((run, None), 6, &RunEvent::Recovered { at: Timestamp::default(), new_process: true }, || None);
        assert_eq!([next(), next(), next(), next()], ["event 1", "event 2", "missed 3", "nothing"]);
        (7..=10).for_each(|sequence| hub.publish((run, None), sequence, &notice, || None));
        assert_eq!(next(), "event 7");
        hub.publish((run, None), 11, &notice, || None);
        assert_eq!(next(), "event 8");
        hub.publish((run, None), 12, &notice, || None);
        assert_eq!([next(), next(), next()], ["missed 3", "event 12", "nothing"]);
        (13..=15).for_each(|sequence| hub.publish((run, None), sequence, &notice, || None));
        hub.ended(run);
        assert_eq!([next(), next(), next(), next()], ["event 13", "event 14", "missed 1", "end"]);
    }
}
