//! How the files of a folder come into a base: read one after the other, and written in batches.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::documents::{FileError, FileFound, LeftOut, ReadLimits, files, read_document};
use crate::store::{KnowledgeBase, KnowledgeError, NewDocument, SUMMARY, Trust, Written};

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
    /// How many of the documents are of files that are hidden or ignored: they were in the base already.
    #[serde(default)]
    pub ignored: usize,
    /// Documents that are untrusted because they were so before ([`Trust::AsBefore`]).
    #[serde(default)]
    pub kept_untrusted: usize,
    /// Files that are not in the base or only in part, by the names that their documents have or would have, with the reasons: the first 1,000.
    pub left_out: Vec<(String, String)>,
    /// How many these are in all.
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

/// Indexes the files of a folder as documents whose paths begin with `name`, the folder's own name in the base (empty, `/`, or without a slash at
/// its end). What is in the base already and has not changed stays as it is, so an indexing that was interrupted continues where it is called
/// again. Documents below `name` whose files are gone end; one whose file is hidden or ignored, because it was named or is ignored since, is
/// read again. `progress` is called after each batch.
///
/// # Errors
/// The folder cannot be read, or the base cannot be changed. A file that cannot be read is left out, with the reason.
pub async fn index_folder(
    base: &KnowledgeBase,
    namespace: &str,
    folder: &Path,
    name: &str,
    trust: Trust,
    mut progress: impl FnMut(&Indexed),
) -> Result<Indexed, IndexError> {
    let mut reading = FolderReading::new(name, trust);
    match trust {
        Trust::AsBefore => {}
        Trust::Untrusted | Trust::Trusted => {
            base.set_trust_of_folder(namespace, &reading.below, trust == Trust::Untrusted).await?;
        }
    }
    for found in files(folder) {
        if reading.take(found)? {
            reading.write(base, namespace).await?;
            progress(&reading.indexed);
        }
    }
    let found = reading.there.len();
    let mut others = base.documents_below(namespace, &reading.below).await?;
    others.retain(|path| !reading.has(path));
    for path in others {
        let Some(found) = FileFound::below(folder, &path[reading.below.len()..]).transpose() else { continue };
        if reading.take(found)? {
            reading.write(base, namespace).await?;
            progress(&reading.indexed);
        }
    }
    reading.write(base, namespace).await?;
    reading.indexed.ignored = reading.there.len() - found;
    let FolderReading { below, mut indexed, there, unread, .. } = reading;
    let keep = move |path: &str| there.contains(path) || is_below(path, &unread);
    indexed.written.ended += base.end_documents_below(namespace, &below, keep).await?.passages;
    progress(&indexed);
    Ok(indexed)
}

/// With what the paths of documents of a folder begin.
pub(crate) fn below(name: &str) -> String {
    if name.is_empty() { String::new() } else { of_file(format!("{}/", name.trim_end_matches('/'))) }
}

fn is_below(path: &str, folders: &[String]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder.as_str()))
}

/// The files of a folder, as far as they are read.
struct FolderReading {
    below: String,
    trust: Trust,
    limits: ReadLimits,
    indexed: Indexed,
    batch: Vec<NewDocument>,
    bytes: u64,
    /// Documents whose files are there, and those whose files are there and no documents any more.
    there: HashSet<String>,
    left: HashSet<String>,
    /// Published sites, whose pages are no documents any more.
    sites: Vec<String>,
    /// Files and folders of which it is not known.
    unread: Vec<String>,
}

