//! What the programs of process agents and MCP servers do not see: what would let them decide about their own approvals. That is the
//! state of this process, its sockets, and the sockets of services that start programs of this user outside: session services,
//! containers, terminal multiplexers and the screen.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Hides a file or folder from the programs that process agents and MCP servers of this process start from now on, whatever else they
/// may read: a store, for example, or a folder with tokens. What does not exist when a program is started is not hidden from it. Sockets
/// of callboard and folders of the session are hidden without this.
///
/// Where the kernel cannot hide anything, programs are started all the same: [`can_hide_from_programs`] tells.
pub fn hide_from_programs(path: impl Into<PathBuf>) {
    #[cfg(target_os = "linux")]
    linux::add(path.into());
    #[cfg(not(target_os = "linux"))]
    drop(path.into());
}

/// As [`hide_from_programs`], for a folder that another process may create while a program runs: it is created, with mode 0700, before the
/// first program is started.
pub fn hide_folder_from_programs(folder: impl Into<PathBuf>) {
    #[cfg(target_os = "linux")]
    linux::add_folder(folder.into());
    #[cfg(not(target_os = "linux"))]
    drop(folder.into());
}

/// Whether the kernel hides files from programs.
///
/// ```
/// if let Err(why) = callboard_agents::can_hide_from_programs() {
///     eprintln!("programs of agents could decide about their own approvals: {why}");
/// }
/// ```
///
/// # Errors
/// Why it does not.
pub fn can_hide_from_programs() -> Result<(), String> {
    #[cfg(target_os = "linux")]
    return linux::can_hide();
    #[cfg(not(target_os = "linux"))]
    Err("only Linux has the namespaces that it needs".to_owned())
}

/// Whether a program of an agent or of an MCP server was started from which nothing could be hidden: it, and what it has started, may send
/// decisions to the sockets of this user.
#[must_use]
pub fn is_exposed_to_programs() -> bool {
    EXPOSED.load(Ordering::Relaxed)
}

static EXPOSED: AtomicBool = AtomicBool::new(false);

/// Hides from a program that is about to be started what programs of agents do not see, except for sockets that its own variables name
/// and for `visible`, which it can read. Where the kernel can hide nothing at all, the program sees everything
/// ([`is_exposed_to_programs`]). For programs that take part in runs in another way than as process agents. The program is to be
/// in a session of its own.
///
/// ```
/// use std::process::Command;
///
/// let mut program = Command::new("true");
/// callboard_agents::hide_from(&mut program, &[])?;
/// assert!(program.status()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The kernel cannot hide it at this moment. The program is not to be started then.
pub fn hide_from(program: &mut Command, visible: &[&Path]) -> io::Result<()> {
    hide(program, visible, Sockets::Named)
}

/// The hidden sockets that a program reaches nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// Those that its own variables name.
    Named,
    /// Those that its own variables name, but for the sockets of Docker and of other services that start containers.
    NamedButDocker,
}

/// As [`hide_from`], with these sockets.
pub(super) fn hide(program: &mut Command, visible: &[&Path], sockets: Sockets) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    linux::hide(program, visible, sockets)?;
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (program, visible, sockets);
        EXPOSED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether the value of a variable names a socket of Docker or of another service that starts containers.
pub(crate) fn names_docker(value: &str) -> bool {
    #[cfg(target_os = "linux")]
    return named([value]).iter().any(|socket| linux::is_of_docker(socket));
    #[cfg(not(target_os = "linux"))]
    named([value]).iter().any(|socket| socket.file_name().is_some_and(|name| name == "docker.sock"))
}

