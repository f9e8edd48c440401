//! The file of a project's base of facts.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard::env::Env;
use callboard_knowledge::facts::{Fact, FactId};
use callboard_knowledge::{KnowledgeBase, KnowledgeError};
use callboard_private::{Folder, FolderError};
use tokio::time::timeout;

use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, brief, shown_path};
use crate::quote::quoted_path;
use crate::stores::Stores;
use crate::stores::project::facts_in;
use crate::values::reason;

/// The file, beside the stores of the project, so that programs of agents cannot reach it.
pub(super) fn file(stores: &Stores) -> PathBuf {
    facts_in(&stores.server_folder())
}

/// Opens the base, which has to exist, for a command that changes it.
pub(super) async fn open(stores: &Stores) -> Result<KnowledgeBase, Failure> {
    open_by(stores, KnowledgeBase::open).await
}

/// Opens the base, which has to exist, for a command that reads it.
pub(super) async fn open_to_read(stores: &Stores) -> Result<KnowledgeBase, Failure> {
    open_by(stores, KnowledgeBase::open_to_read).await
}

/// As [`open_to_read`], also if its schema is not that of a base, which the check of the base reports.
pub(super) async fn open_to_check(stores: &Stores) -> Result<KnowledgeBase, Failure> {
    open_by(stores, KnowledgeBase::open_to_check).await
}

/// Opens the base, if the project has one.
pub(crate) fn open_if_there(stores: &Stores) -> Result<Option<KnowledgeBase>, Failure> {
    opened(stores, KnowledgeBase::open)
}

/// As [`open_to_read`], if the project has a base.
pub(super) fn open_to_read_if_there(stores: &Stores) -> Result<Option<KnowledgeBase>, Failure> {
    opened(stores, KnowledgeBase::open_to_read)
}

type Open = fn(&Path, &Env) -> Result<KnowledgeBase, KnowledgeError>;

async fn open_by(stores: &Stores, open: Open) -> Result<KnowledgeBase, Failure> {
    match opened(stores, open)? {
        Some(base) => Ok(base),
        None => {
            let hint = match stores.hint().await {
                Some(hint) => Some(hint),
                None => around(stores),
            };
            Err(missing(stores).with(&hint.unwrap_or_default()))
        }
    }
}

fn opened(stores: &Stores, open: Open) -> Result<Option<KnowledgeBase>, Failure> {
    match open(&file(stores), &Env::system()) {
        Ok(base) => Ok(Some(base)),
        Err(KnowledgeError::Missing { .. }) => Ok(None),
        Err(error) => Err(failure_of(stores, &error)),
    }
}

/// A base that a command changes.
pub(super) struct Created {
    pub(super) base: KnowledgeBase,
    /// What the command has made for it, if it has made the base.
    pub(super) new: Option<NewFolders>,
}

/// Opens the base, and makes one where there is none.
pub(super) fn create(stores: &Stores) -> Result<Created, Failure> {
    create_at(place(stores)?, stores)
}

/// As [`create`], in a folder that exists.
pub(super) fn create_at(Location { file, folders }: Location, stores: &Stores) -> Result<Created, Failure> {
    let is_new = std::fs::symlink_metadata(&file).is_err();
    match KnowledgeBase::create(&file, &Env::system()) {
        Ok(base) => Ok(Created { base, new: is_new.then_some(folders) }),
        Err(error) => {
            folders.remove();
            Err(failure_of(stores, &error))
        }
    }
}

/// The folders that a command has made, the innermost first.
#[derive(Default)]
pub(super) struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Removes those that are empty.
    pub(super) fn remove(self) {
        // What cannot be removed is a folder that somebody uses.
        let _ = self.0.iter().try_for_each(std::fs::remove_dir);
    }
}

/// How long the base may take to close.
const CLOSED_SOON: Duration = Duration::from_secs(5);

/// As [`end`], after a board used the base: a task of it that still has a clone would hold the writer, and nothing is lost without its end.
pub(super) async fn end_after_board(base: KnowledgeBase, unused: Option<NewFolders>) {
    let _ = timeout(CLOSED_SOON, end(base, unused)).await;
}

/// Closes the base, of which there is no clone. One that the command has made and not used is removed, if nothing else has it open.
pub(super) async fn end(base: KnowledgeBase, unused: Option<NewFolders>) {
    match unused {
        Some(folders) => {
            // What cannot be removed is a base without facts.
            let _ = base.remove_if_empty().await;
            folders.remove();
        }
        None => base.close().await,
    }
}

/// Where the base is or will be, in a folder that exists.
pub(super) struct Location {
    pub(super) file: PathBuf,
    pub(super) folders: NewFolders,
}

/// Where the base of these stores is or will be; its folder is made if it is missing.
pub(super) fn place(stores: &Stores) -> Result<Location, Failure> {
    let file = file(stores);
    let folders = create_folder_of(&file)?;
    Ok(Location { file, folders })
}

/// Creates the folder of a base, with those around it that are missing.
pub(super) fn create_folder_of(file: &Path) -> Result<NewFolders, Failure> {
    let folder = file.parent().unwrap_or(file);
    let is_missing = |folder: &&Path| matches!(folder.try_exists(), Ok(false)) && !folder.as_os_str().is_empty();
    let folders = NewFolders(folder.ancestors().take_while(is_missing).map(Path::to_owned).collect());
    match Folder::create(folder) {
        Ok(_) => Ok(folders),
        Err(FolderError::Io { path, error }) => {
            Err(Failure::file(&error, format!("the folder of facts: {}: {}", shown_path(&path), why(&error))))
        }
        Err(error) => Err(Failure::failed(format!("the folder of facts: {error}"))),
    }
}

