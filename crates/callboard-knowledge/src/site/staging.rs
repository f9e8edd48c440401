//! The folder beside a site in which the next one is written.
//!
//! It has the list of what is written (`callboard-staging.txt`, which no site has, and which is locked while a process works there) and the site
//! itself, in the folder `site`. The site that is replaced comes there too. A killed process leaves it; the next one deletes it, if all of it is
//! on its lists.

use std::collections::BTreeSet;
use std::fs::{self, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::error::{SiteError, failed};
use super::files::File;
use super::folder::{StagedSite, check_folder, parent_of};
use super::listing::{self, Listing, STAGING_MARK};
use super::own_files::{NotOwn, Own, foreign, list, open_folder};
use crate::site_marker::MARKER;
use crate::{digest, regular_file};

/// The list of what is written.
const STAGING: &str = "callboard-staging.txt";
/// The site within the folder.
const SITE: &str = "site";
/// The old site, where two folders cannot be exchanged.
const OLD: &str = "old";
/// A site that is being deleted.
const DELETED: &str = "deleted";

/// A site that is being written.
#[derive(Debug)]
pub(super) struct Staging {
    out: PathBuf,
    folder: TempDir,
    /// Locked while the site is written, so that another process does not take the folder for one that was left.
    list: fs::File,
    written: BTreeSet<String>,
    lines: String,
    bytes: u64,
    kept: Vec<(PathBuf, String)>,
}

impl Staging {
    /// Begins a site that will be at `out`. Folders that killed processes left beside it are deleted.
    pub(super) fn create(out: &Path) -> Result<Self, SiteError> {
        let name = check_folder(out)?;
        let parent = parent_of(out);
        fs::create_dir_all(parent).map_err(failed("create the folder", parent))?;
        let prefix = format!(".{name}.publish-");
        let kept = delete_left(parent, &prefix, out)?;
        let mode = fs::metadata(out).map_or(0o777, |old| old.permissions().mode() & 0o777);
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(parent)
            .map_err(failed("create a folder in", parent))?;
        let path = folder.path().join(STAGING);
        let mut list = fs::File::create_new(&path).map_err(failed("create", &path))?;
        list.lock().map_err(failed("lock", &path))?;
        list.write_all(STAGING_MARK.as_bytes()).map_err(failed("write", &path))?;
        let site = site_in(folder.path());
        fs::DirBuilder::new().mode(mode).create(&site).map_err(failed("create the folder", &site))?;
        Ok(Self { out: out.to_owned(), folder, list, written: BTreeSet::new(), lines: String::new(), bytes: 0, kept })
    }

    /// Where files without a name can be.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn has(&self, file: &str) -> bool {
        self.written.contains(file)
    }

    pub(super) fn write(&mut self, file: &File) -> Result<(), SiteError> {
        debug_assert!(listing::is_of_a_site(&file.path), "{}", file.path);
        if !self.written.insert(file.path.clone()) {
            return Err(SiteError::Twice { file: file.path.clone() });
        }
        let path = site_in(self.folder.path()).join(&file.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed("create the folder", folder))?;
        }
        let line = listing::line(&file.path, &digest::hex(&Sha256::digest(&file.bytes)));
        // Listed before it is there, in case the process is killed.
        self.list.write_all(line.as_bytes()).map_err(failed("write", &self.folder.path().join(STAGING)))?;
        fs::write(&path, &file.bytes).map_err(failed("write", &path))?;
        self.bytes += file.bytes.len() as u64;
        self.lines.push_str(&line);
        Ok(())
    }

    /// Completes the site beside the old one, once all of it is on disk: a site with its list of which a file was lost in a power cut would be
    /// taken for one that a person has edited.
    pub(super) fn complete(self) -> Result<StagedSite, SiteError> {
        let site = site_in(self.folder.path());
        self.written.iter().try_for_each(|file| on_disk(&site.join(file)))?;
        let folders: BTreeSet<&Path> =
            self.written.iter().flat_map(|file| Path::new(file).ancestors().skip(1)).collect();
        folders.into_iter().try_for_each(|folder| on_disk(&site.join(folder)))?;
        let digest = digest::hex(&Sha256::digest(&self.lines));
        let marker = listing::marker(&digest, &self.lines);
        // It is there with all of its lines or not at all.
        let (path, place) = (self.folder.path().join(MARKER), site.join(MARKER));
        fs::write(&path, &marker).map_err(failed("write", &path))?;
        on_disk(&path)?;
        fs::rename(&path, &place).map_err(failed("write", &place))?;
        on_disk(&site)?;
        on_disk(self.folder.path())?;
        let (files, bytes) = (self.written.len() + 1, self.bytes + marker.len() as u64);
        Ok(StagedSite { out: self.out, folder: self.folder.keep(), digest, files, bytes, kept: self.kept })
    }
}

