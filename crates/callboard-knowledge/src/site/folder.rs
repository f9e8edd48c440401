//! The folder of a site, replaced as a whole.
//!
//! A site is written into a folder beside the old one and takes its place when it is complete. Until then the old site is as it was, also
//! when the program is killed. Only a folder that a site was written into is replaced, and only if nothing else is in it.

use std::collections::BTreeSet;
use std::fs::{self, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::error::SiteError;
use super::files::File;
use super::texts;

/// The file by which a folder is known to be a site.
const MARKER: &str = "callboard-site.txt";
/// What the file begins with.
const MARK: &str = "This folder is a site that callboard wrote.";
/// Everything that a site can have in its folder.
const OWN: [&str; 12] = [
    MARKER,
    ".nojekyll",
    "entities",
    "entity",
    "facts",
    "folders",
    "icon.svg",
    "index.html",
    "pages",
    "search",
    "search.js",
    "style.css",
];

/// A site that is being written.
#[derive(Debug)]
pub(super) struct Staging {
    out: PathBuf,
    folder: TempDir,
    /// Locked while the site is written, so that another process does not take the folder for one that was left.
    marker: fs::File,
    written: BTreeSet<String>,
    bytes: u64,
    digest: Sha256,
}

/// What was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The folder of the site.
    pub folder: PathBuf,
    /// The number of its files.
    pub files: usize,
    /// The size of its files, in bytes.
    pub bytes: u64,
    /// Whether the site that was there had the same contents.
    pub is_unchanged: bool,
}

impl Staging {
    /// Begins a site that will be at `out`. Folders that killed processes left beside it are deleted.
    pub(super) fn create(out: &Path) -> Result<Self, SiteError> {
        let name = check_folder(out)?;
        let parent = parent_of(out);
        fs::create_dir_all(parent).map_err(failed("create the folder", parent))?;
        let prefix = format!(".{name}.publish-");
        delete_left(parent, &prefix)?;
        let mode = fs::metadata(out).map_or(0o777, |old| old.permissions().mode() & 0o777);
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .permissions(fs::Permissions::from_mode(mode))
            .tempdir_in(parent)
            .map_err(failed("create a folder in", parent))?;
        let path = folder.path().join(MARKER);
        let marker = fs::File::create_new(&path).map_err(failed("create", &path))?;
        marker.lock().map_err(failed("lock", &path))?;
        Ok(Self { out: out.to_owned(), folder, marker, written: BTreeSet::new(), bytes: 0, digest: Sha256::new() })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn has(&self, file: &str) -> bool {
        self.written.contains(file)
    }

    pub(super) fn write(&mut self, file: &File) -> Result<(), SiteError> {
        debug_assert!(file.path.split('/').all(|segment| !segment.is_empty() && segment != "." && segment != ".."));
        if !self.written.insert(file.path.clone()) {
            return Err(SiteError::Twice { file: file.path.clone() });
        }
        let path = self.folder.path().join(&file.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed("create the folder", folder))?;
        }
        fs::write(&path, &file.bytes).map_err(failed("write", &path))?;
        self.bytes += file.bytes.len() as u64;
        for part in [file.path.as_bytes(), &file.bytes] {
            self.digest.update((part.len() as u64).to_le_bytes());
            self.digest.update(part);
        }
        Ok(())
    }

    /// Completes the site beside the old one.
    pub(super) fn complete(mut self) -> Result<StagedSite, SiteError> {
        let digest: String = self.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let mark = mark_of(&digest);
        self.marker.write_all(mark.as_bytes()).map_err(failed("write", &self.folder.path().join(MARKER)))?;
        let bytes = self.bytes + mark.len() as u64;
        Ok(StagedSite { out: self.out, folder: self.folder.keep(), digest, files: self.written.len() + 1, bytes })
    }
}

fn parent_of(out: &Path) -> &Path {
    out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn mark_of(digest: &str) -> String {
    format!("{MARK} It is replaced as a whole when the site is written again.\ncontents: sha256 {digest}\n")
}

/// A site that is complete, in a folder beside the one that it replaces. It stays there until it takes that one's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedSite {
    out: PathBuf,
    folder: PathBuf,
    digest: String,
    files: usize,
    bytes: u64,
}

impl StagedSite {
    /// Whether it will be at this folder.
    #[must_use]
    pub fn is_for(&self, out: &Path) -> bool {
        self.out == out && self.folder.parent().is_some_and(|parent| parent == parent_of(out))
    }

    /// Puts the site in the place of the old one. Repeated after a crash, it does what is left to do. `None` if the folder is gone, as when
    /// another site was written to the same place meanwhile: then nothing has changed.
    ///
    /// # Errors
    ///
    /// If the folder has meanwhile something else than a site, or if it cannot be replaced.
    pub fn publish(self) -> Result<Option<Published>, SiteError> {
        let Self { out, folder, digest, files, bytes } = self;
        let mark = mark_of(&digest);
        let is_this = |folder: &Path| fs::read(folder.join(MARKER)).is_ok_and(|found| found == mark.as_bytes());
        let is_unchanged = is_this(&out);
        if is_this(&folder) {
            // Somebody may have put files there meanwhile.
            check_replaceable(&out)?;
            replace(&folder, &out).map_err(failed("replace", &out))?;
        } else if !is_unchanged {
            return Ok(None);
        }
        // The old site is where the new one was written. That it could not be deleted does not change what was published.
        let _ = fs::remove_dir_all(&folder);
        Ok(Some(Published { folder: out, files, bytes, is_unchanged }))
    }
}

