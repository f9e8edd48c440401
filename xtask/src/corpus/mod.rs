//! The corpus with which the quality of searches is measured, documentation of crates as Markdown, and the questions about it.
//!
//! # The text
//!
//! `corpus.toml` lists the crates, each in one version and with the hash of its text. [`corpus()`] has cargo fetch them: those that are in
//! the lock file of the workspace are there already, and the part that CI uses has only such. For the others it writes a manifest below
//! `target` that pins them. A version that was yanked cannot be fetched this way; its crate is replaced in the list.
//!
//! The documents of a crate are its README, its changelogs, and one for each file of `src` that has a public item with a doc comment. That
//! one is titled by the path of the module. It has the documentation of the module, and a section for each item: the kind and signature, the
//! doc comment with its own headings below that of the item (`### Errors`), and documented fields or variants as a list. Items are found by
//! parsing, also in macros that are called with items. Items of private modules are there too, because crates export them elsewhere. Left
//! out are hidden items, tests, methods of implemented traits, text that is included from other files, and files that are too large or too
//! deep for the parser.
//!
//! A passage is a section, from a heading to the next one. One of more than 1,500 characters is several.
//!
//! # The questions
//!
//! `questions.jsonl` is made of the documents by rules ([`questions`]). They share no code with the search that is measured, and have words,
//! inflections and sentences of their own. There are four kinds:
//!
//! - `summary`: a sentence of an item's documentation as a request (`Returns the number of bytes` as `how do I count the bytes`) or as a
//!   question for its condition (`If the buffer is full, …` as `what happens if the buffer is full`); the item's page is the answer.
//! - `error`: the text of a failure in the code, with values in its places; the section that documents the error, or the section `Errors` or
//!   `Panics` of the function is the answer, if it has two words of the text.
//! - `changelog`: an entry without its verb and without the numbers of issues, as `which release brings …`; the section of its version is the
//!   answer.
//! - `section`: the condition of a sentence below `Errors` or `Panics`, as `what goes wrong if …`; that section is the answer.
//!
//! No word of a question is a word of a title of its answers: of the headings from the module down to the section, the parts of identifiers,
//! and inflections. A candidate with such a word has it replaced by a pronoun (`the capacity` by `it`), loses it (a message of an error, if it
//! still reads), or is dropped. Two of three words with synonyms are replaced by these, and half of the texts are cut at a clause, so that
//! a question is no copy of a sentence.
//!
//! Every section that has the sentence of which a question is made is an answer. If a sentence of another section has nearly all of its
//! words (85 % by weight, rare ones weigh more), it is an answer too where both are of one crate and the kind is `section`; otherwise the
//! question is dropped, as is one with more than six answers. Whether a search would find the answer has no part in the choice.
//!
//! Of the remaining candidates as many are taken as `questions/choice.rs` says, in the order of a hash with a seed, with bounds for each
//! crate, document and section. 150 questions, spread over the kinds, are held back: they are for one measurement, after the search is no
//! longer changed. The same corpus and seed have the same questions; `cargo xtask corpus questions --check` compares.

mod chore;
mod fetch;
pub mod list;
pub mod questions;
pub mod text;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io, thread};

use thiserror::Error;

use list::{ListError, Listed};
use text::{ExtractError, Extracted, hash};

pub use chore::chore;
pub use fetch::FetchError;

/// The list, from the root of the workspace.
const LIST: &str = "crates/callboard-knowledge/tests/quality/corpus.toml";

/// The questions about it, from the root of the workspace.
const QUESTIONS: &str = "crates/callboard-knowledge/tests/quality/questions.jsonl";

/// How many bytes of stack the parser has: it recurses with the depth of expressions.
const STACK: usize = 64 << 20;

/// A crate of the corpus with its text.
#[derive(Debug)]
pub struct CrateText {
    /// As it is listed.
    pub listed: Listed,
    /// What was extracted.
    pub extracted: Extracted,
}

/// Why there is no corpus.
#[derive(Debug, Error)]
pub enum CorpusError {
    /// The list cannot be used.
    #[error(transparent)]
    List(#[from] ListError),
    /// A package is not there.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The text of a package cannot be extracted.
    #[error("{0}: {1}")]
    Extract(String, ExtractError),
    /// The text is another than the one that the list has the hash of.
    #[error(
        "the text of {name} {version} has the hash {found}, and corpus.toml has {listed:?}: the package or the extraction \
         has changed; if that is right, `cargo xtask corpus --update` and `cargo xtask corpus questions`"
    )]
    Changed {
        /// The crate.
        name: String,
        /// Its version.
        version: String,
        /// The hash of the text.
        found: String,
        /// The hash in the list.
        listed: String,
    },
    /// The committed questions are others than those that are made of the corpus.
    #[error(
        "{QUESTIONS} has other questions than those of the corpus, the first in line {line}; `cargo xtask corpus questions` writes it"
    )]
    OtherQuestions {
        /// The first line that is another, from 1.
        line: usize,
    },
    /// A file of the project or of the corpus cannot be read or written.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn read(path: &Path) -> Result<String, CorpusError> {
    fs::read_to_string(path).map_err(|error| CorpusError::Io(path.to_owned(), error))
}

fn write(path: &Path, text: &str) -> Result<(), CorpusError> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.map_err(|error| CorpusError::Io(path.to_owned(), error))
}

/// The text of all crates of the corpus, or with `ci` of those that CI uses, checked by their hashes.
///
/// # Errors
/// If a crate cannot be fetched or read, or its text has another hash.
pub fn corpus(ci: bool) -> Result<Vec<CrateText>, CorpusError> {
    let crates = extracted(ci)?;
    for CrateText { listed, extracted } in &crates {
        let found = hash(&extracted.documents);
        if found != listed.sha256 {
            let Listed { name, version, sha256, .. } = listed.clone();
            return Err(CorpusError::Changed { name, version, found, listed: sha256 });
        }
    }
    Ok(crates)
}

/// The text of the crates, unchecked.
fn extracted(ci: bool) -> Result<Vec<CrateText>, CorpusError> {
    let mut list = list::read(&read(&root().join(LIST))?)?;
    list.retain(|listed| listed.ci || !ci);
    let folders = fetch::folders(&root(), &target().join("corpus-crates"), &list)?;
    let (next, workers) = (AtomicUsize::new(0), thread::available_parallelism().map_or(1, usize::from));
    let work = || {
        let mut done = Vec::new();
        while let Some(listed) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
            let extracted = folders.get(&listed.name).map(|folder| text::extract(&listed.name, folder));
            done.extend(extracted.map(|extracted| (listed, extracted)));
        }
        done
    };
    let mut crates = thread::scope(|scope| {
        let start = |_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let started: Vec<_> = (0..workers).filter_map(|worker| start(worker).ok()).collect();
        started.into_iter().flat_map(|worker| worker.join().expect("the extraction has no panic")).collect::<Vec<_>>()
    });
    crates.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let checked = crates.into_iter().map(|(listed, extracted)| match extracted {
        Ok(extracted) => Ok(CrateText { listed: listed.clone(), extracted }),
        Err(error) => Err(CorpusError::Extract(listed.name.clone(), error)),
    });
    checked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_list_has_a_hash_for_each_crate() {
        let list = list::read(&read(&root().join(LIST)).unwrap()).unwrap();
        assert!((20..=40).contains(&list.len()), "{}", list.len());
        assert!(list.iter().all(|listed| listed.sha256.len() == 64));
    }
}