impl FolderReading {
    fn new(name: &str, trust: Trust) -> Self {
        Self {
            below: below(name),
            trust,
            limits: ReadLimits::default(),
            indexed: Indexed::default(),
            batch: Vec::new(),
            bytes: 0,
            there: HashSet::new(),
            left: HashSet::new(),
            sites: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Reads what was found. Returns whether there is a batch to write.
    fn take(&mut self, found: Result<FileFound, FileError>) -> Result<bool, IndexError> {
        match read(found, &self.below, &self.limits) {
            Ok((document, size, left_out)) => {
                left_out.iter().for_each(|why| self.indexed.leave_out(&document.path, why));
                self.there.insert(document.path.clone());
                self.bytes += size;
                self.batch.push(document);
            }
            Err(error @ FileError::Folder { .. }) => return Err(error.into()),
            Err(error) => {
                let is_of_folder = matches!(error, FileError::IgnoreFile { .. });
                let is_unread = is_of_folder || matches!(error, FileError::Unreadable { .. });
                let is_site = matches!(error, FileError::Site { .. });
                let (path, why) = error.into_parts();
                let mut path = of_file(format!("{}{path}", self.below));
                self.indexed.leave_out(&path, &why);
                if is_unread {
                    if is_of_folder {
                        path.truncate(path.rfind('/').map_or(0, |slash| slash + 1));
                    }
                    self.unread.push(path);
                } else if is_site {
                    self.sites.push(path + "/");
                } else {
                    // No document has a name that is not UTF-8.
                    self.left.insert(path);
                }
            }
        }
        Ok(self.batch.len() == BATCH || self.bytes >= BATCH_BYTES)
    }

    async fn write(&mut self, base: &KnowledgeBase, namespace: &str) -> Result<(), KnowledgeError> {
        self.bytes = 0;
        write(base, namespace, std::mem::take(&mut self.batch), self.trust, &mut self.indexed).await
    }

    /// Whether it has come to the file of a document.
    fn has(&self, path: &str) -> bool {
        self.there.contains(path)
            || self.left.contains(path)
            || is_below(path, &self.sites)
            || is_below(path, &self.unread)
    }
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
    trust: Trust,
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
            write(base, namespace, vec![NewDocument::of(document, false)], trust, &mut indexed).await?;
        }
        Err(FileError::LeftOut { why, .. }) => {
            indexed.leave_out(name, &why);
            let own = name.to_owned();
            let ended = base.end_documents_below(namespace, name, move |path| path != own).await?;
            indexed.written.ended += ended.passages;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(indexed)
}

/// How many of the files of a folder differ from what the base has of them, because they have changed, are new or are gone; of a file, 1 or 0.
///
/// # Errors
/// The folder or the base cannot be read.
pub async fn differing(base: &KnowledgeBase, namespace: &str, path: &Path, name: &str) -> Result<usize, IndexError> {
    if path.is_file() {
        let name = &*of_file(name.to_owned());
        let limits = ReadLimits::default();
        let bytes = FileFound::named(path)?.read(&limits);
        let now = bytes.ok().and_then(|bytes| read_document(name, &bytes, &limits).ok());
        let known = base.hashes_below(namespace, name).await?;
        return Ok(usize::from(known.get(name).map(Vec::as_slice) != now.as_ref().map(|document| &document.hash[..])));
    }
    let mut reading = FolderReading::new(name, Trust::AsBefore);
    let mut known = base.hashes_below(namespace, &reading.below).await?;
    let others: Vec<String> = known.keys().cloned().collect();
    let mut differing = 0;
    let mut compare = |reading: &mut FolderReading, found| {
        reading.take(found)?;
        for NewDocument { path, hash, .. } in reading.batch.drain(..) {
            differing += usize::from(known.remove(&path).is_none_or(|known| known != hash));
        }
        Ok::<_, IndexError>(())
    };
    for found in files(path) {
        compare(&mut reading, found)?;
    }
    for other in others {
        if reading.has(&other) {
            continue;
        }
        let Some(found) = FileFound::below(path, &other[reading.below.len()..]).transpose() else { continue };
        compare(&mut reading, found)?;
    }
    Ok(differing + known.keys().filter(|path| !is_below(path, &reading.unread)).count())
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
pub(crate) fn of_file(path: String) -> String {
    if path.starts_with(SUMMARY) { format!("./{path}") } else { path }
}

async fn write(
    base: &KnowledgeBase,
    namespace: &str,
    batch: Vec<NewDocument>,
    trust: Trust,
    indexed: &mut Indexed,
) -> Result<(), KnowledgeError> {
    if batch.is_empty() {
        return Ok(());
    }
    indexed.documents += batch.len();
    let (written, kept_untrusted) = base.write_files(namespace, batch, trust).await?;
    indexed.written += written;
    indexed.kept_untrusted += kept_untrusted;
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
