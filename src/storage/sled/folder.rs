//! A store's folder: who may open it, and whether what lies in it is what was left there.
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked while a process has the store open; holds its process id |
//! | `format` | version of everything else |
//! | `db`, `conf`, `snap.*`, `blobs/` | sled's |
//! | `wal.N` | the last writes (`write_ahead`) |
//! | `payloads/` | payloads too long for sled |
//! | `synced` | the number of the last sync, that of the last one which `db` has, and how long `db` was then |
//!
//! A log that ends early may have been cut by a crash. `synced` distinguishes that from damage: it is written after each sync, so logs that
//! hold less than it records have lost acknowledged writes. Of sled's log, that is looked for before sled opens it
//! (`log_check`), because sled overwrites what follows the place where it stops to read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_text::visible;

use super::disk::{Disk, sync_folder, write_whole};
use super::log_check;
use super::write_ahead::{Frames, files_in};
use crate::storage::StorageError;

/// What helps if `format` is lost: nothing else is in it. A test does it.
const REWRITE_FORMAT: &str = "if no newer version of callboard has written to it, write the line `callboard store, format 3` into its file `format`";

const REMOVE_LOCK: &str = "if no process has the store open, remove it";
const REMOVE_SYNCED: &str = "remove it, it is made again";

/// What helps against a damaged log.
pub(super) const RESTORE_ADVICE: &str = "restore the folder from a copy, or import an export into a new one";

/// The version of the folder that this program writes, and the newest it reads. In the second one there was no write-ahead log; in the first
/// one, a row had one record.
const FORMAT: u32 = 3;
const FORMAT_NAME: &str = "callboard store, format ";

/// sled writes the log in pieces of this many bytes. Its default is 512 KiB; with that, a page with a few long records
/// would go to a file in `blobs/` that sled never syncs. From a quarter of this on it would.
pub(super) const SEGMENT: usize = 8 << 20;

/// The most bytes that are read of `lock`, `format` and `synced`, which have fewer.
const MAX_SHORT: u64 = 64;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    synced: File,
    last: Synced,
    /// Whether `format` names an older version.
    is_older: bool,
}

/// Keeps other processes out until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// The content of `synced`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Synced {
    sync: u64,
    db_length: u64,
    /// The last sync that `db` has.
    in_db: u64,
}

/// How long `synced` is, and was before there was a write-ahead log.
const SYNCED: usize = 28;
const OLD_SYNCED: usize = 20;

impl Folder {
    /// Takes the folder for this process and checks it, before sled sees it. Changes nothing but `lock` in a folder that it
    /// refuses.
    pub(super) fn open(path: &Path, disk: &dyn Disk) -> Result<(Self, Lock, Frames), StorageError> {
        let refuse = |detail: String| refused(path, detail);
        Self::make(path, disk).map_err(refuse)?;
        check_kinds(path).map_err(refuse)?;
        check_owner(path).map_err(refuse)?;
        let lock = match lock(path, is_gone, || std::thread::sleep(LOOK_AGAIN)).map_err(refuse)? {
            Ok(lock) => lock,
            Err(holder) => return Err(StorageError::InUse { path: path.display().to_string(), holder }),
        };
        let (folder, frames) = Self::check(path, disk).map_err(refuse)?;
        Ok((folder, lock, frames))
    }

