//! Standard error, for people who follow a run.
//!
//! One thread writes it, so that a reader that does not read blocks that thread and not the one that receives signals. Whole lines do
//! not run into text that is still being streamed: this module knows whether the last line is open.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use callboard::actors::approvals::{Keyboard, Rows};
use tokio::sync::Notify;

/// The length of the buffer, in bytes, from which on [`room`] waits.
const ROOM: usize = 64 << 10;

/// The greatest length of the buffer, in bytes: text from callers that cannot wait is omitted beyond it.
const MOST: usize = 1 << 20;

static BUFFER: Shared = Shared {
    buffer: Mutex::new(Buffer {
        text: String::new(),
        deferred: None,
        is_writing: false,
        is_line_open: false,
        omitted: 0,
    }),
    changed: Condvar::new(),
    room: Notify::const_new(),
};

struct Shared {
    buffer: Mutex<Buffer>,
    /// Notified when text was pushed, and when it was written.
    changed: Condvar,
    /// Notified when text was written.
    room: Notify,
}

/// Text that is not written yet.
#[derive(Debug, Default)]
struct Buffer {
    text: String,
    /// Lines that are written once the person at the terminal has answered; `None` while nobody is asked.
    deferred: Option<String>,
    /// Whether text was taken out to be written and the write has not returned.
    is_writing: bool,
    /// Whether the last text that was pushed has no line break at its end.
    is_line_open: bool,
    /// How many texts were omitted since the buffer was full.
    omitted: usize,
}

impl Buffer {
    fn push(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.text.len() + text.len() > MOST {
            self.omitted += 1;
            return;
        }
        if self.omitted > 0 {
            let (open, omitted) = (if self.is_line_open { "\n" } else { "" }, std::mem::take(&mut self.omitted));
            // Text that continues a line that was cut must not look like the head of a line.
            let gutter = if self.is_line_open && !text.starts_with('\n') { "  ┆ " } else { "" };
            self.text.push_str(&format!(
                "{open}… {omitted} messages are omitted here, because standard error was not read\n{gutter}"
            ));
        }
        self.text.push_str(text);
        self.is_line_open = !text.ends_with('\n');
    }

    fn push_line(&mut self, line: &str) {
        let open = if self.is_line_open { "\n" } else { "" };
        self.push(&format!("{open}{line}\n"));
    }

    fn push_deferrable(&mut self, line: &str) {
        match &mut self.deferred {
            None => self.push_line(line),
            Some(deferred) if deferred.len() + line.len() < MOST => deferred.push_str(&format!("{line}\n")),
            Some(_) => self.omitted += 1,
        }
    }

    /// Pushes the lines that were deferred while a person was asked.
    fn end_deferral(&mut self) {
        if let Some(deferred) = self.deferred.take() {
            deferred.lines().for_each(|line| self.push_line(line));
        }
    }
}

fn lock() -> MutexGuard<'static, Buffer> {
    BUFFER.buffer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notifies the thread that writes, which the first call starts.
fn wake_writer() {
    static WRITER: OnceLock<bool> = OnceLock::new();
    if *WRITER.get_or_init(|| std::thread::Builder::new().name("callboard-stderr".to_owned()).spawn(write).is_ok()) {
        BUFFER.changed.notify_all();
    } else {
        // No thread can be started: the caller writes, and waits until it is read.
        write_now(lock());
    }
}

/// Writes the buffer whenever it has text, until the process ends.
fn write() {
    loop {
        let is_empty = |buffer: &mut Buffer| buffer.text.is_empty();
        write_now(BUFFER.changed.wait_while(lock(), is_empty).unwrap_or_else(PoisonError::into_inner));
    }
}

fn write_now(mut buffer: MutexGuard<'static, Buffer>) {
    let text = std::mem::take(&mut buffer.text);
    buffer.is_writing = true;
    drop(buffer);
    // A closed standard error is not an error of the command.
    let _ = std::io::stderr().write_all(text.as_bytes());
    lock().is_writing = false;
    BUFFER.changed.notify_all();
    BUFFER.room.notify_waiters();
}

