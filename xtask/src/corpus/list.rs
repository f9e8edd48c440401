//! The committed list of the crates whose text the corpus is: `corpus.toml`.

use std::collections::BTreeSet;

use thiserror::Error;
use toml::de::{DeTable, DeValue};

/// A crate of the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name on the registry.
    pub name: String,
    /// Its exact version.
    pub version: String,
    /// The hash of its extracted documents, in hex; empty if it was never computed.
    pub sha256: String,
    /// Whether it is part of the corpus that CI uses.
    pub ci: bool,
}

/// Why a list cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ListError {
    /// The text is no TOML.
    #[error("corpus.toml: {0}")]
    Toml(String),
    /// Something of a crate is absent or of another kind.
    #[error("corpus.toml: the crate {place} (counted from 1) needs {needs}")]
    Lacks {
        /// Which crate, from 1.
        place: usize,
        /// What it needs.
        needs: &'static str,
    },
    /// A crate is listed twice. One version of each is enough, because the documents of two would have the same paths.
    #[error("corpus.toml: {0} is listed twice; remove one")]
    Twice(String),
}

/// Reads the list.
///
/// # Errors
/// If the text is no such list.
pub fn read(text: &str) -> Result<Vec<Listed>, ListError> {
    let table = DeTable::parse(text).map_err(|error| ListError::Toml(error.to_string()))?;
    let crates = table.get_ref().get("crate").and_then(|list| list.get_ref().as_array());
    let crates = crates.ok_or_else(|| ListError::Toml("there is no [[crate]]".to_owned()))?;
    let list = crates.iter().enumerate().map(|(place, value)| listed(value.get_ref(), place + 1));
    let list: Vec<Listed> = list.collect::<Result<_, _>>()?;
    let mut names = BTreeSet::new();
    match list.iter().find(|listed| !names.insert(&listed.name)) {
        Some(twice) => Err(ListError::Twice(twice.name.clone())),
        None => Ok(list),
    }
}

fn listed(value: &DeValue<'_>, place: usize) -> Result<Listed, ListError> {
    let lacks = |needs| ListError::Lacks { place, needs };
    let table = value.as_table().ok_or(lacks("a table"))?;
    let text = |name| table.get(name).and_then(|value| value.get_ref().as_str()).map(str::to_owned);
    let name = text("name").filter(|name| is_name(name)).ok_or(lacks("a `name` of letters, digits, - and _"))?;
    let version = text("version").filter(|version| is_version(version));
    let version = version.ok_or(lacks("a `version` like 1.2.3"))?;
    let sha256 = text("sha256").ok_or(lacks("a `sha256`; an empty one is written by `cargo xtask corpus --update`"))?;
    let ci = table.get("ci").map_or(Some(false), |value| value.get_ref().as_bool());
    let ci = ci.ok_or(lacks("`ci` to be true or false"))?;
    Ok(Listed { name, version, sha256, ci })
}

/// A name becomes a folder and a line of a manifest, so it may hold nothing else.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn is_version(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit())
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".-+".contains(c))
}

/// Writes the list, after the comment at the beginning of the text that it was read from.
#[must_use]
pub fn write(list: &[Listed], before: &str) -> String {
    let comment = before.lines().take_while(|line| line.starts_with('#'));
    let mut text: String = comment.map(|line| format!("{line}\n")).collect();
    for Listed { name, version, sha256, ci } in list {
        let ci = if *ci { "ci = true\n" } else { "" };
        text += &format!("\n[[crate]]\nname = \"{name}\"\nversion = \"{version}\"\nsha256 = \"{sha256}\"\n{ci}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "# About it.\n\n[[crate]]\nname = \"one\"\nversion = \"1.0.0\"\nsha256 = \"ab\"\nci = true\n\n\
                       [[crate]]\nname = \"two-b\"\nversion = \"0.2.0+x\"\nsha256 = \"\"\n";

    #[test]
    fn a_list_that_is_read_is_written_the_same() {
        let list = read(TWO).unwrap();
        assert_eq!((list.len(), list[0].ci, list[1].ci), (2, true, false));
        assert_eq!(write(&list, TWO), TWO);
    }

    #[test]
    fn a_list_with_less_than_it_needs_is_refused_with_the_place() {
        for (text, needs) in [
            (TWO.replace("two-b", "../up"), "the crate 2 (counted from 1) needs a `name`"),
            (TWO.replace("1.0.0", "*"), "the crate 1 (counted from 1) needs a `version`"),
            (TWO.replace("ci = true", "ci = 1"), "the crate 1 (counted from 1) needs `ci`"),
            (TWO.replace("sha256 = \"ab\"\n", ""), "the crate 1 (counted from 1) needs a `sha256`"),
            (TWO.replace("two-b", "one"), "one is listed twice"),
            ("x = 1".to_owned(), "there is no [[crate]]"),
            ("x = ".to_owned(), "corpus.toml:"),
        ] {
            let refused = read(&text).unwrap_err().to_string();
            assert!(refused.contains(needs), "{refused}");
        }
    }
}
