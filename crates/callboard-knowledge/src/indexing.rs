//! How the files of a folder come into a base: read one after the other, and written in batches.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::documents::{FileError, FileFound, LeftOut, ReadLimits, files, read_document};
use crate::store::{KnowledgeBase, KnowledgeError, NewDocument, SUMMARY, Written};

/// The most documents of a batch, and the most bytes of their files: what is in memory at once.
const BATCH: usize = 64;
const BATCH_BYTES: u64 = 4 << 20;

/// How many files with reasons are named; others are counted.
const NAMED: usize = 1_000;

/// What was indexed so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indexed {
    /// Documents that are in the base.
    pub documents: usize,
    /// What of them has changed.
    pub written: Written,
    /// Files that are not in the base or only in part, with the reasons.
    pub left_out: Vec<(String, String)>,
    /// How many these are.
    pub left_out_count: usize,
}

impl Indexed {
    fn leave_out(&mut self, path: &str, why: &dyn std::fmt::Display) {
        self.left_out_count += 1;
        if self.left_out.len() < NAMED {
            self.left_out.push((path.to_owned(), why.to_string()));
        }
    }
}

/// Indexes the files of a folder as documents whose paths begin with `name`, the folder's own name in the base (empty, or without slashes at
/// its ends). What is in the base already and has not changed stays as it is, so an indexing that was interrupted continues where it is called
/// again. Documents below `name` whose files are gone end. `progress` is called after each batch.
///
/// # Errors
/// The folder cannot be read, or the base cannot be changed. A file that cannot be read is left out, with the reason.
pub async fn index_folder(
    base: &KnowledgeBase,
    namespace: &str,
    folder: &Path,
    name: &str,
    is_untrusted: bool,
    mut progress: impl FnMut(&Indexed),
) -> Result<Indexed, IndexError> {
    let limits = ReadLimits::default();
    let mut indexed = Indexed::default();
    let below = if name.is_empty() { String::new() } else { of_file(format!("{name}/")) };
    let (mut batch, mut bytes) = (Vec::new(), 0);
    // Files that are there, and files and folders of which it is not known.
    let (mut there, mut unread) = (HashSet::new(), Vec::new());
    for found in files(folder) {
        match read(found, &below, &limits) {
            Ok((document, size, left_out)) => {
                left_out.iter().for_each(|why| indexed.leave_out(&document.path, why));
                there.insert(document.path.clone());
                bytes += size;
                batch.push(NewDocument { is_untrusted, ..document });
            }
            Err(FileError::Folder { path, source }) => return Err(FileError::Folder { path, source }.into()),
            Err(FileError::LeftOut { path, why }) => indexed.leave_out(&path, &why),
            Err(error) => {
                indexed.leave_out("", &error);
                match error {
                    FileError::Unreadable { path, .. } => unread.push(of_file(format!("{below}{path}"))),
                    FileError::IgnoreFile { .. } => unread.push(below.clone()),
                    // No document has such a name.
                    FileError::NameNotUtf8 { .. } | FileError::Folder { .. } | FileError::LeftOut { .. } => {}
                }
            }
        }
        if batch.len() == BATCH || bytes >= BATCH_BYTES {
            bytes = 0;
            write(base, namespace, std::mem::take(&mut batch), &mut indexed).await?;
            progress(&indexed);
        }
    }
    write(base, namespace, batch, &mut indexed).await?;
    let keep = move |path: &str| there.contains(path) || unread.iter().any(|unread| path.starts_with(unread.as_str()));
    indexed.written.ended += base.end_documents_below(namespace, &below, keep).await?;
    progress(&indexed);
    Ok(indexed)
}

/// Indexes a file as the document `name`. The files that `.gitignore` names and hidden files are read too: this one was named.
///
/// # Errors
/// As for [`index_folder`], and the file cannot be read. What it has that is no text is left out, with the reason; then the document ends.
pub async fn index_file(
    base: &KnowledgeBase,
    namespace: &str,
    file: &Path,
    name: &str,
    is_untrusted: bool,
) -> Result<Indexed, IndexError> {
    let limits = ReadLimits::default();
    let mut indexed = Indexed::default();
    let name = &*of_file(name.to_owned());
    let read = FileFound::named(file).and_then(|found| {
        let bytes = found.read(&limits)?;
        let path = found.path;
        read_document(name, &bytes, &limits).map_err(|why| FileError::LeftOut { path, why })
    });
    match read {
        Ok(mut document) => {
            std::mem::take(&mut document.leaves_out).iter().for_each(|why| indexed.leave_out(name, why));
            let document = NewDocument { is_untrusted, ..NewDocument::of(document, false) };
            write(base, namespace, vec![document], &mut indexed).await?;
        }
        Err(FileError::LeftOut { why, .. }) => {
            indexed.leave_out(name, &why);
            let own = name.to_owned();
            indexed.written.ended += base.end_documents_below(namespace, name, move |path| path != own).await?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(indexed)
}

fn read(
    found: Result<FileFound, FileError>,
    below: &str,
    limits: &ReadLimits,
) -> Result<(NewDocument, u64, Vec<LeftOut>), FileError> {
    let found = found?;
    let bytes = found.read(limits)?;
    match read_document(&of_file(format!("{below}{}", found.path)), &bytes, limits) {
        Ok(mut document) => {
            let left_out = std::mem::take(&mut document.leaves_out);
            Ok((NewDocument::of(document, false), found.bytes, left_out))
        }
        Err(why) => Err(FileError::LeftOut { path: found.path, why }),
    }
}

/// The path of a file's document: one that is called as what a model writes is not taken for that.
fn of_file(path: String) -> String {
    if path.starts_with(SUMMARY) { format!("./{path}") } else { path }
}

async fn write(
    base: &KnowledgeBase,
    namespace: &str,
    batch: Vec<NewDocument>,
    indexed: &mut Indexed,
) -> Result<(), KnowledgeError> {
    if batch.is_empty() {
        return Ok(());
    }
    indexed.documents += batch.len();
    let Written { added, kept, ended } = base.write_documents(namespace, batch).await?;
    indexed.written.added += added;
    indexed.written.kept += kept;
    indexed.written.ended += ended;
    Ok(())
}

/// Why a folder is not indexed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The folder cannot be read.
    #[error(transparent)]
    Folder(#[from] FileError),
    /// The base cannot be changed.
    #[error(transparent)]
    Base(#[from] KnowledgeError),
}
