//! The tasks that make the calls: one sends and closes messages, one receives replies, one answers them, one tries rooms again that the server
//! could not use, and one looks up what was decided while no process had the channel.

use std::sync::Arc;

use callboard::AnswerError;
use callboard::messages::{ApprovalId, Envelope, visible};
use callboard_private::Folder;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::api::{Api, CallError};
use super::config::{FILE, MatrixConfig};
use super::following::{Following, Reader};
use super::history::History;
use super::ledger::{Call, Found, Ledger, Offered};
use super::message::{Contents, how_to_decide, outcome, replies};
use super::reply::{Reply, reply};
use super::rooms::Rooms;
use super::synced::{Event, MESSAGE};
use crate::deciding::{Choice, DecideError, Deciding};
use crate::kept::{Kept, LedgerFile};

/// The most answers that wait to be sent. Further ones are dropped: the messages show what was decided.
const MAX_ANSWERS: usize = 256;
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
    pub(super) kept: Arc<Deciding<Ledger>>,
    pub(super) following: Following,
    contents: Contents,
    /// The answers to replies, which wait to be sent.
    tell: mpsc::Sender<Told>,
    told: tokio::sync::Mutex<mpsc::Receiver<Told>>,
}

/// The answer to a reply.
struct Told {
    room: String,
    to: String,
    text: String,
}

impl Shared {
    pub(super) fn new(config: MatrixConfig, api: Api, folder: Folder, ledger: Ledger) -> Self {
        let kept = Arc::new(Deciding::new(NAME, ledger, LedgerFile { folder, name: FILE }, config.delays));
        let contents = Contents { event_type: config.event_type.as_str().into() };
        let listed = (config.rooms.clone(), vec![format!("{}.answer", config.event_type)]);
        let following = Following::new(api, listed, (config.poll, config.delays));
        let (tell, told) = mpsc::channel(MAX_ANSWERS);
        Self { config, kept, following, contents, tell, told: tokio::sync::Mutex::new(told) }
    }

    /// Starts the tasks.
    pub(super) fn start(self: Arc<Self>) -> Vec<AbortHandle> {
        let [sending, receiving, answering, retrying] = [(); 4].map(|()| Arc::clone(&self));
        let kept = Arc::clone(&self.kept);
        vec![
            self.kept.keep(move || Arc::clone(&sending).send()),
            self.kept.keep(move || Arc::clone(&receiving).receive()),
            self.kept.keep(move || Arc::clone(&answering).answer()),
            self.kept.keep(move || Arc::clone(&retrying).retry()),
            self.kept.keep(move || Arc::clone(&kept).look_up()),
        ]
    }

    /// Has a question sent.
    pub(super) fn ask(&self, envelope: &Envelope) {
        self.kept.ask(|ledger| ledger.ask(envelope, || (self.config.how_to_see)(envelope)));
    }

    /// Receives replies.
    async fn receive(self: Arc<Self>) {
        self.following.receive(&*self).await;
    }

    /// Tries the rooms again that the server could not use.
    async fn retry(self: Arc<Self>) {
        self.following.try_again(&*self).await;
    }

    /// Sends and closes messages.
    async fn send(self: Arc<Self>) {
        let (mut delays, mut changes) = (self.kept.delays(), self.kept.changes());
        loop {
            changes.mark_unchanged();
            let next = self.kept.ledger().next(self.following.rooms.lock().ready());
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
                    self.following.wait(&self.kept, &error, &mut delays).await;
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
                match self.following.api.send((room, MESSAGE), &transaction(nonce, "ask"), &content).await {
                    Ok(event) => {
                        self.following.note_refusing(room, None);
                        self.kept.change(|ledger| ledger.sent(*id, room, &event, card));
                    }
                    Err(error) => {
                        let error = error.of_room()?;
                        self.following.note_refusing(room, Some(&error));
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
                if let Err(error) =
                    self.following.api.send((room, MESSAGE), &transaction(nonce, "close"), &content).await
                {
                    let error = error.of_room()?;
                    tracing::debug!(room, error, "a message in a room of Matrix cannot be closed");
                }
                self.kept.change(|ledger| ledger.closed(*id, room));
            }
            Call::Remind { id, room, event, number, nonce } => {
                let content = replies(event, "This still waits for a decision.");
                let sent = self
                    .following
                    .api
                    .send((room, MESSAGE), &transaction(nonce, &format!("remind.{number}")), &content)
                    .await;
                sent.map(drop).or_else(|error| error.of_room().map(drop))?;
                self.kept.change(|ledger| ledger.reminded(*id, room));
            }
        }
        Ok(())
    }

    async fn handle(&self, room: &str, event: &Event, account: &str) {
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
        if self.tell.try_send(told).is_err() {
            tracing::warn!("too many replies on Matrix at once: one is not answered");
        }
    }

    /// What came of a reply; nothing if the account was told before.
    async fn replied(&self, found: Found, reply: &Reply, room: &str, event: &Event) -> Option<String> {
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
        &self,
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
    async fn answer(self: Arc<Self>) {
        // This task alone takes it.
        while let Some(Told { room, to, text }) = self.told.lock().await.recv().await {
            if self.following.rooms.lock().is_encrypted(&room) {
                continue;
            }
            let (mut delays, content): (_, Value) = (self.kept.delays(), replies(&to, &text));
            for _ in 0..ANSWER_TRIES {
                match self.following.api.send((&room, MESSAGE), &transaction(&to, "answer"), &content).await {
                    Ok(_) | Err(CallError::Refused { .. }) => break,
                    Err(error) => self.following.wait(&self.kept, &error, &mut delays).await,
                }
            }
        }
    }
}

impl Reader for Shared {
    type Ledger = Ledger;

    fn kept(&self) -> &Arc<Kept<Ledger>> {
        &self.kept
    }

    fn is_private(&self, _: &str) -> bool {
        false
    }

    /// Of a room that was replaced too: its messages are still there.
    fn reads(&self, room: &str, rooms: &Rooms) -> bool {
        !rooms.is_encrypted(room)
    }

    fn reads_from_the_start(&self, room: &str) -> bool {
        self.kept.ledger().is_open_in(room)
    }

    fn history(&self, room: &str) -> Option<History> {
        let ledger = self.kept.ledger();
        ledger.is_open_in(room).then(|| History::new(ledger.shown_in(room)))
    }

    fn concerns(&self, event: &Event) -> bool {
        reply(event, &self.config.event_type).is_some()
    }

    async fn take(&self, room: &str, event: &Event, account: &str) {
        self.handle(room, event, account).await;
    }

    fn miss(&self, room: &str) {
        tracing::warn!(room, "messages of a room are missing: replies among them decide nothing");
        self.kept.change(|ledger| ledger.remind_in(room));
    }

    fn retry(&self, room: &str) {
        self.kept.change(|ledger| ledger.retry(room));
    }
}

/// The transaction of a message: what is sent again with it is there once.
pub(super) fn transaction(of: &str, what: &str) -> String {
    format!("callboard.{of}.{what}")
}

fn unclear(offered: Offered) -> String {
    format!("Nothing was decided. {}", how_to_decide(offered).replace("this message", "the message that asks"))
}
