//! Mounts: the system calls by which they are made between fork and exec, and what is mounted where.

use std::ffi::{CStr, CString, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use libc::{c_int, c_long};

use crate::calls::{done, done_long};

/// The mounts of this process, in the order in which they were made.
pub(crate) struct Mounted(Vec<Mount>);

struct Mount {
    /// Major and minor number of the file system.
    device: String,
    /// The folder of the file system that is mounted.
    root: PathBuf,
    point: PathBuf,
    /// The folders of which an overlay is made: what is in it is in one of them too.
    layers: Vec<PathBuf>,
}

impl Mounted {
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self::of(&fs::read("/proc/self/mountinfo")?))
    }

    /// Reads `/proc/PID/mountinfo`.
    fn of(lines: &[u8]) -> Self {
        let mount = |line: &[u8]| {
            let mut words = line.split(|byte| *byte == b' ').skip(2);
            let device = String::from_utf8(words.next()?.to_vec()).ok()?;
            let (root, point) = (unescaped(words.next()?), unescaped(words.next()?));
            let mut system = words.skip_while(|word| *word != b"-").skip(1);
            let is_overlay = system.next() == Some(b"overlay");
            let layers = system.nth(1).filter(|_| is_overlay).map(layers).unwrap_or_default();
            Some(Mount { device, root, point, layers })
        };
        Self(lines.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }

    /// The other places at which a file or folder, or a part of it, is mounted.
    pub(crate) fn places_of(&self, path: &Path) -> Vec<PathBuf> {
        let holds = |mount: &&Mount| path.starts_with(&mount.point);
        // Of several the innermost, and of those at the same place the last.
        let Some(own) = self.0.iter().filter(holds).max_by_key(|mount| mount.point.components().count()) else {
            return Vec::new();
        };
        let Ok(below) = path.strip_prefix(&own.point) else { return Vec::new() };
        let inside = joined(&own.root, below);
        let elsewhere = |mount: &Mount| {
            if mount.device != own.device {
                return None;
            }
            match inside.strip_prefix(&mount.root) {
                Ok(below) => Some(joined(&mount.point, below)),
                Err(_) => mount.root.starts_with(&inside).then(|| mount.point.clone()),
            }
        };
        let layers = own.layers.iter().map(|layer| joined(layer, inside.strip_prefix("/").unwrap_or(&inside)));
        self.0.iter().filter_map(elsewhere).filter(|place| place != path).chain(layers).collect()
    }
}

/// The folders in the options of an overlay.
fn layers(options: &[u8]) -> Vec<PathBuf> {
    let options = options.split(|byte| *byte == b',').filter_map(|option| {
        let at = option.iter().position(|byte| *byte == b'=')?;
        Some((&option[..at], &option[at + 1..]))
    });
    let folders = options.filter(|(name, _)| [&b"upperdir"[..], b"lowerdir", b"lowerdir+", b"datadir+"].contains(name));
    folders
        .flat_map(|(_, folders)| folders.split(|byte| *byte == b':'))
        .map(unescaped)
        .filter(|it| it.is_absolute())
        .collect()
}

/// Without the separator that `join` adds before nothing.
fn joined(folder: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { folder.to_owned() } else { folder.join(below) }
}

/// A path of the list, in which white space and backslashes are in octal.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut path = Vec::new();
    let mut rest = word;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match after.get(..3).filter(|_| *byte == b'\\').and_then(octal) {
            Some(escaped) => {
                path.push(escaped);
                rest = &after[3..];
            }
            None => path.push(*byte),
        }
    }
    OsString::from_vec(path).into()
}

pub(crate) fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Bind mounts a path on itself.
pub(crate) fn bind(path: &CStr) -> io::Result<()> {
    bind_on(path, path)
}

/// Bind mounts a path on another.
#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn bind_on(source: &CStr, target: &CStr) -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: paths that live through the call; what is null is not read.
    done(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), none, libc::MS_BIND | libc::MS_REC, none.cast()) })
}

