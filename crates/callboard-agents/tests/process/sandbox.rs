//! What a confined command tries against the board, its user and the machine, and what it may do all the same. Each attempt
//! has a name and an expected answer; all are made as root (where the tests run as root) and as an ordinary user.

#![cfg(all(target_os = "linux", feature = "shell"))]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;

use callboard_agents::tools::{Root, ShellExec, file_write};
use callboard_agents::{Tool, ToolScope};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::geteuid;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::json;

use crate::common::skip;
use crate::ordinary_user::{AS_OTHER, as_an_ordinary_user};

const ATTACKS: &str = include_str!("sandbox.py");

async fn run(shell: &ShellExec, command: &str) -> String {
    let scope =
        ToolScope { key: "test".into(), context: None, turn: None, variables: None, trace_parent: None, asker: None };
    let call = shell.call(json!({ "command": command, "timeout_seconds": 500 }).into(), scope);
    call.await.unwrap_or_else(|failure| panic!("{command}: {failure:?}")).text
}

/// Whether nothing has this name, not even a link to nothing.
fn is_absent(place: &Path) -> bool {
    fs::symlink_metadata(place).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn attempts(printed: &str) -> BTreeMap<&str, &str> {
    printed.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name != "exit").collect()
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn no_attempt_of_a_confined_command_succeeds() {
    let world = tempfile::tempdir().unwrap();
    let (inside, outside) = (world.path().join("inside"), world.path().join("secret"));
    fs::create_dir(&inside).unwrap();
    fs::write(&outside, "C4N4RY").unwrap();
    fs::write(inside.join("attacks.py"), ATTACKS).unwrap();
    let definitions =
        ["agents/a.toml", "models.toml", "conf/flow.toml", "closed/flow.toml"].map(|name| inside.join(name));
    for file in &definitions {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "a person's").unwrap();
    }
    symlink("conf/flow.toml", inside.join("linked.toml")).unwrap();
    // The owner of a folder may change what is permitted there.
    let permit = |name: &str, mode| fs::set_permissions(inside.join(name), fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir(inside.join("shut")).unwrap();
    permit("closed", 0);
    permit("shut", 0o555);
    // As a careless library opens it.
    let open = fs::File::options().read(true).write(true).open(&outside).unwrap();
    fcntl_setfd(&open, FdFlags::empty()).unwrap();
    // What other programs of the user offer and share.
    let board = std::process::id();
    let datagrams = UnixDatagram::bind(world.path().join("datagrams")).unwrap();
    let streams = UnixListener::bind(world.path().join("streams")).unwrap();
    let name = format!("callboard-attack-{board}");
    let abstract_datagrams = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let shared = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempfile_in("/dev/shm").unwrap();
    let kept = ["agents", "models.toml", "mcp.toml", "conf/flow.toml", "linked.toml"];
    let kept = kept.iter().chain(&["closed/flow.toml", "closed/none.toml", "shut/none.toml"]);
    let kept: Vec<_> = kept.map(|name| inside.join(name)).collect();
    let root = kept.iter().try_fold(Root::open(&inside).unwrap(), Root::keeping).unwrap();
    let shell = ShellExec::new(&root);
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let (secret, descriptor) = (outside.display(), open.as_raw_fd());
    let command = format!("/usr/bin/python3 attacks.py {board} {secret} {descriptor} {name}");
    let printed = run(&shell, &command).await;
    let made = attempts(&printed);
    let came_through: Vec<_> = made.iter().filter(|(name, answer)| !is_refused(name, answer)).collect();
    assert!(came_through.is_empty(), "{came_through:?}\n{printed}");
    assert!(printed.starts_with("exit code 0") && made.len() >= 340, "{} attempts: {printed}", made.len());
    assert_eq!(fs::read_to_string(&outside).unwrap(), "C4N4RY");
    permit("closed", 0o755);
    permit("shut", 0o755);
    assert!(["closed/none.toml", "shut/none.toml"].iter().all(|name| is_absent(&inside.join(name))));
    assert!(definitions.iter().all(|file| fs::read_to_string(file).unwrap() == "a person's"));
    assert_eq!(fs::read_dir(inside.join("agents")).unwrap().count(), 1);
    assert_eq!(fs::read_link(inside.join("linked.toml")).unwrap(), Path::new("conf/flow.toml"));
    assert!(is_absent(&inside.join("mcp.toml")), "what held its place is gone");
    assert_eq!(fs::read_dir(world.path()).unwrap().count(), 4, "nothing was put beside the folder");
    for socket in [datagrams, abstract_datagrams] {
        socket.set_nonblocking(true).unwrap();
        let nothing = socket.recv(&mut [0; 8]).expect_err("a datagram came out");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
    drop((shared, streams));
    println!("campaign sandbox: {} attempts, 0 came through", made.len());
    as_an_ordinary_user("sandbox::no_attempt_of_a_confined_command_succeeds");
}

/// Whether the answer is one of confinement, and not of arguments that are wrong: `DONE` is none.
fn is_refused(name: &str, answer: &str) -> bool {
    match answer {
        "EPERM" | "EACCES" | "ENOSYS" | "EROFS" => true,
        // What defines agents is a mount, or lies in one.
        "EBUSY" | "EXDEV" | "EISDIR" | "EEXIST" | "ENOTDIR" | "ENOTEMPTY" if name.starts_with("define_") => true,
        "EBADF" => name.ends_with("inherited_descriptor") || name == "chmod_by_handle",
        // What the command sees as its folder is a mount.
        "EBUSY" => ["remove_the_folder", "rename_the_folder"].contains(&name),
        // A link may not leave its folder.
        "EXDEV" => ["link_outside", "link_handle", "link_handle_by_proc", "rename_inside_out", "link_inside_out"]
            .contains(&name),
        // The standard input of a command is no terminal.
        "ENOTTY" => name == "tiocspgrp",
        // Not all machines have these, and a command has a shared memory of its own.
        "ENOENT" => {
            name.starts_with("open_") || ["write_sysrq", "write_cgroup", "shared_memory_of_others"].contains(&name)
        }
        // A connected stream stays with its peer.
        "EISCONN" => name == "pair_stream_connect",
        // Others have no numbers in the user namespace of an ordinary user.
        "EINVAL" => ["setuid_other", "chown_outside"].contains(&name),
        "EPROTOTYPE" => name == "pair_seqpacket_connect",
        // A process that leads no group; and others have no numbers in the namespace of a command.
        "ESRCH" => name == "signal_group_by_pidfd" || name.ends_with("_board"),
        // The kernel took the order; that it sent nothing is shown by the board, which is still there.
        "EINPROGRESS" => name.starts_with("sigio_"),
        _ => false,
    }
}

#[tokio::test]
async fn a_confined_command_has_a_session_of_its_own_and_no_terminal() {
    let inside = tempfile::tempdir().unwrap();
    let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
    let printed =
        run(&shell, "python3 -c 'import os; print(os.getsid(0) == os.getppid() or os.getsid(0) == os.getpid())'").await;
    assert_eq!(printed, "exit code 0\nTrue\n");
}

#[tokio::test]
async fn what_a_program_may_do_to_itself_is_still_allowed() {
    let inside = tempfile::tempdir().unwrap();
    let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
    let program = "
import os, resource, socket, subprocess, sys, threading
os.nice(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.sched_setaffinity(0, os.sched_getaffinity(0))
a, b = socket.socketpair()
a.send(b'x'); assert b.recv(1) == b'x'
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
client = socket.create_connection(server.getsockname()); client.close()
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
child = subprocess.Popen(['sleep', '1000']); child.terminate(); assert child.wait() == -15
print(subprocess.run(['sh', '-c', 'cat'], input=b'piped', capture_output=True).stdout.decode())
";
    fs::write(inside.path().join("own.py"), program).unwrap();
    assert_eq!(run(&shell, "/usr/bin/python3 own.py").await, "exit code 0\npiped\n");
    as_an_ordinary_user("sandbox::what_a_program_may_do_to_itself_is_still_allowed");
}

/// A folder for tools that keep these names in it, and a shell there.
fn keeping(inside: &Path, kept: &[&str]) -> (Root, ShellExec) {
    let root = kept.iter().try_fold(Root::open(inside).unwrap(), |root, name| root.keeping(inside.join(name)));
    let root = root.unwrap();
    let shell = ShellExec::new(&root);
    (root, shell)
}

/// As root, permissions keep nothing from the board, which then sees what is there.
#[tokio::test]
async fn what_defines_agents_stays_after_a_command_has_closed_the_folder_on_the_way_to_it() {
    let inside = tempfile::tempdir().unwrap();
    let at = |name: &str| inside.path().join(name);
    fs::create_dir_all(at("team/deep/agents")).unwrap();
    for file in ["team/deep/models.toml", "team/deep/agents/a.toml"] {
        fs::write(at(file), "a person's").unwrap();
    }
    let kept = ["team/deep/models.toml", "team/deep/agents", "team/deep/mcp.toml"];
    let (root, shell) = keeping(inside.path(), &kept);
    for closes in ["chmod 000 team/deep", "chmod 000 team", "chmod 311 team", "chmod 644 team/deep"] {
        run(&shell, closes).await;
        let harm = "chmod 755 team; chmod 755 team/deep; cd team/deep || exit 0; for it in models.toml agents/a.toml agents/new mcp.toml
            do echo H4RM > $it; rm -f $it; done; rmdir mcp.toml; echo H4RM > mcp.toml; mv ../deep ../gone";
        run(&shell, harm).await;
        for place in ["team", "team/deep"] {
            fs::set_permissions(at(place), fs::Permissions::from_mode(0o755)).unwrap();
        }
        // What held the place of the missing file in a folder that was closed meanwhile goes with the next command.
        run(&shell, ":").await;
        assert!(is_absent(&at("team/deep/mcp.toml")), "{closes}");
        assert_eq!(fs::read_to_string(at("team/deep/models.toml")).unwrap(), "a person's", "{closes}");
        assert_eq!(fs::read_to_string(at("team/deep/agents/a.toml")).unwrap(), "a person's", "{closes}");
        assert_eq!(fs::read_dir(at("team/deep")).unwrap().count(), 2, "{closes}");
    }
    // What lies elsewhere can be written all the same.
    fs::set_permissions(at("team"), fs::Permissions::from_mode(0o0)).unwrap();
    assert_eq!(run(&shell, "echo text > own && cat own").await, "exit code 0\ntext\n");
    let write = json!({ "path": "own", "content": "text" });
    file_write(&root)
        .call(
            write.into(),
            ToolScope {
                key: "test".into(),
                context: None,
                turn: None,
                variables: None,
                trace_parent: None,
                asker: None,
            },
        )
        .await
        .unwrap();
    fs::set_permissions(at("team"), fs::Permissions::from_mode(0o755)).unwrap();
    as_an_ordinary_user("sandbox::what_defines_agents_stays_after_a_command_has_closed_the_folder_on_the_way_to_it");
}

/// Where the folder of the tools is the one that cannot be looked through or written in, it cannot be made read-only to a command
/// that is to work in it.
#[tokio::test]
async fn where_a_file_that_defines_agents_cannot_be_held_in_the_folder_itself_no_command_runs() {
    if !geteuid().is_root() {
        let inside = tempfile::tempdir().unwrap();
        let permit = |mode| fs::set_permissions(inside.path(), fs::Permissions::from_mode(mode)).unwrap();
        let (_, shell) = keeping(inside.path(), &["mcp.toml"]);
        permit(0o555);
        let scope = || ToolScope {
            key: "test".into(),
            context: None,
            turn: None,
            variables: None,
            trace_parent: None,
            asker: None,
        };
        let harm = json!({ "command": "chmod 755 .; echo H4RM > mcp.toml" });
        let refused = shell.call(harm.into(), scope()).await.unwrap_err().error().to_string();
        let advice = format!("chmod u+rwx {}", inside.path().canonicalize().unwrap().display());
        assert!(refused.contains("mcp.toml") && refused.contains(&advice), "{refused}");
        let written = fs::symlink_metadata(inside.path().join("mcp.toml")).unwrap_err();
        assert_eq!(written.kind(), io::ErrorKind::NotFound, "{written}");
        permit(0o755);
        assert_eq!(run(&shell, "echo text > own && cat own").await, "exit code 0\ntext\n");
    }
    as_an_ordinary_user(
        "sandbox::where_a_file_that_defines_agents_cannot_be_held_in_the_folder_itself_no_command_runs",
    );
}

#[tokio::test]
async fn a_folder_that_is_missing_on_the_way_to_what_defines_agents_is_held_for_each_of_several_commands() {
    let inside = tempfile::tempdir().unwrap();
    for name in ["began", "go"] {
        mknodat(CWD, inside.path().join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    let (_, shell) = keeping(inside.path(), &["a/b/models.toml", "a/mcp.toml"]);
    let first = run(&shell, "echo began > began; cat go");
    let second = async {
        let began = inside.path().join("began");
        tokio::task::spawn_blocking(move || fs::read_to_string(began)).await.unwrap().unwrap();
        let harm = "chmod 755 a; mkdir a/b && echo H4RM > a/b/models.toml; echo H4RM > a/mcp.toml; echo ends > go";
        run(&shell, harm).await
    };
    let (first, _) = tokio::join!(first, second);
    assert_eq!(first, "exit code 0\nends\n");
    assert!(is_absent(&inside.path().join("a")), "something is left in its place");
    as_an_ordinary_user(
        "sandbox::a_folder_that_is_missing_on_the_way_to_what_defines_agents_is_held_for_each_of_several_commands",
    );
}

/// While a command opens and closes the folder again and again.
#[tokio::test]
async fn a_file_that_defines_agents_is_not_written_through_a_link_while_its_folder_is_closed_and_opened() {
    if !geteuid().is_root() {
        let inside = tempfile::tempdir().unwrap();
        let conf = inside.path().join("conf");
        fs::create_dir(&conf).unwrap();
        fs::write(conf.join("models.toml"), "a person's").unwrap();
        symlink("conf", inside.path().join("link")).unwrap();
        let (root, _) = keeping(inside.path(), &["conf/models.toml"]);
        let ends = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let has_ended = ends.clone();
        let flips = std::thread::spawn(move || {
            let permit = |mode| fs::set_permissions(&conf, fs::Permissions::from_mode(mode)).unwrap();
            while !has_ended.load(std::sync::atomic::Ordering::Relaxed) {
                [0, 0o755, 0o311, 0o755].into_iter().for_each(permit);
            }
            fs::read_to_string(conf.join("models.toml")).unwrap()
        });
        let tool = file_write(&root);
        let mut refused = [0; 2];
        while refused.iter().any(|count| *count < 2_000) {
            let write = json!({ "path": "link/models.toml", "content": "H4RM" });
            let error = tool
                .call(
                    write.into(),
                    ToolScope {
                        key: "test".into(),
                        context: None,
                        turn: None,
                        variables: None,
                        trace_parent: None,
                        asker: None,
                    },
                )
                .await
                .unwrap_err();
            refused[usize::from(error.error().to_string().contains("tools may read it and not change it"))] += 1;
        }
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(flips.join().unwrap(), "a person's");
    }
    as_an_ordinary_user(
        "sandbox::a_file_that_defines_agents_is_not_written_through_a_link_while_its_folder_is_closed_and_opened",
    );
}

#[tokio::test]
async fn a_folder_that_may_not_be_entered_is_named_with_what_to_do() {
    if !geteuid().is_root() {
        let inside = tempfile::tempdir().unwrap();
        let place = inside.path().canonicalize().unwrap();
        for kept in [&["models.toml"][..], &[]] {
            let (_, shell) = keeping(inside.path(), kept);
            run(&shell, "chmod 000 .").await;
            let call = shell.call(
                json!({ "command": "echo" }).into(),
                ToolScope {
                    key: "test".into(),
                    context: None,
                    turn: None,
                    variables: None,
                    trace_parent: None,
                    asker: None,
                },
            );
            let refused = call.await.unwrap_err().error().to_string();
            fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
            let advice = format!("chmod u+rwx {}", place.display());
            assert!(refused.contains("Permission denied") && refused.contains(&advice), "{refused}");
        }
    }
    as_an_ordinary_user("sandbox::a_folder_that_may_not_be_entered_is_named_with_what_to_do");
}

#[tokio::test]
async fn a_command_that_a_signal_ends_is_reported_with_that_signal() {
    let inside = tempfile::tempdir().unwrap();
    let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
    // The C library keeps 32 and 33 to itself, and the parent process may have set signals to be ignored.
    let program = format!(
        "import ctypes, os, sys\nsignal = int(sys.argv[1])\nctypes.CDLL(None).syscall({}, signal, bytes(64), None, 8)\nos.kill(os.getpid(), signal)\n",
        libc::SYS_rt_sigaction
    );
    fs::write(inside.path().join("ends.py"), program).unwrap();
    for signal in [1, 6, 9, 11, 13, 15, 32, 33, 34, 64] {
        let printed = run(&shell, &format!("exec /usr/bin/python3 ends.py {signal}")).await;
        let expected = format!("ended by signal: {signal}");
        assert!(printed.lines().next().unwrap().starts_with(&expected), "{signal}: {printed}");
    }
}

/// What starts and reaps the processes of a command begins with the memory and the environment of the board.
#[tokio::test]
async fn no_process_of_a_command_shows_its_user_the_memory_of_the_board() {
    if std::env::var_os(AS_OTHER).is_some() {
        let inside = tempfile::tempdir().unwrap();
        for name in ["began", "go"] {
            mknodat(CWD, inside.path().join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
        let command = run(&shell, "echo began > began; cat go");
        let looks = async {
            let [began, go] = ["began", "go"].map(|name| inside.path().join(name));
            tokio::task::spawn_blocking(move || fs::read_to_string(began)).await.unwrap().unwrap();
            let environment = |pid: &u32| fs::read(format!("/proc/{pid}/environ"));
            let below = |pid: &u32| -> Vec<u32> {
                let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
                list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
            };
            let keeper = callboard_confine::children();
            let first = below(&keeper[0]);
            let program = below(&first[0]);
            assert_eq!([keeper.len(), first.len(), program.len()], [1; 3]);
            let own = environment(&program[0]).unwrap();
            let found = [&keeper[0], &first[0]].map(|pid| environment(pid).map_err(|error| error.kind()).err());
            fs::write(go, "ends").unwrap();
            assert!(own.starts_with(b"HOME=") || own.windows(5).any(|part| part == b"PATH="), "{own:?}");
            assert_eq!(found, [Some(std::io::ErrorKind::PermissionDenied); 2]);
        };
        assert_eq!(tokio::join!(command, looks).0, "exit code 0\nends");
    }
    as_an_ordinary_user("sandbox::no_process_of_a_command_shows_its_user_the_memory_of_the_board");
}

#[tokio::test]
async fn the_processes_that_wait_for_a_command_hold_no_copy_of_the_memory_of_the_board() {
    const MIB: u64 = 1 << 10;
    let held = |pid: u32| -> u64 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    };
    // There its commands are the only ones of the process.
    if std::env::var_os(AS_OTHER).is_some() {
        let inside = tempfile::tempdir().unwrap();
        for name in ["began", "go"] {
            mknodat(CWD, inside.path().join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let of_board = std::hint::black_box(vec![1_u8; 96 << 20]);
        let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
        let command = run(&shell, "echo began > began; cat go; exit 3");
        let looks = async {
            let [began, go] = ["began", "go"].map(|name| inside.path().join(name));
            tokio::task::spawn_blocking(move || fs::read_to_string(began)).await.unwrap().unwrap();
            let keeper = callboard_confine::children()[0];
            let first = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap();
            let first = first.trim().parse().unwrap();
            assert!(held(std::process::id()) > 96 * MIB);
            // They do so beside the command.
            let released = async {
                while [keeper, first].iter().any(|pid| held(*pid) > 24 * MIB) {
                    tokio::task::yield_now().await;
                }
            };
            let deadline = std::time::Duration::from_secs(20);
            let released = tokio::time::timeout(deadline, released).await;
            released.unwrap_or_else(|_| panic!("{} and {} KiB", held(keeper), held(first)));
            fs::write(go, "ends").unwrap();
        };
        assert_eq!(tokio::join!(command, looks).0, "exit code 3\nends");
        assert!(of_board.iter().all(|byte| *byte == 1));
    }
    as_an_ordinary_user("sandbox::the_processes_that_wait_for_a_command_hold_no_copy_of_the_memory_of_the_board");
}

/// What a command of the superuser may do to files of others in its folder.
#[tokio::test]
async fn a_command_of_root_has_the_capabilities_over_files_only_if_its_author_asks() {
    if !geteuid().is_root() {
        return;
    }
    let inside = tempfile::tempdir().unwrap();
    let root = Root::open(inside.path()).unwrap();
    let tries = "
touch own && (chown 12345 own 2>/dev/null && chmod 600 own && echo text > own && echo changed || echo refused)
(chown 12345 /etc/passwd 2>/dev/null; chroot / true 2>/dev/null || mount -t tmpfs none . 2>/dev/null) && echo more
/usr/bin/python3 -c 'import ctypes
sets = (ctypes.c_uint * 6)()
ctypes.CDLL(None).capget((ctypes.c_uint * 2)(0x20080522, 0), sets)
print(*sets)'";
    let none = run(&ShellExec::new(&root), tries).await;
    assert_eq!(none, "exit code 0\nrefused\n0 0 0 0 0 0\n");
    let files = run(&ShellExec::new(&root).keep_file_capabilities(), tries).await;
    // CAP_CHOWN is the first bit, CAP_DAC_OVERRIDE the second, CAP_FOWNER the fourth: effective, permitted, none inheritable.
    assert_eq!(files, "exit code 0\nchanged\n11 11 0 0 0 0\n");
}

/// Runs as an ordinary user where the tests run as root, for whom no folder is read-only.
#[tokio::test]
async fn folders_that_a_command_has_made_read_only_are_removed_with_it() {
    let inside = tempfile::tempdir().unwrap();
    let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
    let printed =
        run(&shell, "mkdir -p $TMPDIR/a/b && chmod 0 $TMPDIR/a/b && chmod 555 $TMPDIR/a && echo $TMPDIR").await;
    let place = printed.strip_prefix("exit code 0\n").unwrap().trim();
    assert!(place.ends_with("/tmp") && !Path::new(place).parent().unwrap().exists(), "{printed}");
    as_an_ordinary_user("sandbox::folders_that_a_command_has_made_read_only_are_removed_with_it");
}

#[tokio::test]
async fn a_hidden_folder_keeps_its_permissions_and_dates_wherever_it_lies() {
    let world = tempfile::tempdir().unwrap();
    let inside = world.path().join("inside");
    let mut root = None;
    for hidden in [inside.join("board"), world.path().join("board")] {
        fs::create_dir_all(&hidden).unwrap();
        fs::write(hidden.join("data"), "x").unwrap();
        let opened = root.take().unwrap_or_else(|| Root::open(&inside).unwrap());
        root = Some(opened.without(&hidden).unwrap());
    }
    let shell = ShellExec::new(&root.unwrap());
    let tries =
        "for it in board board/data ../board ../board/data; do chmod 0 $it || touch -d @1 $it || echo kept; done 2>&1";
    let printed = run(&shell, tries).await;
    assert_eq!(printed.matches("kept\n").count(), 4, "{printed}");
    as_an_ordinary_user("sandbox::a_hidden_folder_keeps_its_permissions_and_dates_wherever_it_lies");
}

/// Also where the command is in a user namespace of its own.
#[tokio::test]
async fn what_has_left_the_group_of_a_command_ends_with_it() {
    let inside = tempfile::tempdir().unwrap();
    let alive = inside.path().join("alive");
    mknodat(CWD, &alive, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Read to its end when nobody holds the other side any more.
    let end = std::thread::spawn(move || fs::read_to_string(alive).unwrap());
    let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
    let leaves = "mkfifo began; setsid sh -c 'exec 3> alive; echo begun > began; exec sleep 1000' & cat began";
    assert_eq!(run(&shell, leaves).await, "exit code 0\nbegun\n");
    end.join().unwrap();
    as_an_ordinary_user("sandbox::what_has_left_the_group_of_a_command_ends_with_it");
}

/// The ways in which a process may hide its environment from its user, besides leaving its group; each holds `alive` open.
const HIDES: [(&str, &str); 4] = [
    ("undumpable", "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); stay()"),
    ("environment cleared", "os.execve('/usr/bin/sleep', ['sleep', '1000'], {})"),
    ("program not readable", "shutil.copy('/usr/bin/sleep', 's'); os.chmod('s', 0o111); os.execv('s', ['s', '1000'])"),
    ("undumpable and cleared", "os.environ.clear(); os.execve('/usr/bin/python3', ['python3', '-c', AGAIN], {})"),
];

#[tokio::test]
async fn what_has_left_the_group_of_a_command_and_hides_its_environment_ends_with_it() {
    for (way, hides) in HIDES {
        let inside = tempfile::tempdir().unwrap();
        let alive = inside.path().join("alive");
        mknodat(CWD, &alive, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let end =
            fs::File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(alive).unwrap();
        let program = format!(
            "
import os, shutil, signal
AGAIN = 'import ctypes, signal; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); signal.pause()'
def stay():
    os.write(begun, b'begun'); os.close(begun); signal.pause()
reads, begun = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.set_inheritable(os.open('alive', os.O_WRONLY), True)
    null = os.open('/dev/null', os.O_RDWR)
    for stream in range(3): os.dup2(null, stream)
    {hides}
os.close(begun); os.read(reads, 5)
"
        );
        fs::write(inside.path().join("hides.py"), program).unwrap();
        let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
        assert_eq!(run(&shell, "/usr/bin/python3 hides.py").await, "exit code 0\n(it printed nothing)", "{way}");
        let mut ended = [PollFd::new(&end, PollFlags::IN)];
        let deadline = Timespec { tv_sec: 30, tv_nsec: 0 };
        assert_eq!(poll(&mut ended, Some(&deadline)), Ok(1), "{way}: the process goes on");
        assert!(ended[0].revents().contains(PollFlags::HUP), "{way}");
    }
    as_an_ordinary_user("sandbox::what_has_left_the_group_of_a_command_and_hides_its_environment_ends_with_it");
}

/// Processes that start the next one and end, each in a session of its own and found by nobody who lists processes; each writes a byte.
const CHAINS: &str = "
import ctypes, os, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
alive = os.open('alive', os.O_WRONLY)
for chain in range(40):
    if os.fork() == 0:
        for hop in range(400):
            if os.fork(): os._exit(0)
            os.setsid(); os.write(alive, b'.'); time.sleep(0.001)
        os._exit(0)
";

#[tokio::test]
async fn what_starts_the_next_process_and_ends_over_and_over_ends_with_its_command() {
    let inside = tempfile::tempdir().unwrap();
    let alive = inside.path().join("alive");
    mknodat(CWD, &alive, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::write(inside.path().join("chains.py"), CHAINS).unwrap();
    let hops = std::thread::spawn(move || fs::read(alive).unwrap().len());
    let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
    assert_eq!(run(&shell, "env -i /usr/bin/python3 chains.py").await, "exit code 0\n(it printed nothing)");
    let hops = hops.join().unwrap();
    assert!(hops < 40 * 400, "they went on to their own end, {hops} in all");
    as_an_ordinary_user("sandbox::what_starts_the_next_process_and_ends_over_and_over_ends_with_its_command");
}

/// Has this binary run a command with a `PATH` that has this folder first.
const WITH_PATH: &str = "CALLBOARD_SANDBOX_WITH_PATH";

#[tokio::test]
async fn no_program_of_path_is_run_in_place_of_the_shell_or_before_it() {
    if let Some(inside) = std::env::var_os(WITH_PATH) {
        assert_eq!(run(&ShellExec::new(&Root::open(inside).unwrap()), "echo said").await, "exit code 0\nsaid\n");
        return;
    }
    let inside = tempfile::tempdir().unwrap();
    for name in ["sh", "true"] {
        let program = inside.path().join(name);
        fs::write(&program, "#!/bin/sh\necho ran >> \"${0%/*}/ran\"\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let usual = std::env::var("PATH").unwrap();
    let board = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sandbox::no_program_of_path_is_run_in_place_of_the_shell_or_before_it"])
        .env(WITH_PATH, inside.path())
        .env("PATH", format!("{}:{usual}", inside.path().display()))
        .output()
        .unwrap();
    assert!(board.status.success(), "{}", String::from_utf8_lossy(&board.stdout));
    assert!(!inside.path().join("ran").exists());
}

/// Has this binary start a command in this folder, and be killed.
const KILLED: &str = "CALLBOARD_SANDBOX_KILLED";

#[tokio::test]
async fn a_command_ends_with_a_board_that_is_killed() {
    const LOOP: &str = "exec 3> alive; i=0; while [ $i -lt 200 ]; do echo >&3; sleep 0.05; i=$((i + 1)); done";
    if let Some(inside) = std::env::var_os(KILLED) {
        run(&ShellExec::new(&Root::open(inside).unwrap()), &format!("setsid env -i sh -c '{LOOP}' & {LOOP}")).await;
        return;
    }
    let inside = tempfile::tempdir().unwrap();
    let alive = inside.path().join("alive");
    mknodat(CWD, &alive, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut board = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sandbox::a_command_ends_with_a_board_that_is_killed"])
        .env(KILLED, inside.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Opened when both loops may have begun.
    let mut alive = fs::File::open(alive).unwrap();
    std::io::Read::read_exact(&mut alive, &mut [0; 10]).unwrap();
    board.kill().unwrap();
    board.wait().unwrap();
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut alive, &mut rest).unwrap();
    assert!(rest.len() < 150, "it went on to its own end: {}", rest.len());
    as_an_ordinary_user("sandbox::a_command_ends_with_a_board_that_is_killed");
}

/// The kernel counts the processes of a user, and in a user namespace those of the namespace by themselves.
#[tokio::test]
async fn the_processes_of_a_command_of_an_ordinary_user_are_counted_and_bounded() {
    let bound = ShellExec::confinement().into_iter().find(|part| part.name == "the number of processes").unwrap();
    assert!(!geteuid().is_root() || bound.lacks.is_some_and(|lacks| lacks.starts_with("not bounded: ")));
    let inside = tempfile::tempdir().unwrap();
    let shell = ShellExec::new(&Root::open(inside.path()).unwrap());
    if std::env::var_os(AS_OTHER).is_some() {
        let program = "
import os, resource
print(*resource.getrlimit(resource.RLIMIT_NPROC))
resource.setrlimit(resource.RLIMIT_NPROC, (8, 8))
try:
    for made in range(20):
        if os.fork() == 0: import signal; signal.pause()
except BlockingIOError: print(made)
";
        fs::write(inside.path().join("forks.py"), program).unwrap();
        // The program is one of the 8, and two are those that end it.
        let printed = run(&shell, "exec /usr/bin/python3 forks.py").await;
        assert_eq!(printed, "exit code 0\n4096 4096\n5\n");
    }
    as_an_ordinary_user("sandbox::the_processes_of_a_command_of_an_ordinary_user_are_counted_and_bounded");
}

/// Whether a program is there.
fn is_there(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success()
}

async fn works(test: &str, program: &str, shell: impl Fn(&Root) -> ShellExec, script: &str, expected: &str) {
    if !is_there(program) {
        return skip(&format!("{program} is missing"));
    }
    let inside = tempfile::tempdir().unwrap();
    let printed = run(&shell(&Root::open(inside.path()).unwrap()), &format!("set -e\n{script}")).await;
    assert!(printed.starts_with("exit code 0") && printed.trim_end().ends_with(expected), "{printed}");
    as_an_ordinary_user(&format!("sandbox::{test}"));
}

#[tokio::test]
async fn git_works_in_a_confined_command() {
    let script = "
git init -q project && cd project
git config user.email a@b.c && git config user.name A
echo text > file && git add file && git commit -qm first
cd .. && git clone -q project copy && git -C copy log --format=%s";
    works("git_works_in_a_confined_command", "git", ShellExec::new, script, "first").await;
}

#[tokio::test]
async fn make_and_a_compiler_work_in_a_confined_command() {
    let script = r#"
printf 'int main(void) { return 0; }\n' > a.c && cp a.c b.c && cp -p a.c c.c
printf 'all: a b c\n' > Makefile
make -s -j4 && ./a && ./b && ./c && echo built"#;
    works("make_and_a_compiler_work_in_a_confined_command", "make", ShellExec::new, script, "built").await;
}

#[tokio::test]
async fn python_works_in_a_confined_command() {
    let script = r#"
cat > main.py <<'END'
import multiprocessing, subprocess, sys
from multiprocessing import shared_memory
def work(lock, queue, pipe):
    with lock: queue.put('queued')
    pipe.send(6 * 7); pipe.close()
def square(number): return number * number
if __name__ == '__main__':
    here, there = multiprocessing.Pipe()
    lock, queue = multiprocessing.Lock(), multiprocessing.Queue()
    process = multiprocessing.Process(target=work, args=(lock, queue, there)); process.start()
    assert queue.get() == 'queued'
    for how in 'fork', 'spawn':
        with multiprocessing.get_context(how).Pool(2) as pool: assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    memory = shared_memory.SharedMemory(create=True, size=8); memory.buf[0] = 7; memory.close(); memory.unlink()
    print(here.recv(), subprocess.check_output([sys.executable, '-c', 'print(1)']).decode().strip()); process.join()
END
/usr/bin/python3 -m venv --without-pip venv && venv/bin/python main.py"#;
    works("python_works_in_a_confined_command", "/usr/bin/python3", ShellExec::new, script, "42 1").await;
}

#[tokio::test]
async fn node_and_npm_work_in_a_confined_command() {
    let script = r#"
mkdir package && printf '{"name":"local","version":"1.0.0","main":"index.js"}' > package/package.json
printf 'module.exports = 42' > package/index.js && tar czf local.tgz package && rm -r package
printf '{"name":"project","version":"1.0.0"}' > package.json
npm install --silent --offline --no-audit --no-fund ./local.tgz
cat > main.js <<'END'
const { Worker } = require('worker_threads');
const { execFileSync } = require('child_process');
const code = "require('worker_threads').parentPort.postMessage(require('local') + 1)";
new Worker(code, { eval: true }).on('message', (sum) => console.log(sum, execFileSync('echo', ['child']).toString().trim()));
END
node main.js"#;
    works("node_and_npm_work_in_a_confined_command", "npm", ShellExec::new, script, "43 child").await;
}

#[tokio::test]
async fn cargo_works_in_a_confined_command() {
    // Where the toolchain lies in the home of root, nobody else has one.
    let printed = match Command::new("rustc").args(["--print", "sysroot"]).output() {
        Err(_) if std::env::var_os(AS_OTHER).is_some() => return,
        printed => printed.unwrap().stdout,
    };
    let sysroot = String::from_utf8(printed).unwrap().trim().to_owned();
    let script = format!(
        "export PATH={sysroot}/bin:$PATH
cargo init -q --vcs none --name tiny --lib .
cargo build -q --offline && cargo test -q --offline --lib 2>&1 | grep -o 'test result: ok. 1 passed'"
    );
    let shell = |root: &Root| ShellExec::new(root).reads(Path::new(&sysroot));
    works("cargo_works_in_a_confined_command", "cargo", shell, &script, "test result: ok. 1 passed").await;
}