    fn make(path: &Path, disk: &dyn Disk) -> Result<(), String> {
        let io = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        if path.as_os_str().is_empty() {
            return Err("an empty path names no folder; write `.` for the current one".to_owned());
        }
        if !path.is_dir() {
            if let Some(why) = in_the_way(path) {
                return Err(why);
            }
            make(path).map_err(io("the folder cannot be made"))?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                sync_folder(disk, parent).map_err(io("the folder's name cannot be synced"))?;
            }
        }
        Ok(())
    }

    fn check(path: &Path, disk: &dyn Disk) -> Result<(Self, Frames), String> {
        let io = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let format = check_format(path)?;
        let mut synced =
            open_own(path, "synced").map_err(|error| cannot_open(path, "synced", &error, REMOVE_SYNCED))?;
        let last = read_synced(&mut synced)?;
        check_log(path, last)?;
        let frames = Frames::read(path)?;
        check_frames(path, &frames, last)?;
        move_others_aside(path).map_err(io("what is in the place of a snapshot or of `conf` cannot be moved"))?;
        remove_unfinished_snapshots(path).map_err(io("an unfinished snapshot cannot be removed"))?;
        if format.is_none() {
            write_format(path, disk).map_err(io("the file `format` cannot be written"))?;
        }
        let is_older = format.is_some_and(|format| format < FORMAT);
        Ok((Self { path: path.to_owned(), synced, last, is_older }, frames))
    }

    /// Has older versions of callboard refuse a folder from now on in which they would not find everything.
    pub(super) fn bring_up_to_date(&mut self, disk: &dyn Disk) -> io::Result<()> {
        if std::mem::take(&mut self.is_older) { write_format(&self.path, disk) } else { Ok(()) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a store that has less than was synced.
    pub(super) fn check_reached(&self, sync: u64) -> Result<(), String> {
        let last = self.last.sync;
        if sync >= last {
            return Ok(());
        }
        Err(format!("the file `db` is damaged: it ends with sync {sync} and had {last}; {RESTORE_ADVICE}"))
    }

    /// Notes a sync of the write-ahead log that has succeeded.
    pub(super) fn note_sync(&mut self, disk: &dyn Disk, sync: u64) -> io::Result<()> {
        self.last.sync = sync;
        self.write_note(disk)
    }

    /// Notes that `db`, which was that long, has everything up to a sync.
    pub(super) fn note_db(&mut self, disk: &dyn Disk, sync: u64, db_length: u64) -> io::Result<()> {
        self.last = Synced { sync: self.last.sync.max(sync), db_length, in_db: sync };
        self.write_note(disk)
    }

    /// Not synced itself: an older note is still true.
    fn write_note(&mut self, disk: &dyn Disk) -> io::Result<()> {
        let Synced { sync, db_length, in_db } = self.last;
        let mut bytes = [0; SYNCED];
        for (at, number) in [sync, db_length, in_db].into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes[..SYNCED - 4]);
        bytes[SYNCED - 4..].copy_from_slice(&sum.to_le_bytes());
        self.synced.seek(SeekFrom::Start(0))?;
        disk.write(&mut self.synced, &self.path.join("synced"), &bytes)
    }
}

/// What is there in place of the folder.
fn in_the_way(path: &Path) -> Option<String> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_symlink() {
        return Some("it is a file, and a store is a folder: name another place".to_owned());
    }
    let target = fs::read_link(path).unwrap_or_default();
    let target = visible(&target.display().to_string());
    Some(if path.exists() {
        format!("it is a symbolic link to {target}, which is no folder: remove the link, or name another place")
    } else {
        format!("it is a symbolic link to {target}, which is not there: make that folder, or remove the link")
    })
}

/// The error of a folder that cannot be opened.
pub(super) fn refused(path: &Path, detail: impl Into<String>) -> StorageError {
    let shown = if path.as_os_str().is_empty() { "\"\"".to_owned() } else { path.display().to_string() };
    StorageError::Open { path: shown, detail: detail.into() }
}

/// Creates a folder that only its owner may read: it holds whole conversations.
pub(super) fn make(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// How often a lock is tried whose owner is dead, and how long in between: a child that the owner was about to start holds it
/// until it has become its program, or has died too.
const TRIES: u32 = 500;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Opens `lock` or `synced`, or makes it. What it holds stays. A link is not followed: what it leads to would be written over. A pipe
/// is not waited for.
fn open_own(path: &Path, name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    }
    options.open(path.join(name))
}

/// The error of a file that cannot be opened. That it is no file may have been found only now.
fn cannot_open(path: &Path, name: &str, error: &io::Error, help: &str) -> String {
    check_kind(path, name, help)
        .err()
        .unwrap_or_else(|| format!("the file `{name}` cannot be opened for writing: {error}"))
}

/// Locks the folder; `Err` has the process that holds the lock.
fn lock(path: &Path, is_gone: impl Fn(u32) -> bool, wait: impl Fn()) -> Result<Result<Lock, Option<u32>>, String> {
    let mut file = open_own(path, "lock").map_err(|error| cannot_open(path, "lock", &error, REMOVE_LOCK))?;
    for tries in 1.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Unreadable on systems where a lock also keeps readers out.
                let _ = file.rewind().and_then(|()| (&mut file).take(MAX_SHORT).read_to_string(&mut holder));
                let holder = holder.trim().parse().ok();
                if tries == TRIES || !holder.is_some_and(&is_gone) {
                    return Ok(Err(holder));
                }
                wait();
            }
            Err(fs::TryLockError::Error(error)) => return Err(format!("the lock file cannot be locked: {error}")),
        }
    }
    let pid = std::process::id();
    let written =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.to_string().as_bytes()));
    written.map_err(|error| format!("the lock file cannot be written: {error}"))?;
    Ok(Ok(Lock { _file: file }))
}

