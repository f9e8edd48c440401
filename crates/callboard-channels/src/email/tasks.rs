//! The task that sends, and one that looks up what was decided while no process had the channel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{ApprovalId, Envelope, visible};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::config::{EmailConfig, EmailState};
use super::ledger::Ledger;
use super::message::{Kind, Mail};
use super::server::{Connection, Server, Verdict};
use super::waiting::Waiting;
use crate::deciding::Deciding;

/// What the channel's tasks share with it.
pub(super) struct Shared {
    pub(super) config: EmailConfig,
    pub(super) kept: Arc<Deciding<Ledger>>,
    pub(super) server: Server,
    pub(super) state: watch::Sender<EmailState>,
}

impl Shared {
    /// Starts the tasks.
    pub(super) fn start(self: &Arc<Self>) -> Vec<AbortHandle> {
        let (shared, kept) = (Arc::clone(self), Arc::clone(&self.kept));
        let sending = self.kept.keep(move || Arc::clone(&shared).send());
        vec![sending, self.kept.keep(move || Arc::clone(&kept).look_up())]
    }

    /// Has a question sent.
    pub(super) fn ask(&self, envelope: &Envelope) {
        self.kept.ask(|ledger| Ok(ledger.ask(envelope, &self.config)));
    }

    fn now(&self) -> Duration {
        self.config.env.now().monotonic
    }

    async fn send(self: Arc<Self>) {
        let (mut delays, mut changes) = (self.kept.delays(), self.kept.changes());
        let (mut waiting, mut connection) = (Waiting::default(), Connection::None);
        loop {
            changes.mark_unchanged();
            let are_known = self.find_people().await;
            let next = self.next(&waiting);
            // That it is sent is kept before it is.
            self.kept.save().await;
            let Some(mail) = next else {
                if self.kept.has_refilled(|envelope| self.ask(envelope)) {
                    continue;
                }
                self.server.end(&mut connection).await;
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = waiting.over(self.now()) => {}
                    _ = self.kept.pause(&mut delays), if !are_known => {}
                }
                continue;
            };
            match self.send_one(&mut connection, &mail, &mut waiting).await {
                Ok(()) => delays = self.kept.delays(),
                Err(why) => {
                    self.set_unreachable(why);
                    self.kept.pause(&mut delays).await;
                }
            }
        }
    }

    /// Finds out who may decide the questions that are new, or that more people may decide; whether that is known of all of them.
    async fn find_people(&self) -> bool {
        let mut unknown = Vec::new();
        while self.kept.ledger().has_unchecked() {
            let Some(id) = self.kept.change(Ledger::take_unchecked) else { break };
            match self.people_of(id).await {
                Some(people) => self.kept.change(|ledger| ledger.set_people(id, people)),
                None => unknown.push(id),
            }
        }
        for id in &unknown {
            self.kept.change(|ledger| ledger.check_again(*id));
        }
        unknown.is_empty()
    }

    /// The people who may decide a question now, by their addresses.
    async fn people_of(&self, id: ApprovalId) -> Option<BTreeMap<String, String>> {
        let mut people = BTreeMap::new();
        for (address, person) in &self.config.people {
            if self.kept.may_decide(id, person).await? {
                people.insert(address.clone(), person.to_string());
            }
        }
        Some(people)
    }

    /// The next mail that may be sent now. That a question is sent is noted before.
    fn next(&self, waiting: &Waiting) -> Option<Mail> {
        let now = self.now();
        let mail = self.kept.ledger().next(|address| waiting.is_ready(address, now))?;
        if mail.kind == Kind::Asked && !self.kept.ledger().has_begun(&mail) {
            self.kept.change(|ledger| ledger.begin(&mail));
        }
        Some(mail)
    }

    /// Sends a mail, and notes what came of it.
    ///
    /// # Errors
    /// The server takes no mails, and why.
    async fn send_one(&self, connection: &mut Connection, mail: &Mail, waiting: &mut Waiting) -> Result<(), String> {
        let bytes = mail.bytes(&self.server.from, &self.config).map_err(Verdict::Refused);
        let sent = match &bytes {
            Ok(bytes) => self.server.send(connection, &mail.to, bytes).await,
            Err(verdict) => Err(verdict.clone()),
        };
        let (to, approval) = (&*mail.to, mail.approval);
        match sent {
            Ok(()) => {
                waiting.end(to);
                self.kept.change(|ledger| ledger.end(mail, true));
                self.set_reached(to, None);
            }
            Err(Verdict::Unreachable(why)) => return Err(why),
            Err(verdict @ Verdict::Later(_)) if waiting.wait(to, self.config.delays, self.now()) => {
                tracing::debug!(to, %approval, why = %verdict, "a mail is sent again later");
                self.set_reached(to, Some(verdict.to_string()));
            }
            Err(verdict @ (Verdict::Refused(_) | Verdict::Later(_))) => {
                waiting.end(to);
                let why = visible(&verdict.to_string());
                tracing::warn!(to, %approval, why, "a mail is not sent again");
                self.kept.change(|ledger| ledger.end(mail, false));
                self.set_reached(to, Some(why));
            }
        }
        Ok(())
    }

    /// Notes that the server is reached, and whether it takes mails to this address.
    fn set_reached(&self, to: &str, refusal: Option<String>) {
        self.state.send_if_modified(|state| {
            let before = state.clone();
            let mut refused = match state {
                EmailState::Reached { refused } => std::mem::take(refused),
                EmailState::Starting | EmailState::Unreachable { .. } => {
                    tracing::info!("the server of mail is reached");
                    BTreeMap::new()
                }
            };
            match refusal {
                Some(why) => drop(refused.insert(to.to_owned(), why)),
                None => drop(refused.remove(to)),
            }
            *state = EmailState::Reached { refused };
            *state != before
        });
    }

    /// Reports the first failure of several.
    fn set_unreachable(&self, why: String) {
        self.state.send_if_modified(|state| {
            let before = std::mem::replace(state, EmailState::Unreachable { why });
            if let (EmailState::Unreachable { why }, false) =
                (&*state, matches!(before, EmailState::Unreachable { .. }))
            {
                tracing::warn!(why, "the server of mail is not reached; it is tried again");
            }
            *state != before
        });
    }
}