/// Whether notes are events of the log.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Writes notes to the log from now on, so that each line of standard error is JSON.
pub(crate) fn write_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// Prints a line on standard error.
pub(crate) fn note(line: &str) {
    if IS_JSON.load(Ordering::Relaxed) {
        tracing::info!(target: "callboard::serve", "{line}");
    } else {
        log(line);
    }
}

/// Prints a line of the log.
pub(crate) fn log(line: &str) {
    lock().push_line(line);
    wake_writer();
}

/// As [`note`], for a line with text of others: it is folded at the terminal's width.
pub(crate) fn note_words(line: &str) {
    note(&fit(line));
}

/// The line, folded at the width of the terminal if standard error is one: no row begins with text from the middle of a line.
pub(crate) fn fit(line: &str) -> String {
    Keyboard::columns().map_or_else(|| line.to_owned(), |columns| Rows::default().push(line, columns))
}

/// Prints text that need not be whole lines; the closure receives whether the last line is open.
pub(crate) fn stream(text: impl FnOnce(bool) -> String) {
    let mut buffer = lock();
    let text = text(buffer.is_line_open);
    buffer.push(&text);
    drop(buffer);
    wake_writer();
}

/// Waits until the buffer is shorter than [`ROOM`].
pub(crate) async fn room() {
    loop {
        let written = BUFFER.room.notified();
        if lock().text.len() < ROOM {
            return;
        }
        written.await;
    }
}

/// As [`note_words`], but deferred while a person is asked, so that the line does not come between a question and its answer.
pub(crate) fn note_deferrable(line: &str) {
    lock().push_deferrable(&fit(line));
    wake_writer();
}

/// Runs a prompt at the terminal after the buffer is written; lines of [`note_deferrable`] are written after it has returned.
pub(crate) fn ask<T>(ask: impl FnOnce() -> T) -> T {
    struct Deferral;
    impl Drop for Deferral {
        fn drop(&mut self) {
            lock().end_deferral();
            wake_writer();
        }
    }
    flushed().deferred = Some(String::new());
    let _deferral = Deferral;
    ask()
}

/// Ends the last line, and blocks this thread until all is written.
pub(crate) fn flush() {
    lock().end_deferral();
    drop(flushed());
}

fn flushed() -> MutexGuard<'static, Buffer> {
    let mut buffer = lock();
    if buffer.is_line_open {
        buffer.push("\n");
    }
    if !buffer.text.is_empty() {
        drop(buffer);
        wake_writer();
        buffer = lock();
    }
    let is_behind = |buffer: &mut Buffer| buffer.is_writing || !buffer.text.is_empty();
    BUFFER.changed.wait_while(buffer, is_behind).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferrable_lines_wait_until_a_person_has_answered() {
        let mut buffer = Buffer { deferred: Some(String::new()), ..Buffer::default() };
        buffer.push_deferrable("counter │ one");
        buffer.push_line("stopping");
        buffer.push_deferrable("counter │ two");
        assert_eq!(buffer.text, "stopping\n");
        buffer.end_deferral();
        buffer.push_deferrable("counter │ three");
        assert_eq!(buffer.text, "stopping\ncounter │ one\ncounter │ two\ncounter │ three\n");
    }

    #[test]
    fn a_line_does_not_run_into_streamed_text_and_unread_output_is_bounded() {
        let mut buffer = Buffer::default();
        buffer.push("coder: one two");
        buffer.push_line("an attempt failed");
        buffer.push_line("another");
        assert_eq!(buffer.text, "coder: one two\nan attempt failed\nanother\n");
        (0..20).for_each(|_| buffer.push_line(&"x".repeat(100 << 10)));
        assert!(buffer.text.len() <= MOST && buffer.omitted > 5, "{}", buffer.omitted);
        let omitted = buffer.omitted;
        buffer.text.clear();
        buffer.push_line("again");
        assert_eq!(
            buffer.text,
            format!("… {omitted} messages are omitted here, because standard error was not read\nagain\n")
        );
        buffer.push("coder: one");
        (buffer.omitted, buffer.text) = (1, String::new());
        buffer.push("── approval");
        let shown = "\n… 1 messages are omitted here, because standard error was not read\n  ┆ ── approval";
        assert_eq!(buffer.text, shown);
    }
}