/// Whether no process of this id lives. One that has ended and is not waited for does not live, nor does one that is about to end
/// because it was killed: it may still wait for its disk.
#[cfg(unix)]
fn is_gone(pid: u32) -> bool {
    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};

    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let about = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    test_kill_process(id) == Err(Errno::SRCH) || ends(&about("stat"), &about("status"))
}

/// Whether Linux reports a process as one that has ended, ends, or was killed and has not noticed.
#[cfg(unix)]
fn ends(stat: &str, status: &str) -> bool {
    /// `PF_EXITING` in the flags.
    const EXITING: u32 = 4;
    /// SIGKILL in a set of signals.
    const KILL: u64 = 1 << 8;
    // The state follows the name, which is in parentheses and may have some itself; the flags come six fields later.
    let (state, flags) = stat.rsplit_once(") ").map_or(("", 0), |(_, rest)| {
        let mut fields = rest.split(' ');
        (fields.next().unwrap_or_default(), fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0_u32))
    });
    let pending = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    };
    ["Z", "X"].contains(&state) || flags & EXITING != 0 || status.lines().filter_map(pending).any(|set| set & KILL != 0)
}

#[cfg(not(unix))]
fn is_gone(_: u32) -> bool {
    false
}

/// Refuses what is no file, or no folder, where the store has one: a pipe would be waited for without an end.
fn check_kinds(path: &Path) -> Result<(), String> {
    const FILES: [(&str, &str); 4] =
        [("lock", REMOVE_LOCK), ("format", REWRITE_FORMAT), ("synced", REMOVE_SYNCED), ("db", RESTORE_ADVICE)];
    const FOLDERS: [&str; 2] = ["payloads", "blobs"];
    for (name, help) in FILES {
        check_kind(path, name, help)?;
    }
    for name in FOLDERS {
        let is_there = fs::symlink_metadata(path.join(name)).is_ok();
        if is_there && !path.join(name).is_dir() {
            return Err(format!(
                "its `{name}` is not a folder; put the folder back, or move away what is there if it was empty"
            ));
        }
    }
    Ok(())
}

/// Refuses what is no file in the place of one, and a link in the place of what this module writes.
fn check_kind(path: &Path, name: &str, help: &str) -> Result<(), String> {
    let path = path.join(name);
    if ["lock", "synced"].contains(&name) && path.is_symlink() {
        return Err(format!("its `{name}` is a symbolic link, which is not followed; {help}"));
    }
    if fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(format!("its `{name}` is not a file; {help}"));
    }
    Ok(())
}

/// Refuses files of other programs where a store would write its own. A store whose making was interrupted before it had its `format`
/// has `lock` and `synced` alone.
fn check_owner(path: &Path) -> Result<(), String> {
    let is_there = |name: &str| fs::symlink_metadata(path.join(name)).is_ok();
    if is_there("format") {
        return Ok(());
    }
    let mut lock = Vec::new();
    let _ = File::open(path.join("lock")).and_then(|file| file.take(MAX_SHORT).read_to_end(&mut lock));
    let is_number = lock.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_whitespace());
    let synced = fs::metadata(path.join("synced")).map_or(0, |about| about.len());
    let first_log = files_in(path).unwrap_or_default().into_iter().next();
    let log = first_log.map_or_else(String::new, |(first, _)| format!("wal.{first}"));
    let others = [
        ("conf", is_there("conf") && !is_there("db")),
        (&*log, !log.is_empty()),
        ("lock", !is_number),
        ("synced", ![0, OLD_SYNCED as u64, SYNCED as u64].contains(&synced)),
    ];
    match others.into_iter().find(|(_, is_of_another)| *is_of_another) {
        Some((name, _)) => Err(format!(
            "it is no store, and has a file `{name}`, which a store would write over: name an empty folder or a new one"
        )),
        None => Ok(()),
    }
}

/// Moves out of the way what is no file where sled has snapshots and its configuration. It makes both again.
fn move_others_aside(path: &Path) -> io::Result<()> {
    for file in fs::read_dir(path)? {
        let file = file?;
        if is_extra(&file.path()) && !fs::metadata(file.path()).is_ok_and(|about| about.is_file()) {
            fs::rename(file.path(), moved_name(&file.path()))?;
        }
    }
    Ok(())
}

/// Whether sled makes it again from the log.
fn is_extra(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == "conf" || name.starts_with("snap.")
}

/// A name that nothing has.
fn moved_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut names =
        std::iter::once(format!("{DAMAGED}{name}")).chain((2..).map(|again| format!("{DAMAGED}{name}.{again}")));
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    names.find_map(|name| Some(path.with_file_name(name)).filter(is_free)).unwrap_or_default()
}

