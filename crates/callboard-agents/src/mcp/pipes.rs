//! A server that is a program: messages are lines on its standard input and output.
//!
//! All input and output happens while the service reads: messages that it sends are buffered, and written as the program reads
//! them. So no task runs beside it, and the buffer has a bound.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use callboard_text::quoted;
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;

use crate::process::child::{Input, MAX_LINE, Output, Process};
use crate::process::group::GroupGuard;
use crate::process::lines::Line;

/// The most bytes that wait for the program to read them.
const MAX_UNREAD: usize = 16 << 20;

/// The most lines that are skipped because they are no messages: some programs print a greeting.
const MAX_NOISE: usize = 100;

/// The status of a server, for its callers.
#[derive(Debug, Default)]
pub(super) struct Fate {
    is_over: AtomicBool,
    why: Mutex<Option<String>>,
    /// The last output that was no message.
    noise: Mutex<Option<String>>,
    /// How often it has reported that its list of tools has changed.
    changes: AtomicU64,
}

impl Fate {
    /// It takes no more calls.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// The reason of the end, to be printed after the server's name.
    pub(super) fn why(&self) -> Option<String> {
        self.why.lock().clone()
    }

    /// Details for the error about a silent server.
    pub(super) fn remark(&self) -> String {
        let noise = self.noise.lock();
        noise.as_ref().map(|line| format!("; it wrote what is no message: {line}")).unwrap_or_default()
    }

    /// Its list of tools has changed.
    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of changes of its list of tools.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}

/// The streams of a program.
pub(super) struct Pipes {
    group_guard: GroupGuard,
    input: Input,
    output: Output,
    unread: VecDeque<u8>,
    noise: usize,
    /// It has closed its output.
    is_ending: bool,
    fate: Arc<Fate>,
}

impl Pipes {
    pub(super) fn new(process: Process, fate: &Arc<Fate>) -> Self {
        let Process { group_guard, input, output, socket: _ } = process;
        Self { group_guard, input, output, unread: VecDeque::new(), noise: 0, is_ending: false, fate: Arc::clone(fate) }
    }

    fn put(&mut self, message: &ClientJsonRpcMessage) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        if self.fate.is_over() || self.input.is_closed() {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "it reads no more"));
        }
        if self.unread.len() + line.len() > MAX_UNREAD {
            self.broken(format!("does not read its input: {} bytes are queued for it", self.unread.len()));
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "it does not read"));
        }
        self.unread.extend(line);
        Ok(())
    }

    fn broken(&self, why: String) {
        self.fate.end();
        self.fate.why.lock().get_or_insert(why);
    }

    async fn wait_for_end(&mut self) {
        let end = self.output.end(&self.group_guard).await;
        self.broken(end.reported(""));
    }

    /// The message in a line; `None` if the line is skipped.
    fn message(&mut self, line: &[u8]) -> Option<ServerJsonRpcMessage> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        let error = match serde_json::from_slice(line) {
            Ok(message) => return Some(message),
            Err(error) => error,
        };
        let shown = quoted(&String::from_utf8_lossy(line));
        tracing::warn!(target: "callboard::mcp", "a server wrote a line that is no message ({error}): {shown}");
        self.noise += 1;
        if self.noise > MAX_NOISE {
            self.broken(format!("wrote more than {MAX_NOISE} lines that are no messages, the last of them {shown}"));
        }
        *self.fate.noise.lock() = Some(shown);
        None
    }
}

impl Transport<RoleClient> for Pipes {
    type Error = io::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        ready(self.put(&item))
    }

    /// Cancel safe: no message is lost when the future is dropped.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        while !self.is_ending && !self.fate.is_over() {
            let line = tokio::select! {
                biased;
                written = self.input.write(self.unread.as_slices().0), if !self.unread.is_empty() => {
                    self.unread.drain(..written.min(self.unread.len()));
                    continue;
                }
                line = self.output.line() => line,
            };
            match line {
                Some(Line::Whole(line)) => {
                    if let Some(message) = self.message(&line) {
                        return Some(message);
                    }
                }
                Some(Line::Cut(_)) => self.broken(format!("wrote a line of more than {} MiB", MAX_LINE >> 20)),
                Some(Line::Unended(_)) | None => {
                    // Calls before its end is known start it again.
                    self.fate.end();
                    self.is_ending = true;
                }
            }
        }
        if self.is_ending {
            self.wait_for_end().await;
        }
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}