/// What is said of a base that a command has made, if the project had one before it was moved, or a folder around it has one.
pub(super) fn beside_new(stores: &Stores) -> String {
    let before = match stores {
        Stores::Named(_) | Stores::Database(_) => None,
        Stores::Project(project) => project.facts_before(),
    };
    let before = before.map(|(root, file)| {
        let line = command_line(&format!("kb restore {}", quoted_path(&file)), None);
        format!(
            "this project was at {} before, and its base of facts is still there; to have that in place of this new one, which is then kept \
             beside: {line}",
            shown_path(&root)
        )
    });
    before.or_else(|| around(stores)).map(|hint| format!("{hint}\n")).unwrap_or_default()
}

/// The base of a folder around the project, with the option that chooses it.
fn around(stores: &Stores) -> Option<String> {
    let Stores::Project(project) = stores else { return None };
    let (root, store) = project.facts_around()?;
    let line = command_line("kb COMMAND", Some(&store));
    Some(format!("the folder around this one, {}, has a base of facts; to use that: {line}", shown_path(&root)))
}

fn missing(stores: &Stores) -> Failure {
    let (file, line) = (shown_path(&file(stores)), command_line("kb init PATH", stores.named()));
    Failure::not_found(format!("there is no base of facts at {file}; `{line}` makes one of the files in PATH"))
}

/// The failure that an error of the base of these stores is, with its file and the command that helps.
pub(super) fn failure_of(stores: &Stores, error: &KnowledgeError) -> Failure {
    let (file, line) = (shown_path(&file(stores)), |command| command_line(command, stores.named()));
    match error {
        KnowledgeError::Missing { .. } => missing(stores),
        KnowledgeError::Damaged { .. } | KnowledgeError::NotABase => {
            let what = match error {
                KnowledgeError::Damaged { cause } => format!("is damaged ({cause})"),
                _ => "is not a base of facts".to_owned(),
            };
            Failure::failed(format!(
                "{file} {what}; `{}` puts a backup in its place, and keeps it beside",
                line("kb restore FILE")
            ))
        }
        KnowledgeError::Full | KnowledgeError::ReadOnly => failure(error).with(&format!("the base is {file}")),
        error => failure(error),
    }
}

/// Why a file or its folder cannot be used.
pub(super) fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        _ => reason(error),
    }
}

/// The failure that an error of the base is.
pub(super) fn failure(error: &KnowledgeError) -> Failure {
    let exit = match error {
        KnowledgeError::Missing { .. } | KnowledgeError::NoSuchFact { .. } => Exit::NotFound,
        KnowledgeError::Fact(_) => Exit::Usage,
        KnowledgeError::ReadOnly => Exit::Denied,
        KnowledgeError::Busy
        | KnowledgeError::InUse { .. }
        | KnowledgeError::Replaced { .. }
        | KnowledgeError::Closed
        | KnowledgeError::Failed { .. }
        | KnowledgeError::DamagedIndex => Exit::Unavailable,
        KnowledgeError::Io { error, path } => {
            return Failure::file(error, format!("{}: {}", shown_path(path), why(error)));
        }
        KnowledgeError::Text(error) => {
            return Failure::file(error, format!("the export cannot be written: {}", why(error)));
        }
        KnowledgeError::Export { .. } | KnowledgeError::NotEmpty | KnowledgeError::Backup { .. } => Exit::Usage,
        KnowledgeError::NotABase
        | KnowledgeError::TooNew { .. }
        | KnowledgeError::Damaged { .. }
        | KnowledgeError::Full
        | KnowledgeError::Changed { .. }
        | KnowledgeError::Unchanged { .. }
        | KnowledgeError::NotDisputed { .. }
        | KnowledgeError::PreviewChanged { .. }
        | KnowledgeError::Contradicts(_)
        | KnowledgeError::OtherParts { .. }
        | KnowledgeError::Predicate { .. }
        | KnowledgeError::SeveralValues { .. }
        | KnowledgeError::Sqlite(_)
        | KnowledgeError::Unreadable(_) => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

/// The fact that a command line names: by its id, by as much of it as no other fact has, or by its statement.
pub(super) async fn named(base: &KnowledgeBase, namespace: &str, text: &str) -> Result<Fact, Failure> {
    let found = base.facts_named(namespace, text).await.map_err(|error| failure(&error))?;
    match <[Fact; 1]>::try_from(found) {
        Ok([fact]) => Ok(fact),
        Err(none) if none.is_empty() => {
            let name = brief(text, 60);
            Err(Failure::not_found(format!(
                "there is no fact {name:?}: name it by its statement, or by its id, as `callboard kb query` prints it"
            )))
        }
        Err(several) => {
            let each = several.iter().map(|fact| format!("\n  {}  {}", fact.id, brief(&fact.statement, 80)));
            Err(Failure::usage(format!("several facts begin so: write more of the id{}", each.collect::<String>())))
        }
    }
}

/// The beginning of an id, which is enough in a command line.
pub(super) fn short(id: FactId) -> String {
    id.to_string().chars().take("fact-".len() + SHORT).collect()
}

/// How many digits of an id are shown.
const SHORT: usize = 10;
