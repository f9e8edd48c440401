//! Hides files and folders from a program and from all that it starts, whatever else they may read and write: in a mount namespace they
//! are covered by something empty. The namespace belongs to a user namespace, so that the program
//!
//! - cannot remove the covers: it has no capability to mount there, and in a user namespace that it creates itself the kernel locks them,
//! - cannot enter the file system of a process outside, by `/proc/PID/root`, its memory or its descriptors: that needs the right to trace
//!   it, which the kernel refuses across user namespaces.
//!
//! Where the kernel has Landlock's scopes (Linux 6.12), the program also cannot send signals to processes outside, nor connect to their
//! abstract sockets.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libc::{c_int, c_long};

use crate::calls::{done, done_long};
use crate::capabilities::drop_capabilities;
use crate::identity::Identity;
use crate::mounts::{Mounted, bind, bind_on, c_path, make_read_only, move_mount, open_tree};
use crate::processes::exit;

/// The character devices that programs of the superuser find in `/dev`. Those of disks and of memory have all that is hidden.
const DEVICES: [&str; 14] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
    "/dev/mqueue",
    "/dev/fuse",
    "/dev/net",
    "/dev/kvm",
    "/dev/dri",
];

/// The links of `/dev` to a process's own descriptors.
const LINKS: [(&CStr, &CStr); 4] = [
    (c"/proc/self/fd", c"/dev/fd"),
    (c"/proc/self/fd/0", c"/dev/stdin"),
    (c"/proc/self/fd/1", c"/dev/stdout"),
    (c"/proc/self/fd/2", c"/dev/stderr"),
];

/// The capabilities by which a program of the superuser could remove a cover or go around it: to mount (21), to open files by handles (2),
/// to trace (19), to make device files (27) and to change the root folder (18).
const AROUND_COVERS: u64 = 1 << 21 | 1 << 2 | 1 << 19 | 1 << 27 | 1 << 18;

/// What a program does not see.
#[derive(Debug)]
pub struct Hiding {
    covers: Vec<Covered>,
    /// The folders that contain covers and that the program could move away, so that others would be made in their places.
    pins: Vec<CString>,
    identity: Identity,
    /// `None` for an ordinary user, whom other users' files refuse anyway.
    system: Option<System>,
    /// A Landlock ruleset that restricts signals and abstract sockets.
    scopes: Option<OwnedFd>,
}

/// A path and what covers it.
#[derive(Debug)]
struct Covered {
    place: CString,
    cover: Cover,
    /// The folders between it and what stays visible in it, each after the one that contains it.
    between: Vec<CString>,
    /// What stays visible in it, with room for its mount.
    visible: Vec<(CString, Cover, c_int)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    /// An empty folder.
    Folder,
    /// An empty file in place of a file or a socket.
    File,
}

/// What keeps a program of the superuser, who owns the system's files, from having the system start something outside.
#[derive(Debug)]
struct System {
    /// The program may write here, and in the folder that it starts in.
    writable: Vec<CString>,
    /// Room for their mounts, while these are moved into place.
    mounts: Vec<c_int>,
    devices: Vec<(CString, Cover)>,
    device_mounts: Vec<c_int>,
}

impl Hiding {
    /// Hides these files and folders, by absolute paths; what does not exist is left out. `visible` is
    /// in hidden folders and can be read all the same, or connected to. A program of the superuser may besides write only in the folder that it starts in and in `writable`.
    ///
    /// # Errors
    /// Why the kernel cannot do this for this process. It is tested once, in a child that runs no program.
    pub fn of(hidden: &[PathBuf], visible: &[PathBuf], writable: &[PathBuf]) -> io::Result<Self> {
        static WORKS: OnceLock<Result<(), (Option<i32>, String)>> = OnceLock::new();
        let works = WORKS.get_or_init(|| works().map_err(|error| (error.raw_os_error(), error.to_string())));
        match works {
            Ok(()) => Self::untested(hidden, visible, writable),
            Err((Some(code), _)) => Err(io::Error::from_raw_os_error(*code)),
            Err((None, text)) => Err(io::Error::other(text.clone())),
        }
    }