/// The version of the folder; `None` if it is new. Refuses those of newer programs and of others.
fn check_format(path: &Path) -> Result<Option<u32>, String> {
    let mut bytes = Vec::new();
    let text = match File::open(path.join("format")).and_then(|file| file.take(MAX_SHORT).read_to_end(&mut bytes)) {
        Ok(_) => String::from_utf8_lossy(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if path.join("db").exists() {
                Err(format!(
                    "it holds a database that callboard did not make, or whose file `format` was lost: name another folder, or \
                     {REWRITE_FORMAT}"
                ))
            } else {
                Ok(None)
            };
        }
        Err(error) => return Err(format!("the file `format` cannot be read: {error}; {REWRITE_FORMAT}")),
    };
    match text.trim_end().strip_prefix(FORMAT_NAME).and_then(|version| version.parse::<u32>().ok()) {
        Some(format @ 1..=FORMAT) => Ok(Some(format)),
        Some(newer) if newer > FORMAT => Err(format!(
            "it was written by a newer version of callboard (format {newer}; this one reads {FORMAT}): use that version, \
             or export the store with it"
        )),
        Some(_) | None => Err(format!("its file `format` is damaged: {REWRITE_FORMAT}")),
    }
}

fn write_format(path: &Path, disk: &dyn Disk) -> io::Result<()> {
    // What is there may be no file: a pipe would be waited for.
    let _ = fs::remove_file(path.join("format.unfinished"));
    write_whole(disk, &path.join("format"), format!("{FORMAT_NAME}{FORMAT}\n").as_bytes())?;
    sync_folder(disk, path)
}

/// A note that is absent, or that a power cut has damaged, counts as none.
fn read_synced(file: &mut File) -> Result<Synced, String> {
    let mut bytes = Vec::new();
    file.take(MAX_SHORT)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("the file `synced` cannot be read: {error}"))?;
    let u64_at = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or_default();
    let is_whole = |length: usize| {
        bytes.len() == length && crc32fast::hash(&bytes[..length - 4]).to_le_bytes() == bytes[length - 4..]
    };
    Ok(if is_whole(SYNCED) {
        Synced { sync: u64_at(0), db_length: u64_at(8), in_db: u64_at(16) }
    } else if is_whole(OLD_SYNCED) {
        Synced { sync: u64_at(0), db_length: u64_at(8), in_db: u64_at(0) }
    } else {
        Synced::default()
    })
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
        Some(_) | None if log_check::reaches(path, last.in_db).map_err(unreadable)? => return Ok(()),
        Some(_) | None => format!("is damaged: what was synced last (sync {}) cannot be reached", last.in_db),
    };
    Err(format!("the file `db` {damage}; only the file `lock` was written: {RESTORE_ADVICE}"))
}

/// Whether the write-ahead log holds what was synced, or `db` does. That it does may not be noted: a power cut can take the last note.
fn check_frames(path: &Path, frames: &Frames, last: Synced) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("the file `db` cannot be read: {error}");
    let has = frames.last_sync().max(last.in_db);
    if has >= last.sync || log_check::reaches(path, last.sync).map_err(unreadable)? {
        return Ok(());
    }
    let damage = format!("is damaged: it ends with sync {has} and had {}", last.sync);
    Err(format!("the write-ahead log (files `wal.*`) {damage}; only the file `lock` was written: {RESTORE_ADVICE}"))
}

/// Files of sled that it makes again from the log, out of its way.
#[derive(Debug, Default)]
pub(super) struct MovedFiles {
    moved: Vec<(PathBuf, PathBuf)>,
}

impl MovedFiles {
    /// Moves snapshots and the configuration aside. The log has everything that they have.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let mut aside = Self::default();
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            if is_extra(&path) {
                let away = moved_name(&path);
                fs::rename(&path, &away)?;
                aside.moved.push((path, away));
            }
        }
        Ok(aside)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.moved.is_empty()
    }

    /// They were not what was wrong.
    pub(super) fn put_back(self) {
        for (path, away) in self.moved {
            if let Err(error) = fs::rename(&away, &path) {
                tracing::error!(file = %away.display(), %error, "a file of the store could not be put back");
            }
        }
    }

    /// They were what was wrong, and have been made again.
    pub(super) fn remove(self) {
        for (path, away) in self.moved {
            tracing::warn!(file = %path.display(), "a damaged file of the store was made again; nothing was lost");
            // One that stays takes space, and nothing reads it.
            let _ = fs::remove_file(away);
        }
    }
}

