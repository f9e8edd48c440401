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
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libc::{c_int, c_long};

use crate::calls::{done, done_long};
use crate::capabilities::drop_capabilities;
use crate::identity::Identity;
use crate::mounts::{Mounted, bind, bind_on, c_path, make_read_only, move_mount, open_tree, write};
use crate::processes::exit;

/// The character devices that programs of the superuser find in `/dev`. Those of disks and of memory have all that is hidden.
const DEVICES: [&str; 12] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/shm",
    "/dev/mqueue",
    "/dev/fuse",
    "/dev/net",
    "/dev/kvm",
    "/dev/dri",
];

/// By these the processes of a user are frozen and killed, whatever the program may signal.
const CONTROL: [&str; 1] = ["/sys/fs/cgroup"];

/// The namespaces of each of these kinds that a program may create: enough for sandboxes of its own, and too few to leave none for others.
const NAMESPACES: [&CStr; 3] =
    [c"/proc/sys/user/max_user_namespaces", c"/proc/sys/user/max_mnt_namespaces", c"/proc/sys/user/max_pid_namespaces"];

/// The links of `/dev` to terminals and to a process's own descriptors.
const LINKS: [(&CStr, &CStr); 5] = [
    (c"pts/ptmx", c"/dev/ptmx"),
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
    /// The paths that cannot be changed.
    read_only: Vec<CString>,
    /// A Landlock ruleset that restricts signals and abstract sockets.
    scopes: Option<OwnedFd>,
}

/// Whether a program without what is hidden can be started by this process; the text is why not.
static WORKS: OnceLock<Result<(), String>> = OnceLock::new();

/// Whether an error is one of a moment: of too much that exists or is open. Another program can cause it, so nothing follows from it for
/// good.
fn is_of_a_moment(error: &io::Error) -> bool {
    // The limit of namespaces counts also those that exist.
    let is_forbidden = || fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|most| most.trim() == "0");
    match error.raw_os_error() {
        Some(libc::ENOSPC) => !is_forbidden(),
        Some(libc::EAGAIN | libc::EINTR | libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EUSERS) => true,
        Some(_) | None => false,
    }
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
    /// Hides these files and folders, by absolute paths; what does not exist is left out. `visible` is in hidden folders and can be read
    /// all the same, or connected to. A program of the superuser may besides write only in the folder that it starts in and in `writable`.
    ///
    /// # Errors
    /// Why the kernel cannot do this, for this process or at this moment ([`Hiding::is_unsupported`]). That it can is tested once, in a child
    /// that runs no program.
    pub fn of(hidden: &[PathBuf], visible: &[PathBuf], writable: &[PathBuf]) -> io::Result<Self> {
        if WORKS.get().is_none() {
            let works = works();
            match works {
                Err(error) if is_of_a_moment(&error) => return Err(error),
                works => drop(WORKS.set(works.map_err(|error| error.to_string()))),
            }
        }
        match WORKS.get() {
            Some(Err(why)) => Err(io::Error::other(why.clone())),
            Some(Ok(())) | None => Self::untested(hidden, visible, writable),
        }
    }

    /// Whether [`Hiding::of`] was found to be impossible for this process. Its other failures, such as too many open files, are those of a
    /// moment.
    #[must_use]
    pub fn is_unsupported() -> bool {
        matches!(WORKS.get(), Some(Err(_)))
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
            read_only: CONTROL.iter().map(Path::new).filter(|path| path.exists()).filter_map(c_path).collect(),
            scopes: scopes()?,
        })
    }

    /// Runs in the child, between fork and exec, where there is one thread.
    #[allow(unsafe_code, reason = "system calls")]
    fn take_on(&mut self) -> io::Result<()> {
        self.identity.enter()?;
        let none = std::ptr::null();
        // SAFETY: a path that lives through the call; what is null is not read. Mounts in this namespace do not propagate to others.
        done(unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) })?;
        limit_namespaces()?;
        match &mut self.system {
            Some(system) => system.protect()?,
            None => own_terminals()?,
        }
        for path in &self.read_only {
            bind(path)?;
            make_read_only(path)?;
        }
        for folder in &self.pins {
            bind(folder)?;
        }
        for covered in &mut self.covers {
            covered.hide()?;
        }
        enter_again()?;
        refuse_limits_of_others()?;
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
        // A mount on `/` is below what paths lead to, and is found by `/..`.
        let named = writable.iter().filter_map(|path| path.canonicalize().ok()).filter(|path| path.parent().is_some());
        let named = named.filter_map(|path| c_path(&path));
        let writable: Vec<_> = [c".".to_owned()].into_iter().chain(named).collect();
        let devices: Vec<_> =
            DEVICES.iter().map(Path::new).filter_map(|device| Some((c_path(device)?, Cover::of(device)?))).collect();
        Self { mounts: vec![-1; writable.len()], writable, device_mounts: vec![-1; devices.len()], devices }
    }

    /// Makes the file system read-only except for what is writable, and leaves of the devices those that are listed.
    #[allow(unsafe_code, reason = "system calls")]
    fn protect(&mut self) -> io::Result<()> {
        let own = usize::from(is_in_root()?);
        for (path, mount) in self.writable.iter().zip(&mut self.mounts).skip(own) {
            *mount = open_tree(path)?;
        }
        for ((path, _), mount) in self.devices.iter().zip(&mut self.device_mounts) {
            *mount = open_tree(path)?;
        }
        make_read_only(c"/")?;
        for (path, mount) in self.writable.iter().zip(&self.mounts).skip(own) {
            move_mount(*mount, path)?;
        }
        let (kind, data) = (c"tmpfs".as_ptr(), c"mode=0755,size=64k".as_ptr());
        // SAFETY: texts that live through the call.
        done(unsafe { libc::mount(kind, c"/dev".as_ptr(), kind, libc::MS_NOSUID | libc::MS_NOEXEC, data.cast()) })?;
        for ((path, cover), mount) in self.devices.iter().zip(&self.device_mounts) {
            cover.create(path)?;
            move_mount(*mount, path)?;
        }
        // SAFETY: a path that lives through the call.
        done(unsafe { libc::mkdir(c"/dev/pts".as_ptr(), 0o755) })?;
        own_terminals()?;
        for (target, link) in LINKS {
            // SAFETY: paths that live through the call.
            done(unsafe { libc::symlink(target.as_ptr(), link.as_ptr()) })?;
        }
        Ok(())
    }
}

