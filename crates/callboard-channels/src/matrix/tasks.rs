//! The tasks that make the calls: one sends and closes messages, one receives replies, one answers them, one tries rooms again that the server
//! could not use, and one looks up what was decided while no process had the channel.

use std::convert::Infallible;
use std::sync::Arc;

use backon::ExponentialBackoff;
use callboard::AnswerError;
use callboard::messages::{ApprovalId, Envelope, visible};
use callboard_private::Folder;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::api::{Api, CallError, Scope};
use super::config::{FILE, MatrixConfig, MatrixState};
use super::history::History;
use super::ledger::{Call, Found, Ledger, Offered};
use super::message::{Contents, how_to_decide, outcome, replies};
use super::reply::{Reply, reply};
use super::rooms::{Rooms, Trouble};
use super::synced::{Event, Room, Synced};
use crate::kept::{Choice, DecideError, Kept, LedgerFile};

/// The most answers that wait to be sent. Further ones are dropped: the messages show what was decided.
const MAX_ANSWERS: usize = 256;
/// How many pages of the history of a room are read where `/sync` has left out events.
const MAX_PAGES: usize = 20;
/// How often an answer is tried.
const ANSWER_TRIES: u32 = 3;

/// The name of the channel.
pub(super) const NAME: &str = "matrix";
const MAY_NOT: &str = "You may not decide this.";
const NOT_ITS_DATA: &str = "The data is not that of the message. Nothing was decided.";
const UNKNOWN: &str = "No question is asked by that message. Nothing was decided.";
const NOT_FOR_RUN: &str = "It cannot be approved for the whole run. Nothing was decided.";

/// What the channel's tasks share with it.
pub(super) struct Shared {
    pub(super) config: MatrixConfig,
    pub(super) state: watch::Sender<MatrixState>,
    pub(super) kept: Arc<Kept<Ledger>>,
    api: Api,
    contents: Contents,
    rooms: Mutex<Rooms>,
}

/// The answer to a reply.
struct Told {
    room: String,
    to: String,
    text: String,
}

impl Shared {
    pub(super) fn new(config: MatrixConfig, api: Api, folder: Folder, ledger: Ledger) -> Self {
        let kept = Arc::new(Kept::new(NAME, ledger, LedgerFile { folder, name: FILE }, config.delays));
        let contents = Contents { event_type: config.event_type.as_str().into() };
        let state = watch::Sender::new(MatrixState::Starting);
        Self { config, state, kept, api, contents, rooms: Mutex::default() }
    }

    /// Starts the tasks.
    pub(super) fn start(self: Arc<Self>) -> Vec<AbortHandle> {
        let (tell, told) = mpsc::channel(MAX_ANSWERS);
        let told = Arc::new(tokio::sync::Mutex::new(told));
        let [sending, receiving, answering, retrying] = [(); 4].map(|()| Arc::clone(&self));
        let kept = Arc::clone(&self.kept);
        vec![
            self.kept.keep(move || Arc::clone(&sending).send()),
            self.kept.keep(move || Arc::clone(&receiving).receive(tell.clone())),
            self.kept.keep(move || Arc::clone(&answering).answer(Arc::clone(&told))),
            self.kept.keep(move || Arc::clone(&retrying).retry()),
            self.kept.keep(move || Arc::clone(&kept).look_up()),
        ]
    }

    /// Has a question sent.
    pub(super) fn ask(&self, envelope: &Envelope) {
        self.kept.ask(|ledger| ledger.ask(envelope, || (self.config.how_to_see)(envelope)));
    }