/// Bind mounts a symbolic link on itself: it is still a link to the same target.
#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn bind_link(path: &CStr) -> io::Result<()> {
    const BOTH_EMPTY_PATHS: c_int = 0x44;
    // SAFETY: a path that lives through the call. Exec closes the descriptor.
    let link = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) };
    done(link)?;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_EMPTY_PATH;
    // SAFETY: a descriptor that is open, a text that lives through the call, and integers.
    let mount = unsafe { libc::syscall(libc::SYS_open_tree, link, c"".as_ptr(), flags) };
    done_long(mount)?;
    let (call, empty) = (libc::SYS_move_mount, c"".as_ptr());
    // SAFETY: descriptors that are open, texts that live through the call, and integers.
    done_long(unsafe { libc::syscall(call, mount as c_int, empty, link, empty, BOTH_EMPTY_PATHS) })
}

/// The flag of `open_tree` for a detached mount.
const OPEN_TREE_CLONE: c_int = 1;

/// A detached bind mount of a path. Exec closes it.
#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn open_tree(path: &CStr) -> io::Result<c_int> {
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_RECURSIVE;
    // SAFETY: a path that lives through the call, and integers.
    let mount = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    done_long(mount)?;
    // A descriptor.
    Ok(mount as c_int)
}

#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn move_mount(mount: c_int, path: &CStr) -> io::Result<()> {
    const FROM_EMPTY_PATH: c_int = 4;
    let (call, empty, here) = (libc::SYS_move_mount, c"".as_ptr(), libc::AT_FDCWD);
    // SAFETY: paths that live through the call, a descriptor that is open, and integers.
    done_long(unsafe { libc::syscall(call, mount, empty, here, path.as_ptr(), FROM_EMPTY_PATH) })
}

/// Changes attributes of a mount and of all mounts below it.
#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn make_read_only(path: &CStr) -> io::Result<()> {
    /// The argument of `mount_setattr`.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const READ_ONLY: u64 = 1;
    let attributes = Attributes { set: READ_ONLY, clear: 0, propagation: 0, user_namespace: 0 };
    let (call, flags, size) = (libc::SYS_mount_setattr, libc::AT_RECURSIVE, size_of::<Attributes>() as c_long);
    // SAFETY: a path and attributes of this size, which live through the call.
    done_long(unsafe { libc::syscall(call, libc::AT_FDCWD, path.as_ptr(), flags, &raw const attributes, size) })
}

/// Writes the bytes to a file of the kernel in one call.
#[allow(unsafe_code, reason = "system calls")]
pub(crate) fn write(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: a path that lives through the call.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    done(file)?;
    // SAFETY: the descriptor is open, and the bytes live through the call.
    let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
    let failed = (written != bytes.len().cast_signed()).then(io::Error::last_os_error);
    // SAFETY: the descriptor is open, and used no more.
    unsafe { libc::close(file) };
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_places_at_which_a_folder_or_a_part_of_it_is_mounted_are_found() {
        let mounted = Mounted::of(
            b"22 1 254:0 / / rw,relatime - ext4 /dev/a rw\n\
              23 22 254:1 / /home rw - ext4 /dev/b rw\n\
              24 22 254:1 /u/.local /data\\040and\\040more rw - ext4 /dev/b rw\n\
              25 22 254:1 /u/.local/state/callboard/p /p rw - ext4 /dev/b rw\n\
              26 22 254:1 /v /other rw - ext4 /dev/b rw\n\
              27 22 0:5 / /tmp rw - tmpfs tmpfs rw\n",
        );
        let places = |path: &str| mounted.places_of(Path::new(path));
        let found = places("/home/u/.local/state/callboard");
        assert_eq!(found, [Path::new("/data and more/state/callboard"), Path::new("/p")]);
        assert_eq!(
            places("/p"),
            [Path::new("/home/u/.local/state/callboard/p"), Path::new("/data and more/state/callboard/p")]
        );
        assert_eq!(places("/tmp/callboard-1000"), Vec::<PathBuf>::new());
        assert_eq!(places("/etc"), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_is_in_an_overlay_is_in_its_layers_too() {
        let mounted = Mounted::of(
            b"22 1 254:0 / / rw,relatime - ext4 /dev/a rw\n\
              23 22 0:40 / /live rw master:1 - overlay overlay rw,lowerdir=/a\\040b:/c,upperdir=/up,workdir=/work\n",
        );
        let found = mounted.places_of(Path::new("/live/home/state"));
        assert_eq!(found, ["/a b/home/state", "/c/home/state", "/up/home/state"].map(Path::new));
        assert_eq!(mounted.places_of(Path::new("/home/state")), Vec::<PathBuf>::new());
    }
}
