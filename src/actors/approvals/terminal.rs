//! Approvals on the terminal: a card for each question, and a line of input for the answer.

use std::collections::VecDeque;
use std::io::{self, PipeWriter};
use std::sync::Arc;
use std::time::Duration;

use callboard_text::visible;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::messages::{ApprovalId, Decision, Envelope, Votes};
use crate::storage::StorageError;
use crate::supervision::runs::rules::errors::AnswerError;

use super::keyboard::{columns, show};
use super::{Card, Channel, Decider, Keyboard, Rows, Typed};

/// The delay before a denial at the end of the input that could not be stored is tried again.
const DENY_AGAIN: Duration = Duration::from_secs(1);

/// Asks on standard error and reads answers from the terminal: `y` with the code that is on the card, or `n` with a reason; `s`
/// shows all of a card that was cut. A handoff has no code. What was typed before the card was complete is discarded.
///
/// Where standard input or standard error is no terminal nobody is asked, and the approval stays open for other channels.
#[derive(Clone, Debug, Default)]
pub struct TerminalChannel {
    queue: Arc<Mutex<Queue>>,
    denies_at_end: bool,
}

#[derive(Debug, Default)]
struct Queue {
    open: VecDeque<(Envelope, Decider)>,
    is_reading: bool,
    /// The card on the terminal. Dropping it removes the card.
    shown: Option<(ApprovalId, PipeWriter)>,
}

impl TerminalChannel {
    /// A terminal channel. One per process: it reads standard input.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Denies what is asked where there is no terminal, or after its input has ended, for programs that nobody else can
    /// answer. Without this, such questions stay open for other channels.
    #[must_use]
    pub fn deny_at_end(mut self) -> Self {
        self.denies_at_end = true;
        self
    }

    /// Asks one question after the other, on a thread that may block without limit.
    fn read(&self, runtime: &Handle) {
        let queue = &self.queue;
        let mut keyboard = Keyboard::open();
        let mut wants_all = false;
        loop {
            let (envelope, decider, withdrawal) = {
                let mut queue = queue.lock();
                let Some((envelope, decider)) = queue.open.front().cloned() else {
                    (queue.is_reading, queue.shown) = (false, None);
                    return;
                };
                // Without a pipe a card stays until it is answered.
                let (withdrawal, writer) = io::pipe().ok().unzip();
                queue.shown = writer.map(|writer| (envelope.id(), writer));
                (envelope, decider, withdrawal)
            };
            let id = envelope.id();
            let Some(keyboard) = &mut keyboard else {
                if self.denies_at_end {
                    show("there is no terminal to ask at: what is asked is denied\n");
                    let _ = deny_at_end(runtime, &decider, id);
                } else {
                    show(&format!("there is no terminal to ask at; approval {id} stays open\n"));
                }
                queue.lock().open.retain(|(open, _)| open.id() != id);
                continue;
            };
            let (brief, whole) = (Card::of(&envelope).brief(), Card::of(&envelope).whole());
            let is_cut = brief != whole;
            let card = if std::mem::take(&mut wants_all) { &whole } else { &brief };
            let question = question(&envelope, card, is_cut);
            let typed = match &withdrawal {
                Some(withdrawal) => match keyboard.ask_unless(&question, withdrawal) {
                    Typed::Line(line) => Some(line),
                    Typed::End => None,
                    Typed::Withdrawn => continue,
                },
                None => keyboard.ask(&question),
            };
            queue.lock().shown = None;
            let decided = match typed {
                Some(line) if is_cut && line.trim().eq_ignore_ascii_case("s") => {
                    wants_all = true;
                    continue;
                }
                Some(line) => match answer(&line, Card::of(&envelope).code().as_deref()) {
                    Ok(Ok(())) => runtime.block_on(decider.approve(id, "terminal")),
                    Ok(Err(reason)) => runtime.block_on(decider.deny(id, "terminal", reason)),
                    Err(unclear) => {
                        show(unclear);
                        continue;
                    }
                },
                None if self.denies_at_end => {
                    show("\n");
                    deny_at_end(runtime, &decider, id)
                }
                None => {
                    show("\nno more input; the approval stays open\n");
                    queue.lock().is_reading = false;
                    return;
                }
            };
            match &decided {
                Ok(Votes { missing: 0, .. }) => {}
                Ok(Votes { missing, .. }) => show(&format!("{missing} more have to approve\n")),
                Err(error) => show(&format!("{}\n", visible(&error.to_string()))),
            }
            match decided {
                Ok(_)
                | Err(AnswerError::AlreadyDecided { .. } | AnswerError::NotOpen(_) | AnswerError::Expired { .. }) => {
                    queue.lock().open.retain(|(open, _)| open.id() != id)
                }
                Err(AnswerError::Storage(StorageError::Stopped { .. })) => {
                    queue.lock().is_reading = false;
                    return;
                }
                // The card stays open and is shown again.
                Err(_) => show("nothing was decided; please answer again\n"),
            }
        }
    }
}

