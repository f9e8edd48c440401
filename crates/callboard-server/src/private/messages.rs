//! Server-sent events, as they are read: <https://html.spec.whatwg.org/multipage/server-sent-events.html>.

use std::collections::VecDeque;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its id, which is sent as `Last-Event-ID` to continue after it.
    pub id: Option<u64>,
    /// Its kind, `message` if it names none.
    pub kind: String,
    /// Its data: JSON in the streams of this server.
    pub data: String,
}

/// Reads events from bytes that arrive in any pieces.
#[derive(Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    /// How many of the bytes have no end of a line.
    searched: usize,
    next: Message,
    has_data: bool,
    read: VecDeque<Message>,
}

impl Reader {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while let Some(length) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') {
            let rest = self.bytes.split_off(self.searched + length + 1);
            let line = std::mem::replace(&mut self.bytes, rest);
            self.searched = 0;
            let line = String::from_utf8_lossy(&line);
            self.line(line.trim_end_matches(['\r', '\n']));
        }
        self.searched = self.bytes.len();
    }

    pub(super) fn pop(&mut self) -> Option<Message> {
        self.read.pop_front()
    }

    fn line(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "" if line.is_empty() => self.end(),
            "id" => self.next.id = value.parse().ok(),
            "event" => value.clone_into(&mut self.next.kind),
            "data" => {
                if self.has_data {
                    self.next.data.push('\n');
                }
                self.has_data = true;
                self.next.data.push_str(value);
            }
            // Comments, and what this version does not know.
            _ => {}
        }
    }

    /// An event without data is none.
    fn end(&mut self) {
        let mut message = std::mem::take(&mut self.next);
        if std::mem::take(&mut self.has_data) {
            if message.kind.is_empty() {
                "message".clone_into(&mut message.kind);
            }
            self.read.push_back(message);
        }
    }
}
