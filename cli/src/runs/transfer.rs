//! `callboard runs export|import`. The file or the store gets its name once it is complete: a process that is killed leaves no partial
//! export and no partial store.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use callboard::env::Env;
use callboard::storage::{Transfer, TransferError};
use callboard_knowledge::store::{Counts, WholeExport};

use crate::atomic_file::AtomicFile;
use crate::exit::Exit;
use crate::knowledge::stored;
use crate::page::{Failure, Page, count, shown_path};
use crate::run_names::is_of_run;
use crate::stores::Stores;
use crate::stores::open::LAST;
use crate::stores::project::{Project, number_of};
use crate::stores::store::{self, Store};
use crate::values::{open_file, open_given, reason};

use super::duplicates;

/// Exports the only store, to standard output if no file is named; several stores are an error.
pub(crate) async fn export(stores: &Stores, file: Option<&Path>) -> Result<Page, Failure> {
    if let Some(run) = file.and_then(named_run) {
        return Err(Failure::usage(format!(
            "`runs export` writes a whole store, and {run} names a run: name a FILE, or leave it out for standard output; \
             a file of that name is ./{run}"
        )));
    }
    let store = only(stores).await?;
    let shared = store.storage();
    let Some(file) = file else {
        stored::export(stores, BufWriter::new(io::stdout())).await?;
        Transfer::export(&*shared, &mut io::stdout()).await.map_err(trouble)?;
        return Ok(Page::new(String::new(), json!(null)));
    };
    let cannot = |error: io::Error| {
        Failure::file(&error, format!("the export cannot be written to {}: {}", shown_path(file), reason(&error)))
    };
    if fs::symlink_metadata(file).is_ok() {
        return Err(cannot(io::ErrorKind::AlreadyExists.into()));
    }
    let mut target = AtomicFile::create(parent(file)).map_err(cannot)?;
    let to = BufWriter::new(target.file().try_clone().map_err(cannot)?);
    let facts = stored::export(stores, to).await?;
    let mut out = BufWriter::new(target.file());
    let moved = Transfer::export(&*shared, &mut out).await.map_err(trouble)?;
    out.flush().map_err(cannot)?;
    drop(out);
    target.persist(file).map_err(cannot)?;
    Ok(page("exported", &moved, facts))
}

/// Copies the only store into a folder, while other processes use it. The copy has each run up to an event.
pub(crate) async fn backup(stores: &Stores, folder: &Path) -> Result<Page, Failure> {
    store::check_may_have_store(folder)?;
    if store::is_there(folder).unwrap_or(true) || stored::is_there(folder) {
        let text = format!("{} has a store: name a folder that is empty, or does not exist", shown_path(folder));
        return Err(Failure::usage(text));
    }
    let (from, into) = (only(stores).await?, Stores::Named(folder.to_owned()));
    let target = Target::new(&into)?;
    let copy = Store::open_or_make(target.folder()).map_err(|error| store::not_opened(target.folder(), &error))?;
    let moved = Transfer::copy(&*from.storage(), &*copy.storage(), Env::system().now().wall).await.map_err(trouble)?;
    copy.note_open_runs().await?;
    copy.close().await?;
    drop(copy);
    let facts = stored::copy_into(stores, target.folder()).await?;
    target.keep().await?;
    Ok(Page { done: Some("the backup is complete".to_owned()), ..page("copied", &moved, facts) })
}

/// Imports into the store that is named, or into a new one of the project. Runs and conversations that a store of the project has
/// already are refused, unless they are imported `again` and are the same.
pub(crate) async fn import(stores: &Stores, file: &Path, again: bool) -> Result<Page, Failure> {
    let shown_file = if file == Path::new("-") { "standard input".to_owned() } else { shown_path(file) };
    let refused = |exit, why: String| Failure::new(exit, format!("{shown_file}: {why}; nothing is imported"));
    let opened: Box<dyn io::Read + Send> = if file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(open_given(file).map_err(|error| refused(Exit::of_file(&error), reason(&error)))?)
    };
    if let Stores::Named(folder) = stores {
        store::check_may_have_store(folder)?;
    }
    let target = Target::new(stores)?;
    let (facts, mut opened) = stored::split(opened, target.folder()).map_err(|failure| {
        // It names the line, and that nothing is imported.
        Failure::new(failure.exit(), format!("{shown_file}: {}", failure.text()))
    })?;
    let store = Store::open_or_make(target.folder()).map_err(|error| store::not_opened(target.folder(), &error))?;
    let shared = store.storage();
    let moved = Transfer::import(&mut opened, &*shared, Env::system().now().wall).await;
    let before = facts.as_ref().map_or(0, WholeExport::lines);
    let moved = moved.map_err(|error| match error {
        TransferError::Text(error) => refused(Exit::of_file(&error), reason(&error)),
        TransferError::Line { .. } if before > 0 => {
            refused(Exit::from(&error), format!("{error} (counted after the {before} lines of the base of facts)"))
        }
        error => refused(Exit::from(&error), error.to_string()),
    });
    let additions = stores.project().map(|project| project.lock_additions().map(|lock| (project, lock))).transpose();
    let additions =
        additions.map_err(|error| Failure::file(&error, format!("the project's folder cannot be locked: {error}")))?;
    let checked = match (&moved, &additions) {
        (Ok(_), Some((project, _))) => duplicates::check(&store, &project.open_to_read()?, again).await,
        _ => Ok(()),
    };
    let conversations = store.conversations().list().await.map_err(Failure::of);
    let closed = store.close().await;
    drop((shared, store));
    let (moved, (), ()) = (moved?, checked?, closed?);
    let facts = match facts {
        Some(facts) if target.is_new() => {
            Some(stored::import(&Stores::Named(target.folder().to_owned()), facts).await?)
        }
        Some(facts) => Some(stored::import(stores, facts).await?),
        None => None,
    };
    let folder = target.keep().await?;
    if let (Some((project, _)), Some(number)) = (&additions, number_of(&folder)) {
        for conversation in conversations? {
            project.placement(&conversation.id).replace(number)?;
        }
    }
    Ok(Page { done: Some("the import is in the store".to_owned()), ..page("imported", &moved, facts) })
}

