//! The corpus with which the quality of searches is measured: documentation of crates, as Markdown.

mod fetch;
pub mod list;
pub mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io, thread};

use thiserror::Error;

use list::{ListError, Listed};
use text::{ExtractError, Extracted, hash};

pub use fetch::FetchError;

/// The list, from the root of the workspace.
const LIST: &str = "crates/callboard-knowledge/tests/quality/corpus.toml";

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

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    /// Write the documents to a folder.
    Extract { ci: bool, to: Option<PathBuf> },
    /// Write the hashes of what is extracted to the list.
    Update,
}

const USAGE: &str = "usage: cargo xtask corpus [--ci] [--to FOLDER] | --update";

fn parse(arguments: impl Iterator<Item = String>) -> Result<Wish, String> {
    let mut arguments = arguments.peekable();
    if arguments.next_if(|argument| argument == "--update").is_some() {
        return arguments.next().map_or(Ok(Wish::Update), |other| Err(format!("what is {other:?} after --update?")));
    }
    let (mut ci, mut to) = (false, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--ci" => ci = true,
            "--to" => to = Some(arguments.next().ok_or("--to needs a folder")?.into()),
            other => return Err(format!("what is {other:?}?")),
        }
    }
    Ok(Wish::Extract { ci, to })
}

/// `cargo xtask corpus` with these arguments.
pub fn chore(arguments: impl Iterator<Item = String>) -> ExitCode {
    let wish = match parse(arguments) {
        Ok(wish) => wish,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match wish {
        Wish::Extract { ci, to } => write_documents(ci, &to.unwrap_or_else(|| target().join("corpus"))),
        Wish::Update => update(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corpus: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_documents(ci: bool, to: &Path) -> Result<(), CorpusError> {
    let crates = corpus(ci)?;
    for CrateText { listed, extracted } in &crates {
        // Documents of another version or of an earlier extraction.
        match fs::remove_dir_all(to.join(&listed.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(CorpusError::Io(to.to_owned(), error)),
            Ok(()) | Err(_) => {}
        }
        for document in &extracted.documents {
            write(&to.join(&document.path), &document.text)?;
        }
    }
    report(&crates);
    println!("in {}", to.display());
    Ok(())
}

fn update() -> Result<(), CorpusError> {
    let crates = extracted(false)?;
    let path = root().join(LIST);
    let text = read(&path)?;
    let mut list = list::read(&text)?;
    for listed in &mut list {
        if let Some(found) = crates.iter().find(|found| found.listed.name == listed.name) {
            listed.sha256 = hash(&found.extracted.documents);
        }
    }
    write(&path, &list::write(&list, &text))?;
    report(&crates);
    Ok(())
}

fn report(crates: &[CrateText]) {
    let (mut all, mut documents, mut bytes) = (0, 0, 0);
    for CrateText { listed, extracted } in crates {
        let passages: usize = extracted.documents.iter().map(|document| text::markdown::passages(&document.text)).sum();
        println!(
            "{:<20} {:<12} {:>4} documents {passages:>6} passages",
            listed.name,
            listed.version,
            extracted.documents.len()
        );
        all += passages;
        documents += extracted.documents.len();
        bytes += extracted.documents.iter().map(|document| document.text.len()).sum::<usize>();
    }
    println!("{} crates, {documents} documents, {all} passages, {bytes} bytes", crates.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Wish, String> {
        parse(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn arguments_that_are_unknown_or_incomplete_are_refused() {
        assert_eq!(parsed(&[]), Ok(Wish::Extract { ci: false, to: None }));
        assert_eq!(parsed(&["--to", "x", "--ci"]), Ok(Wish::Extract { ci: true, to: Some("x".into()) }));
        assert_eq!(parsed(&["--update"]), Ok(Wish::Update));
        for wrong in [&["--to"][..], &["x"], &["--update", "--ci"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_committed_list_has_a_hash_for_each_crate() {
        let list = list::read(&read(&root().join(LIST)).unwrap()).unwrap();
        assert!((20..=40).contains(&list.len()), "{}", list.len());
        assert!(list.iter().all(|listed| listed.sha256.len() == 64));
    }
}