impl Channel for TerminalChannel {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn asks_for_other_boards(&self) -> bool {
        false
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        let mut queue = self.queue.lock();
        let id = envelope.id();
        if queue.open.iter().all(|(open, _)| open.id() != id) {
            queue.open.push_back((envelope.clone(), decider.clone()));
        }
        if !std::mem::replace(&mut queue.is_reading, true) {
            let (terminal, runtime) = (self.clone(), Handle::current());
            let reader = std::thread::Builder::new().name("callboard-terminal".to_owned());
            if let Err(error) = reader.spawn(move || terminal.read(&runtime)) {
                queue.is_reading = false;
                queue.open.retain(|(open, _)| open.id() != id);
                show(&format!(
                    "approval {id} cannot be asked about at this terminal and stays open: a thread cannot be started ({error}); end \
                     other processes of this user, or raise the limit of them (ulimit -u)\n"
                ));
            }
        }
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        let id: ApprovalId = envelope.id();
        let shown = {
            let mut queue = self.queue.lock();
            queue.open.retain(|(open, _)| open.id() != id);
            queue.shown.take_if(|(shown, _)| *shown == id)
        };
        if shown.is_some() {
            // The next output begins a line.
            show("\n");
        }
        let outcome = match decision {
            Some(decision) if &*decision.by == "terminal" => None,
            Some(decision) => {
                let verdict = if decision.approved { "approved" } else { "denied" };
                Some(format!("was {verdict} by {} at {}", visible(&decision.by), decision.at))
            }
            // What nobody has seen yet needs no line.
            None => shown.as_ref().map(|_| "was withdrawn".to_owned()),
        };
        if let Some(outcome) = outcome {
            show(&Rows::fold(&format!("{} {outcome}\n", visible(&envelope.action.to_string())), columns()));
        }
        // Lets the thread that reads the answers show the next card.
        drop(shown);
    }

    fn remind(&self, envelope: &Envelope, _: &Decider) {
        let queue = self.queue.lock();
        let id = envelope.id();
        if queue.open.iter().any(|(open, _)| open.id() == id) {
            let (action, agent) = (visible(&envelope.action.to_string()), visible(envelope.agent.as_str()));
            let text = format!("\n{action} of {agent} still waits: it is denied at {}\n", envelope.expires_at);
            show(&Rows::fold(&text, columns()));
            if queue.shown.as_ref().is_some_and(|(shown, _)| *shown == id) {
                show(&prompt(envelope));
            }
        }
    }
}

/// Denies a question at the end of the input. Nobody can be asked again, so a failed attempt is repeated.
fn deny_at_end(runtime: &Handle, decider: &Decider, id: ApprovalId) -> Result<Votes, AnswerError> {
    loop {
        match runtime.block_on(decider.deny(id, "terminal", "nobody is there to answer")) {
            Err(AnswerError::Storage(error)) if !matches!(error, StorageError::Stopped { .. }) => {
                show(&format!("{}\n", visible(&error.to_string())));
                std::thread::sleep(DENY_AGAIN);
            }
            decided => return decided,
        }
    }
}

/// `y` and `yes` approve, with the code of the card if it has one; `n`, `no` and an empty line deny, with the rest as the
/// reason; anything else is asked again.
fn answer<'l>(line: &'l str, code: Option<&str>) -> Result<Result<(), &'l str>, &'static str> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match (word.to_lowercase().as_str(), code) {
        ("y" | "yes", None) if rest.is_empty() => Ok(Ok(())),
        ("y" | "yes", Some(code)) if rest.eq_ignore_ascii_case(code) => Ok(Ok(())),
        ("y" | "yes", Some(_)) => Err("please answer y and the code that is on this card, or n\n"),
        ("n" | "no" | "", _) => Ok(Err(rest)),
        _ => Err("please answer y or n\n"),
    }
}

fn question(envelope: &Envelope, card: &str, is_cut: bool) -> String {
    let more = if is_cut { "  … s shows all of it\n" } else { "" };
    format!("{card}{more}{}", prompt(envelope))
}

fn prompt(envelope: &Envelope) -> String {
    let yes = if Card::of(envelope).code().is_some() { "y and the code" } else { "y" };
    format!("approve? [{yes}, or n and a reason] ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_to_this_card_approves() {
        for yes in ["y 1f0a", " YES  1F0A "] {
            assert_eq!(answer(yes, Some("1f0a")), Ok(Ok(())), "{yes}");
        }
        assert_eq!(answer("y", None), Ok(Ok(())));
        assert_eq!(answer("", Some("1f0a")), Ok(Err("")));
        assert_eq!(answer("n too long", Some("1f0a")), Ok(Err("too long")));
        let without_code = Err("please answer y and the code that is on this card, or n\n");
        for yes in ["y", "yes 1f0b", "y 1f0a but not now"] {
            assert_eq!(answer(yes, Some("1f0a")), without_code, "{yes}");
        }
        for unclear in ["yep", "1f0a", "ok"] {
            assert_eq!(answer(unclear, Some("1f0a")), Err("please answer y or n\n"), "{unclear}");
        }
        assert_eq!(answer("y but not now", None), Err("please answer y or n\n"));
    }
}