/// Refuses a folder that a site cannot be written to, because it has something else or no name. Returns the name.
///
/// # Errors
///
/// [`SiteError::NoName`], [`SiteError::NotASite`], and [`SiteError::Io`] if the folder cannot be read.
pub fn check_folder(out: &Path) -> Result<&str, SiteError> {
    let Some(name) = out.file_name().and_then(|name| name.to_str()) else {
        return Err(SiteError::NoName { folder: out.to_owned() });
    };
    check_replaceable(out).map(|()| name)
}

/// Refuses a folder that has anything but a site.
fn check_replaceable(out: &Path) -> Result<(), SiteError> {
    let refused = |found: &str| SiteError::NotASite { folder: out.to_owned(), found: found.to_owned() };
    match fs::symlink_metadata(out) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", out)(error)),
        Ok(found) if found.is_symlink() => return Err(refused("it is a symbolic link")),
        Ok(found) if !found.is_dir() => return Err(refused("it is not a folder")),
        Ok(_) => {}
    }
    let mut is_empty = true;
    for entry in fs::read_dir(out).map_err(failed("read the folder", out))? {
        is_empty = false;
        let name = entry.map_err(failed("read the folder", out))?.file_name();
        if !OWN.iter().any(|own| name == *own) {
            return Err(refused(&format!("it has {}", texts::label(&name.to_string_lossy()))));
        }
    }
    let is_marked = || fs::read(out.join(MARKER)).is_ok_and(|mark| mark.starts_with(MARK.as_bytes()));
    if is_empty || is_marked() { Ok(()) } else { Err(refused(&format!("it has no {MARKER}"))) }
}

/// Deletes folders of processes that were killed: nobody holds the lock of their marker.
fn delete_left(parent: &Path, prefix: &str) -> Result<(), SiteError> {
    for entry in fs::read_dir(parent).map_err(failed("read the folder", parent))? {
        let entry = entry.map_err(failed("read the folder", parent))?;
        if !entry.file_name().to_string_lossy().starts_with(prefix)
            || !entry.file_type().is_ok_and(|kind| kind.is_dir())
        {
            continue;
        }
        let Ok(marker) = fs::File::open(entry.path().join(MARKER)) else { continue };
        match marker.try_lock() {
            Ok(()) => fs::remove_dir_all(entry.path()).map_err(failed("delete", &entry.path()))?,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
    Ok(())
}

/// Puts `new` in the place of `out`, and what was there in the place of `new`.
fn replace(new: &Path, out: &Path) -> io::Result<()> {
    if !out.exists() {
        return fs::rename(new, out);
    }
    match rustix::fs::renameat_with(CWD, new, CWD, out, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        // The file system cannot exchange two folders.
        Err(error) if [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&error) => {
            replace_in_steps(new, out)
        }
        Err(error) => Err(error.into()),
    }
}

/// As [`replace`]. For a moment there is no site; the old one comes back if the new one cannot come.
fn replace_in_steps(new: &Path, out: &Path) -> io::Result<()> {
    // Not a name of a folder that was left: a process that is killed here leaves the only copy of the old site there.
    let name = new.extension().unwrap_or_default().to_string_lossy().replace("publish", "old");
    let old = new.with_extension(name);
    fs::rename(out, &old)?;
    if let Err(error) = fs::rename(new, out) {
        fs::rename(&old, out)?;
        return Err(error);
    }
    fs::rename(&old, new)
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SiteError {
    let path = path.to_owned();
    move |source| SiteError::Io { doing, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_site_takes_the_place_of_the_old_one_once_however_often_it_is_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("site");
        let staged = |text: &str| {
            let mut staging = Staging::create(&out).unwrap();
            staging.write(&File::new("index.html", text)).unwrap();
            staging.complete().unwrap()
        };
        let first = staged("first");
        assert!(!out.exists());
        assert!(!first.clone().publish().unwrap().unwrap().is_unchanged);
        // As after a crash between the exchange and the record of it.
        assert!(first.clone().publish().unwrap().is_some());
        let second = staged("second");
        assert_eq!(fs::read_to_string(out.join("index.html")).unwrap(), "first");
        second.publish().unwrap().unwrap();
        assert_eq!(first.publish().unwrap(), None);
        assert_eq!(fs::read_to_string(out.join("index.html")).unwrap(), "second");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_is_replaced_where_two_cannot_be_exchanged() {
        let place = tempfile::tempdir().unwrap();
        let (new, out) = (place.path().join(".site.publish-1"), place.path().join("site"));
        for (folder, name) in [(&new, "new"), (&out, "old")] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join(name), "").unwrap();
        }
        replace_in_steps(&new, &out).unwrap();
        assert!(out.join("new").exists() && new.join("old").exists());
        fs::remove_dir_all(&new).unwrap();
        assert!(replace_in_steps(&new, &out).is_err());
        assert!(out.join("new").exists());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
