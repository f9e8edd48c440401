//! The person at the terminal.

use std::io::PipeReader;

use callboard::actors::approvals::{Keyboard, Typed};

use crate::output;

/// A person who answers questions line by line; at the terminal, or a script in tests.
pub(crate) trait Person {
    /// Asks a question, whose last line is the prompt; `None` at the end of the input, or when the question is withdrawn.
    fn answers(&mut self, question: &str) -> Option<String>;
}

/// The person at the terminal. After its withdrawal every question is answered with `None`.
pub(crate) struct AtTerminal {
    keyboard: Keyboard,
    withdrawal: Option<PipeReader>,
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
            // The next output begins a line.
            eprintln!();
        }
        line.map(|line| line.trim().to_owned())
    }
}

/// The name that the journal records for decisions of this person: the user's, or `the command line`.
pub(crate) fn name() -> String {
    let is_name = |name: &String| !name.is_empty() && name.chars().count() <= 128;
    let given = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(is_name));
    let own = || user(&std::fs::read_to_string("/etc/passwd").ok()?, rustix::process::getuid().as_raw());
    given.or_else(|| own().filter(is_name)).unwrap_or_else(|| "the command line".to_owned())
}

/// The name of a user in the lines of `/etc/passwd`.
fn user(lines: &str, id: u32) -> Option<String> {
    let mut users = lines.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let own = users.find(|user| user.get(2).is_some_and(|other| other.parse() == Ok(id)))?;
    Some(own[0].to_owned())
}

/// Whether a person can be asked: there is a terminal, and `--no-input` is not given.
pub(crate) fn is_anybody_here(no_input: bool) -> bool {
    !no_input && Keyboard::open().is_some()
}

/// Asks the person at the terminal, until the question is withdrawn; `None` without a terminal. Other output is deferred meanwhile.
pub(crate) fn at_the_terminal<T>(withdrawal: Option<PipeReader>, ask: impl FnOnce(&mut AtTerminal) -> T) -> Option<T> {
    output::ask(|| Keyboard::open().map(|keyboard| ask(&mut AtTerminal { keyboard, withdrawal })))
}

/// A person in tests: answers with these lines, and records the questions.
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

#[cfg(test)]
mod tests {
    #[test]
    fn a_user_is_found_by_number() {
        let lines = "root:x:0:0:root:/root:/bin/sh\nnonsense\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(super::user(lines, 1000).as_deref(), Some("ann"));
        assert_eq!(super::user(lines, 1001), None);
    }
}