/// Gives the program terminals of its own, so that it cannot open those of its user: what a person types and sees there.
#[allow(unsafe_code, reason = "a system call")]
fn own_terminals() -> io::Result<()> {
    let (kind, data) = (c"devpts".as_ptr(), c"newinstance,ptmxmode=0666,mode=0620".as_ptr());
    // SAFETY: texts that live through the call.
    done(unsafe { libc::mount(kind, c"/dev/pts".as_ptr(), kind, libc::MS_NOSUID | libc::MS_NOEXEC, data.cast()) })
}

/// Limits the namespaces that are created in the one of this process.
fn limit_namespaces() -> io::Result<()> {
    NAMESPACES.iter().try_for_each(|limit| write(limit, b"64"))
}

/// Whether the current folder is `/`.
#[allow(unsafe_code, reason = "a system call")]
fn is_in_root() -> io::Result<bool> {
    let mut path = [0_u8; 2];
    // SAFETY: memory of this size that lives through the call.
    match done_long(unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) }) {
        Ok(()) => Ok(path == *b"/\0"),
        Err(error) if error.raw_os_error() == Some(libc::ERANGE) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Refuses changes of the resource limits of other processes, which the kernel allows between processes of one user: by them a process can
/// be ended, or kept from opening files. Its own limits and those that it reads are left.
#[allow(unsafe_code, reason = "a system call")]
fn refuse_limits_of_others() -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUALS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    /// `prlimit64` in the interface for 32-bit programs of x86.
    const OF_I386: u32 = 340;
    /// The bit of the interface with 32-bit addresses on x86-64.
    const WITHOUT_X32: u32 = !0x4000_0000;
    // The fields of `seccomp_data`, in little-endian order: the number, and the lower and upper words of arguments.
    const NUMBER: u32 = 0;
    const PROCESS: u32 = 16;
    const NEW_LIMIT: [u32; 2] = [32, 36];
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let program = [
        step(LOAD, NUMBER, 0, 0),
        step(AND, WITHOUT_X32, 0, 0),
        step(EQUALS, libc::SYS_prlimit64 as u32, 1, 0),
        step(EQUALS, OF_I386, 0, 7),
        step(LOAD, PROCESS, 0, 0),
        step(EQUALS, 0, 5, 0),
        step(LOAD, NEW_LIMIT[0], 0, 0),
        step(EQUALS, 0, 0, 2),
        step(LOAD, NEW_LIMIT[1], 0, 0),
        step(EQUALS, 0, 1, 0),
        step(RETURN, refused, 0, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program lives through the call, with as many instructions as it names; the kernel only reads them.
    done_long(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) })
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

/// Whether a program of this user could move the folder: its parent is this user's to change, or to give permissions for.
#[allow(unsafe_code, reason = "system calls")]
fn could_be_moved(folder: &Path) -> bool {
    let Some((parent, path)) = folder.parent().and_then(|parent| Some((parent, c_path(parent)?))) else { return false };
    // SAFETY: a path that lives through the call; the other takes no arguments and cannot fail.
    let (is_writable, user) = unsafe { (libc::access(path.as_ptr(), libc::W_OK) == 0, libc::geteuid()) };
    is_writable || parent.metadata().is_ok_and(|about| about.uid() == user)
}

/// A ruleset that restricts signals and abstract sockets to the program and what it starts; `None` before Linux 6.12.
#[allow(unsafe_code, reason = "a system call")]
fn scopes() -> io::Result<Option<OwnedFd>> {
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
    match done_long(ruleset) {
        // SAFETY: a descriptor that is open, and that nothing else has.
        Ok(()) => Ok(Some(unsafe { OwnedFd::from_raw_fd(ruleset as c_int) })),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::E2BIG | libc::EINVAL | libc::ENOMSG) => Ok(None),
            _ => Err(error),
        },
    }
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
    let status = nothing.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("a program ended with {status}"))) }
}