/// What the names of files begin with that were moved aside. sled takes whatever begins with `snap.` for a snapshot.
const DAMAGED: &str = "damaged.";

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

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::cell::{Cell, RefCell};

    use super::*;

    /// A folder whose lock is held, and was taken by the process of this id.
    fn held_by(owner: u32) -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        let mut held = File::create(folder.path().join("lock")).unwrap();
        held.write_all(owner.to_string().as_bytes()).unwrap();
        held.try_lock().unwrap();
        (folder, held)
    }

    #[test]
    fn what_is_in_the_place_of_a_folder_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "x").unwrap();
        for (link, target) in [("dangling", "no-such-folder"), ("to-file", "file")] {
            std::os::unix::fs::symlink(target, path(link)).unwrap();
        }
        let refused = ["dangling", "to-file", "file"]
            .map(|name| Folder::make(&path(name), &crate::storage::sled::SystemDisk).unwrap_err());
        assert_eq!(
            refused,
            [
                "it is a symbolic link to no-such-folder, which is not there: make that folder, or remove the link",
                "it is a symbolic link to file, which is no folder: remove the link, or name another place",
                "it is a file, and a store is a folder: name another place",
            ]
        );
        assert!(!path("no-such-folder").exists());
    }

    #[test]
    fn a_link_in_the_place_of_a_file_that_is_written_is_refused_and_not_followed() {
        for (name, help) in [("lock", REMOVE_LOCK), ("synced", REMOVE_SYNCED)] {
            for target in ["precious", "nothing"] {
                let folder = tempfile::tempdir().unwrap();
                let at = |name: &str| folder.path().join(name);
                fs::write(at("precious"), "12345678901234567890").unwrap();
                std::os::unix::fs::symlink(target, at(name)).unwrap();
                let expected = format!("its `{name}` is a symbolic link, which is not followed; {help}");
                let refused = Folder::open(folder.path(), &crate::storage::sled::SystemDisk).map(drop).unwrap_err();
                assert!(refused.to_string().ends_with(&expected), "{refused}");
                // Also one that takes the place of the file after it was looked at.
                let error = open_own(folder.path(), name).unwrap_err();
                assert_eq!(cannot_open(folder.path(), name, &error, help), expected);
                assert_eq!(fs::read(at("precious")).unwrap(), b"12345678901234567890");
                assert!(!at("nothing").exists());
            }
        }
    }

    fn ended() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // It has ended, and was not waited for.
        while !is_gone(child.id()) {}
        child.wait().unwrap();
        assert!(is_gone(child.id()));
        child.id()
    }

    #[test]
    fn a_process_that_was_killed_has_ended_before_it_notices() {
        let stat = |state: &str, flags: u32| format!("7 (a) b (c) {state} 1 7 7 0 -1 {flags} 105 0 0 0 1 2");
        let status = |own: &str, shared: &str| format!("Name:\ta\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t100\n");
        let nothing = status("0000000000000000", "0000000000000000");
        assert!(ends(&stat("Z", 0x40_0000), "") && ends(&stat("R", 0x40_0004), &nothing));
        assert!(ends(&stat("D", 0x40_0000), &status("0000000000000100", "0000000000000000")));
        assert!(ends(&stat("D", 0x40_0000), &status("0000000000000000", "0000000000000100")));
        assert!(!ends(&stat("S", 0x40_0000), &status("0000000000004000", "0000000000000001")));
        assert!(!ends("", "") && !ends(&stat("D", 0x40_0000), &nothing));
    }

    #[test]
    fn a_lock_that_outlived_its_owner_is_waited_for() {
        let (folder, held) = held_by(ended());
        let (held, waited) = (RefCell::new(Some(held)), Cell::new(0));
        let let_go_at_the_third = || {
            waited.set(waited.get() + 1);
            if waited.get() == 3 {
                held.borrow_mut().take();
            }
        };
        let lock = lock(folder.path(), is_gone, let_go_at_the_third).unwrap();
        assert!(lock.is_ok() && waited.get() == 3);
        assert_eq!(fs::read_to_string(folder.path().join("lock")).unwrap(), std::process::id().to_string());
    }

    #[test]
    fn a_lock_whose_owner_lives_is_not_waited_for_and_no_lock_for_ever() {
        let waited = Cell::new(0);
        let tries = |owner| {
            let (folder, _held) = held_by(owner);
            lock(folder.path(), is_gone, || waited.set(waited.get() + 1)).unwrap().map(drop)
        };
        let me = std::process::id();
        assert_eq!(tries(me), Err(Some(me)));
        assert_eq!(waited.get(), 0);
        let gone = ended();
        assert_eq!(tries(gone), Err(Some(gone)));
        assert_eq!(waited.get(), TRIES - 1);
    }
}
