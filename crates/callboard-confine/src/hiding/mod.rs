//! Hides files and folders from a program and from all that it starts, whatever else they may read and write: in a mount namespace they
//! are covered by something empty. The namespace belongs to a user namespace, so that the program
//!
//! - cannot remove the covers: it has no capability to mount there, and in a user namespace that it creates itself the kernel locks them,
//! - cannot enter the file system of a process outside, by `/proc/PID/root`, its memory or its descriptors: that needs the right to trace
//!   it, which the kernel refuses across user namespaces.
//!
//! Where the kernel has Landlock's scopes (Linux 6.12), the program also cannot send signals to processes outside, nor connect to their
//! abstract sockets.

mod covers;
mod limits;
mod system;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::calls::{done, done_long, unless_gone};
use crate::capabilities::drop_capabilities;
use crate::identity::Identity;
use crate::mounts::{Mounted, bind, bind_link, c_path, make_read_only};
use crate::processes::exit;

use covers::{Covered, could_be_moved, links_to};
use limits::{limit_namespaces, refuse_limits_of_others, scopes};
use system::{System, own_terminals};

/// By these the processes of a user are frozen and killed, whatever the program may signal.
const CONTROL: [&str; 1] = ["/sys/fs/cgroup"];

/// The capabilities by which a program of the superuser could remove a cover or go around it: to mount (21), to open files by handles (2),
/// to trace (19), to make device files (27) and to change the root folder (18).
const AROUND_COVERS: u64 = 1 << 21 | 1 << 2 | 1 << 19 | 1 << 27 | 1 << 18;

/// What a program does not see.
#[derive(Debug)]
pub struct Hiding {
    covers: Vec<Covered>,
    /// The folders that contain covers and that the program could move away, so that others would be made in their places.
    pins: Vec<CString>,
    /// The symbolic links on the ways to covers that the program could replace.
    links: Vec<CString>,
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

impl Hiding {
    /// Hides these files and folders, by absolute paths; what does not exist when the program starts is left out. `visible` is in hidden folders and can be read
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
        let links = links_to(hidden);
        let pins: BTreeSet<&Path> = outermost
            .iter()
            .chain(&links)
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
            links: links.iter().filter(|link| could_be_moved(link)).filter_map(|link| c_path(link)).collect(),
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
            unless_gone(folder, bind(folder))?;
        }
        for link in &self.links {
            unless_gone(link, bind_link(link))?;
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

/// Enters the current folder by its path: until then the process is in the folder below what was mounted on it.
#[allow(unsafe_code, reason = "system calls")]
fn enter_again() -> io::Result<()> {
    let mut path = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: memory of this size that lives through the call, which writes a path that ends with a zero byte.
    done_long(unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) })?;
    // SAFETY: a path that ends with a zero byte.
    done(unsafe { libc::chdir(path.as_ptr().cast()) })
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The limits of namespaces cannot be set then, so that a program could leave none for the next one.
    #[test]
    fn where_the_settings_of_the_kernel_are_read_only_nothing_is_hidden_and_the_reason_is_kept() {
        const CHILD: &str = "CALLBOARD_READ_ONLY_SETTINGS";
        let hiding = || Hiding::of(&[std::env::temp_dir()], &[], &[]);
        if std::env::var_os(CHILD).is_some() {
            for _ in 0..2 {
                let error = hiding().err().unwrap().to_string();
                assert!(error.contains("Read-only file system") && Hiding::is_unsupported(), "{error}");
            }
            println!("refused");
            return;
        }
        let within = |line: &str| {
            let mut shell = Command::new("unshare");
            shell.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
            let mounts = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys";
            shell.arg(format!("{mounts} && {line}")).arg(std::env::current_exe().unwrap());
            shell.args(["--exact", "--nocapture"]).arg(std::thread::current().name().unwrap());
            shell.env(CHILD, "1").output()
        };
        // Where no namespaces can be made, nothing can be hidden either.
        if hiding().is_err() || !within("true").is_ok_and(|output| output.status.success()) {
            return;
        }
        let output = within("exec \"$0\" \"$@\"").unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("refused"), "{output:?}");
    }

    #[test]
    fn what_is_removed_before_the_program_starts_is_left_out() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("folder");
        fs::create_dir_all(folder.join("state/visible")).unwrap();
        let (socket, link) = (folder.join("socket"), folder.join("link"));
        drop(UnixListener::bind(&socket).unwrap());
        symlink(folder.join("state"), &link).unwrap();
        let kept = base.path().join("kept");
        fs::write(&kept, "secret").unwrap();
        let hides = [socket, folder.join("state"), link, kept.clone()];
        let Ok(hiding) = Hiding::of(&hides, &[folder.join("state/visible")], &[]) else { return };
        fs::remove_dir_all(&folder).unwrap();
        let mut shell = Command::new("cat");
        let output = hidden(shell.arg(&kept), hiding).output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    }

    #[test]
    fn a_file_that_is_absent_when_the_program_starts_may_come_back_so_the_program_does_not_start() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, aside) = (folder.path().join("kept"), folder.path().join("aside"));
        fs::write(&kept, "secret").unwrap();
        let Ok(hiding) = Hiding::of(std::slice::from_ref(&kept), &[], &[]) else { return };
        fs::rename(&kept, aside).unwrap();
        let error = hidden(&mut Command::new("true"), hiding).spawn().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
