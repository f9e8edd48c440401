//! What mails say, and their headers. Texts of agents are shown as cards show them, so none of them ends a line or a header.

use std::time::{Duration, SystemTime};

use callboard::actors::approvals::Card;
use callboard::messages::{ApprovalId, Decision, Envelope, visible};
use lettre::Message;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, SinglePart};
use serde::{Deserialize, Serialize};

use super::config::EmailConfig;
use crate::texts;

/// The name of the channel.
pub(super) const NAME: &str = "email";

/// The longest card, in units of UTF-16, without how to see what is cut.
const MAX_CARD: usize = 12_000;
/// The longest name in a subject and in a line, in characters.
const MAX_NAME: usize = 60;
/// The most characters of where a question is decided.
const MAX_PLACE: usize = 1_000;

/// What a mail is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Asked,
    Reminded,
    Closed,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Reminded => "reminded",
            Self::Closed => "closed",
        }
    }
}

/// What the mails about a question say, as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Texts {
    subject: String,
    /// The card, with or without the arguments.
    card: String,
    /// Where it is decided, and until when.
    place: String,
    /// What it is about, in a line.
    about: String,
}

impl Texts {
    pub(super) fn of(envelope: &Envelope, config: &EmailConfig) -> Self {
        let [agent, action, target] =
            [envelope.agent.as_str(), &envelope.action.action, &envelope.action.target].map(name);
        // Not every action has a target.
        let what = format!("{action} {target}").trim_end().to_owned();
        let requester = envelope.requester.as_deref().map(|by| format!(", which {} has asked for", name(by)));
        let about = format!(
            "{agent} asks whether it may do {what}, in the run {}{}.",
            envelope.request.turn.run,
            requester.unwrap_or_default()
        );
        let (command, page) = ((config.how_to_see)(envelope), config.page.as_ref().map(|page| page(envelope)));
        let [command, page] = [Some(command), page].map(|text| text.map(|text| cut(&visible(&text), MAX_PLACE)));
        let how = page.as_ref().or(command.as_ref()).map(String::as_str).unwrap_or_default();
        let whole = Card::of(envelope).whole();
        let arguments = Card::of(envelope).arguments();
        let shown = if config.has_arguments { &*whole } else { whole.strip_suffix(&*arguments).unwrap_or_default() };
        let mut card = texts::shortened(shown.trim_end(), how, MAX_CARD);
        if !config.has_arguments {
            card += "\n(The arguments are not in this mail; they are shown where it is decided.)";
        }
        Self { subject: format!("Approval: {what} by {agent}"), card, place: place(envelope, page, command), about }
    }

    /// The text of a card that is kept.
    pub(super) fn kept(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn read(kept: &str) -> Self {
        serde_json::from_str(kept).unwrap_or_default()
    }

    /// The subject and the text of a mail.
    pub(super) fn mail(&self, kind: Kind, outcome: &str) -> (String, String) {
        let Self { subject, card, place, about } = self;
        let reply = format!("Re: {subject}");
        match kind {
            Kind::Asked => (subject.clone(), format!("{about}\n\n{card}\n\n{place}")),
            Kind::Reminded => (reply, format!("This still waits for a decision.\n\n{about}\n\n{place}")),
            Kind::Closed => (reply, format!("{outcome}\n\n{about}\n\nNothing is left to do.\n")),
        }
    }
}

/// Where a question is decided, and what happens if nobody does.
fn place(envelope: &Envelope, page: Option<String>, command: Option<String>) -> String {
    let page = page.map(|page| format!("To decide, sign in at\n{page}\n")).unwrap_or_default();
    let command = command.map(|command| format!("At a terminal of the server: {command}\n")).unwrap_or_default();
    let expires = texts::minute(envelope.expires_at);
    format!(
        "{page}{command}\nIf nobody has decided by {expires}, it is denied.\n\
         Nothing can be decided by an answer to this mail: nobody reads it.\n"
    )
}

/// What came of a question.
pub(super) fn outcome(decision: Option<&Decision>) -> String {
    texts::outcome(decision, None)
}

/// A name in a line. What readers of mail would decode (RFC 2047) is none of it.
fn name(text: &str) -> String {
    visible(&cut(text, MAX_NAME)).replace("=?", "=\\u{3f}")
}

/// The beginning of a text, which shows that it was cut.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A mail that is left to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mail {
    pub(super) kind: Kind,
    pub(super) approval: ApprovalId,
    /// The address that it is sent to.
    pub(super) to: String,
    pub(super) subject: String,
    pub(super) text: String,
}

impl Mail {
    /// The bytes of the mail. Its id is that of the approval, so that one that was sent twice is recognized; the others refer to the first one.
    ///
    /// # Errors
    /// An address is none.
    pub(super) fn bytes(&self, from: &Mailbox, config: &EmailConfig) -> Result<Vec<u8>, String> {
        let id = |kind: Kind| format!("<{}.{}@{}>", self.approval, kind.name(), from.email.domain());
        let to = super::config::to(&self.to).map_err(|error| error.to_string())?;
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(config.env.now().wall.as_millis());
        let header = |name, value: &str| HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned());
        let builder = Message::builder()
            .from(from.clone())
            .to(Mailbox::new(None, to))
            .subject(&*self.subject)
            .date(now)
            .message_id(Some(id(self.kind)))
            .raw_header(header("Auto-Submitted", "auto-generated"));
        let builder = match self.kind {
            Kind::Asked => builder,
            Kind::Reminded | Kind::Closed => builder.in_reply_to(id(Kind::Asked)).references(id(Kind::Asked)),
        };
        let message = builder.singlepart(SinglePart::plain(self.text.clone()));
        message.map(|message| message.formatted()).map_err(|error| error.to_string())
    }
}
