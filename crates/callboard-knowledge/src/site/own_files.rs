//! What of a folder a site has written: it is compared with the list of the site's files, and nothing else is deleted.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::error::{SiteError, failed};
use super::listing::Listing;
use super::texts;
use crate::site_marker::MARKER;
use crate::{digest, regular_file};

/// The largest list that is read.
const MAX_LIST: u64 = 256 << 20;
/// The largest file that a site can have.
const MAX_FILE: u64 = 1 << 30;

/// What is in a folder that can be that of a site.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) folder: Dir,
    pub(super) listing: Listing,
    /// Whether all files of the list are there.
    pub(super) is_whole: bool,
}

/// Why a folder is not deleted.
#[derive(Debug)]
pub(super) enum NotOwn {
    /// What is there, as the end of "because".
    Foreign(String),
    Io(io::Error),
}

impl NotOwn {
    /// The error of a folder that a site cannot be written to.
    pub(super) fn of(self, folder: &Path) -> SiteError {
        match self {
            Self::Foreign(found) => SiteError::NotASite { folder: folder.to_owned(), found },
            Self::Io(error) => failed("look at", folder)(error),
        }
    }
}

impl From<io::Error> for NotOwn {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl std::fmt::Display for NotOwn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign(found) => f.write_str(found),
            Self::Io(error) => write!(f, "it cannot be read or deleted: {error}"),
        }
    }
}

impl Own {
    /// What is at a path, if it is a folder with nothing but a site, or an empty one; `None` if there is nothing. `incomplete` is the list of a
    /// site that has no marker yet.
    pub(super) fn at(path: &Path, incomplete: Option<Listing>) -> Result<Option<Self>, NotOwn> {
        let Some(folder) = open_folder(path)? else { return Ok(None) };
        let marker = list(&folder, MARKER)?;
        let listing = match &marker {
            Some(marker) => Listing::of_site(marker).map_err(NotOwn::Foreign)?,
            None => incomplete.unwrap_or_default(),
        };
        let found = compared(&folder, &listing)?;
        let is_whole = marker.is_some() && found == listing.files().count();
        Ok(Some(Self { folder, listing, is_whole }))
    }

    /// Deletes it, the list last. What has been put there meanwhile stays, and is the error.
    pub(super) fn delete(&self, path: &Path) -> Result<(), NotOwn> {
        let Self { folder, listing, is_whole: _ } = self;
        let files = listing.files().map(|file| (file, folder.remove_file(file)));
        let folders = listing.folders_inside_out().map(|name| (name, folder.remove_dir(name)));
        let marker = std::iter::once_with(|| (MARKER, folder.remove_file(MARKER)));
        for (name, removed) in files.chain(folders).chain(marker) {
            match removed.map_err(|error| error.kind()) {
                Ok(()) | Err(io::ErrorKind::NotFound) => {}
                Err(io::ErrorKind::DirectoryNotEmpty) => return Err(foreign(&format!("{name}/…"))),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(fs::remove_dir(path)?)
    }
}

/// The refusal of what no site has written.
pub(super) fn foreign(path: &str) -> NotOwn {
    NotOwn::Foreign(format!("it has {}, which is not of the site", texts::label(path)))
}

/// Opens a folder; `None` if there is nothing. What a link leads to is not opened.
pub(super) fn open_folder(path: &Path) -> Result<Option<Dir>, NotOwn> {
    // Without a slash at the end, which would have a link followed.
    let path: PathBuf = path.components().collect();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, &path, flags, Mode::empty()) {
        Ok(folder) => Ok(Some(Dir::from_std_file(fs::File::from(folder)))),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) if fs::symlink_metadata(&path)?.is_symlink() => {
            Err(NotOwn::Foreign("it is a symbolic link".to_owned()))
        }
        Err(Errno::NOTDIR) => Err(NotOwn::Foreign("it is not a folder".to_owned())),
        Err(error) => Err(NotOwn::Io(error.into())),
    }
}

/// Reads a file with a list; `None` if there is none.
pub(super) fn list(folder: &Dir, name: &str) -> Result<Option<String>, NotOwn> {
    match folder.symlink_metadata(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    let foreign = |what: &str| NotOwn::Foreign(format!("its {name} is {what}"));
    let file = opened(folder, name)?.ok_or_else(|| foreign("no regular file"))?;
    let mut bytes = Vec::new();
    file.take(MAX_LIST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_LIST {
        return Err(foreign("too large"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| foreign("no text"))
}

/// Opens a regular file; `None` if it is none.
fn opened(folder: &Dir, path: &str) -> io::Result<Option<cap_std::fs::File>> {
    if folder.symlink_metadata(path)?.is_file() { regular_file::open(folder, path) } else { Ok(None) }
}

/// The number of files, if a folder has no others than those of the list; the first other is the refusal.
fn compared(folder: &Dir, listing: &Listing) -> Result<usize, NotOwn> {
    let (mut found, mut open) = (0, vec![String::new()]);
    while let Some(below) = open.pop() {
        let read = if below.is_empty() { folder.entries() } else { folder.read_dir(&below) };
        let names = read?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<BTreeSet<OsString>>>()?;
        for name in names {
            let path = format!("{below}{}", name.to_string_lossy());
            let is_folder = folder.symlink_metadata(Path::new(&below).join(&name))?.is_dir();
            if name.to_str().is_some() && is_folder && listing.has_folder(&path) {
                open.push(format!("{path}/"));
            } else if name.to_str().is_none() || is_folder || (!listing.has_file(&path) && path != MARKER) {
                return Err(foreign(&path));
            } else if path != MARKER {
                match sha256(folder, &path)? {
                    Some(sha256) if listing.may_be(&path, &sha256) => found += 1,
                    Some(_) => return Err(NotOwn::Foreign(format!("{} in it has been changed", texts::label(&path)))),
                    None => return Err(NotOwn::Foreign(format!("{} in it is no regular file", texts::label(&path)))),
                }
            }
        }
    }
    Ok(found)
}

/// SHA-256 of a file, in hexadecimal; `None` if it is no regular file. Of one that is larger than the files of sites, of its beginning.
fn sha256(folder: &Dir, path: &str) -> io::Result<Option<String>> {
    let Some(file) = opened(folder, path)? else { return Ok(None) };
    let (mut file, mut hash, mut buffer) = (file.take(MAX_FILE), Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Some(digest::hex(&hash.finalize()))),
            read => hash.update(&buffer[..read]),
        }
    }
}
