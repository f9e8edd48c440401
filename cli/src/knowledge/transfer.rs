//! `callboard kb export`, `kb import`, `kb backup` and `kb restore`.

use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use callboard_knowledge::store::{Counts, Restored, Transferred, WholeExport};
use callboard_knowledge::{KnowledgeBase, KnowledgeError};
use serde_json::json;

use crate::atomic_file::AtomicFile;
use crate::page::{Failure, Page, counted, shown_path};
use crate::values::{open_given, reason};

use super::arguments::{Backup, Export, Import, Restore};
use super::base::{Created, Location, create_at, end, failure, failure_of, open_if_there, open_to_read, place, why};
use super::stored::described;

/// Exports the base. The file gets its name once it is complete.
pub(super) async fn export(export: &Export) -> Result<Page, Failure> {
    let common = &export.common;
    let base = open_to_read(&common.choice.stores()?).await?;
    let Some(file) = export.file.as_deref().filter(|file| *file != Path::new("-")) else {
        if common.json {
            return Err(Failure::usage(
                "without a FILE the export itself goes to standard output: leave --json out, or name a FILE".to_owned(),
            ));
        }
        base.export(BufWriter::new(io::stdout())).await.map_err(|error| failure(&error))?;
        return Ok(Page::new(String::new(), json!(null)));
    };
    let cannot = |error: io::Error| {
        Failure::file(&error, format!("the export cannot be written to {}: {}", shown_path(file), why(&error)))
    };
    if fs::symlink_metadata(file).is_ok() {
        return Err(cannot(io::ErrorKind::AlreadyExists.into()));
    }
    let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut target = AtomicFile::create(folder).map_err(cannot)?;
    let to: Box<dyn Write + Send> = Box::new(BufWriter::new(target.file().try_clone().map_err(cannot)?));
    let (to, moved) = base.export(to).await.map_err(|error| match error {
        KnowledgeError::Text(error) => cannot(error),
        error => failure(&error),
    })?;
    drop(to);
    target.persist(file).map_err(cannot)?;
    let counts = base.counts().await.map_err(|error| failure(&error))?;
    Ok(page("exported", &moved, &counts))
}

/// Imports an export into the base, which is empty or does not exist.
pub(super) async fn import(import: &Import) -> Result<Page, Failure> {
    let file = &import.file;
    let from: Box<dyn BufRead + Send> = if file == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let cannot = |error: io::Error| {
            let why = format!("{}: {}; nothing is imported", shown_path(file), reason(&error));
            Failure::file(&error, why)
        };
        Box::new(BufReader::new(open_given(file).map_err(cannot)?))
    };
    let stores = import.common.choice.stores()?;
    let place = place(&stores)?;
    // Read before the base is made or locked: standard input may be slow.
    let read = async {
        if let Some(base) = open_if_there(&stores)? {
            base.close().await;
        }
        let folder = place.file.parent().unwrap_or(&place.file).to_owned();
        let reading = tokio::task::spawn_blocking(move || WholeExport::read(from, &folder));
        let export = reading.await.map_err(|error| Failure::failed(error.to_string()))?;
        export.map_err(|error| failure_of(&stores, &error))
    };
    let export = match read.await {
        Ok(export) => export,
        Err(failure) => {
            place.folders.remove();
            return Err(failure);
        }
    };
    let Created { base, new } = create_at(place, &stores)?;
    let moved = base.import_whole(export).await;
    let counts = base.counts().await;
    end(base, new.filter(|_| moved.is_err())).await;
    let moved = moved.map_err(|error| failure_of(&stores, &error))?;
    let counts = counts.map_err(|error| failure_of(&stores, &error))?;
    Ok(Page { done: Some("the import is in the base".to_owned()), ..page("imported", &moved, &counts) })
}

/// Copies the file of the base, while other processes use it.
pub(super) async fn backup(backup: &Backup) -> Result<Page, Failure> {
    let base = open_to_read(&backup.common.choice.stores()?).await?;
    base.copy_to(&backup.file).await.map_err(|error| failure(&error))?;
    let text = format!("the base is copied to {}\n", shown_path(&backup.file));
    Ok(Page::new(text, json!({ "file": backup.file })))
}

/// Puts a backup in the place of the base.
pub(super) async fn restore(restore: &Restore) -> Result<Page, Failure> {
    let Location { file, folders } = place(&restore.common.choice.stores()?)?;
    let restored = KnowledgeBase::restore(&file, &restore.file).await.map_err(|error| {
        folders.remove();
        failure(&error)
    })?;
    let Restored { counts, kept } = &restored;
    let mut text = format!("the base is that of {}: {}\n", shown_path(&restore.file), described(counts));
    if let Some(kept) = kept {
        text.push_str(&format!("the earlier one is {}\n", shown_path(kept)));
    }
    Ok(Page { done: Some("the base is restored".to_owned()), ..Page::new(text, json!(restored)) })
}

fn page(what: &str, moved: &Transferred, counts: &Counts) -> Page {
    let Transferred { entities, documents, passages, facts, contradictions: _, predicates: _ } = *moved;
    let text = format!(
        "{what}: {} with {}, {}, {}{}\n",
        counted(counts.documents, "document"),
        counted(counts.passages, "passage"),
        counted(facts, "fact"),
        counted(entities, "entity"),
        past(documents.saturating_sub(counts.documents), passages.saturating_sub(counts.passages))
    );
    Page::new(text, json!(moved))
}

/// How much of an export is found in the past alone.
fn past(documents: u64, passages: u64) -> String {
    match (documents, passages) {
        (0, 0) => String::new(),
        (0, passages) => format!("; and of the past {}", counted(passages, "passage")),
        (documents, passages) => {
            format!("; and of the past {} and {}", counted(documents, "document"), counted(passages, "passage"))
        }
    }
}
