//! Numbers of lines.

/// Counts lines up to places that are asked for in the order of the text, so that the whole text is read once.
#[derive(Debug)]
pub(super) struct Lines<'t> {
    text: &'t str,
    at: usize,
    line: u32,
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// The line of a place, from 1. A place before the last one that was asked for has the line of that one.
    pub(super) fn line(&mut self, at: usize) -> u32 {
        if let Some(passed) = self.text.as_bytes().get(self.at..at) {
            let ends = passed.iter().filter(|&&byte| byte == b'\n').count();
            self.line = self.line.saturating_add(u32::try_from(ends).unwrap_or(u32::MAX));
            self.at = at;
        }
        self.line
    }
}
