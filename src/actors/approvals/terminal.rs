//! Approvals on the terminal: a card for each question, and a line of input for the answer.

use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::messages::visible::visible;
use crate::messages::{ApprovalId, Decision, Envelope};
use crate::storage::StorageError;

use super::{Channel, DecideError, Decider, card, whole_card};

/// When a denial at the end of the input that could not be stored is tried again.
const DENY_AGAIN: Duration = Duration::from_secs(1);

/// Asks on standard error and reads answers from standard input: `y`, or `n` with a reason; `s` shows all of a card that was cut.
#[derive(Clone, Debug, Default)]
pub struct TerminalChannel {
    queue: Arc<Mutex<Queue>>,
    denies_at_end: bool,
}

#[derive(Debug, Default)]
struct Queue {
    open: VecDeque<(Envelope, Decider)>,
    is_reading: bool,
}

impl TerminalChannel {
    /// A terminal channel. One per process: it reads standard input.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Denies what is asked after the input has ended, for programs that nobody else can answer. Without this, such
    /// questions stay open for other channels.
    #[must_use]
    pub fn deny_at_end(mut self) -> Self {
        self.denies_at_end = true;
        self
    }

    /// Asks one question after the other, on a thread that may block for ever.
    ///
    /// A line that is not UTF-8 is a line that says nothing clear, not the end of the input.
    fn read(&self, runtime: &Handle) {
        let queue = &self.queue;
        let mut lines = std::io::stdin().lock().split(b'\n');
        let mut wants_all = false;
        loop {
            let (envelope, decider) = {
                let mut queue = queue.lock();
                match queue.open.front() {
                    Some(open) => open.clone(),
                    None => {
                        queue.is_reading = false;
                        return;
                    }
                }
            };
            let id = envelope.id();
            let is_cut = show_card(&envelope, std::mem::take(&mut wants_all));
            show("approve? [y/N, or n and a reason] ");
            let decided = match lines.next() {
                Some(Ok(line)) if is_cut && line.trim_ascii().eq_ignore_ascii_case(b"s") => {
                    wants_all = true;
                    continue;
                }
                Some(Ok(line)) => match answer(&String::from_utf8_lossy(&line)) {
                    Some(Ok(())) => runtime.block_on(decider.approve(id, "terminal")),
                    Some(Err(reason)) => runtime.block_on(decider.deny(id, "terminal", reason)),
                    None => {
                        show("please answer y or n\n");
                        continue;
                    }
                },
                Some(Err(_)) | None if self.denies_at_end => {
                    show("\n");
                    deny_at_end(runtime, &decider, id)
                }
                Some(Err(_)) | None => {
                    show("\nno more input; the approval stays open\n");
                    queue.lock().is_reading = false;
                    return;
                }
            };
            if let Err(error) = &decided {
                show(&format!("{}\n", visible(&error.to_string())));
            }
            match decided {
                Ok(_)
                | Err(DecideError::AlreadyDecided { .. } | DecideError::Unknown { .. } | DecideError::Expired { .. }) => {
                    queue.lock().open.retain(|(open, _)| open.id() != id)
                }
                Err(DecideError::Storage(StorageError::Stopped { .. })) => {
                    queue.lock().is_reading = false;
                    return;
                }
                // The card stays, and is shown again.
                Err(
                    DecideError::Storage(_)
                    | DecideError::TooLong(_)
                    | DecideError::NotForRun { .. }
                    | DecideError::NotEditable { .. },
                ) => show("nothing was decided; please answer again\n"),
            }
        }
    }
}

impl Channel for TerminalChannel {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        let mut queue = self.queue.lock();
        let id = envelope.id();
        if queue.open.iter().all(|(open, _)| open.id() != id) {
            queue.open.push_back((envelope.clone(), decider.clone()));
        }
        if !std::mem::replace(&mut queue.is_reading, true) {
            let (terminal, runtime) = (self.clone(), Handle::current());
            std::thread::spawn(move || terminal.read(&runtime));
        }
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        let id: ApprovalId = envelope.id();
        self.queue.lock().open.retain(|(open, _)| open.id() != id);
        if let Some(decision) = decision.filter(|decision| &*decision.by != "terminal") {
            let verdict = if decision.approved { "approved" } else { "denied" };
            show(&format!("{} was {verdict} by {}\n", visible(&envelope.action.to_string()), visible(&decision.by)));
        }
    }
}

/// Nobody is left who could be asked again, so this tries again by itself.
fn deny_at_end(runtime: &Handle, decider: &Decider, id: ApprovalId) -> Result<Decision, DecideError> {
    loop {
        match runtime.block_on(decider.deny(id, "terminal", "nobody is there to answer")) {
            Err(DecideError::Storage(error)) if !matches!(error, StorageError::Stopped { .. }) => {
                show(&format!("{}\n", visible(&error.to_string())));
                std::thread::sleep(DENY_AGAIN);
            }
            decided => return decided,
        }
    }
}

/// `y` and `yes` approve; `n`, `no` and an empty line deny, with the rest as the reason; anything else is asked again.
fn answer(line: &str) -> Option<Result<(), &str>> {
    let line = line.trim();
    let (word, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word.to_lowercase().as_str() {
        "y" | "yes" if reason.is_empty() => Some(Ok(())),
        "n" | "no" | "" => Some(Err(reason.trim())),
        _ => None,
    }
}

/// Shows the card, or all of it, and whether there is more of it than is usually shown.
fn show_card(envelope: &Envelope, wants_all: bool) -> bool {
    let (brief, whole) = (card(envelope), whole_card(envelope));
    let is_cut = brief != whole;
    show(if wants_all { &whole } else { &brief });
    if is_cut {
        show("  … s shows all of it\n");
    }
    is_cut
}

fn show(text: &str) {
    let mut out = std::io::stderr().lock();
    // A terminal that is gone shows nothing; the approval stays open.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_approves() {
        assert_eq!(answer("y"), Some(Ok(())));
        assert_eq!(answer(" YES "), Some(Ok(())));
        assert_eq!(answer(""), Some(Err("")));
        assert_eq!(answer("n too long"), Some(Err("too long")));
        for unclear in ["yep", "y but not now", "ok"] {
            assert_eq!(answer(unclear), None, "{unclear}");
        }
    }
}
