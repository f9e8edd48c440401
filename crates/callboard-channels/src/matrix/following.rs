//! Rooms that are followed: joined as soon as somebody invites, looked at, and read by `/sync`, with what that leaves out from their
//! histories. A [`Reader`] handles the events, and keeps where the next process continues.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

use super::api::{Api, CallError, Scope};
use super::config::MatrixState;
use super::history::History;
use super::rooms::{Rooms, Trouble};
use super::synced::{Event, Room, Synced};
use crate::kept::Kept;

/// How many pages of the history of a room are read where `/sync` has left out events.
const MAX_PAGES: usize = 20;

/// A ledger that knows where `/sync` continues.
pub(super) trait Continued: Send + 'static {
    fn since(&self) -> Option<&str>;
    fn continue_at(&mut self, since: Option<String>);
    /// What is kept of another account means nothing to this one.
    fn set_account(&mut self, account: &str);
}

/// What is done with the events of rooms.
pub(super) trait Reader: Send + Sync + 'static {
    type Ledger: Continued;

    fn kept(&self) -> &Arc<Kept<Self::Ledger>>;

    /// Whether a room is used only while nobody enters it uninvited, and while the account may send there.
    fn is_private(&self, room: &str) -> bool;

    /// Whether events of a room are handled, by what is known of the rooms.
    fn reads(&self, room: &str, rooms: &Rooms) -> bool;

    /// Whether a room is read where nothing is known of what was read before.
    fn reads_from_the_start(&self, room: &str) -> bool;

    /// What is read of a room where `/sync` has left out events; `None` if nothing of that is of use.
    fn history(&self, room: &str) -> Option<History>;

    /// Whether an event that was left out is of use.
    fn concerns(&self, event: &Event) -> bool;

    /// Handles an event. One that the server sends again comes here again.
    fn take(&self, room: &str, event: &Event, account: &str) -> impl Future<Output = ()> + Send;

    /// Events of a room could not be read.
    fn miss(&self, room: &str);

    /// A room may take messages that it did not take before.
    fn retry(&self, room: &str);
}

/// The rooms that are followed.
pub(super) struct Following {
    pub(super) api: Api,
    pub(super) rooms: Mutex<Rooms>,
    pub(super) state: watch::Sender<MatrixState>,
    /// The rooms, by their ids.
    listed: BTreeSet<String>,
    /// The types of events that are read beside those that every room has.
    types: Vec<String>,
    /// How long the server is asked to wait for something to report.
    poll: Duration,
    /// The least and the greatest delay before a call is made again.
    delays: [Duration; 2],
}

impl Following {
    pub(super) fn new(
        api: Api,
        (listed, types): (BTreeSet<String>, Vec<String>),
        (poll, delays): (Duration, [Duration; 2]),
    ) -> Self {
        let state = watch::Sender::new(MatrixState::Starting);
        Self { api, rooms: Mutex::default(), state, listed, types, poll, delays }
    }

