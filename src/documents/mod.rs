//! Texts that people write in TOML, read so that everything that is wrong with one is told together, each defect with its
//! place. What is read here is syntax: keys, types and words. What they mean is the matter of the rooms that read them.
//!
//! A text is read in three steps: its grammar (`scan`), its tree (the `toml` crate), and what the tree says (`fields`,
//! `values`). Broken grammar ends it at the first step, because the rest would be guessed. `schema` makes JSON Schemas ready that
//! such texts have in them, or that come from elsewhere, and `template` the templates and expressions.

mod caret;
pub(crate) mod fields;
pub(crate) mod found;
mod scan;
pub(crate) mod schema;
pub(crate) mod template;
pub(crate) mod values;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use found::Found;

/// The longest text, in bytes.
pub(crate) const MAX_TEXT: usize = 1 << 20;

/// What stands in a file, as far as a text may go and one byte more. Anything but a file is refused: a pipe without a writer would
/// never end.
pub(crate) fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = File::options();
    // To open a pipe does not wait for its writer then.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.read(true).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Something and where it was written, in bytes; nowhere (`None`) if code made it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// A range of bytes of the text.
pub(crate) type Place = Option<Range<usize>>;

impl<T> Placed<T> {
    pub(crate) fn at(value: T, place: Range<usize>) -> Self {
        Self { value, place: Some(place) }
    }

    pub(crate) fn made(value: T) -> Self {
        Self { value, place: None }
    }
}

/// Has `read` make something of the tree of a text; nothing is made of one that is too long or whose grammar is wrong.
/// `advice` says what to do about one that is too long.
pub(crate) fn read<T: Default>(
    text: &str,
    advice: &str,
    found: &mut Found,
    read: impl FnOnce(&DeTable<'_>, &mut Found) -> T,
) -> T {
    if text.len() > MAX_TEXT {
        let problem = format!("the text has {} bytes; at most {MAX_TEXT} are allowed", text.len());
        found.add(Defect::new(&None, problem).advise(advice));
        return T::default();
    }
    if !scan::is_sound(text, found) {
        return T::default();
    }
    let (tree, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        found.add(Defect::new(&error.span(), error.message()));
    }
    read(tree.get_ref(), found)
}

/// The text of these bytes.
///
/// # Errors
/// When they are not UTF-8: where that begins. The place is that of the first replacement character if they are shown by
/// `String::from_utf8_lossy`.
pub(crate) fn text_of(bytes: &[u8]) -> Result<&str, Defect> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let problem = format!("the text is not UTF-8: byte {at} (0x{:02x}) begins no character", bytes[at]);
        Defect::new(&Some(at..at + 1), problem).advise("save it as UTF-8")
    })
}

/// One thing that is wrong with a document, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub advice: Option<String>,
    /// Where, in bytes of the text; nowhere if code made it.
    pub place: Option<Range<usize>>,
}

impl Defect {
    pub(crate) fn new(place: &Place, problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), advice: None, place: place.clone() }
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Everything that is wrong with a document, with a line and a caret for each where it was written as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defects {
    origin: String,
    text: Option<String>,
    pub(crate) list: Vec<Defect>,
}

impl Defects {
    /// What is wrong with something called `origin`, and with its text if it has one: what other checks of a document have found
    /// is told in the same way.
    ///
    /// ```
    /// use callboard::agents::{Defect, Defects};
    /// let defect = Defect { problem: "there is no model \"bb\"".into(), advice: None, place: Some(8..12) };
    /// let defects = Defects::of("coder.toml", Some("model = \"bb\""), vec![defect]);
    /// assert!(defects.to_string().starts_with("coder.toml:1:9: there is no model \"bb\"\n"));
    /// ```
    #[must_use]
    pub fn of(origin: impl Into<String>, text: Option<&str>, mut list: Vec<Defect>) -> Self {
        // What has no place, such as how many more there are, comes last.
        list.sort_by_key(|defect| defect.place.as_ref().map_or(usize::MAX, |place| place.start));
        // Several who look at it may have found the same.
        list.dedup();
        Self { origin: origin.into(), text: text.map(str::to_owned), list }
    }

    /// Each of them, in the order of their places.
    #[must_use]
    pub fn list(&self) -> &[Defect] {
        &self.list
    }

    /// The text that they are about, and what it is called.
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