/// The sockets that variables name, as `DOCKER_HOST=unix:///run/docker.sock` or `SSH_AUTH_SOCK` do.
fn named<'v>(values: impl IntoIterator<Item = &'v str>) -> Vec<PathBuf> {
    let path = |value: &'v str| {
        let value = value.split(',').next().unwrap_or(value);
        let path = ["unix://", "unix:path=", "unix:"].iter().find_map(|prefix| value.strip_prefix(prefix));
        Some(Path::new(path.unwrap_or(value))).filter(|path| path.is_absolute()).map(Path::to_owned)
    };
    values.into_iter().filter_map(path).collect()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::env;
    use std::ffi::OsStr;
    use std::fs::{self, DirBuilder};
    use std::io;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::atomic::Ordering;

    use callboard_confine::{Hiding, hidden, while_nothing_is_reaped};
    use parking_lot::Mutex;
    use rustix::process::geteuid;

    use super::{EXPOSED, Sockets, named};

    /// The paths of [`hide_from_programs`](super::hide_from_programs).
    static ADDED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

    /// Sockets of services that start containers with any folder of the machine, and folders with such sockets.
    const CONTAINERS: [&str; 12] = [
        "/run/docker",
        "/run/k3s",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
        "/run/crio/crio.sock",
        "/run/buildkit/buildkitd.sock",
        "/run/libvirt",
        "/run/incus",
        "/var/lib/incus/unix.socket",
        "/var/lib/lxd/unix.socket",
        "/var/snap/lxd/common/lxd/unix.socket",
    ];

    /// Those in the home folder.
    const CONTAINERS_IN_HOME: [&str; 3] = [".docker/run", ".docker/desktop", ".colima"];

    /// Those in the folder of the session, which is hidden.
    const CONTAINERS_IN_SESSION: [&str; 6] =
        ["docker", "docker.sock", "podman", "containerd", "containerd-rootless", "buildkit"];

    /// The variables of the environment by which programs find such a socket elsewhere.
    const CONTAINER_VARIABLES: [&str; 2] = ["DOCKER_HOST", "CONTAINER_HOST"];

    /// Sockets of other services that start programs.
    const SERVICES: [&str; 2] = ["/run/screen", "/tmp/.X11-unix"];

    /// Those in the home folder.
    const IN_HOME: [&str; 3] = [".screen", ".pm2/rpc.sock", ".ssh/authorized_keys"];

    /// Further ones that do what the superuser asks.
    const SERVICES_OF_SUPERUSER: [&str; 5] = [
        "/run/dbus",
        "/run/systemd/private",
        "/run/systemd/io.systemd.Manager",
        "/run/snapd.socket",
        "/run/udev/control",
    ];

    /// The folders of [`hide_folder_from_programs`](super::hide_folder_from_programs).
    static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

    pub(super) fn add_folder(folder: PathBuf) {
        FOLDERS.lock().insert(folder);
    }

    pub(super) fn add(path: PathBuf) {
        ADDED.lock().insert(path);
    }

    pub(super) fn can_hide() -> Result<(), String> {
        let hiding = while_nothing_is_reaped(|| Hiding::of(&[], &[], &[]));
        hiding.map(drop).map_err(|error| {
            format!(
                "user namespaces, by which the kernel would hide the sockets and tokens of this user from them, are refused here ({error})"
            )
        })
    }

    pub(super) fn hide(command: &mut Command, visible: &[&Path], sockets: Sockets) -> io::Result<()> {
        let (session, ways) = (session(), own());
        let variables = || command.get_envs().filter_map(|(name, value)| Some((name, value?.to_str()?)));
        // Whatever variables say, callboard's own stay hidden.
        let own: Vec<PathBuf> = ways.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let is_given = |socket: &PathBuf| {
            socket.metadata().is_ok_and(|it| it.file_type().is_socket())
                && !own.iter().any(|own| socket.starts_with(own))
                && (sockets == Sockets::Named || !is_of_docker(socket))
        };
        let named = named(variables().map(|(_, value)| value));
        let sockets = named.iter().filter_map(|path| path.canonicalize().ok()).filter(is_given);
        let visible: Vec<PathBuf> = sockets.chain(visible.iter().map(|path| (*path).to_owned())).collect();
        let has_screen = variables().any(|(name, _)| name == "DISPLAY");
        let start = command.get_current_dir().map(Path::to_owned).or_else(|| env::current_dir().ok());
        if let Some(start) = start.as_ref().and_then(|start| start.canonicalize().ok())
            && let Some(hidden) = own.iter().find(|own| start.starts_with(own))
        {
            let why = format!(
                "it is to start in {}, and {} is hidden from programs of agents: it has stores or tokens of callboard",
                start.display(),
                hidden.display()
            );
            return Err(io::Error::other(why));
        }
        // What listens in the folder of its work belongs to that, unless that is the home folder with all that is below.
        let start_folder = start.as_ref().and_then(|start| start.canonicalize().ok());
        let start_folder = start_folder.filter(|start| !env::home_dir().is_some_and(|home| home.starts_with(start)));
        let given: Vec<&Path> = start_folder
            .iter()
            .map(PathBuf::as_path)
            .chain(has_screen.then_some(Path::new("/tmp/.X11-unix")))
            .collect();
        let listening = listening().into_iter().filter(|socket| !given.iter().any(|folder| socket.starts_with(folder)));
        // A program that works in such a folder needs it.
        let session = session
            .into_iter()
            .filter(|path| !has_screen || !path.ends_with(".X11-unix"))
            .filter(|path| !start.as_ref().is_some_and(|start| start.starts_with(path)));
        // With the links on the ways to callboard's own.
        let hides: Vec<PathBuf> = session.chain(listening).chain(ways).collect();
        let writable: Vec<PathBuf> = ["HOME", "TMPDIR"]
            .iter()
            .filter_map(env::var_os)
            .map(PathBuf::from)
            .chain(env::current_dir())
            .chain(["/tmp".into(), "/var/tmp".into()])
            .collect();
        match while_nothing_is_reaped(|| Hiding::of(&hides, &visible, &writable)) {
            Ok(hiding) => {
                hidden(command, hiding);
                Ok(())
            }
            Err(error) if Hiding::is_unsupported() => {
                EXPOSED.store(true, Ordering::Relaxed);
                tracing::warn!(target: "callboard::process", %error, "nothing can be hidden from the programs of agents");
                Ok(())
            }
            Err(error) => {
                let why = format!("what it is not to see cannot be hidden from it at this moment: {error}");
                Err(io::Error::new(error.kind(), why))
            }
        }
    }

    /// The folders and sockets of callboard.
    fn own() -> Vec<PathBuf> {
        let user = geteuid().as_raw();
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("callboard"));
        let of_sockets = [format!("/run/user/{user}/callboard"), format!("/tmp/callboard-{user}")].map(PathBuf::from);
        let folders: Vec<PathBuf> = FOLDERS.lock().iter().cloned().chain(runtime).chain(of_sockets).collect();
        // What is not there cannot be covered, and a process could make it while the program runs.
        for folder in &folders {
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        }
        ADDED.lock().iter().cloned().chain(folders).collect()
    }

    /// Whether it is a socket of a service that starts containers, or below a folder with such sockets.
    pub(super) fn is_of_docker(socket: &Path) -> bool {
        let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (places, target) = (containers(), resolved(socket));
        places.iter().any(|place| socket.starts_with(place) || target.starts_with(resolved(place)))
    }

    /// The sockets of services that start containers, and folders with such sockets.
    fn containers() -> Vec<PathBuf> {
        let in_home = env::home_dir().into_iter().flat_map(|home| CONTAINERS_IN_HOME.map(|place| home.join(place)));
        let user = geteuid().as_raw();
        let sessions = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let sessions = sessions.into_iter().chain([format!("/run/user/{user}").into()]);
        let in_session = sessions.flat_map(|session| CONTAINERS_IN_SESSION.map(|place| session.join(place)));
        let variables = CONTAINER_VARIABLES.iter().filter_map(env::var_os);
        let elsewhere = variables.flat_map(|value| named(value.to_str()));
        let elsewhere = elsewhere.filter(|path| path.metadata().is_ok_and(|it| it.file_type().is_socket()));
        CONTAINERS.iter().map(PathBuf::from).chain(in_home).chain(in_session).chain(elsewhere).collect()
    }

    /// The sockets on which processes of this user listen, by their paths.
    fn listening() -> Vec<PathBuf> {
        let user = geteuid().as_raw();
        let sockets = fs::read("/proc/net/unix").unwrap_or_default();
        let is_own = |path: &PathBuf| path.metadata().is_ok_and(|it| it.file_type().is_socket() && it.uid() == user);
        sockets.split(|byte| *byte == b'\n').filter_map(listens_at).filter(is_own).collect()
    }

    /// The path of a listening socket in a line of `/proc/net/unix`: a number, two counts, the flags, the type, the state and the inode
    /// come before it.
    fn listens_at(line: &[u8]) -> Option<PathBuf> {
        const LISTENS: u32 = 1 << 16;
        let (before, path) = line.split_at(line.iter().position(|byte| *byte == b'/')?);
        let words: Vec<&[u8]> = before.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        let flags = u32::from_str_radix(std::str::from_utf8(words.get(3)?).ok()?, 16).ok()?;
        // A relative path has more before its first separator.
        let is_absolute = words.len() == 7 && before.ends_with(b" ");
        (is_absolute && flags & LISTENS != 0).then(|| OsStr::from_bytes(path).into())
    }

    /// Folders and sockets of other services of this user.
    fn session() -> Vec<PathBuf> {
        let user = geteuid().as_raw();
        let is_private = |folder: &PathBuf| {
            folder.metadata().is_ok_and(|it| it.is_dir() && it.uid() == user && it.mode() & 0o077 == 0)
        };
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(is_private);
        let multiplexer = env::var_os("TMUX_TMPDIR").map_or_else(|| "/tmp".into(), PathBuf::from);
        let services = SERVICES.iter().chain(SERVICES_OF_SUPERUSER.iter().filter(|_| user == 0));
        services
            .map(PathBuf::from)
            .chain(runtime)
            .chain([format!("/run/user/{user}").into(), format!("/tmp/emacs{user}").into()])
            .chain([multiplexer.join(format!("tmux-{user}"))])
            .chain(env::home_dir().into_iter().flat_map(|home| IN_HOME.map(|service| home.join(service))))
            .chain(containers())
            .chain(if user == 0 { Vec::new() } else { consoles() })
            .collect()
    }

    /// The devices at which a person is, or may be, logged in: whoever logs in there owns them then. Programs of the superuser have others.
    fn consoles() -> Vec<PathBuf> {
        let devices = fs::read_dir("/dev").into_iter().flatten().flatten();
        let is_console = |name: &OsStr| name.to_str().is_some_and(is_console);
        devices.filter(|device| is_console(&device.file_name())).map(|device| device.path()).collect()
    }

    /// Whether a device of this name in `/dev` is a text console, a serial line with one, what such a console shows, or a keyboard.
    fn is_console(name: &str) -> bool {
        let kind = name.trim_end_matches(|it: char| it.is_ascii_digit());
        match kind {
            "console" | "input" | "uinput" | "uhid" | "vcs" | "vcsa" | "vcsu" => true,
            // `/dev/tty` is the terminal that a process has.
            "tty" | "ttyS" | "ttyAMA" | "hvc" => kind.len() < name.len(),
            _ => false,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn consoles_and_keyboards_are_found_by_their_names() {
            let consoles = ["console", "tty1", "tty63", "ttyS0", "ttyAMA0", "hvc0", "vcs", "vcsa7", "input", "uinput"];
            let others = ["tty", "null", "ttyUSB0", "ttyS", "shm", "pts", "ptmx", "hvc", "ttyprintk", "input0x", ""];
            assert_eq!(consoles.map(is_console), [true; 10]);
            assert_eq!(others.map(is_console), [false; 11]);
        }

        #[test]
        fn only_sockets_that_listen_at_a_path_are_read_from_the_list_of_the_kernel() {
            let read = |line: &str| listens_at(line.as_bytes());
            let line = |flags, path| format!("0000000000000000: 00000002 00000000 {flags} 0001 01 12345 {path}");
            assert_eq!(read(&line("00010000", "/tmp/a b/c.sock")), Some("/tmp/a b/c.sock".into()));
            assert_eq!(read(&line("00010000", "/s").replace("12345", "  123")), Some("/s".into()));
            for (flags, path) in [
                ("00000000", "/s"),
                ("00010000", "@/abstract"),
                ("00010000", "a/b"),
                ("00010000", "a /b"),
                ("00010000", ""),
            ] {
                assert_eq!(read(&line(flags, path)), None, "{flags} {path}");
            }
            assert_eq!(read("Num       RefCount Protocol Flags    Type St Inode Path"), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_read_from_the_forms_that_variables_have() {
        let values = [
            "unix:///run/docker.sock",
            "/tmp/ssh-x/agent.1",
            "unix:path=/run/user/1/bus,guid=2",
            "tcp://x:1",
            ":0",
            "C",
        ];
        let expected = ["/run/docker.sock", "/tmp/ssh-x/agent.1", "/run/user/1/bus"].map(PathBuf::from);
        assert_eq!(named(values), expected);
    }
}
