//! The tasks that make the calls: one sends and closes messages, one receives clicks, one answers them, and one looks up what was decided
//! while no process had the channel.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use callboard::AnswerError;
use callboard::messages::{Envelope, visible};
use callboard_private::Folder;
use serde_json::json;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::api::{Account, Api, CallError, Click, Update, Written};
use super::config::{FILE, TelegramConfig, TelegramState};
use super::ledger::{Call, Found, Ledger};
use super::text;
use crate::deciding::{DecideError, Deciding};
use crate::kept::LedgerFile;

/// The most answers that wait to be sent. Further ones are dropped: the messages show what was decided.
const MAX_ANSWERS: usize = 256;
/// How long after a click the answer may arrive to the call that has sent the message.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// How often an answer is tried. A click can be answered for some seconds only.
const ANSWER_TRIES: u32 = 3;

/// The name of the channel.
pub(super) const NAME: &str = "telegram";
const MAY_NOT: &str = "You may not decide this.";
const UNKNOWN: &str = "This button is not known here, or was used already. Nothing was decided.";

/// What the channel's tasks share with it.
pub(super) struct Shared {
    pub(super) config: TelegramConfig,
    pub(super) state: watch::Sender<TelegramState>,
    pub(super) kept: Arc<Deciding<Ledger>>,
    api: Api,
    /// Notified when it is known which message shows a question.
    sent: Notify,
}

/// The answer to a click or a message.
enum Told {
    Click { id: String, text: String },
    Reply { chat: i64, message: i64, text: String },
}

impl Shared {
    pub(super) fn new(config: TelegramConfig, api: Api, folder: Folder, ledger: Ledger) -> Self {
        let kept = Deciding::new(NAME, ledger, LedgerFile { folder, name: FILE }, config.delays);
        let state = watch::Sender::new(TelegramState::Starting);
        Self { config, api, state, kept: Arc::new(kept), sent: Notify::new() }
    }

    /// Starts the tasks.
    pub(super) fn start(self: Arc<Self>) -> Vec<AbortHandle> {
        let (tell, told) = mpsc::channel(MAX_ANSWERS);
        let told = Arc::new(tokio::sync::Mutex::new(told));
        let (sending, receiving, answering) = (Arc::clone(&self), Arc::clone(&self), Arc::clone(&self));
        let kept = Arc::clone(&self.kept);
        vec![
            self.kept.keep(move || Arc::clone(&sending).send()),
            self.kept.keep(move || Arc::clone(&receiving).receive(tell.clone())),
            self.kept.keep(move || Arc::clone(&answering).answer(Arc::clone(&told))),
            self.kept.keep(move || Arc::clone(&kept).look_up()),
        ]
    }

