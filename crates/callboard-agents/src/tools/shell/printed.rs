//! The output of a command: of a long one, the beginning and the end.

use std::fmt::Write as _;

use super::super::bounded::{beginning, ending};

/// The most bytes that are kept from the beginning and from the end.
const HEAD: usize = 12 << 10;
const TAIL: usize = 16 << 10;

/// The beginning and the end of the output, and its length.
#[derive(Default)]
pub(super) struct Printed {
    head: Vec<u8>,
    tail: Vec<u8>,
    all: u64,
}

impl Printed {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.all += bytes.len() as u64;
        let (head, tail) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(&tail[tail.len().saturating_sub(TAIL)..]);
        // Bytes before the end are removed in batches.
        if self.tail.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
    }

    pub(super) fn shown(mut self) -> String {
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        if self.all == (self.head.len() + self.tail.len()) as u64 {
            let whole = [&*self.head, &*self.tail].concat();
            let text = String::from_utf8_lossy(&whole);
            if text.len() <= HEAD + TAIL {
                return if text.is_empty() { "(it printed nothing)".to_owned() } else { text.into_owned() };
            }
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&self.tail));
        let (head, tail) = (beginning(&head, HEAD), ending(&tail, TAIL));
        let mut shown = head.to_owned();
        let _ = write!(
            shown,
            "\n… (it printed {} bytes; here are the first {} and the last {}) …\n{tail}",
            self.all,
            head.len(),
            tail.len()
        );
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(parts: &[&[u8]]) -> Printed {
        let mut printed = Printed::default();
        for part in parts {
            printed.take(part);
        }
        printed
    }

    #[test]
    fn what_is_short_is_shown_whole() {
        assert_eq!(printed(&[b"a", b"b\n"]).shown(), "ab\n");
        assert_eq!(printed(&[]).shown(), "(it printed nothing)");
        assert_eq!(printed(&[&b"x".repeat(HEAD), &b"y".repeat(TAIL)]).shown(), "x".repeat(HEAD) + &"y".repeat(TAIL));
        assert_eq!(printed(&["ü".as_bytes().split_at(1).0, "ü".as_bytes().split_at(1).1]).shown(), "ü");
    }

    #[test]
    fn of_what_is_long_the_beginning_and_the_end_are_kept_and_no_more_is_held() {
        let mut printed = printed(&[b"first"]);
        let block = vec![b'x'; 64 << 10];
        for _ in 0..(1 << 30) / block.len() {
            printed.take(&block);
            assert!(printed.head.capacity() + printed.tail.capacity() <= 2 * HEAD + 6 * TAIL);
        }
        printed.take(b"last");
        let shown = printed.shown();
        assert!(shown.starts_with("firstx") && shown.ends_with("xlast"));
        assert!(shown.contains("it printed 1073741833 bytes"));
        assert!(shown.len() < HEAD + TAIL + 200);
    }

    #[test]
    fn what_is_no_text_is_no_longer_for_that() {
        let shown = printed(&[&vec![0xff; HEAD + TAIL]]).shown();
        assert!(shown.len() < HEAD + TAIL + 200 && shown.contains("it printed 28672 bytes"), "{}", shown.len());
    }
}
