//! What people are told on the way, on standard error.
//!
//! A thread of its own writes it, so that nobody who does not read it keeps this program from hearing that it is to stop. What is
//! told by whole lines does not run into words that are still being said: whether a line is open is known here.

use std::io::Write as _;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use callboard::actors::approvals::{Rows, terminal_columns};
use tokio::sync::Notify;

/// How much may wait to be read before whoever has more to tell waits too, in bytes.
const ROOM: usize = 64 << 10;

/// How much may wait at most, in bytes: what comes then from those who cannot wait is left out.
const MOST: usize = 1 << 20;

static SAID: Said = Said {
    state: Mutex::new(Waiting {
        text: String::new(),
        later: None,
        is_writing: false,
        is_line_open: false,
        left_out: 0,
    }),
    changed: Condvar::new(),
    room: Notify::const_new(),
};

struct Said {
    state: Mutex<Waiting>,
    changed: Condvar,
    room: Notify,
}

/// What was said and is not written yet.
#[derive(Debug, Default)]
struct Waiting {
    text: String,
    /// While a person is asked: what can wait until they have answered.
    later: Option<String>,
    is_writing: bool,
    /// The last that was said has no line break after it.
    is_line_open: bool,
    /// How often something was left out since there was room.
    left_out: usize,
}

impl Waiting {
    fn push(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.text.len() + text.len() > MOST {
            self.left_out += 1;
            return;
        }
        if self.left_out > 0 {
            let (open, left_out) = (if self.is_line_open { "\n" } else { "" }, std::mem::take(&mut self.left_out));
            // What continues a line that was cut so begins none.
            let gutter = if self.is_line_open && !text.starts_with('\n') { "  ┆ " } else { "" };
            self.text.push_str(&format!(
                "{open}… {left_out} messages are omitted here, because standard error was not read\n{gutter}"
            ));
        }
        self.text.push_str(text);
        self.is_line_open = !text.ends_with('\n');
    }

    fn push_line(&mut self, line: &str) {
        let open = if self.is_line_open { "\n" } else { "" };
        self.push(&format!("{open}{line}\n"));
    }

    fn push_aside(&mut self, line: &str) {
        match &mut self.later {
            None => self.push_line(line),
            Some(later) if later.len() + line.len() < MOST => later.push_str(&format!("{line}\n")),
            Some(_) => self.left_out += 1,
        }
    }

    /// The person has answered.
    fn asked(&mut self) {
        if let Some(later) = self.later.take() {
            later.lines().for_each(|line| self.push_line(line));
        }
    }
}

fn state() -> MutexGuard<'static, Waiting> {
    SAID.state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn told() {
    static WRITER: OnceLock<bool> = OnceLock::new();
    if *WRITER.get_or_init(|| std::thread::Builder::new().name("callboard-stderr".to_owned()).spawn(write).is_ok()) {
        SAID.changed.notify_all();
    } else {
        // No thread can be started: whoever has something to tell waits until it is read.
        write_now(state());
    }
}

/// Writes what is said, for as long as this process lives.
fn write() {
    loop {
        let is_empty = |waiting: &mut Waiting| waiting.text.is_empty();
        write_now(SAID.changed.wait_while(state(), is_empty).unwrap_or_else(PoisonError::into_inner));
    }
}

fn write_now(mut waiting: MutexGuard<'static, Waiting>) {
    let text = std::mem::take(&mut waiting.text);
    waiting.is_writing = true;
    drop(waiting);
    // Whoever reads none of it is no error.
    let _ = std::io::stderr().write_all(text.as_bytes());
    state().is_writing = false;
    SAID.changed.notify_all();
    SAID.room.notify_waiters();
}

/// A line for people.
pub(crate) fn note(line: &str) {
    state().push_line(line);
    told();
}

/// As [`note`], for a line that has words of others: it is folded at the terminal's width.
pub(crate) fn note_words(line: &str) {
    note(&fit(line));
}

/// Folded, if it is a terminal that shows it: no row of it begins with what is in the middle of a line.
fn fit(line: &str) -> String {
    terminal_columns().map_or_else(|| line.to_owned(), |columns| Rows::default().push(line, columns))
}

/// Text that need not be whole lines, made by who knows whether the last line is still open.
pub(crate) fn say(text: impl FnOnce(bool) -> String) {
    let mut waiting = state();
    let text = text(waiting.is_line_open);
    waiting.push(&text);
    drop(waiting);
    told();
}

/// Waits until not too much waits to be read.
pub(crate) async fn room() {
    loop {
        let written = SAID.room.notified();
        if state().text.len() < ROOM {
            return;
        }
        written.await;
    }
}

/// As [`note_words`], with nothing of it between a question and its answer.
pub(crate) fn note_aside(line: &str) {
    state().push_aside(&fit(line));
    told();
}

/// Asks a person, after all that was said is written. What is said aside meanwhile is written afterwards.
pub(crate) fn ask<T>(ask: impl FnOnce() -> T) -> T {
    struct Asking;
    impl Drop for Asking {
        fn drop(&mut self) {
            state().asked();
            told();
        }
    }
    flushed().later = Some(String::new());
    let _asking = Asking;
    ask()
}

/// Waits, with this thread, until all is written, with an end of the last line.
pub(crate) fn flush() {
    state().asked();
    drop(flushed());
}

fn flushed() -> MutexGuard<'static, Waiting> {
    let mut waiting = state();
    if waiting.is_line_open {
        waiting.push("\n");
    }
    if !waiting.text.is_empty() {
        drop(waiting);
        told();
        waiting = state();
    }
    let is_behind = |waiting: &mut Waiting| waiting.is_writing || !waiting.text.is_empty();
    SAID.changed.wait_while(waiting, is_behind).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_aside_waits_until_a_person_has_answered() {
        let mut waiting = Waiting { later: Some(String::new()), ..Waiting::default() };
        waiting.push_aside("counter │ one");
        waiting.push_line("stopping");
        waiting.push_aside("counter │ two");
        assert_eq!(waiting.text, "stopping\n");
        waiting.asked();
        waiting.push_aside("counter │ three");
        assert_eq!(waiting.text, "stopping\ncounter │ one\ncounter │ two\ncounter │ three\n");
    }

    #[test]
    fn a_line_does_not_run_into_words_and_what_nobody_reads_has_a_bound() {
        let mut waiting = Waiting::default();
        waiting.push("coder: one two");
        waiting.push_line("an attempt failed");
        waiting.push_line("another");
        assert_eq!(waiting.text, "coder: one two\nan attempt failed\nanother\n");
        (0..20).for_each(|_| waiting.push_line(&"x".repeat(100 << 10)));
        assert!(waiting.text.len() <= MOST && waiting.left_out > 5, "{}", waiting.left_out);
        let left_out = waiting.left_out;
        waiting.text.clear();
        waiting.push_line("again");
        assert_eq!(
            waiting.text,
            format!("… {left_out} messages are omitted here, because standard error was not read\nagain\n")
        );
        waiting.push("coder: one");
        (waiting.left_out, waiting.text) = (1, String::new());
        waiting.push("── approval");
        let omitted = "\n… 1 messages are omitted here, because standard error was not read\n  ┆ ── approval";
        assert_eq!(waiting.text, omitted);
    }
}
