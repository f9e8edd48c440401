//! The person at the terminal.

use callboard::actors::approvals::{Keyboard, Typed, Withdrawal};

use crate::output;

/// Who is asked, and answers line by line.
pub(crate) trait Person {
    /// Asks a question, whose last line is the prompt; `None` if nobody says anything any more.
    fn answers(&mut self, question: &str) -> Option<String>;
}

/// The person at the terminal, until what they are asked is withdrawn: then nobody answers any more.
pub(crate) struct AtTerminal {
    keyboard: Keyboard,
    withdrawal: Option<Withdrawal>,
}

impl Person for AtTerminal {
    fn answers(&mut self, question: &str) -> Option<String> {
        let line = match &self.withdrawal {
            Some(withdrawal) => match self.keyboard.ask_unless(question, withdrawal) {
                Typed::Line(line) => Some(line),
                Typed::End | Typed::Withdrawn => None,
            },
            None => self.keyboard.ask(question),
        };
        if line.is_none() {
            // What is said next begins a line.
            eprintln!();
        }
        line.map(|line| line.trim().to_owned())
    }
}

/// Who decides here, as the journal has it.
pub(crate) fn name() -> String {
    let name = std::env::var("USER").ok().filter(|name| !name.is_empty() && name.chars().count() <= 128);
    name.unwrap_or_else(|| "the command line".to_owned())
}

/// Whether there is somebody to ask.
pub(crate) fn is_anybody_here(no_input: bool) -> bool {
    !no_input && Keyboard::open().is_some()
}

/// Asks the person at the terminal, if there is one, unless it is withdrawn; what others have to tell waits.
pub(crate) fn at_the_terminal<T>(withdrawal: Option<Withdrawal>, ask: impl FnOnce(&mut AtTerminal) -> T) -> Option<T> {
    output::ask(|| Keyboard::open().map(|keyboard| ask(&mut AtTerminal { keyboard, withdrawal })))
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
