//! The covers of what is hidden, and what keeps the program from moving a covered path away.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use libc::c_int;

use crate::calls::{done, exists, unless_gone};
use crate::mounts::{bind_on, c_path, make_read_only, move_mount, open_tree};

/// A path and what covers it.
#[derive(Debug)]
pub(super) struct Covered {
    place: CString,
    cover: Cover,
    /// The folder that it is in; `None` of a socket, which may go at any time.
    parent: Option<CString>,
    /// The folders between it and what stays visible in it, each after the one that contains it.
    between: Vec<CString>,
    /// What stays visible in it, with room for its mount.
    visible: Vec<(CString, Cover, Option<c_int>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    /// An empty folder.
    Folder,
    /// An empty file in place of a file or a socket.
    File,
}

impl Covered {
    /// `None` if there is nothing to cover, or if it is itself to stay visible.
    pub(super) fn of(place: &Path, visible: &[PathBuf]) -> Option<Self> {
        let within = visible.iter().filter(|path| path.starts_with(place));
        if visible.iter().any(|path| path == place) {
            return None;
        }
        let between: BTreeSet<&Path> =
            within.clone().flat_map(|path| path.ancestors().skip(1).take_while(|folder| *folder != place)).collect();
        Some(Self {
            place: c_path(place)?,
            cover: Cover::of(place)?,
            parent: place.parent().filter(|_| !is_socket(place)).and_then(c_path),
            between: between.into_iter().filter_map(c_path).collect(),
            visible: within.filter_map(|path| Some((c_path(path)?, Cover::of(path)?, None))).collect(),
        })
    }

    /// Leaves out what was removed meanwhile: a socket, or something with the folder that it was in. What is only absent itself may be on
    /// its way back.
    pub(super) fn hide(&mut self) -> io::Result<()> {
        let covered = self.cover();
        match &self.parent {
            Some(parent) if exists(parent) => covered,
            Some(_) | None => unless_gone(&self.place, covered).map(drop),
        }
    }

    #[allow(unsafe_code, reason = "system calls")]
    fn cover(&mut self) -> io::Result<()> {
        if self.cover == Cover::File {
            return bind_on(c"/dev/null", &self.place);
        }
        for (path, _, mount) in &mut self.visible {
            *mount = unless_gone(path, open_tree(path))?;
        }
        let (kind, data) = (c"tmpfs".as_ptr(), c"mode=0700,size=64k,nr_inodes=64".as_ptr());
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        // SAFETY: texts that live through the call.
        done(unsafe { libc::mount(kind, self.place.as_ptr(), kind, flags, data.cast()) })?;
        for folder in &self.between {
            Cover::Folder.create(folder)?;
        }
        for (path, cover, mount) in &self.visible {
            if let Some(mount) = mount {
                cover.create(path)?;
                move_mount(*mount, path)?;
            }
        }
        make_read_only(&self.place)
    }
}

impl Cover {
    /// `None` if there is nothing to cover.
    pub(super) fn of(place: &Path) -> Option<Self> {
        Some(if fs::metadata(place).ok()?.is_dir() { Self::Folder } else { Self::File })
    }

    /// Creates what a mount of this kind can be put on.
    #[allow(unsafe_code, reason = "system calls")]
    pub(super) fn create(self, place: &CStr) -> io::Result<()> {
        // SAFETY: a path that lives through the call, and integers.
        done(unsafe {
            match self {
                Self::Folder => libc::mkdir(place.as_ptr(), 0o755),
                Self::File => libc::mknod(place.as_ptr(), libc::S_IFREG | 0o600, 0),
            }
        })
    }
}

fn is_socket(place: &Path) -> bool {
    fs::symlink_metadata(place).is_ok_and(|about| about.file_type().is_socket())
}

/// Whether a program of this user could move the folder: its parent is this user's to change, or to give permissions for.
#[allow(unsafe_code, reason = "system calls")]
pub(super) fn could_be_moved(folder: &Path) -> bool {
    let Some((parent, path)) = folder.parent().and_then(|parent| Some((parent, c_path(parent)?))) else { return false };
    // SAFETY: a path that lives through the call; the other takes no arguments and cannot fail.
    let (is_writable, user) = unsafe { (libc::access(path.as_ptr(), libc::W_OK) == 0, libc::geteuid()) };
    is_writable || parent.metadata().is_ok_and(|about| about.uid() == user)
}

/// The symbolic links on the ways to these paths, by paths without links; those of a circle are left out.
pub(super) fn links_to(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    const MOST: usize = 40;
    let mut links = BTreeSet::new();
    let mut ways: Vec<PathBuf> = paths.to_vec();
    for _ in 0..MOST {
        let mut next = Vec::new();
        for way in &ways {
            // The first link of the way; what follows it is looked at in the next round.
            let link = way.ancestors().collect::<Vec<_>>().into_iter().rev().find(|part| part.is_symlink());
            if let Some(link) = link
                && let (Some(folder), Ok(target)) = (link.parent(), fs::read_link(link))
                && let (Ok(folder), Some(name), Ok(rest)) =
                    (folder.canonicalize(), link.file_name(), way.strip_prefix(link))
            {
                links.insert(folder.join(name));
                next.push(folder.join(target).join(rest));
            }
        }
        ways = next;
    }
    links
}
