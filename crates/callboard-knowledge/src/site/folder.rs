//! The folder of a site, replaced as a whole.
//!
//! A site is written into a folder beside the old one and takes its place when it is complete. Until then the old site is as it was, also
//! when the program is killed. Only a folder that a site was written into is replaced, and only if all of it is as the site wrote it. What came
//! out of its place is looked at once more, and goes back if it is something else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::{SiteError, failed};
use super::own_files::Own;
use super::staging::{LeftStaging, old_in, on_disk, site_in};

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
    /// Folders beside it that have the names of those in which sites are written, and were not deleted, each with the reason.
    #[serde(default)]
    pub kept: Vec<(PathBuf, String)>,
}

/// A site that is complete, in a folder beside the one that it replaces. It stays there until it takes that one's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedSite {
    pub(super) out: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) digest: String,
    pub(super) files: usize,
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) kept: Vec<(PathBuf, String)>,
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
        self.publish_after(|| {})
    }

    /// As [`publish`](Self::publish). `looked_at` is called between the look at the folder and its replacement.
    fn publish_after(self, looked_at: impl FnOnce()) -> Result<Option<Published>, SiteError> {
        let Self { out, folder, digest, files, bytes, mut kept } = self;
        // Of a process that was killed when it had deleted everything else.
        let _ = fs::remove_dir(&folder);
        // Another process that deletes it keeps it locked.
        let left = match LeftStaging::take(&folder) {
            Ok(left) => left,
            Err(why) => {
                kept.push((folder.clone(), why.to_string()));
                None
            }
        };
        let is_this = |own: Option<Own>| own.is_some_and(|own| own.is_whole && own.listing.digest == digest);
        let is_unchanged = is_this(look(&out)?);
        if let Some(left) = left {
            if Own::at(&site_in(&folder), None).is_ok_and(is_this) {
                looked_at();
                replace(&folder, &out).map_err(failed("replace", &out))?;
                // Before the old site is deleted.
                on_disk(parent_of(&out))?;
                on_disk(&folder)?;
            } else if !is_unchanged {
                return Ok(None);
            }
            match left.site() {
                // That the old site could not be deleted does not change what was published.
                Ok(old) => kept.extend(left.delete(old).err().map(|why| (folder, why.to_string()))),
                Err(why) => {
                    replace(&folder, &out).map_err(failed("put back what was not a site into", &out))?;
                    // If it stays, the next one deletes it.
                    let _ = left.site().and_then(|new| left.delete(new));
                    return Err(why.of(&out));
                }
            }
        } else if !is_unchanged {
            return Ok(None);
        }
        Ok(Some(Published { folder: out, files, bytes, is_unchanged, kept }))
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
    look(out).map(|_| name)
}

/// The site at a folder. Anything but a site is refused.
fn look(out: &Path) -> Result<Option<Own>, SiteError> {
    Own::at(out, None).map_err(|why| why.of(out))
}

/// The folder that a folder is in.
pub(super) fn parent_of(out: &Path) -> &Path {
    out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts the site of a staging folder in the place of `out`, and what was there in the place of that site.
fn replace(staging: &Path, out: &Path) -> io::Result<()> {
    let new = site_in(staging);
    if !out.exists() {
        return fs::rename(new, out);
    }
    match rustix::fs::renameat_with(CWD, &new, CWD, out, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        // The file system cannot exchange two folders.
        Err(error) if [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&error) => {
            replace_in_steps(staging, out)
        }
        Err(error) => Err(error.into()),
    }
}

/// As [`replace`]. For a moment there is no site; the old one comes back if the new one cannot come.
fn replace_in_steps(staging: &Path, out: &Path) -> io::Result<()> {
    let (new, old) = (site_in(staging), old_in(staging));
    fs::rename(out, &old)?;
    if let Err(error) = fs::rename(&new, out) {
        fs::rename(&old, out)?;
        return Err(error);
    }
    fs::rename(&old, &new)
}

#[cfg(test)]
mod tests {
    use super::super::files::File;
    use super::super::staging::Staging;
    use super::*;

    fn staged(out: &Path, text: &str) -> StagedSite {
        let mut staging = Staging::create(out).unwrap();
        staging.write(&File::new("index.html", text)).unwrap();
        staging.complete().unwrap()
    }

    #[test]
    fn a_complete_site_takes_the_place_of_the_old_one_once_however_often_it_is_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("site");
        let first = staged(&out, "first");
        assert!(!out.exists());
        assert!(!first.clone().publish().unwrap().unwrap().is_unchanged);
        // As after a crash between the exchange and the record of it.
        assert!(first.clone().publish().unwrap().is_some());
        let second = staged(&out, "second");
        assert_eq!(fs::read_to_string(out.join("index.html")).unwrap(), "first");
        second.publish().unwrap().unwrap();
        assert_eq!(first.publish().unwrap(), None);
        assert_eq!(fs::read_to_string(out.join("index.html")).unwrap(), "second");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_site_is_complete_once_each_of_its_files_is_on_disk() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("site");
        let mut staging = Staging::create(&out).unwrap();
        for file in ["index.html", "pages/docs/auth.md.html"] {
            staging.write(&File::new(file, "x")).unwrap();
        }
        // It is opened to be put on disk.
        let lost = site_in(staging.path()).join("pages/docs/auth.md.html");
        fs::remove_file(&lost).unwrap();
        let error = staging.complete().unwrap_err().to_string();
        assert!(error.contains("put on disk") && error.contains("auth.md.html"), "{error}");
        assert!(!out.exists());
    }

    #[test]
    fn a_folder_that_comes_into_the_place_before_the_replacement_goes_back() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("site");
        let mine = place.path().join("mine");
        for has_site in [false, true] {
            if has_site {
                staged(&out, "first").publish().unwrap().unwrap();
            }
            fs::create_dir(&mine).unwrap();
            fs::write(mine.join("thesis.md"), "x").unwrap();
            let moved = || {
                let _ = fs::rename(&out, place.path().join("moved"));
                fs::rename(&mine, &out).unwrap();
            };
            let error = staged(&out, "second").publish_after(moved).unwrap_err().to_string();
            assert!(error.contains("site is not replaced, because it has thesis.md"), "{error}");
            assert_eq!(fs::read_to_string(out.join("thesis.md")).unwrap(), "x");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1 + usize::from(has_site));
            fs::remove_dir_all(&out).unwrap();
        }
    }

    #[test]
    fn a_folder_is_replaced_where_two_cannot_be_exchanged() {
        let place = tempfile::tempdir().unwrap();
        let (staging, out) = (place.path().join(".site.publish-1"), place.path().join("site"));
        for (folder, name) in [(&site_in(&staging), "new"), (&out, "old")] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(name), "").unwrap();
        }
        replace_in_steps(&staging, &out).unwrap();
        assert!(out.join("new").exists() && site_in(&staging).join("old").exists());
        fs::remove_dir_all(site_in(&staging)).unwrap();
        assert!(replace_in_steps(&staging, &out).is_err());
        assert!(out.join("new").exists());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_old_site_comes_back_if_the_process_was_killed_before_the_new_one_was_there() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("site");
        staged(&out, "first").publish().unwrap().unwrap();
        let second = staged(&out, "second");
        fs::rename(&out, old_in(&second.folder)).unwrap();
        let third = staged(&out, "third");
        assert_eq!(fs::read_to_string(out.join("index.html")).unwrap(), "first");
        assert_eq!(second.publish().unwrap(), None);
        third.publish().unwrap().unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
