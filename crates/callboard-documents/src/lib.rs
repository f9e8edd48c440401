//! Documents that people write: TOML in which every defect has its place, JSON Schemas, and templates, all of them read
//! within bounds.
//!
//! Everything that is wrong with a document is reported together, each defect with the line where it is. What is read here
//! is syntax: keys, types and words. What they mean is the matter of those who read them: `callboard` reads workflows with
//! it, and `callboard-agents` definitions of agents, models and MCP servers.
//!
//! - [`toml`] reads a text in three steps: its grammar, its tree, and what the tree says. Broken grammar ends it at the first
//!   step, because the rest would be guessed.
//! - [`schema`] compiles JSON Schemas that are written in such texts or come from elsewhere.
//! - [`template`] compiles templates and expressions, and renders them.
//! - [`json`] parses JSON and refuses repeated keys.
//!
//! The features `schema` and `toml` are on by default; templates and JSON need neither.

mod caret;
mod found;
pub mod json;
#[cfg(feature = "schema")]
pub mod schema;
pub mod template;
#[cfg(feature = "toml")]
pub mod toml;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

pub use found::Found;

/// The longest text that is read, in bytes.
pub const MAX_TEXT: usize = 1 << 20;

/// What stands in a file, as far as a text may go and one byte more. Anything but a file is refused: a pipe without a writer would
/// never end.
///
/// # Errors
/// The file cannot be read, or is none.
pub fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = File::options();
    // With this flag, opening a pipe does not wait for its writer.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.read(true).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How deep JSON may nest that is made of a document.
pub const MAX_DEPTH: usize = 120;

/// Something and where it was written, in bytes; nowhere (`None`) if code made it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed<T> {
    /// The value, as it was read.
    pub value: T,
    /// Its range in the text; `None` if code made the value.
    pub place: Place,
}

/// Where something was written, as a range of bytes of the text; `None` if code made it.
pub type Place = Option<Range<usize>>;

impl<T> Placed<T> {
    /// Creates a value that was written at this place.
    pub fn at(value: T, place: Range<usize>) -> Self {
        Self { value, place: Some(place) }
    }

    /// Creates a value without a place, because code made it.
    #[must_use]
    pub fn made(value: T) -> Self {
        Self { value, place: None }
    }
}

/// Returns these bytes as a text.
///
/// # Errors
/// When they are not UTF-8: where that begins. The place is that of the first replacement character if they are shown by
/// `String::from_utf8_lossy`.
pub fn text_of(bytes: &[u8]) -> Result<&str, Defect> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let problem = format!("the text is not UTF-8: byte {at} (0x{:02x}) begins no character", bytes[at]);
        Defect::new(&Some(at..at + 1), problem).advise("save it as UTF-8")
    })
}

/// One thing that is wrong with a document, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What is wrong, as a clause without a full stop that people read.
    pub problem: String,
    /// What to do about it, in the same form; `None` if that follows from the problem.
    pub advice: Option<String>,
    /// Where, in bytes of the text; nowhere if code made it.
    pub place: Option<Range<usize>>,
}

impl Defect {
    /// Creates a defect without advice, which [`Defect::advise`] can add.
    #[must_use]
    pub fn new(place: &Place, problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), advice: None, place: place.clone() }
    }

    /// Sets the advice: what to write in its place.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Everything that is wrong with a document, with a line and a caret for each where it was written as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defects {
    origin: String,
    text: Option<String>,
    list: Vec<Defect>,
}

impl Defects {
    /// What is wrong with something called `origin`, and with its text if it has one: what other checks of a document have
    /// found is reported in the same way.
    ///
    /// ```
    /// use callboard_documents::{Defect, Defects};
    /// let defect = Defect { problem: "there is no model \"bb\"".into(), advice: None, place: Some(8..12) };
    /// let defects = Defects::of("coder.toml", Some("model = \"bb\""), vec![defect]);
    /// assert!(defects.to_string().starts_with("coder.toml:1:9: there is no model \"bb\"\n"));
    /// ```
    #[must_use]
    pub fn of(origin: impl Into<String>, text: Option<&str>, mut list: Vec<Defect>) -> Self {
        // Defects without a position, such as the number of further ones, come last.
        list.sort_by_key(|defect| defect.place.as_ref().map_or(usize::MAX, |place| place.start));
        // Several checks may have found the same defect.
        list.dedup();
        Self { origin: origin.into(), text: text.map(str::to_owned), list }
    }

    /// Returns the defects in the order of their places; those without one come last.
    #[must_use]
    pub fn list(&self) -> &[Defect] {
        &self.list
    }

    /// Returns what the text is called, and the text; `None` if the defects are about no text.
    #[must_use]
    pub fn source(&self) -> Option<(&str, &str)> {
        Some((&self.origin, self.text.as_deref()?))
    }
}

impl std::error::Error for Defects {}

impl fmt::Display for Defects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        caret::write(f, self)
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