/// Waits until a file, or the names in a folder, are on disk.
pub(super) fn on_disk(path: &Path) -> Result<(), SiteError> {
    fs::File::open(path).and_then(|file| file.sync_all()).map_err(failed("put on disk", path))
}

/// The site in the folder of one that is written.
pub(super) fn site_in(staging: &Path) -> PathBuf {
    staging.join(SITE)
}

/// Where the old site is for a moment, if two folders cannot be exchanged.
pub(super) fn old_in(staging: &Path) -> PathBuf {
    staging.join(OLD)
}

/// Deletes folders of processes that were killed. Returns the others of such a name that no process works in, each with the reason.
fn delete_left(parent: &Path, prefix: &str, out: &Path) -> Result<Vec<(PathBuf, String)>, SiteError> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(parent).map_err(failed("read the folder", parent))? {
        let entry = entry.map_err(failed("read the folder", parent))?;
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        // Of a process that was killed before it wrote anything, or after it had deleted everything.
        if fs::remove_dir(entry.path()).is_ok() {
            continue;
        }
        let deleted = LeftStaging::take(&entry.path()).and_then(|left| match left {
            None => Ok(()),
            Some(left) => left.restore(out).and_then(|()| left.delete(left.site()?)),
        });
        kept.extend(deleted.err().map(|why| (entry.path(), why.to_string())));
    }
    Ok(kept)
}

/// A folder in which a site was written, and that no process works in any more.
#[derive(Debug)]
pub(super) struct LeftStaging {
    path: PathBuf,
    folder: Dir,
    listing: Listing,
    /// Keeps other processes out.
    _lock: fs::File,
}

impl LeftStaging {
    /// Takes a folder; `None` if there is nothing, or if another process works there.
    pub(super) fn take(path: &Path) -> Result<Option<Self>, NotOwn> {
        let Some(folder) = open_folder(path)? else { return Ok(None) };
        let refused = || NotOwn::Foreign(format!("it has no {STAGING}"));
        let text = list(&folder, STAGING)?.ok_or_else(refused)?;
        let listing = Listing::of_staging(&text).ok_or_else(refused)?;
        let lock = regular_file::open(&folder, STAGING)?.ok_or_else(refused)?.into_std();
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { path: path.to_owned(), folder, listing, _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// The site in it, which may be incomplete; what came out of the place of the new one, once that is there.
    pub(super) fn site(&self) -> Result<Option<Own>, NotOwn> {
        self.own_at(SITE)
    }

    fn own_at(&self, name: &str) -> Result<Option<Own>, NotOwn> {
        Own::at(&self.path.join(name), Some(self.listing.clone()))
    }

    /// Deletes it with its site, if it has nothing else.
    pub(super) fn delete(&self, site: Option<Own>) -> Result<(), NotOwn> {
        for entry in self.folder.entries()? {
            let name = entry?.file_name();
            if ![STAGING, MARKER, DELETED, SITE, OLD].iter().any(|own| name == *own) {
                return Err(foreign(&name.to_string_lossy()));
            }
        }
        let (begun, old) = (self.own_at(DELETED)?, self.own_at(OLD)?);
        let deleted = self.path.join(DELETED);
        for (name, own) in [(DELETED, begun), (SITE, site), (OLD, old)] {
            let Some(own) = own else { continue };
            // So that no part of a site is taken for one.
            fs::rename(self.path.join(name), &deleted)?;
            own.delete(&deleted)?;
        }
        for name in [MARKER, STAGING] {
            match self.folder.remove_file(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(fs::remove_dir(&self.path)?)
    }

    /// Puts the old site back where it was, if the process was killed before the new one was there.
    fn restore(&self, out: &Path) -> Result<(), NotOwn> {
        let old = old_in(&self.path);
        if fs::symlink_metadata(out).is_err() && Own::at(&old, None)?.is_some() {
            fs::rename(&old, out)?;
        }
        Ok(())
    }
}
