//! Reads lines of bytes up to a limit.

use std::io;
use std::mem::take;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Reads lines that are no longer than a bound.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    max: usize,
    /// The rest of a line that was too long is being skipped.
    is_skipping: bool,
}

/// A line, without its line feed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line that was read to its line break, without it.
    Whole(Vec<u8>),
    /// The beginning of a line that is longer than the limit; the rest is skipped.
    Cut(Vec<u8>),
    /// The bytes after the last line feed.
    Unended(Vec<u8>),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(from: R, max: usize) -> Self {
        Self { from: BufReader::new(from), line: Vec::new(), max, is_skipping: false }
    }

    /// The next line; `None` at the end. Cancel safe: nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let read = self.from.fill_buf().await?;
            if read.is_empty() {
                let rest = take(&mut self.line);
                return Ok((!rest.is_empty()).then_some(Line::Unended(rest)));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            let room = self.max - self.line.len();
            let (is_over, was_skipping) = (part.len() > room, self.is_skipping);
            if !was_skipping {
                self.line.extend_from_slice(&part[..part.len().min(room)]);
            }
            let used = part.len() + usize::from(end.is_some());
            self.from.consume(used);
            self.is_skipping = end.is_none() && (was_skipping || is_over);
            if was_skipping {
                continue;
            }
            if is_over {
                return Ok(Some(Line::Cut(take(&mut self.line))));
            }
            if end.is_some() {
                return Ok(Some(Line::Whole(take(&mut self.line))));
            }
        }
    }

    /// The available bytes, without consuming them; empty at the end.
    pub(crate) async fn peek(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf().await
    }

    /// Whether there are bytes that were read and not returned.
    pub(crate) fn has_more(&self) -> bool {
        !self.line.is_empty() || self.is_skipping || !self.from.buffer().is_empty()
    }

    /// The bytes that were read after the last returned line.
    pub(crate) fn rest(&self) -> &[u8] {
        self.from.buffer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_end_with_a_line_feed_and_longer_ones_are_cut() {
        let mut lines = Lines::new(&b"one\n\nfour\nfives\nmuch longer\nend"[..], 4);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(line);
        }
        let whole = |text: &str| Line::Whole(text.into());
        let cut = |text: &str| Line::Cut(text.into());
        let all = [whole("one"), whole(""), whole("four"), cut("five"), cut("much"), Line::Unended("end".into())];
        assert_eq!(read, all);
        assert!(!lines.has_more());
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_reported_as_soon_as_it_is_too_long_and_costs_no_more() {
        let endless = vec![b'x'; 100_000];
        let mut lines = Lines::new(&endless[..], 1_000);
        assert_eq!(lines.next().await.unwrap(), Some(Line::Cut(vec![b'x'; 1_000])));
        assert!(lines.has_more());
        assert_eq!(lines.next().await.unwrap(), None);
        assert!(lines.line.capacity() <= 2_000);
    }
}