    fn untested(hidden: &[PathBuf], visible: &[PathBuf], writable: &[PathBuf]) -> io::Result<Self> {
        let mounted = Mounted::read()?;
        let places: BTreeSet<PathBuf> = hidden
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .flat_map(|path| mounted.places_of(&path).into_iter().chain([path]).collect::<Vec<_>>())
            .collect();
        let mut outermost: Vec<PathBuf> = Vec::new();
        for place in places {
            // Ordered: a folder comes before its content.
            if !outermost.last().is_some_and(|outer| place.starts_with(outer)) {
                outermost.push(place);
            }
        }
        let pins: BTreeSet<&Path> = outermost
            .iter()
            .flat_map(|place| place.ancestors().skip(1))
            .filter(|folder| could_be_moved(folder))
            .collect();
        let visible: Vec<PathBuf> = visible.iter().filter_map(|path| path.canonicalize().ok()).collect();
        // SAFETY: it takes no arguments, and cannot fail.
        #[allow(unsafe_code, reason = "a system call")]
        let is_superuser = unsafe { libc::geteuid() } == 0;
        Ok(Self {
            covers: outermost.iter().filter_map(|place| Covered::of(place, &visible)).collect(),
            pins: pins.into_iter().filter_map(c_path).collect(),
            identity: if is_superuser { Identity::all()? } else { Identity::own() },
            system: is_superuser.then(|| System::with(writable)),
            scopes: scopes(),
        })
    }

    /// Runs in the child, between fork and exec, where there is one thread.
    #[allow(unsafe_code, reason = "system calls")]
    fn take_on(&mut self) -> io::Result<()> {
        self.identity.enter()?;
        let none = std::ptr::null();
        // SAFETY: a path that lives through the call; what is null is not read. Mounts in this namespace do not propagate to others.
        done(unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) })?;
        if let Some(system) = &mut self.system {
            system.protect()?;
        }
        for folder in &self.pins {
            bind(folder)?;
        }
        for covered in &mut self.covers {
            covered.hide()?;
        }
        enter_again()?;
        if let Some(scopes) = &self.scopes {
            // SAFETY: a descriptor that is open, and flags.
            done_long(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, scopes.as_raw_fd(), 0) })?;
        }
        drop_capabilities(if self.system.is_some() { !AROUND_COVERS } else { 0 })
    }
}

/// Starts the program without what is hidden. It cannot undo this, nor can what it starts.
///
/// Call it after [`apart`](crate::apart) and [`marked`](crate::marked). A step that fails in the child is the error of
/// [`Command::spawn`], and the program does not run.
///
/// ```
/// use callboard_confine::{Hiding, hidden};
/// use std::process::Command;
///
/// if let Ok(hiding) = Hiding::of(&["/usr/share".into()], &[], &[]) {
///     let mut shell = Command::new("sh");
///     shell.args(["-c", "ls -A /usr/share"]);
///     assert_eq!(hidden(&mut shell, hiding).output()?.stdout, b"");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[allow(unsafe_code, reason = "a hook between fork and exec")]
pub fn hidden(command: &mut Command, mut hiding: Hiding) -> &mut Command {
    // SAFETY: `take_on` makes only system calls, on memory that was allocated before the fork; it neither allocates nor takes a
    // lock, so it may run in the child of a process with several threads.
    unsafe { command.pre_exec(move || hiding.take_on()) }
}

/// Keeps processes of the same user from reading the memory, the environment and the descriptors of this process, and from tracing it.
/// The kernel writes no core dump of it either.
///
/// # Errors
/// The kernel refuses it.
#[allow(unsafe_code, reason = "a system call")]
pub fn forbid_inspection() -> io::Result<()> {
    // SAFETY: integers alone.
    done(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })
}

impl Covered {
    /// `None` if there is nothing to cover, or if it is itself to stay visible.
    fn of(place: &Path, visible: &[PathBuf]) -> Option<Self> {
        let within = visible.iter().filter(|path| path.starts_with(place));
        if visible.iter().any(|path| path == place) {
            return None;
        }
        let between: BTreeSet<&Path> =
            within.clone().flat_map(|path| path.ancestors().skip(1).take_while(|folder| *folder != place)).collect();
        Some(Self {
            place: c_path(place)?,
            cover: Cover::of(place)?,
            between: between.into_iter().filter_map(c_path).collect(),
            visible: within.filter_map(|path| Some((c_path(path)?, Cover::of(path)?, -1))).collect(),
        })
    }

    #[allow(unsafe_code, reason = "system calls")]
    fn hide(&mut self) -> io::Result<()> {
        if self.cover == Cover::File {
            return bind_on(c"/dev/null", &self.place);
        }
        for (path, _, mount) in &mut self.visible {
            *mount = open_tree(path)?;
        }
        let (kind, data) = (c"tmpfs".as_ptr(), c"mode=0700,size=64k,nr_inodes=64".as_ptr());
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        // SAFETY: texts that live through the call.
        done(unsafe { libc::mount(kind, self.place.as_ptr(), kind, flags, data.cast()) })?;
        for folder in &self.between {
            Cover::Folder.create(folder)?;
        }
        for (path, cover, mount) in &self.visible {
            cover.create(path)?;
            move_mount(*mount, path)?;
        }
        make_read_only(&self.place)
    }
}

impl Cover {
    /// `None` if there is nothing to cover.
    fn of(place: &Path) -> Option<Self> {
        Some(if fs::metadata(place).ok()?.is_dir() { Self::Folder } else { Self::File })
    }

