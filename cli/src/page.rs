//! The output of a command, as text for people or as JSON for programs.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::presets::{NOTHING, UTF8_HORIZONTAL_ONLY};
use comfy_table::{CellAlignment, ContentArrangement, Row, Table};
use serde_json::{Value, json};

use callboard::actors::approvals::Rows;
use callboard::messages::{Handoffs, Json, Timestamp, visible, visible_lines};

use crate::exit::Exit;
use crate::output;

pub(crate) use crate::output::note;

/// The output of a command, in both forms.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) exit: Exit,
    /// Text for standard error, without `--json`.
    pub(crate) remarks: String,
    /// What the command wrote to a store, named in the error if the output cannot be printed.
    pub(crate) done: Option<String>,
}

impl Page {
    pub(crate) fn new(text: String, json: Value) -> Self {
        Self { text, json, exit: Exit::Done, remarks: String::new(), done: None }
    }

    /// Data that programs read, and a remark for people: both in one line on a terminal. Otherwise the data is all of standard output,
    /// and the remark is on standard error.
    pub(crate) fn of_data(data: &str, remark: &str, json: Value) -> Self {
        if std::io::stdout().is_terminal() {
            return Self::new(format!("{data}  {remark}\n"), json);
        }
        Self { remarks: format!("{remark}\n"), ..Self::new(format!("{data}\n"), json) }
    }

    /// How a task has ended, by its output or by why it failed. The output is all of standard output, behind a word on a terminal alone.
    pub(crate) fn of_end(exit: Exit, end: Result<&Value, &str>, json: Value) -> Self {
        let (text, remarks) = match end {
            Ok(output) if std::io::stdout().is_terminal() => {
                (format!("complete: {}\n", output_text(output)), String::new())
            }
            Ok(Value::Null) => (String::new(), String::new()),
            Ok(output) => (format!("{}\n", output_text(output)), String::new()),
            Err(why) => (String::new(), format!("{}\n", output::fit(&format!("fail: {}", visible(why))))),
        };
        Self { exit, remarks, ..Self::new(text, json) }
    }
}

/// An error of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    text: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: String) -> Self {
        Self { exit, text }
    }

    /// An error of the library.
    pub(crate) fn of<E: Display>(error: E) -> Self
    where
        for<'a> Exit: From<&'a E>,
    {
        Self { exit: Exit::from(&error), text: error.to_string() }
    }

    /// A file or folder cannot be used.
    pub(crate) fn file(error: &io::Error, text: String) -> Self {
        Self { exit: Exit::of_file(error), text }
    }

    /// What none of the others names.
    pub(crate) fn failed(text: String) -> Self {
        Self { exit: Exit::Failed, text }
    }

    /// The command line, or a file that a person wrote, has to be changed.
    pub(crate) fn usage(text: String) -> Self {
        Self { exit: Exit::Usage, text }
    }

    /// A run, a turn, a node, a conversation or a store does not exist.
    pub(crate) fn not_found(text: String) -> Self {
        Self { exit: Exit::NotFound, text }
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "error": self.text, "code": self.exit.code() })
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The same error, followed by these notes.
    pub(crate) fn with(mut self, notes: &str) -> Self {
        if !notes.is_empty() {
            self.text.push_str(&format!("\n{}", notes.trim_end()));
        }
        self
    }
}

/// Prints the output or the error, and returns the exit code. A closed pipe, as of `head`, is not an error; a full disk is.
pub(crate) fn print(answer: Result<Page, Failure>, json: bool) -> ExitCode {
    let done = answer.as_ref().ok().and_then(|page| page.done.clone());
    match written(answer, json) {
        (_, Err(error)) if error.kind() != ErrorKind::BrokenPipe => {
            let done = done.map(|done| format!("; {done}")).unwrap_or_default();
            unwritten(&error, &done)
        }
        (exit, _) => exit.into(),
    }
}

/// As [`print`], of what is lost if it cannot be written, also to a closed pipe: `undo` is called then, and returns what it did.
pub(crate) fn print_or(answer: Result<Page, Failure>, json: bool, undo: impl FnOnce() -> String) -> ExitCode {
    let is_done = answer.is_ok();
    match written(answer, json) {
        (_, Err(error)) if is_done => unwritten(&error, &format!("; {}", undo())),
        (exit, _) => exit.into(),
    }
}

fn unwritten(error: &io::Error, done: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: the output cannot be written: {error}{done}");
    Exit::Failed.into()
}

fn written(answer: Result<Page, Failure>, json: bool) -> (Exit, io::Result<()>) {
    output::flush();
    match answer {
        Ok(page) => {
            let text = if json {
                format!("{}\n", json_text(&page.json))
            } else {
                let _ = std::io::stderr().lock().write_all(page.remarks.as_bytes());
                page.text
            };
            let mut out = std::io::stdout().lock();
            (page.exit, out.write_all(text.as_bytes()).and_then(|()| out.flush()))
        }
        Err(failure) if json => (failure.exit, writeln!(std::io::stdout(), "{}", json_text(&failure.json()))),
        Err(Failure { exit, text }) => (exit, writeln!(std::io::stderr(), "error: {text}")),
    }
}

/// JSON over several lines, in which control characters and others that change how a terminal shows text are escaped.
pub(crate) fn json_text(value: &Value) -> String {
    escaped(&format!("{value:#}"))
}

/// As [`json_text`], in one line.
pub(crate) fn json_line(value: &Value) -> String {
    escaped(&value.to_string())
}

