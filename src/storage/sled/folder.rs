//! A store's folder: who may open it, and whether what lies in it is what was left there.
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked while a process has the store open; holds its process id |
//! | `format` | version of everything else |
//! | `db`, `conf`, `snap.*`, `blobs/` | sled's |
//! | `payloads/` | payloads too long for sled |
//! | `synced` | the number of the last sync and how long `db` was then |
//!
//! sled takes a log that ends early for one that was cut by a crash and goes on from there. `synced` tells the two apart:
//! it is written after each sync, so a `db` that holds less than it says has lost acknowledged writes. That is looked for
//! before sled opens the log (`log_check`), because sled overwrites what follows the place where it stops to read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::disk::{Disk, sync_folder};
use super::log_check;
use crate::storage::StorageError;

/// The version of the folder that this program writes, and the newest it reads.
const FORMAT: u32 = 1;
const FORMAT_NAME: &str = "callboard store, format ";

/// sled writes the log in pieces of this many bytes. Its default is 512 KiB; with that, a page with a few long records
/// would go to a file in `blobs/` that sled never syncs. From a quarter of this on it would.
pub(super) const SEGMENT: usize = 8 << 20;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    synced: File,
}

/// Keeps other processes out until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// What `synced` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Synced {
    pub(super) sync: u64,
    pub(super) db_length: u64,
}

impl Folder {
    /// Takes the folder for this process and checks it, before sled sees it. Changes nothing but `lock` in a folder that it
    /// refuses.
    pub(super) fn open(path: &Path, disk: &dyn Disk) -> Result<(Self, Lock, Synced), StorageError> {
        Self::open_checked(path, disk).map_err(|detail| refused(path, detail))
    }

    fn open_checked(path: &Path, disk: &dyn Disk) -> Result<(Self, Lock, Synced), String> {
        let io = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        if path.as_os_str().is_empty() {
            return Err("an empty path names no folder; write `.` for the current one".to_owned());
        }
        if !path.is_dir() {
            make(path).map_err(io("the folder cannot be made"))?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                sync_folder(disk, parent).map_err(io("the folder's name cannot be synced"))?;
            }
        }
        let lock = lock(path)?;
        let is_new = check_format(path)?;
        let mut synced = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("synced"))
            .map_err(io("the file `synced` cannot be opened"))?;
        let last = read_synced(&mut synced)?;
        check_log(path, last)?;
        remove_unfinished_snapshots(path).map_err(io("an unfinished snapshot cannot be removed"))?;
        if is_new {
            write_format(path, disk).map_err(io("the file `format` cannot be written"))?;
        }
        Ok((Self { path: path.to_owned(), synced }, lock, last))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes a sync that has succeeded. Not synced itself: an older note is still true.
    pub(super) fn note_synced(&mut self, note: Synced) -> io::Result<()> {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&note.sync.to_le_bytes());
        bytes[8..16].copy_from_slice(&note.db_length.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&sum.to_le_bytes());
        self.synced.seek(SeekFrom::Start(0))?;
        self.synced.write_all(&bytes)
    }
}

/// The error of a folder that cannot be opened.
pub(super) fn refused(path: &Path, detail: impl Into<String>) -> StorageError {
    let shown = if path.as_os_str().is_empty() { "\"\"".to_owned() } else { path.display().to_string() };
    StorageError::Open { path: shown, detail: detail.into() }
}

/// Makes a folder that nobody else on the machine may look into: it holds whole conversations.
pub(super) fn make(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

fn lock(path: &Path) -> Result<Lock, String> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path.join("lock"))
        .map_err(|error| format!("the lock file cannot be opened: {error}"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Unreadable on systems where a lock also keeps readers out.
            let _ = file.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                pid => format!("process {pid}"),
            };
            return Err(format!("{holder} has it open; one process at a time can use a store: stop that one first"));
        }
        Err(fs::TryLockError::Error(error)) => return Err(format!("the lock file cannot be locked: {error}")),
    }
    let pid = std::process::id();
    let written = file.set_len(0).and_then(|()| file.write_all(pid.to_string().as_bytes()));
    written.map_err(|error| format!("the lock file cannot be written: {error}"))?;
    Ok(Lock { _file: file })
}

/// Whether the folder is new. Refuses those of newer programs and of others.
fn check_format(path: &Path) -> Result<bool, String> {
    let text = match fs::read_to_string(path.join("format")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if path.join("db").exists() {
                Err("it holds a database that callboard did not make (no file `format`)".to_owned())
            } else {
                Ok(true)
            };
        }
        Err(error) => return Err(format!("the file `format` cannot be read: {error}")),
    };
    match text.trim_end().strip_prefix(FORMAT_NAME).and_then(|version| version.parse::<u32>().ok()) {
        Some(FORMAT) => Ok(false),
        Some(newer) if newer > FORMAT => Err(format!(
            "it was written by a newer version of callboard (format {newer}; this one reads {FORMAT}): use that version, \
             or export the store with it"
        )),
        Some(_) | None => Err("its file `format` is damaged".to_owned()),
    }
}

fn write_format(path: &Path, disk: &dyn Disk) -> io::Result<()> {
    let (file_path, unfinished) = (path.join("format"), path.join("format.unfinished"));
    let mut file = File::create(&unfinished)?;
    writeln!(file, "{FORMAT_NAME}{FORMAT}")?;
    disk.sync(&file, &file_path)?;
    fs::rename(&unfinished, &file_path)?;
    sync_folder(disk, path)
}

/// A note that is not there, or that a power cut has damaged, says nothing.
fn read_synced(file: &mut File) -> Result<Synced, String> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| format!("the file `synced` cannot be read: {error}"))?;
    let u64_at = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or_default();
    let whole = bytes.len() == 20 && crc32fast::hash(&bytes[..16]).to_le_bytes() == bytes[16..];
    Ok(if whole { Synced { sync: u64_at(0), db_length: u64_at(8) } } else { Synced::default() })
}

/// Whether the log holds what was synced. sled itself only ever shortens `db` to whole segments.
fn check_log(path: &Path, last: Synced) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("the file `db` cannot be read: {error}");
    let length = match fs::metadata(path.join("db")) {
        Ok(file) => Some(file.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unreadable(error)),
    };
    let is_cut = |length: u64| length < last.db_length && (length == 0 || !length.is_multiple_of(SEGMENT as u64));
    let damage = match length {
        None if last.db_length > 0 => format!("is missing: it had {} bytes", last.db_length),
        Some(length) if is_cut(length) => format!("is truncated: it has {length} bytes and had {}", last.db_length),
        Some(_) | None if log_check::reaches(path, last.sync).map_err(unreadable)? => return Ok(()),
        Some(_) | None => format!("is damaged: what was synced last (sync {}) cannot be reached", last.sync),
    };
    Err(format!(
        "the file `db` {damage}; only the file `lock` was written: restore the folder from a copy, or import an export into \
         a new one"
    ))
}

/// A crash while sled writes a snapshot leaves one half written, which sled would then refuse to read.
fn remove_unfinished_snapshots(path: &Path) -> io::Result<()> {
    for file in fs::read_dir(path)? {
        let file = file?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}