    /// Has a question sent.
    pub(super) fn ask(&self, envelope: &Envelope) {
        self.kept.ask(|ledger| ledger.ask(envelope, || (self.config.how_to_see)(envelope)));
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
            let next = self.kept.ledger().next(&self.config.chats);
            // The data of buttons is kept before it is sent.
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
                    tracing::debug!(%error, "a call of the Bot API has failed");
                    self.wait(&error, &mut delays).await;
                }
            }
        }
    }

    /// # Errors
    /// The call is to be made again.
    async fn make(&self, call: &Call) -> Result<(), CallError> {
        match call {
            Call::Send { id, chat, text, buttons } => {
                let button = |(data, label): &(String, &str)| json!([{ "text": label, "callback_data": data }]);
                let rows: Vec<_> = buttons.iter().map(button).collect();
                let more = json!({ "reply_markup": { "inline_keyboard": rows } });
                match self.api.send(*chat, text, more).await {
                    Ok(message) => {
                        self.kept.change(|ledger| ledger.sent(*id, *chat, message, text));
                        self.sent.notify_waiters();
                    }
                    Err(error) => {
                        let error = of_chat(error)?;
                        tracing::warn!(
                            chat,
                            error,
                            "a chat on Telegram does not take an approval: it is not asked there"
                        );
                        self.kept.change(|ledger| ledger.failed(*id, *chat));
                    }
                }
            }
            Call::Close { id, chat, message, text } => {
                if let Err(error) = self.api.close(*chat, *message, text).await {
                    // It shows this text already, or is gone.
                    let error = of_chat(error)?;
                    tracing::debug!(chat, error, "a message on Telegram cannot be closed");
                }
                self.kept.change(|ledger| ledger.closed(*id, *chat));
            }
            Call::Remind { id, chat, message } => {
                let sent = self.api.send(*chat, "This still waits for a decision.", reply_to(*message)).await;
                sent.map(drop).or_else(|error| of_chat(error).map(drop))?;
                self.kept.change(|ledger| ledger.reminded(*id, *chat));
            }
        }
        Ok(())
    }

    /// Receives clicks and answers to messages.
    async fn receive(self: Arc<Self>, tell: mpsc::Sender<Told>) {
        let mut delays = self.kept.delays();
        loop {
            let bot = match self.api.bot().await {
                Ok(bot) => bot,
                Err(error) => {
                    self.unreachable(&error);
                    self.wait(&error, &mut delays).await;
                    continue;
                }
            };
            self.kept.change(|ledger| ledger.set_bot(bot.id));
            self.reached(&bot);
            delays = self.kept.delays();
            loop {
                let offset = self.kept.ledger().offset;
                let updates = match self.api.updates(offset, self.config.poll).await {
                    Ok(updates) => updates,
                    Err(error) => {
                        self.unreachable(&error);
                        self.wait(&error, &mut delays).await;
                        continue;
                    }
                };
                self.reached(&bot);
                for update in &updates {
                    self.handle(update, &tell).await;
                    self.kept.change(|ledger| ledger.offset = update.id.saturating_add(1));
                }
                self.kept.save().await;
                if updates.is_empty() {
                    // A server that does not wait is not called without a pause either.
                    sleep(self.config.delays[0]).await;
                } else if self.kept.ledger().offset == offset {
                    // The server repeats itself.
                    self.kept.pause(&mut delays).await;
                } else {
                    delays = self.kept.delays();
                }
            }
        }
    }

    fn reached(&self, bot: &Account) {
        self.set_state(TelegramState::Reached { bot: bot.name() });
    }

    fn unreachable(&self, error: &CallError) {
        let why = match error {
            CallError::Refused { code: 409, .. } => {
                "another program receives what is clicked at this bot: stop it, or remove its webhook".to_owned()
            }
            CallError::Refused { code: 401 | 404, .. } => {
                "it does not know the token of the bot: @BotFather gives out a new one".to_owned()
            }
            error => error.to_string(),
        };
        self.set_state(TelegramState::Unreachable { why });
    }

    /// Reports the first failure of several, and that it works again.
    fn set_state(&self, state: TelegramState) {
        let is_new = std::mem::discriminant(&*self.state.borrow()) != std::mem::discriminant(&state);
        match &state {
            TelegramState::Unreachable { why } if is_new => {
                tracing::warn!(why, "Telegram is not reached; it is tried again")
            }
            TelegramState::Reached { bot } if is_new => tracing::info!(bot, "Telegram is reached"),
            TelegramState::Unreachable { .. } | TelegramState::Reached { .. } | TelegramState::Starting => {}
        }
        self.state.send_if_modified(|before| {
            let differs = *before != state;
            *before = state;
            differs
        });
    }

    async fn handle(self: &Arc<Self>, update: &Update, tell: &mpsc::Sender<Told>) {
        let told = match (&update.click, &update.written) {
            (Some(click), _) => Told::Click { id: click.id.clone(), text: self.clicked(click).await },
            (None, Some(written)) => match self.written(written).await {
                Some(text) => Told::Reply { chat: written.chat.id, message: written.message_id, text },
                None => return,
            },
            (None, None) => return,
        };
        if tell.try_send(told).is_err() {
            tracing::warn!("too many clicks on Telegram at once: one is not answered");
        }
    }

    /// What came of a click.
    async fn clicked(self: &Arc<Self>, click: &Click) -> String {
        let account = click.from.id;
        let Some(message) = click.message else { return UNKNOWN.to_owned() };
        let chat = message.chat.id;
        let Some(person) = self.config.people.get(&account).filter(|_| self.config.chats.contains(&chat)) else {
            refused(account, chat, "who clicked may not decide");
            return MAY_NOT.to_owned();
        };
        let data = click.data.as_deref().unwrap_or_default();
        let found = timeout(SENT_WITHIN, self.clicked_message(data, chat, message.message_id)).await;
        let found = found.unwrap_or(Found::Unknown);
        self.decide(found, person, account, chat, "").await
    }

    /// What a button does, as soon as it is known which message has it.
    async fn clicked_message(&self, data: &str, chat: i64, message: i64) -> Found {
        loop {
            let mut sent = pin!(self.sent.notified());
            sent.as_mut().enable();
            match self.kept.ledger().clicked(data, chat, message) {
                Found::Sending => {}
                found => return found,
            }
            sent.await;
        }
    }

    /// What came of a message that somebody has written; nothing unless it answers a question.
    async fn written(self: &Arc<Self>, written: &Written) -> Option<String> {
        let (account, chat) = (written.from.as_ref()?.id, written.chat.id);
        let to = written.reply_to_message.map(|message| message.message_id);
        let found = to.map_or(Found::Unknown, |to| self.kept.ledger().answered(chat, to));
        let is_answer = found != Found::Unknown && self.config.chats.contains(&chat);
        let Some(person) = self.config.people.get(&account) else {
            // What people write to each other in a group is not the bot's business.
            if is_answer || chat == account {
                refused(account, chat, "who has written to the bot may not decide");
            }
            return is_answer.then(|| MAY_NOT.to_owned());
        };
        if !is_answer {
            return None;
        }
        Some(self.decide(found, person, account, chat, written.text.as_deref()?).await)
    }

    async fn decide(self: &Arc<Self>, found: Found, by: &Arc<str>, account: i64, chat: i64, reason: &str) -> String {
        let (id, choice) = match found {
            Found::Open(id, choice) => (id, choice),
            Found::Closed(outcome) => return format!("It is closed already: {outcome}"),
            Found::Sending | Found::Unknown => {
                refused(account, chat, "the button is not of a message that was sent there");
                return UNKNOWN.to_owned();
            }
        };
        let told = match self.kept.decide(id, by, choice, reason).await {
            Ok(Some(decision)) => text::outcome(Some(&decision), true),
            Ok(None) => "That is noted. Others have to approve as well.".to_owned(),
            Err(DecideError::Answer(AnswerError::AlreadyDecided { decision })) => {
                format!("It was decided already: {}", text::outcome(Some(&decision), false))
            }
            Err(DecideError::Answer(AnswerError::NotOpen(_))) => {
                "It is not open, or its run has not continued yet.".to_owned()
            }
            Err(DecideError::Answer(error)) => format!("Nothing was decided: {}", visible(&error.to_string())),
            Err(DecideError::NotStarted) => return "The board has not started yet.".to_owned(),
            Err(DecideError::Panicked) => "The board has failed over it; please try again.".to_owned(),
        };
        tracing::info!(target: "callboard::audit", channel = "telegram", account, chat, who = &**by, approval = %id, told, "decision");
        told
    }

    /// Answers clicks.
    async fn answer(self: Arc<Self>, told: Arc<tokio::sync::Mutex<mpsc::Receiver<Told>>>) {
        // This task alone takes it.
        while let Some(told) = told.lock().await.recv().await {
            let mut delays = self.kept.delays();
            for _ in 0..ANSWER_TRIES {
                let sent = match &told {
                    Told::Click { id, text } => self.api.tell(id, &text::told(text)).await,
                    Told::Reply { chat, message, text } => {
                        self.api.send(*chat, text, reply_to(*message)).await.map(drop)
                    }
                };
                match sent {
                    Ok(()) | Err(CallError::Refused { .. }) => break,
                    Err(error) => self.wait(&error, &mut delays).await,
                }
            }
        }
    }
}

/// The text of a refusal that concerns one chat or message; everything else fails as before.
fn of_chat(error: CallError) -> Result<String, CallError> {
    match error {
        CallError::Refused { code: 400 | 403, text } => Ok(text),
        error => Err(error),
    }
}

fn reply_to(message: i64) -> serde_json::Value {
    json!({ "reply_parameters": { "message_id": message, "allow_sending_without_reply": true } })
}

fn refused(account: i64, chat: i64, why: &str) {
    tracing::info!(target: "callboard::audit", channel = "telegram", account, chat, why, "refused");
}
