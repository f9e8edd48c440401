//! Parsers for the values of options, and for the files that they name.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use callboard::messages::visible;
use callboard_documents::json::{self, JsonError};
use rustix::fs::OFlags;
use serde_json::Value;

/// What a variable of the environment is set to; an empty one is not set.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Parses a duration with its unit: `30s`, `90m`, `12h` or `7d`.
pub(crate) fn time_span(text: &str) -> Result<Duration, String> {
    let seconds = |unit: char| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3_600),
        'd' => Some(86_400),
        _ => None,
    };
    let parsed = text.char_indices().next_back().and_then(|(end, unit)| {
        let number: u64 = text[..end].parse().ok()?;
        Some(Duration::from_secs(number.checked_mul(seconds(unit)?)?))
    });
    parsed.ok_or_else(|| "write a number of seconds, minutes, hours or days: 30s, 90m, 12h or 7d".to_owned())
}

/// Parses a duration above zero: an approval that no person has time to answer would be denied each time.
pub(crate) fn time_to_answer(text: &str) -> Result<Duration, String> {
    match time_span(text)? {
        Duration::ZERO => Err("it has to be above zero: nobody could answer in no time".to_owned()),
        time => Ok(time),
    }
}

/// A channel and its new value.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) channel: String,
    pub(crate) value: Value,
}

/// Parses JSON, or reads it from `@FILE`; `@-` is standard input.
pub(crate) fn json(text: &str) -> Result<Value, String> {
    let read = match text.strip_prefix('@') {
        None => text.to_owned(),
        Some(file) => text_in(file)?,
    };
    json::parse(read.as_bytes()).map_err(|problem| match problem {
        JsonError::Syntax(problem) => format!("{problem}; it has to be JSON, and text goes in quotes: '\"text\"'"),
        JsonError::Repeated(problem) => problem,
    })
}

/// Text, or the content of `@FILE`; `@-` is standard input, and `@@` at the beginning of a text is an `@`.
pub(crate) fn words(text: &str) -> Result<String, String> {
    match text.strip_prefix('@') {
        None => Ok(text.to_owned()),
        Some(rest) if rest.starts_with('@') => Ok(rest.to_owned()),
        Some(file) => text_in(file),
    }
}

/// The content of `@FILE`; `@-` is standard input. A secret is in no command line: all users and programs of the machine read those.
pub(crate) fn secret(text: &str) -> Result<String, String> {
    let file = text.strip_prefix('@').ok_or(
        "other users and programs of agents can read the command line of a process: write the secret into a file and name that, as \
         @FILE, or @- for standard input",
    )?;
    text_in(file)
}

/// The most bytes of a text that is read from a file or from standard input.
const MAX_TEXT: u64 = 8 << 20;

/// The text of a file; `-` is standard input.
pub(crate) fn text_in(file: &str) -> Result<String, String> {
    if file.is_empty() {
        return Err("after @ comes the name of a file, or - for standard input".to_owned());
    }
    let (what, read) = match file {
        "-" => ("standard input", bounded(std::io::stdin())),
        file => (file, open_given(Path::new(file)).and_then(bounded)),
    };
    read.map_err(|error| format!("{}: {}", visible(what), reason(&error)))
}

/// Why a file cannot be used, and what to do, without the number of the error.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::PermissionDenied => "this user has no permission to access it".to_owned(),
        ErrorKind::IsADirectory => "it is a folder; name a file".to_owned(),
        ErrorKind::AlreadyExists => "it exists already; name another one, or remove it first".to_owned(),
        ErrorKind::InvalidData => "the text is not UTF-8; save it as UTF-8".to_owned(),
        _ => {
            let text = error.to_string();
            text.split_once(" (os error ").map_or(text.clone(), |(words, _)| words.to_owned())
        }
    }
}

/// Opens a regular file, and nothing else: reading a pipe without a writer would block without end.
pub(crate) fn open_file(path: &Path) -> std::io::Result<File> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::Error::other("it is not a file")) }
}

