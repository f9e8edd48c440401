//! Events of runs for whoever watches: bounded buffers, and a marker in place of what a slow watcher missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::messages::{Published, RunEvent, RunId};

/// Which events a watcher gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMode {
    /// Updates of the state's channels: turns that ended.
    Values,
    /// Where turns and delegations stand.
    Updates,
    /// What agents tell: notices, steps, questions, answers.
    Messages,
    /// Everything.
    Debug,
}

impl StreamMode {
    /// Whether an event belongs to this mode.
    #[must_use]
    pub fn includes(self, event: &RunEvent) -> bool {
        match event {
            RunEvent::Submitted(_)
            | RunEvent::AttemptFailed { .. }
            | RunEvent::TurnFailed { .. }
            | RunEvent::Delegated { .. }
            | RunEvent::DelegationExpired { .. }
            | RunEvent::Decided { .. }
            | RunEvent::NeedsAttention { .. }
            | RunEvent::TurnRestarted { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::Stopped { .. }
            | RunEvent::Overwritten { .. } => matches!(self, Self::Updates | Self::Debug),
            RunEvent::TurnEnded { command, .. } => match self {
                Self::Values => !command.update.is_empty(),
                Self::Updates | Self::Debug => true,
                Self::Messages => false,
            },
            RunEvent::StepFinished { .. }
            | RunEvent::Noticed { .. }
            | RunEvent::Asked { .. }
            | RunEvent::Answered { .. }
            | RunEvent::ApprovalAsked { .. } => matches!(self, Self::Messages | Self::Debug),
            RunEvent::StepStarted { .. } | RunEvent::Reserved { .. } | RunEvent::Settled { .. } => self == Self::Debug,
        }
    }
}

/// What a watcher receives.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched {
    /// An event.
    Event(Published),
    /// The watcher was slow: this many events are lost to it. They are in the journal.
    Missed(u64),
}

/// Hands events to watchers.
#[derive(Default)]
pub(crate) struct Hub {
    watchers: Mutex<Vec<Watcher>>,
    count: AtomicUsize,
    is_closed: AtomicBool,
}

struct Watcher {
    run: Option<RunId>,
    modes: Vec<StreamMode>,
    sender: mpsc::Sender<Watched>,
    missed: u64,
}

impl Hub {
    /// Events from now on, of one run or of all, in any of the modes.
    pub(crate) fn watch(
        &self,
        run: Option<RunId>,
        modes: &[StreamMode],
        buffer: usize,
    ) -> impl Stream<Item = Watched> + Send + Unpin + use<> {
        // One place more: what was missed can always be told at the end.
        let (sender, mut receiver) = mpsc::channel(buffer.max(2) + 1);
        let mut watchers = self.watchers.lock();
        if !self.is_closed.load(Ordering::Acquire) {
            watchers.push(Watcher { run, modes: modes.to_vec(), sender, missed: 0 });
            self.count.store(watchers.len(), Ordering::Release);
        }
        futures::stream::poll_fn(move |context| receiver.poll_recv(context))
    }

    pub(crate) fn publish(&self, run: RunId, sequence: u64, event: &RunEvent) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut watchers = self.watchers.lock();
        let mut shared: Option<Arc<RunEvent>> = None;
        watchers.retain_mut(|watcher| {
            let is_wanted =
                watcher.run.is_none_or(|wanted| wanted == run) && watcher.modes.iter().any(|mode| mode.includes(event));
            if is_wanted {
                let event = Arc::clone(shared.get_or_insert_with(|| Arc::new(event.clone())));
                watcher.send(Published { run, sequence, event });
            }
            !watcher.sender.is_closed()
        });
        self.count.store(watchers.len(), Ordering::Release);
    }

    /// Ends the streams of those who watch this run alone.
    pub(crate) fn ended(&self, run: RunId) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut watchers = self.watchers.lock();
        watchers.retain(|watcher| watcher.run != Some(run));
        self.count.store(watchers.len(), Ordering::Release);
    }

    /// Ends all streams, and those that are asked for later: the board has ended.
    pub(crate) fn close(&self) {
        let mut watchers = self.watchers.lock();
        self.is_closed.store(true, Ordering::Release);
        watchers.clear();
        self.count.store(0, Ordering::Release);
    }
}

impl Watcher {
    fn send(&mut self, event: Published) {
        // The marker, if there is one to send, the event, and the place that is kept.
        let needed = if self.missed > 0 { 3 } else { 2 };
        if self.sender.capacity() < needed {
            self.missed += 1;
            return;
        }
        self.tell_missed();
        // Only a receiver that is gone takes nothing now.
        let _ = self.sender.try_send(Watched::Event(event));
    }

    fn tell_missed(&mut self) {
        if self.missed > 0 {
            let _ = self.sender.try_send(Watched::Missed(std::mem::take(&mut self.missed)));
        }
    }
}

/// The last thing that a slow watcher hears is how much it missed.
impl Drop for Watcher {
    fn drop(&mut self) {
        self.tell_missed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Timestamp;
    use futures::{FutureExt, StreamExt};

    #[test]
    fn a_slow_watcher_is_told_how_much_it_missed() {
        let hub = Hub::default();
        let run = RunId(uuid::Uuid::nil());
        let mut watched = hub.watch(Some(run), &[StreamMode::Messages], 2);
        let notice = RunEvent::Noticed { turn: 1, text: "x".into(), at: Timestamp::default() };
        let mut next = || match watched.next().now_or_never() {
            Some(Some(Watched::Event(event))) => format!("event {}", event.sequence),
            Some(Some(Watched::Missed(count))) => format!("missed {count}"),
            Some(None) => "end".into(),
            None => "nothing".into(),
        };
        (1..=5).for_each(|sequence| hub.publish(run, sequence, &notice));
        hub.publish(run, 6, &RunEvent::Recovered { at: Timestamp::default(), new_process: true });
        assert_eq!([next(), next(), next()], ["event 1", "event 2", "nothing"]);
        hub.publish(run, 7, &notice);
        assert_eq!([next(), next()], ["missed 3", "event 7"]);
        hub.ended(run);
        assert_eq!(next(), "end");
    }
}
