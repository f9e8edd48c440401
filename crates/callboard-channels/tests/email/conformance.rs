//! The channel keeps every rule of channels that does not say that people decide on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use callboard::actors::approvals::{Channel, Decider};
use callboard::messages::{ApprovalId, Decision, Envelope};
use callboard::testing::channels::{Audience, SeenCard, check};
use callboard_channels::email::EmailChannel;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::fake::{Failing, Smtp};
use crate::team::config;

callboard::channel_conformance! {
    shown email: People::start()
}

/// Those of the rules of a channel with a memory that hold for one by which nobody decides: all but
/// `a_decision_is_shown_to_everybody_and_later_choices_are_told_of_it`.
macro_rules! kept {
    ($($rule:ident)*) => {
        $(#[test] fn $rule() { check(People::start(), stringify!($rule)); })*
    };
}

kept! {
    of_two_people_at_once_one_decides_and_the_other_is_told
    a_channel_that_reaches_nobody_delays_nobody_and_catches_up
    an_open_question_is_open_once_after_a_restart
    what_was_decided_meanwhile_is_closed_after_a_restart
    what_has_expired_meanwhile_is_closed_after_a_restart
}

/// Two people who read mails, and decide on the page that these name.
struct People {
    smtp: Arc<Smtp>,
    folder: TempDir,
    pages: Arc<Mutex<Option<Decider>>>,
}

impl People {
    fn start() -> Self {
        Self { smtp: Smtp::start(), folder: tempfile::tempdir().unwrap(), pages: Arc::default() }
    }
}

impl Audience for People {
    fn names(&self) -> [String; 2] {
        ["ann".to_owned(), "bob".to_owned()]
    }

    fn open(&self) -> Arc<dyn Channel> {
        let channel = EmailChannel::open(config(&self.smtp, self.folder.path())).unwrap();
        Arc::new(WithPages { channel, pages: Arc::clone(&self.pages) })
    }

    /// The threads of each mailbox. Mails of one id are one.
    fn cards(&self) -> Vec<SeenCard> {
        let mails = self.smtp.served.lock().mails.clone();
        let threads: BTreeSet<_> = mails.iter().map(|mail| (mail.to.clone(), mail.thread())).collect();
        let card = |(place, key): (String, String)| {
            let of_thread = || mails.iter().filter(|mail| mail.to == place && mail.thread() == key).rev();
            SeenCard {
                text: of_thread().map(|mail| mail.text() + "\n").collect(),
                is_open: !of_thread().any(|mail| mail.is_closed()),
                place: place.clone(),
                key: key.clone(),
            }
        };
        threads.into_iter().map(card).collect()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.smtp.changes()
    }

    fn choose<'a>(&'a self, person: usize, card: &'a SeenCard, approves: bool) -> BoxFuture<'a, String> {
        Box::pin(async move {
            let id = card.key.trim_start_matches('<').split('.').next().unwrap();
            let (id, by) = (ApprovalId::try_from(id.to_owned()).unwrap(), self.names()[person].clone());
            let pages = self.pages.lock().clone().unwrap();
            let decided = if approves { pages.approve(id, &by).await } else { pages.deny(id, &by, "").await };
            decided.err().map(|error| error.to_string()).unwrap_or_default()
        })
    }

    fn set_reachable(&self, is_reachable: bool) {
        self.smtp.fail(if is_reachable { Failing::No } else { Failing::Silent });
    }
}

/// The channel, beside the pages where people decide.
struct WithPages {
    channel: EmailChannel,
    pages: Arc<Mutex<Option<Decider>>>,
}

impl Channel for WithPages {
    fn name(&self) -> &str {
        self.channel.name()
    }

    fn started(&self, decider: &Decider) {
        *self.pages.lock() = Some(decider.via("dashboard"));
        self.channel.started(decider);
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        self.channel.ask(envelope, decider);
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        self.channel.settled(envelope, decision);
    }

    fn remind(&self, envelope: &Envelope, decider: &Decider) {
        self.channel.remind(envelope, decider);
    }
}