fn escaped(json: &str) -> String {
    let (mut escaped, mut units) = (String::new(), [0; 2]);
    for c in json.chars() {
        if c == '\n' || !is_hidden(c) {
            escaped.push(c);
        } else {
            escaped.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    escaped
}

fn is_hidden(c: char) -> bool {
    let mut bytes = [0; 4];
    let text: &str = c.encode_utf8(&mut bytes);
    visible(text) != text
}

/// Whether the stream is a terminal that shows colours.
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name);
    stream.is_terminal() && wants_colours(set("NO_COLOR").as_deref(), set("TERM").as_deref())
}

fn wants_colours(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    // https://no-color.org: an empty variable says nothing.
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|kind| kind != "dumb")
}

/// Whether standard output and standard error are the same terminal.
pub(crate) fn is_one_terminal() -> bool {
    let (out, error) = (std::io::stdout(), std::io::stderr());
    let device = |stream: BorrowedFd<'_>| {
        let about = File::from(stream.try_clone_to_owned().ok()?).metadata().ok()?;
        Some(about.rdev())
    };
    out.is_terminal() && error.is_terminal() && device(out.as_fd()) == device(error.as_fd())
}

/// The width of a terminal that reports no width, as for standard error.
const COLUMNS: u16 = 80;

/// A table as wide as the terminal; without rules where standard output is not a terminal. `numbers` are columns aligned right.
pub(crate) fn table(header: impl Into<Row>, numbers: &[usize]) -> Table {
    let mut table = Table::new();
    let preset = if std::io::stdout().is_terminal() { UTF8_HORIZONTAL_ONLY } else { NOTHING };
    table.load_preset(preset).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    if table.width() == Some(0) {
        table.set_width(COLUMNS);
    }
    table.remove_style(comfy_table::TableComponent::HorizontalLines);
    table.remove_style(comfy_table::TableComponent::MiddleIntersections);
    for column in numbers {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Text for people with words of agents, folded at the width of the terminal if standard output is one, as lines on standard error are: no
/// row begins with text from the middle of a line. Tables fit already.
pub(crate) fn folded(text: &str) -> String {
    if !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    Rows::default().push(text, table([""], &[]).width().unwrap_or(COLUMNS).into())
}

/// The output of a run: a terminal shows it escaped and folded, a pipe receives text unchanged.
pub(crate) fn output_text(output: &Value) -> String {
    match output.as_str() {
        Some(text) if std::io::stdout().is_terminal() => folded(&visible_lines(text)),
        Some(text) => text.to_owned(),
        None => folded(&json_text(output)),
    }
}

/// The table's lines, without trailing blanks.
pub(crate) fn lines_of(table: &Table) -> String {
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A path as a terminal may show it.
pub(crate) fn shown_path(path: &Path) -> String {
    visible(&path.display().to_string())
}

/// At most this many characters of untrusted text, in one line.
pub(crate) fn brief(text: &str, most: usize) -> String {
    let shown = visible(text);
    if shown.chars().count() <= most {
        return shown;
    }
    shown.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// As [`brief`], of text that keeps its lines.
pub(crate) fn brief_lines(text: &str, most: usize) -> String {
    let shown = visible_lines(text);
    if shown.chars().count() <= most {
        return shown;
    }
    shown.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A value in one line; a string without quotes.
pub(crate) fn brief_json(json: &Json, most: usize) -> String {
    match json.as_str() {
        Some(text) => brief(text, most),
        None => brief(&json.to_string(), most),
    }
}

/// A value over several lines.
pub(crate) fn whole_json(json: &Json, indent: &str) -> String {
    let text = format!("{:#}", json.value());
    text.lines().map(|line| format!("{indent}{}\n", visible(line))).collect()
}

/// `2026-01-01 00:00:00Z`, in UTC.
pub(crate) fn time(at: Timestamp) -> String {
    without_millis(&at.to_string())
}

/// As [`time`], of one in JSON; empty for null.
pub(crate) fn time_of(at: &Value) -> String {
    at.as_str().map(|at| without_millis(&visible(at))).unwrap_or_default()
}

fn without_millis(at: &str) -> String {
    at.replace('T', " ").chars().take(19).chain(['Z']).collect()
}

/// `1.234 s`, `12 s`, `5 min` or `3 h`: larger units for longer times.
pub(crate) fn duration(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ 0..10_000 => format!("{}.{:03} s", millis / 1000, millis % 1000),
        millis @ 10_000..120_000 => format!("{} s", millis / 1000),
        millis @ 120_000..7_200_000 => format!("{} min", millis / 60_000),
        millis => format!("{} h", millis / 3_600_000),
    }
}

/// `1 turn`, `2 turns`.
pub(crate) fn count(number: usize, what: &str) -> String {
    counted(number as u64, what)
}

/// As [`count`]; `1 entity`, `2 entities`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    match what.strip_suffix("ty") {
        _ if number == 1 => format!("1 {what}"),
        Some(word) => format!("{} {word}ties", grouped(number)),
        None => format!("{} {what}s", grouped(number)),
    }
}

/// The handoffs of a run: on the command line they are off by default.
pub(crate) fn handoffs(are_enabled: bool) -> Handoffs {
    if are_enabled { Handoffs::OrAlone } else { Handoffs::Off }
}

/// `150,000`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// The label of a node, or of what compensates it.
pub(crate) fn shown_node(node: &str, is_compensation: bool) -> String {
    if is_compensation { format!("compensating {node}") } else { node.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_show_them() {
        let wants =
            |no_color: Option<&str>, term: Option<&str>| wants_colours(no_color.map(OsStr::new), term.map(OsStr::new));
        assert!(wants(None, Some("xterm-256color")) && wants(None, None) && wants(Some(""), None));
        assert!(!wants(None, Some("dumb")) && !wants(Some("1"), Some("xterm")));
    }
}
