//! The questions of runs of other boards on the store that this board's channels show, and the way to those boards (SEMANTICS 16).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::messages::{ApprovalId, Decision, Envelope, PendingId, Response, RunId, Votes};
use crate::supervision::runs::rules::errors::AnswerError;

use super::Decider;
use super::message::GatewayMsg;

/// What the board that works on a run answers; `None` if no other board has the question.
pub(crate) type AnswerElsewhere = Option<Result<Option<Votes>, AnswerError>>;

/// What a person does about something that a run waits for.
#[derive(Clone, Debug)]
pub(crate) struct ByPerson {
    pub(crate) id: PendingId,
    pub(crate) by: Arc<str>,
    pub(crate) what: PersonDoes,
}

#[derive(Clone, Debug)]
pub(crate) enum PersonDoes {
    /// Responds, at a place ([`Decision::via`]).
    Respond { response: Response, via: Arc<str> },
    /// Asks whether they may decide.
    Check,
}

/// The other boards on the store, for those who ask people.
pub(crate) trait OtherBoards: Send + Sync {
    /// A question of this board is open. Does not wait for the other boards.
    fn asked(&self);

    /// Has the board answer a person that has what waits, by its own rules.
    fn ask(&self, asked: ByPerson) -> BoxFuture<'static, AnswerElsewhere>;
}

/// A question of another board that channels of this one show.
#[derive(Clone, Debug)]
struct Shown {
    envelope: Envelope,
    /// The board that works on its run, as far as is known.
    board: Arc<str>,
    /// The channels that show it.
    channels: BTreeSet<Arc<str>>,
    /// Whether people are asked once more, because an answer was lost.
    asks_again: bool,
}

/// The questions of other boards. It outlives the gateway's actor.
#[derive(Default)]
pub(crate) struct Elsewhere {
    shown: Mutex<BTreeMap<ApprovalId, Shown>>,
    boards: OnceLock<Box<dyn OtherBoards>>,
    /// Held while the other boards are asked what they wait for.
    pub(crate) looking: tokio::sync::Mutex<()>,
}

/// What has changed for the channels of this board about a question.
#[derive(Debug, PartialEq, Eq)]
struct Changed {
    /// Whether it is new for one of them.
    is_asked: bool,
    /// Those that show it no more.
    left: BTreeSet<Arc<str>>,
}

impl Elsewhere {
    pub(super) fn boards(&self) -> Option<&dyn OtherBoards> {
        self.boards.get().map(|boards| &**boards)
    }

    /// The questions that a channel shows.
    pub(super) fn open(&self, channel: &str) -> Vec<Envelope> {
        let shown = self.shown.lock();
        shown.values().filter(|shown| shown.channels.contains(channel)).map(|shown| shown.envelope.clone()).collect()
    }

    pub(super) fn envelope(&self, id: ApprovalId) -> Option<Envelope> {
        self.shown.lock().get(&id).map(|shown| shown.envelope.clone())
    }

    /// All of them.
    pub(super) fn ids(&self) -> Vec<ApprovalId> {
        self.shown.lock().keys().copied().collect()
    }

    pub(super) fn is_shown(&self, id: ApprovalId, channel: &str) -> bool {
        self.shown.lock().get(&id).is_some_and(|shown| shown.channels.contains(channel))
    }

    /// A question, the channels that show it, and whether it is to be shown once more; `true` is returned once.
    pub(super) fn question(&self, id: ApprovalId) -> Option<(Envelope, BTreeSet<Arc<str>>, bool)> {
        let mut shown = self.shown.lock();
        let Shown { envelope, channels, asks_again, .. } = shown.get_mut(&id)?;
        Some((envelope.clone(), channels.clone(), std::mem::take(asks_again)))
    }

    pub(super) fn ask_again(&self, id: ApprovalId) {
        if let Some(shown) = self.shown.lock().get_mut(&id) {
            shown.asks_again = true;
        }
    }

    pub(super) fn remove(&self, id: ApprovalId) -> bool {
        self.shown.lock().remove(&id).is_some()
    }
}

impl Shown {
    fn change(&mut self, channels: &BTreeSet<Arc<str>>) -> Changed {
        let is_asked = !channels.is_subset(&self.channels);
        let left = self.channels.difference(channels).cloned().collect();
        self.channels.clone_from(channels);
        Changed { is_asked, left }
    }
}

impl Decider {
    /// Sets how channels reach the other boards, once the board is made.
    pub(crate) fn reach(&self, boards: Box<dyn OtherBoards>) {
        let _ = self.elsewhere().boards.set(boards);
    }

    pub(crate) fn elsewhere(&self) -> &Elsewhere {
        &self.queue.elsewhere
    }

    /// The questions of other boards that are shown, with their runs and the boards that work on these as far as is known.
    pub(crate) fn shown_for_others(&self) -> Vec<(ApprovalId, RunId, Arc<str>)> {
        let shown = self.elsewhere().shown.lock();
        let of = |(id, shown): (&ApprovalId, &Shown)| (*id, shown.envelope.request.turn.run, Arc::clone(&shown.board));
        shown.iter().map(of).collect()
    }

    /// Has these channels show a question of another board. Its id is that of exactly this question, whatever its board says: people
    /// decide what they have seen.
    pub(crate) fn show(&self, envelope: Envelope, board: &Arc<str>, channels: &BTreeSet<Arc<str>>) {
        let id = envelope.id();
        if channels.is_empty() || self.queue.is_open(id) || envelope.expires_at <= self.queue.env.now().wall {
            return;
        }
        let changed = {
            let mut shown = self.elsewhere().shown.lock();
            let new = || Shown { envelope, board: Arc::clone(board), channels: BTreeSet::new(), asks_again: false };
            let shown = shown.entry(id).or_insert_with(new);
            shown.board = Arc::clone(board);
            shown.change(channels)
        };
        self.queue.opened.notify_waiters();
        self.changed(id, changed);
    }

    /// Has only these channels go on to show a question of another board, and others of this board show it that are among them.
    pub(crate) fn keep_shown(&self, id: ApprovalId, channels: &BTreeSet<Arc<str>>) {
        let changed = {
            let mut all = self.elsewhere().shown.lock();
            let Some(shown) = all.get_mut(&id) else { return };
            let changed = shown.change(channels);
            if channels.is_empty() {
                all.remove(&id);
            }
            changed
        };
        self.changed(id, changed);
    }

    fn changed(&self, id: ApprovalId, Changed { is_asked, left }: Changed) {
        if !left.is_empty() {
            self.queue.closed.notify_waiters();
            self.queue.wake(GatewayMsg::HandedOver(id, left));
        }
        if is_asked {
            self.queue.wake(GatewayMsg::Requested(id));
        }
    }

    /// Another board works on the run of a question.
    pub(crate) fn moved(&self, id: ApprovalId, board: &Arc<str>) {
        if let Some(shown) = self.elsewhere().shown.lock().get_mut(&id) {
            shown.board = Arc::clone(board);
        }
    }

    /// A question of another board is no longer open: it was decided, or withdrawn.
    pub(crate) fn close_shown(&self, id: ApprovalId, decision: Option<Decision>) {
        if self.elsewhere().remove(id) {
            self.queue.closed.notify_waiters();
            self.queue.wake(GatewayMsg::Settled(id, decision));
        }
    }
}
