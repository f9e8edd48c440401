//! The person at the terminal.

use callboard::actors::approvals::Keyboard;

use crate::saying;

/// Who is asked, and answers line by line.
pub(crate) trait Person {
    /// Asks a question, whose last line is the prompt; `None` if nobody says anything any more.
    fn answers(&mut self, question: &str) -> Option<String>;
}

impl Person for Keyboard {
    fn answers(&mut self, question: &str) -> Option<String> {
        let line = self.ask(question);
        if line.is_none() {
            // What is said next begins a line.
            eprintln!();
        }
        line.map(|line| line.trim().to_owned())
    }
}

/// Whether there is somebody to ask.
pub(crate) fn is_anybody_here(no_input: bool) -> bool {
    !no_input && Keyboard::open().is_some()
}

/// Asks the person at the terminal, if there is one; what others have to tell waits.
pub(crate) fn at_the_terminal<T>(ask: impl FnOnce(&mut Keyboard) -> T) -> Option<T> {
    saying::ask(|| Keyboard::open().as_mut().map(ask))
}

/// Somebody who says these lines, and what they were asked.
#[cfg(test)]
pub(crate) struct Script<'a> {
    lines: std::str::Lines<'a>,
    pub(crate) asked: String,
}

#[cfg(test)]
impl<'a> Script<'a> {
    pub(crate) fn new(lines: &'a str) -> Self {
        Self { lines: lines.lines(), asked: String::new() }
    }
}

#[cfg(test)]
impl Person for Script<'_> {
    fn answers(&mut self, question: &str) -> Option<String> {
        self.asked.push_str(question);
        self.lines.next().map(|line| line.trim().to_owned())
    }
}