    /// What is read.
    fn scope(&self) -> Scope<'_> {
        Scope { rooms: &self.config.rooms, event_type: &self.config.event_type }
    }

    /// Waits until a call may be made again.
    async fn wait(&self, error: &CallError, delays: &mut ExponentialBackoff) {
        match error {
            CallError::Wait(time) => sleep(*time).await,
            CallError::Refused { .. } | CallError::Unreachable(_) => drop(self.kept.pause(delays).await),
        }
    }

    /// Sends and closes messages.
    async fn send(self: Arc<Self>) {
        let (mut delays, mut changes) = (self.kept.delays(), self.kept.changes());
        loop {
            changes.mark_unchanged();
            let next = self.kept.ledger().next(self.rooms.lock().ready());
            // The data of questions is kept before it is sent: what is sent again has the same transaction.
            self.kept.save().await;
            let Some(call) = next else {
                if !self.kept.has_refilled(|envelope| self.ask(envelope)) && changes.changed().await.is_err() {
                    return;
                }
                continue;
            };
            match self.make(&call).await {
                Ok(()) => delays = self.kept.delays(),
                Err(error) => {
                    tracing::debug!(%error, "a call of the homeserver has failed");
                    self.wait(&error, &mut delays).await;
                }
            }
        }
    }

    /// # Errors
    /// The call is to be made again.
    async fn make(&self, call: &Call) -> Result<(), CallError> {
        match call {
            Call::Send { id, room, nonce, card, offered } => {
                let content = self.contents.asks(*id, nonce, card, *offered);
                match self.api.send(room, &transaction(nonce, "ask"), &content).await {
                    Ok(event) => {
                        self.note_refusing(room, None);
                        self.kept.change(|ledger| ledger.sent(*id, room, &event, card));
                    }
                    Err(error) => {
                        let error = error.of_room()?;
                        self.note_refusing(room, Some(&error));
                        tracing::warn!(
                            room,
                            error,
                            "a room of Matrix does not take an approval: it is not asked there"
                        );
                        self.kept.change(|ledger| ledger.failed(*id, room));
                    }
                }
            }
            Call::Close { id, room, nonce, event, card, outcome } => {
                let content = self.contents.closes(*id, event, card, outcome);
                if let Err(error) = self.api.send(room, &transaction(nonce, "close"), &content).await {
                    let error = error.of_room()?;
                    tracing::debug!(room, error, "a message in a room of Matrix cannot be closed");
                }
                self.kept.change(|ledger| ledger.closed(*id, room));
            }
            Call::Remind { id, room, event, number, nonce } => {
                let content = replies(event, "This still waits for a decision.");
                let sent = self.api.send(room, &transaction(nonce, &format!("remind.{number}")), &content).await;
                sent.map(drop).or_else(|error| error.of_room().map(drop))?;
                self.kept.change(|ledger| ledger.reminded(*id, room));
            }
        }
        Ok(())
    }

    /// Receives replies.
    async fn receive(self: Arc<Self>, tell: mpsc::Sender<Told>) {
        let mut delays = self.kept.delays();
        loop {
            let Err(error) = self.follow(&tell, &mut delays).await;
            self.rooms.lock().suspend();
            self.unreachable(&error);
            self.wait(&error, &mut delays).await;
        }
    }

    /// Receives replies until a call fails.
    async fn follow(
        self: &Arc<Self>,
        tell: &mpsc::Sender<Told>,
        delays: &mut ExponentialBackoff,
    ) -> Result<Infallible, CallError> {
        let account = self.api.account().await?;
        self.kept.change(|ledger| ledger.set_account(&account));
        if self.kept.ledger().since.is_none() {
            self.begin(&account, tell).await?;
        }
        for room in &self.config.rooms {
            self.enter(room).await?;
        }
        loop {
            self.reached(&account);
            let Some(since) = self.kept.ledger().since.clone() else { return Err(lost_place()) };
            let synced = match self.api.sync(&since, self.config.poll, self.scope()).await {
                // The server no longer knows the place; it is asked for a new one.
                Err(CallError::Refused { status: 400, .. }) => {
                    self.kept.change(|ledger| ledger.since = None);
                    return Err(lost_place());
                }
                synced => synced?,
            };
            self.take(&synced, &since, &account, tell).await?;
            let is_repeated = synced.next == since;
            self.continue_at(synced.next.clone());
            self.kept.save().await;
            if is_repeated {
                self.kept.pause(delays).await;
            } else {
                *delays = self.kept.delays();
                if synced.is_empty() {
                    // A server that does not wait is not called without a pause either.
                    sleep(self.config.delays[0]).await;
                }
            }
        }
    }

    /// Begins where the server is. What was written before is no answer to a question of this channel, except where questions are open:
    /// the place where it was is lost.
    async fn begin(self: &Arc<Self>, account: &str, tell: &mpsc::Sender<Told>) -> Result<(), CallError> {
        let synced = self.api.begin(self.scope()).await?;
        for room in synced.joined.iter().filter(|room| self.config.rooms.contains(&room.id)) {
            if self.kept.ledger().is_open_in(&room.id) {
                self.take_room(room, None, account, tell).await?;
            }
        }
        self.continue_at(synced.next);
        Ok(())
    }

    /// Tries the rooms again that the server could not use.
    async fn retry(self: Arc<Self>) {
        loop {
            sleep(self.config.delays[1]).await;
            let failed = self.rooms.lock().failed();
            for room in failed {
                if let Err(error) = self.enter(&room).await {
                    tracing::debug!(room, %error, "a room of Matrix cannot be tried again yet");
                }
            }
        }
    }

    fn continue_at(&self, next: String) {
        self.kept.change(|ledger| ledger.since = Some(next));
    }

    /// Joins a room, and looks whether it can be used.
    async fn enter(&self, room: &str) -> Result<(), CallError> {
        let found = match self.looked(room).await {
            Err(error @ CallError::Wait(_)) => return Err(error),
            Err(error) => {
                // Where the server answers otherwise, only this room is not used.
                self.api.account().await?;
                Err(Trouble::Failed(error.to_string()))
            }
            Ok(found) => found,
        };
        self.note(room, found);
        Ok(())
    }

    async fn looked(&self, room: &str) -> Result<Result<(), Trouble>, CallError> {
        match self.api.join(room).await? {
            Ok(()) => self.api.look(room).await,
            Err(trouble) => Ok(Err(trouble)),
        }
    }

    /// Notes whether a room can be used.
    fn note(&self, room: &str, found: Result<(), Trouble>) {
        let trouble = found.clone().err();
        if !self.rooms.lock().set(room, found) {
            return;
        }
        if let Some(trouble) = trouble {
            let account = match &*self.state.borrow() {
                MatrixState::Reached { account, .. } => account.clone(),
                MatrixState::Starting | MatrixState::Unreachable { .. } => "of the token".to_owned(),
            };
            tracing::warn!(why = trouble.text(room, &account), "nobody is asked in a room of Matrix");
        }
        self.report_rooms();
        // What was asked meanwhile is sent there.
        self.kept.change(|ledger| ledger.retry(room));
    }

    /// Notes whether a room takes messages: `why` not.
    fn note_refusing(&self, room: &str, why: Option<&str>) {
        if self.rooms.lock().set_refusing(room, why) {
            self.report_rooms();
        }
    }

    /// Reports the rooms that cannot be used, where the server is reached.
    fn report_rooms(&self) {
        self.state.send_if_modified(|state| match state {
            MatrixState::Reached { account, unusable } => {
                *unusable = self.rooms.lock().texts(account);
                true
            }
            MatrixState::Starting | MatrixState::Unreachable { .. } => false,
        });
    }

    /// Handles what is new.
    async fn take(
        self: &Arc<Self>,
        synced: &Synced,
        since: &str,
        account: &str,
        tell: &mpsc::Sender<Told>,
    ) -> Result<(), CallError> {
        let is_listed = |room: &&String| self.config.rooms.contains(*room);
        for room in synced.left.iter().filter(is_listed) {
            self.note(room, Err(Trouble::NotIn("it has left, or was removed".to_owned())));
        }
        for room in synced.invited.iter().filter(is_listed) {
            self.enter(room).await?;
        }
        for room in synced.joined.iter().filter(|room| self.config.rooms.contains(&room.id)) {
            self.take_room(room, Some(since), account, tell).await?;
        }
        Ok(())
    }

    async fn take_room(
        self: &Arc<Self>,
        room: &Room,
        since: Option<&str>,
        account: &str,
        tell: &mpsc::Sender<Told>,
    ) -> Result<(), CallError> {
        if room.is_encrypted {
            self.note(&room.id, Err(Trouble::Encrypted));
        } else if room.is_replaced || !self.rooms.lock().is_ready(&room.id) {
            self.enter(&room.id).await?;
        }
        if self.rooms.lock().is_encrypted(&room.id) {
            return Ok(());
        }
        if room.has_other_powers {
            self.kept.change(|ledger| ledger.retry(&room.id));
        }
        let (events, is_cut) = room.since_joined(account);
        let is_whole = if is_cut { self.take_missing(room, since, account, tell).await? } else { true };
        for event in events {
            self.handle(&room.id, event, account, tell).await;
        }
        if !is_whole {
            tracing::warn!(room = room.id, "messages of a room are missing: replies among them decide nothing");
            self.kept.change(|ledger| ledger.remind_in(&room.id));
        }
        Ok(())
    }

    /// Handles the events that the server has left out; whether those are all that are of use.
    async fn take_missing(
        self: &Arc<Self>,
        room: &Room,
        since: Option<&str>,
        account: &str,
        tell: &mpsc::Sender<Told>,
    ) -> Result<bool, CallError> {
        if !self.kept.ledger().is_open_in(&room.id) {
            return Ok(true);
        }
        let history = self.history(room, since, account).await?;
        let is_whole = history.is_whole();
        for event in history.into_events() {
            self.handle(&room.id, &event, account, tell).await;
        }
        Ok(is_whole)
    }

    /// Reads what was left out of a room since a place, or since its open questions were asked.
    async fn history(&self, room: &Room, since: Option<&str>, account: &str) -> Result<History, CallError> {
        let mut history = History::new(self.kept.ledger().shown_in(&room.id));
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
            history.take(page.events, account, &self.config.event_type);
            if page.before.is_none() {
                history.end();
            }
            if history.is_whole() {
                break;
            }
            before = page.before.filter(|before| *before != place);
        }
        Ok(history)
    }

    fn reached(&self, account: &str) {
        let unusable = self.rooms.lock().texts(account);
        self.set_state(MatrixState::Reached { account: account.to_owned(), unusable });
    }

    fn unreachable(&self, error: &CallError) {
        self.set_state(MatrixState::Unreachable { why: error.to_string() });
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

    async fn handle(self: &Arc<Self>, room: &str, event: &Event, account: &str, tell: &mpsc::Sender<Told>) {
        if event.sender == account {
            if let Some(nonce) = event.content()[&*self.contents.event_type]["nonce"].as_str() {
                self.kept.change(|ledger| ledger.seen(nonce, room, &event.id));
            }
            return;
        }
        let Some(reply) = reply(event, &self.config.event_type) else { return };
        let found = self.kept.ledger().shown(room, &reply.to);
        // What people reply to each other is not the channel's business.
        let is_for_us = found != Found::Unknown || reply.is_of_program;
        if !is_for_us || self.kept.ledger().is_handled(&event.id) {
            return;
        }
        let told = self.replied(found, &reply, room, event).await;
        // Not before: where the process ends meanwhile, the next one receives the reply again.
        self.kept.change(|ledger| ledger.handle(&event.id));
        let Some(text) = told else { return };
        let told = Told { room: room.to_owned(), to: event.id.clone(), text };
        if tell.try_send(told).is_err() {
            tracing::warn!("too many replies on Matrix at once: one is not answered");
        }
    }

    /// What came of a reply; nothing if the account was told before.
    async fn replied(self: &Arc<Self>, found: Found, reply: &Reply, room: &str, event: &Event) -> Option<String> {
        let account = &*event.sender;
        // Whoever names events that show nothing is told that once.
        let about = if found == Found::Unknown { "" } else { &reply.to };
        let refuse = |why: &str, text: &str| {
            tracing::info!(target: "callboard::audit", channel = NAME, account, room, why, "refused");
            self.kept.change(|ledger| ledger.tell(account, about, why)).then(|| text.to_owned())
        };
        let Some(person) = self.config.people.get(account) else {
            return refuse("who has replied may not decide", MAY_NOT);
        };
        let (id, nonce, offered) = match found {
            Found::Open { id, nonce, offered } => (id, nonce, offered),
            Found::Closed(outcome) => return Some(format!("It is closed already: {outcome}")),
            Found::Unknown => return refuse("the event that it is about shows no question", UNKNOWN),
        };
        if reply.nonce.as_ref().is_some_and(|given| *given != nonce) {
            return refuse("the data is not that of the message", NOT_ITS_DATA);
        }
        match &reply.choice {
            None => refuse("it is not clear what it decides", &unclear(offered)),
            Some((Choice::ApproveForRun, _)) if !offered.for_run => {
                refuse("it cannot be approved for the run", NOT_FOR_RUN)
            }
            Some((choice, reason)) => Some(self.decide(id, person, (account, room), *choice, reason).await),
        }
    }

    async fn decide(
        self: &Arc<Self>,
        id: ApprovalId,
        by: &Arc<str>,
        (account, room): (&str, &str),
        choice: Choice,
        reason: &str,
    ) -> String {
        let told = match self.kept.decide(id, by, choice, reason).await {
            Ok(Some(decision)) => outcome(Some(&decision), true),
            Ok(None) => "That is noted. Others have to approve as well.".to_owned(),
            Err(DecideError::Answer(AnswerError::AlreadyDecided { decision })) => {
                format!("It was decided already: {}", outcome(Some(&decision), false))
            }
            Err(DecideError::Answer(AnswerError::NotOpen(_))) => {
                "It is not open, or its run has not continued yet.".to_owned()
            }
            Err(DecideError::Answer(error)) => format!("Nothing was decided: {}", visible(&error.to_string())),
            Err(DecideError::NotStarted) => return "The board has not started yet.".to_owned(),
            Err(DecideError::Panicked) => "The board has failed over it; please try again.".to_owned(),
        };
        tracing::info!(target: "callboard::audit", channel = NAME, account, room, who = &**by, approval = %id, told, "decision");
        told
    }

    /// Answers replies.
    async fn answer(self: Arc<Self>, told: Arc<tokio::sync::Mutex<mpsc::Receiver<Told>>>) {
        // This task alone takes it.
        while let Some(Told { room, to, text }) = told.lock().await.recv().await {
            if self.rooms.lock().is_encrypted(&room) {
                continue;
            }
            let (mut delays, content): (_, Value) = (self.kept.delays(), replies(&to, &text));
            for _ in 0..ANSWER_TRIES {
                match self.api.send(&room, &transaction(&to, "answer"), &content).await {
                    Ok(_) | Err(CallError::Refused { .. }) => break,
                    Err(error) => self.wait(&error, &mut delays).await,
                }
            }
        }
    }
}

/// The transaction of a message: what is sent again with it is there once.
fn transaction(of: &str, what: &str) -> String {
    format!("callboard.{of}.{what}")
}

fn unclear(offered: Offered) -> String {
    format!("Nothing was decided. {}", how_to_decide(offered).replace("this message", "the message that asks"))
}

fn lost_place() -> CallError {
    CallError::Unreachable("it does not know where to continue, and begins anew".to_owned())
}
