//! The base of facts of a store: what `callboard store` and `callboard runs` copy, export, import and check of it.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use callboard::messages::visible;
use callboard_knowledge::store::{Counts, WholeExport};
use callboard_knowledge::{KnowledgeBase, KnowledgeError};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, counted, shown_path};
use crate::stores::Stores;
use crate::stores::project::facts_in;

use super::base::{Created, create, create_folder_of, end, failure, file, open_to_read_if_there};

/// Whether there is a base in a folder that gets a store.
pub(crate) fn is_there(folder: &Path) -> bool {
    fs::symlink_metadata(facts_in(folder)).is_ok()
}

/// Copies the base of the stores, if there is one, into the folder of a copied store.
pub(crate) async fn copy_into(stores: &Stores, folder: &Path) -> Result<Option<Counts>, Failure> {
    let Some(base) = open_to_read_if_there(stores)? else { return Ok(None) };
    copy(&base, folder).await.map(Some)
}

/// As [`copy_into`], from the folder of a store.
pub(crate) async fn copy_between(from: &Path, into: &Path) -> Result<(), Failure> {
    copy_into(&Stores::Named(from.to_owned()), into).await.map(drop)
}

async fn copy(base: &KnowledgeBase, folder: &Path) -> Result<Counts, Failure> {
    let to = facts_in(folder);
    create_folder_of(&to)?;
    base.copy_to(&to).await.map_err(|error| failure(&error))?;
    base.counts().await.map_err(|error| failure(&error))
}

/// Writes the export of the base, if there is one.
pub(crate) async fn export<W: Write + Send + 'static>(stores: &Stores, to: W) -> Result<Option<Counts>, Failure> {
    let Some(base) = open_to_read_if_there(stores)? else { return Ok(None) };
    base.export(to).await.map_err(|error| failure(&error))?;
    base.counts().await.map(Some).map_err(|error| failure(&error))
}

/// The export of a base with which an export of a store begins, if it does, and what follows.
pub(crate) fn split(
    from: impl Read + Send + 'static,
    folder: &Path,
) -> Result<(Option<WholeExport>, Box<dyn BufRead + Send>), Failure> {
    let mut from = BufReader::new(from);
    let mut begin = Vec::new();
    // An error is reported where the text is read.
    let _ = (&mut from).take(WholeExport::BEGIN.len() as u64).read_to_end(&mut begin);
    let is_of_base = begin == WholeExport::BEGIN.as_bytes();
    let from = io::Cursor::new(begin).chain(from);
    if !is_of_base {
        return Ok((None, Box::new(from)));
    }
    let (export, from) = WholeExport::read_first(from, folder).map_err(|error| failure(&error))?;
    Ok((Some(export), Box::new(from)))
}

/// Imports the base of an export into the stores: if they have one, it has to be empty or the same.
pub(crate) async fn import(stores: &Stores, export: WholeExport) -> Result<Counts, Failure> {
    let Created { base, new } = create(stores)?;
    let sha256 = export.sha256().to_owned();
    let imported = match base.import_whole(export).await {
        Err(KnowledgeError::NotEmpty) if hash_of(&base).await? == sha256 => Ok(()),
        Err(KnowledgeError::NotEmpty) => {
            let line = command_line("runs import FILE --store FOLDER", None);
            Err(Failure::usage(format!(
                "the base of facts {} has other facts than that of the export; `{line}` imports both into a separate store",
                shown_path(base.path())
            )))
        }
        imported => imported.map(drop).map_err(|error| failure(&error)),
    };
    let counts = base.counts().await.map_err(|error| failure(&error));
    end(base, new.filter(|_| imported.is_err())).await;
    imported.and(counts)
}

/// The hash of an export of a base.
async fn hash_of(base: &KnowledgeBase) -> Result<String, Failure> {
    let (hash, _) = base.export(Hashing(Sha256::new())).await.map_err(|error| failure(&error))?;
    Ok(hash.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

struct Hashing(Sha256);

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is wrong with the base, if the stores have one: the text, the row and the exit code.
pub(crate) async fn check(stores: &Stores) -> Option<(String, Value, Exit)> {
    let shown = file(stores);
    let found = async {
        let Some(base) = open_to_read_if_there(stores)? else { return Ok(None) };
        let findings = base.check().await.map_err(|error| failure(&error))?;
        let counts = base.counts().await.map_err(|error| failure(&error))?;
        Ok::<_, Failure>(Some((findings, counts)))
    };
    Some(match found.await {
        Ok(None) => return None,
        Ok(Some((findings, counts))) => {
            let mut text = String::new();
            for finding in &findings {
                let _ = writeln!(text, "damaged: the base of facts: {}", visible(&finding.what));
            }
            let found =
                if findings.is_empty() { "no damage".to_owned() } else { format!("{} damaged", findings.len()) };
            let _ = writeln!(text, "{}: {}, {found}", shown_path(&shown), described(&counts));
            let exit = if findings.is_empty() { Exit::Done } else { Exit::Failed };
            (text, json!({ "knowledge": shown.to_string_lossy(), "findings": findings, "counts": counts }), exit)
        }
        Err(failure) => (
            format!("damaged: the base of facts: {}\n", failure.text()),
            json!({ "knowledge": shown.to_string_lossy(), "error": failure.text() }),
            failure.exit(),
        ),
    })
}

/// The base in a line, or why it cannot be opened; `None` if there is none.
pub(crate) async fn looked_at(stores: &Stores) -> Option<Result<String, String>> {
    let counted = async {
        let Some(base) = open_to_read_if_there(stores)? else { return Ok(None) };
        base.counts().await.map(Some).map_err(|error| failure(&error))
    };
    match counted.await {
        Ok(counts) => counts.map(|counts| Ok(format!("{}: {}", shown_path(&file(stores)), described(&counts)))),
        Err(failure) => Some(Err(failure.text().to_owned())),
    }
}

/// The page of a command that moves a store, with its base.
pub(crate) fn with_base(page: Page, what: &str, counts: Option<Counts>) -> Page {
    let Page { mut text, mut json, .. } = page;
    if let Some(counts) = &counts {
        let _ = writeln!(text, "{what}: the base of facts, {}", described(counts));
    }
    json["knowledge"] = json!(counts);
    Page { text, json, ..page }
}

/// `2 documents, 1 fact`.
pub(super) fn described(counts: &Counts) -> String {
    let facts = counted(counts.current + counts.disputed + counts.invalid, "fact");
    format!("{}, {facts}", counted(counts.documents, "document"))
}