    /// What is read.
    fn scope(&self) -> Scope<'_> {
        Scope { rooms: &self.listed, types: &self.types }
    }

    /// Waits until a call may be made again.
    pub(super) async fn wait<L: Send + 'static>(
        &self,
        kept: &Kept<L>,
        error: &CallError,
        delays: &mut ExponentialBackoff,
    ) {
        match error {
            CallError::Wait(time) => sleep(*time).await,
            CallError::Refused { .. } | CallError::Unreachable(_) => drop(kept.pause(delays).await),
        }
    }

    /// Receives events.
    pub(super) async fn receive(&self, reader: &impl Reader) {
        let mut delays = reader.kept().delays();
        loop {
            let Err(error) = self.follow(reader, &mut delays).await;
            self.rooms.lock().suspend();
            self.set_state(MatrixState::Unreachable { why: error.to_string() });
            self.wait(reader.kept(), &error, &mut delays).await;
        }
    }

    /// Receives events until a call fails.
    async fn follow(&self, reader: &impl Reader, delays: &mut ExponentialBackoff) -> Result<Infallible, CallError> {
        let (account, kept) = (self.api.account().await?, reader.kept());
        kept.change(|ledger| ledger.set_account(&account));
        if kept.ledger().since().is_none() {
            self.begin(&account, reader).await?;
        }
        for room in &self.listed {
            self.enter(room, reader).await?;
        }
        loop {
            self.reached(&account);
            let Some(since) = kept.ledger().since().map(str::to_owned) else { return Err(lost_place()) };
            let synced = match self.api.sync(&since, self.poll, self.scope()).await {
                // The server no longer knows the place; it is asked for a new one.
                Err(CallError::Refused { status: 400, .. }) => {
                    kept.change(|ledger| ledger.continue_at(None));
                    return Err(lost_place());
                }
                synced => synced?,
            };
            self.take(&synced, &since, &account, reader).await?;
            let is_repeated = synced.next == since;
            kept.change(|ledger| ledger.continue_at(Some(synced.next.clone())));
            kept.save().await;
            if is_repeated {
                kept.pause(delays).await;
            } else {
                *delays = kept.delays();
                if synced.is_empty() {
                    // A server that does not wait is not called without a pause either.
                    sleep(self.delays[0]).await;
                }
            }
        }
    }

    /// Begins where the server is. What was written before is read only where the reader needs it: the place where it was is lost.
    async fn begin(&self, account: &str, reader: &impl Reader) -> Result<(), CallError> {
        let synced = self.api.begin(self.scope()).await?;
        for room in synced.joined.iter().filter(|room| self.listed.contains(&room.id)) {
            if reader.reads_from_the_start(&room.id) {
                self.take_room(room, None, account, reader).await?;
            }
        }
        reader.kept().change(|ledger| ledger.continue_at(Some(synced.next)));
        Ok(())
    }

    /// Tries the rooms again that the server could not use.
    pub(super) async fn try_again(&self, reader: &impl Reader) {
        loop {
            sleep(self.delays[1]).await;
            let failed = self.rooms.lock().failed();
            for room in failed {
                if let Err(error) = self.enter(&room, reader).await {
                    tracing::debug!(room, %error, "a room of Matrix cannot be tried again yet");
                }
            }
        }
    }

    /// Joins a room, and looks whether it can be used.
    async fn enter(&self, room: &str, reader: &impl Reader) -> Result<(), CallError> {
        let found = match self.looked(room, reader.is_private(room)).await {
            Err(error @ CallError::Wait(_)) => return Err(error),
            Err(error) => {
                // Where the server answers otherwise, only this room is not used.
                self.api.account().await?;
                Err(Trouble::Failed(error.to_string()))
            }
            Ok(found) => found,
        };
        self.note(room, found, reader);
        Ok(())
    }

    async fn looked(&self, room: &str, is_private: bool) -> Result<Result<(), Trouble>, CallError> {
        match self.api.join(room).await? {
            Ok(()) => self.api.look(room, is_private).await,
            Err(trouble) => Ok(Err(trouble)),
        }
    }

    /// Notes whether a room can be used.
    fn note(&self, room: &str, found: Result<(), Trouble>, reader: &impl Reader) {
        let trouble = found.clone().err();
        if !self.rooms.lock().set(room, found) {
            return;
        }
        if let Some(trouble) = trouble {
            let account = match &*self.state.borrow() {
                MatrixState::Reached { account, .. } => account.clone(),
                MatrixState::Starting | MatrixState::Unreachable { .. } => "of the token".to_owned(),
            };
            tracing::warn!(why = trouble.text(room, &account), "a room of Matrix is not used");
        }
        self.report_rooms();
        // What was left to send meanwhile is sent there.
        reader.retry(room);
    }

    /// Notes whether a room takes messages: `why` not.
    pub(super) fn note_refusing(&self, room: &str, why: Option<&str>) {
        if self.rooms.lock().set_refusing(room, why) {
            self.report_rooms();
        }
    }

    /// Reports the rooms that cannot be used, where the server is reached.
    pub(super) fn report_rooms(&self) {
        self.state.send_if_modified(|state| match state {
            MatrixState::Reached { account, unusable } => {
                *unusable = self.rooms.lock().texts(account);
                true
            }
            MatrixState::Starting | MatrixState::Unreachable { .. } => false,
        });
    }

    /// Handles what is new.
    async fn take(&self, synced: &Synced, since: &str, account: &str, reader: &impl Reader) -> Result<(), CallError> {
        let is_listed = |room: &&String| self.listed.contains(*room);
        for room in synced.left.iter().filter(is_listed) {
            self.note(room, Err(Trouble::NotIn("it has left, or was removed".to_owned())), reader);
        }
        for room in synced.invited.iter().filter(is_listed) {
            self.enter(room, reader).await?;
        }
        for room in synced.joined.iter().filter(|room| self.listed.contains(&room.id)) {
            self.take_room(room, Some(since), account, reader).await?;
        }
        Ok(())
    }

    async fn take_room(
        &self,
        room: &Room,
        since: Option<&str>,
        account: &str,
        reader: &impl Reader,
    ) -> Result<(), CallError> {
        let has_other_rules = reader.is_private(&room.id) && (room.has_other_join_rules || room.has_other_powers);
        if room.is_encrypted {
            self.note(&room.id, Err(Trouble::Encrypted), reader);
        } else if room.is_replaced || has_other_rules || !self.rooms.lock().is_ready(&room.id) {
            self.enter(&room.id, reader).await?;
        }
        if room.has_other_powers {
            reader.retry(&room.id);
        }
        if !reader.reads(&room.id, &self.rooms.lock()) {
            return Ok(());
        }
        let (events, is_cut) = room.since_joined(account);
        let is_whole = if is_cut { self.take_missing(room, since, account, reader).await? } else { true };
        for event in events {
            reader.take(&room.id, event, account).await;
        }
        if !is_whole {
            reader.miss(&room.id);
        }
        Ok(())
    }

    /// Handles the events that the server has left out; whether those are all that are of use.
    async fn take_missing(
        &self,
        room: &Room,
        since: Option<&str>,
        account: &str,
        reader: &impl Reader,
    ) -> Result<bool, CallError> {
        let Some(mut history) = reader.history(&room.id) else { return Ok(true) };
        let mut before = room.before.clone();
        for _ in 0..MAX_PAGES {
            let Some(place) = before.take() else { break };
            let page = match self.api.page(&room.id, (&place, since), self.scope()).await {
                Err(error @ CallError::Wait(_)) => return Err(error),
                Err(error) => {
                    self.api.account().await?;
                    tracing::debug!(room = room.id, %error, "the history of a room cannot be read");
                    break;
                }
                Ok(page) => page,
            };
            history.take(page.events, account, |event| reader.concerns(event));
            if page.before.is_none() {
                history.end();
            }
            if history.is_whole() {
                break;
            }
            before = page.before.filter(|before| *before != place);
        }
        let is_whole = history.is_whole();
        for event in history.into_events() {
            reader.take(&room.id, &event, account).await;
        }
        Ok(is_whole)
    }

    fn reached(&self, account: &str) {
        let unusable = self.rooms.lock().texts(account);
        self.set_state(MatrixState::Reached { account: account.to_owned(), unusable });
    }

    /// Reports the first failure of several, and that it works again.
    fn set_state(&self, state: MatrixState) {
        let is_new = std::mem::discriminant(&*self.state.borrow()) != std::mem::discriminant(&state);
        match &state {
            MatrixState::Unreachable { why } if is_new => {
                tracing::warn!(why, "Matrix is not reached; it is tried again")
            }
            MatrixState::Reached { account, .. } if is_new => tracing::info!(account, "Matrix is reached"),
            MatrixState::Unreachable { .. } | MatrixState::Reached { .. } | MatrixState::Starting => {}
        }
        self.state.send_if_modified(|before| {
            let differs = *before != state;
            *before = state;
            differs
        });
    }
}

fn lost_place() -> CallError {
    CallError::Unreachable("it does not know where to continue, and begins anew".to_owned())
}