    /// Creates what a mount of this kind can be put on.
    #[allow(unsafe_code, reason = "system calls")]
    fn create(self, place: &CStr) -> io::Result<()> {
        // SAFETY: a path that lives through the call, and integers.
        done(unsafe {
            match self {
                Self::Folder => libc::mkdir(place.as_ptr(), 0o755),
                Self::File => libc::mknod(place.as_ptr(), libc::S_IFREG | 0o600, 0),
            }
        })
    }
}

impl System {
    fn with(writable: &[PathBuf]) -> Self {
        let named = writable.iter().filter_map(|path| c_path(&path.canonicalize().ok()?));
        let writable: Vec<_> = [c".".to_owned()].into_iter().chain(named).collect();
        let devices: Vec<_> =
            DEVICES.iter().map(Path::new).filter_map(|device| Some((c_path(device)?, Cover::of(device)?))).collect();
        Self { mounts: vec![-1; writable.len()], writable, device_mounts: vec![-1; devices.len()], devices }
    }

    /// Makes the file system read-only except for what is writable, and leaves of the devices those that are listed.
    #[allow(unsafe_code, reason = "system calls")]
    fn protect(&mut self) -> io::Result<()> {
        for (path, mount) in self.writable.iter().zip(&mut self.mounts) {
            *mount = open_tree(path)?;
        }
        for ((path, _), mount) in self.devices.iter().zip(&mut self.device_mounts) {
            *mount = open_tree(path)?;
        }
        make_read_only(c"/")?;
        for (path, mount) in self.writable.iter().zip(&self.mounts) {
            move_mount(*mount, path)?;
        }
        let (kind, data) = (c"tmpfs".as_ptr(), c"mode=0755,size=64k".as_ptr());
        // SAFETY: texts that live through the call.
        done(unsafe { libc::mount(kind, c"/dev".as_ptr(), kind, libc::MS_NOSUID | libc::MS_NOEXEC, data.cast()) })?;
        for ((path, cover), mount) in self.devices.iter().zip(&self.device_mounts) {
            cover.create(path)?;
            move_mount(*mount, path)?;
        }
        for (target, link) in LINKS {
            // SAFETY: paths that live through the call.
            done(unsafe { libc::symlink(target.as_ptr(), link.as_ptr()) })?;
        }
        Ok(())
    }
}

/// Enters the current folder by its path: until then the process is in the folder below what was mounted on it.
#[allow(unsafe_code, reason = "system calls")]
fn enter_again() -> io::Result<()> {
    let mut path = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: memory of this size that lives through the call, which writes a path that ends with a zero byte.
    done_long(unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) })?;
    // SAFETY: a path that ends with a zero byte.
    done(unsafe { libc::chdir(path.as_ptr().cast()) })
}

/// Whether a program of this user could move the folder: its parent is this user's to change.
#[allow(unsafe_code, reason = "a system call")]
fn could_be_moved(folder: &Path) -> bool {
    folder.parent().and_then(c_path).is_some_and(|parent| {
        // SAFETY: a path that lives through the call.
        unsafe { libc::access(parent.as_ptr(), libc::W_OK) == 0 }
    })
}

/// A ruleset that restricts signals and abstract sockets to the program and what it starts; `None` before Linux 6.12.
#[allow(unsafe_code, reason = "a system call")]
fn scopes() -> Option<OwnedFd> {
    /// The argument of `landlock_create_ruleset`.
    #[repr(C)]
    struct Attributes {
        files: u64,
        network: u64,
        scoped: u64,
    }
    const ABSTRACT_SOCKETS: u64 = 1;
    const SIGNALS: u64 = 2;
    let attributes = Attributes { files: 0, network: 0, scoped: ABSTRACT_SOCKETS | SIGNALS };
    let (call, size) = (libc::SYS_landlock_create_ruleset, size_of::<Attributes>() as c_long);
    // SAFETY: attributes of this size, which live through the call.
    let ruleset = unsafe { libc::syscall(call, &raw const attributes, size, 0) };
    // SAFETY: a descriptor that is open, and that nothing else has.
    (ruleset >= 0).then(|| unsafe { OwnedFd::from_raw_fd(ruleset as c_int) })
}

/// Whether a program without what is hidden can be started.
#[allow(unsafe_code, reason = "a hook between fork and exec")]
fn works() -> io::Result<()> {
    let mut hiding = Hiding::untested(&[std::env::temp_dir()], &[], &[])?;
    // The child ends before a program is run: the program in PATH could be one of another user.
    let mut nothing = Command::new("/");
    nothing.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    let enter = move || {
        hiding.take_on()?;
        exit(0)
    };
    // SAFETY: it makes only system calls, on memory that was allocated before the fork.
    let nothing = unsafe { nothing.pre_exec(enter) };
    nothing.status().map(drop)
}