/// Opens a file that the command line names: also the descriptor that a shell passes for `<(…)`, whose writer exists.
pub(crate) fn open_given(path: &Path) -> std::io::Result<File> {
    const PASSED: [&str; 3] = ["/dev/fd", "/dev/stdin", "/proc/self/fd"];
    if PASSED.iter().any(|passed| path.starts_with(passed)) { File::open(path) } else { open_file(path) }
}

/// The text of a file that the settings name, within bounds.
pub(crate) fn text_of_file(path: &Path) -> std::io::Result<String> {
    open_given(path).and_then(bounded)
}

fn bounded(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(MAX_TEXT + 1).read_to_string(&mut text)?;
    if text.len() as u64 <= MAX_TEXT { Ok(text) } else { Err(std::io::Error::other("it has more than 8 MiB")) }
}

/// Parses `CHANNEL=JSON`.
pub(crate) fn setting(text: &str) -> Result<Setting, String> {
    let (channel, value) = text.split_once('=').ok_or("write CHANNEL=JSON")?;
    Ok(Setting { channel: channel.to_owned(), value: json(value)? })
}

/// The longest text that an error repeats as a whole.
const REPEATED: usize = 200;

/// The value of text that may be JSON: parsed if it is valid and not null, else a string.
///
/// # Errors
/// It begins like an object, a list or a text of JSON and is none: a misspelt value must not become a text. The error names the way to
/// give such a text.
pub(crate) fn value_of(text: &str) -> Result<Value, String> {
    match json::parse(text.as_bytes()) {
        Ok(Value::Null) => Ok(Value::from(text)),
        Ok(value) => Ok(value),
        Err(JsonError::Syntax(_)) if !text.trim_start().starts_with(['{', '[', '"']) => Ok(Value::from(text)),
        Err(problem) => {
            let quoted = if text.len() <= REPEATED { Value::from(text).to_string() } else { "\"…\"".to_owned() };
            let what = match &problem {
                JsonError::Syntax(_) => "it begins like JSON and is none",
                JsonError::Repeated(_) => "it is not clear",
            };
            Err(visible(&format!("{what}: {problem}; if it is meant as text, write it as text of JSON: {quoted}")))
        }
    }
}

/// The only one of these words that is one letter away from `word`, or two neighbours that changed places, whatever their case.
pub(crate) fn similar<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_similar = |other: &&str| strsim::osa_distance(&word.to_lowercase(), &other.to_lowercase()) <= 1;
    let mut fitting = words.into_iter().filter(is_similar);
    fitting.next().filter(|_| fitting.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn valid_json_is_parsed_and_other_text_is_a_string() {
        let read = ["72", "-1.5", "true", "[1]", "{\"a\":1}", "\"72\"", "null", "fn main() {}", "", "1 2"];
        let read = read.map(|text| value_of(text).ok());
        let expected = [
            json!(72),
            json!(-1.5),
            json!(true),
            json!([1]),
            json!({ "a": 1 }),
            json!("72"),
            json!("null"),
            json!("fn main() {}"),
            json!(""),
            json!("1 2"),
        ];
        let expected = expected.map(Some);
        assert_eq!(read, expected);
    }

    #[test]
    fn text_that_begins_like_json_and_is_none_is_refused_with_the_way_to_give_it() {
        for (text, why, way) in [
            ("{\"a\": 1", "column 7: EOF while parsing an object", r#""{\"a\": 1""#),
            ("[x] done", "column 2: expected value", r#""[x] done""#),
            ("\"a\" he said", "column 5: trailing characters", r#""\"a\" he said""#),
        ] {
            let problem = format!(
                "it begins like JSON and is none: {why}; if it is meant as text, write it as text of JSON: {way}"
            );
            assert_eq!(value_of(text), Err(problem));
            assert_eq!(value_of(way), Ok(json!(text)), "the way works");
        }
        let repeated = value_of("{\"a\": 1, \"a\": 2}");
        assert!(repeated.is_err_and(|problem| problem.contains("the key \"a\" is repeated")));
    }
}