/// The text of an argument that names a run where commands take one.
fn named_run(file: &Path) -> Option<&str> {
    file.to_str().filter(|name| *name == LAST || is_of_run(name))
}

/// The store that an import is written to: a temporary folder that is moved or copied to its destination when the import is complete.
struct Target<'a> {
    made: TempDir,
    place: Destination<'a>,
}

/// Where a complete import is put.
enum Destination<'a> {
    /// A folder that does not exist yet.
    Named(&'a Path),
    /// An existing folder, which is filled by a copy after the whole text was read and checked.
    Beside(&'a Path),
    /// The next numbered store of the project.
    Project(&'a Project),
}

/// The prefix of the names of temporary folders for imports.
const UNFINISHED: &str = ".import-";

impl<'a> Target<'a> {
    fn new(stores: &'a Stores) -> Result<Self, Failure> {
        let (beside, place) = match stores {
            Stores::Named(folder) if folder.exists() => (parent(folder), Destination::Beside(folder)),
            Stores::Named(folder) => (parent(folder), Destination::Named(folder)),
            Stores::Project(project) => (stores.folder(), Destination::Project(project)),
            Stores::Database(database) => {
                return Err(database.refuse("importing", "restore a dump of it with pg_restore"));
            }
        };
        let cannot = |error: io::Error| Failure::file(&error, format!("{}: {error}", shown_path(beside)));
        store::make_folder(beside).map_err(cannot)?;
        remove_orphaned(beside);
        let temporary = |folder: &Path| tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(folder);
        let made = match (temporary(beside), &place) {
            // What is copied may be anywhere, and this user may write to the folder alone.
            (Err(_), Destination::Beside(_)) => temporary(&std::env::temp_dir()),
            (made, _) => made,
        };
        Ok(Self { made: made.map_err(cannot)?, place })
    }

    /// Whether the folder itself becomes the destination, with all that is in it.
    fn is_new(&self) -> bool {
        match self.place {
            Destination::Named(_) => true,
            Destination::Beside(_) | Destination::Project(_) => false,
        }
    }

    fn folder(&self) -> &Path {
        self.made.path()
    }

    /// Moves or copies it to its destination, and returns that folder.
    async fn keep(self) -> Result<PathBuf, Failure> {
        let Self { made, place } = self;
        let kept: io::Result<PathBuf> = match place {
            Destination::Named(folder) => fs::rename(made.path(), folder).map(|()| folder.to_owned()),
            Destination::Beside(folder) => return copy(made.path(), folder).await,
            Destination::Project(project) => project.adopt(made.path()),
        };
        let synced = kept.and_then(|folder| File::open(parent(&folder))?.sync_all().map(|()| folder));
        synced.map_err(|error| Failure::file(&error, format!("the import cannot be moved to its folder: {error}")))
    }
}

/// Copies all records and values of a store into an empty one.
async fn copy(from: &Path, to: &Path) -> Result<PathBuf, Failure> {
    let open = |folder: &Path| Store::open_or_make(folder).map_err(|error| store::not_opened(folder, &error));
    let (from, to_store) = (open(from)?, open(to)?);
    Transfer::copy(&*from.storage(), &*to_store.storage(), Env::system().now().wall).await.map_err(trouble)?;
    to_store.close().await?;
    stored::copy_between(from.place(), to).await?;
    Ok(to.to_owned())
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes temporary folders of imports that were killed. An import that runs holds the lock of its store.
fn remove_orphaned(beside: &Path) {
    let folders = fs::read_dir(beside).into_iter().flatten().flatten();
    let unfinished = folders.filter(|folder| folder.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()));
    for folder in unfinished.map(|folder| folder.path()) {
        if open_file(&folder.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

async fn only(stores: &Stores) -> Result<Store, Failure> {
    let open = stores.open().await?;
    let folders: Vec<String> = open.stores.iter().map(|store| shown_path(store.place())).collect();
    let notes = open.notes();
    let mut found = open.stores.into_iter();
    match (found.next(), found.next(), open.closed.as_slice()) {
        (Some(only), None, []) => Ok(only),
        (None, _, []) => Err(Failure::not_found("there is no store".to_owned())),
        (None, _, [closed]) => Err(Failure::new(closed.exit(), "the store cannot be read".to_owned()).with(&notes)),
        (_, _, closed) => {
            let closed = closed.iter().map(|closed| shown_path(closed.folder()));
            let all: Vec<String> = folders.into_iter().chain(closed).collect();
            Err(Failure::usage(format!("there are several stores: name one with --store: {}", all.join(", ")))
                .with(&notes))
        }
    }
}

fn page(what: &str, moved: &Transfer, facts: Option<Counts>) -> Page {
    let Transfer { records, values } = moved;
    let text = format!("{what}: {}, {}\n", count(records_of(*records), "record"), count(records_of(*values), "value"));
    stored::with_base(Page::new(text, json!({ "records": records, "values": values })), what, facts)
}

fn records_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn trouble(error: TransferError) -> Failure {
    let exit = Exit::from(&error);
    let text = match error {
        TransferError::Text(error) => format!("the export cannot be written: {}", reason(&error)),
        error => error.to_string(),
    };
    Failure::new(exit, text)
}
