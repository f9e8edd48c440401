//! Runs command lines in the folder of the tools, confined by the kernel.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::Turn;
use callboard::env::Env;
use callboard::messages::{Json, TraceParent};
use callboard_confine::{CoreDumps, Started, apart, start};
use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::fs::{Access, AtFlags};
use rustix::process::Pid;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::process::ChildStdout;
use tokio::sync::oneshot;

use super::super::process::group::{Group, GroupGuard};
use super::super::process::orphans::{self, KEY};
use super::super::process::turn_socket::{TurnSocket, pass};
use super::super::{Effect, Tool, ToolError, ToolFailure, ToolOutput, ToolScope, ToolSpec};
use super::root::Root;

use capabilities::KeptCapabilities;
use home::Home;
use running::{End, Running, see_out};

pub use protection::Protection;

mod capabilities;
#[cfg_attr(target_os = "linux", path = "landlock.rs")]
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod confinement;
mod home;
mod printed;
mod probe;
mod protection;
mod running;

/// The timeout of a command in seconds: by default, and the highest.
const USUAL_SECONDS: u64 = 60;
const MAX_SECONDS: u64 = 600;

/// The longest command, in bytes.
const MAX_COMMAND: usize = 32 << 10;

/// The variables of the environment that a shell receives.
const ENVIRONMENT: [&str; 2] = ["PATH", "LANG"];

/// The default `PATH`.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Runs command lines with `sh -c` in the folder of the tools. Name: `ShellExec`.
///
/// A command has its own process group, which is killed when the command ends, when its time is over, or when nobody waits for
/// it any more. It reads nothing, and has of the environment `PATH`, `LANG`, `LC_*`, and what [`ShellExec::env`] names; `HOME`
/// and `TMPDIR` are an empty folder that goes with it, and `CALLBOARD_KEY` is the same when it is done again. Both outputs come interleaved; the beginning and the end are kept.
///
/// The kernel (Linux 6.2 or later, by Landlock and seccomp) keeps the command to the folder, to system folders that it may
/// read, and to what [`ShellExec::reads`] and [`ShellExec::writes`] name; [`ShellExec::confinement`] returns what of it holds. It cannot be kept from the network this way, and not
/// from using up memory, processes or disk. So what it prints is taken for untrusted input ([`ShellExec::trusted`]). Where the kernel has no such confinement, commands are refused.
///
/// It needs a runtime with its drivers enabled (`enable_all`).
#[derive(Clone, Debug)]
pub struct ShellExec {
    root: Root,
    reads: Vec<PathBuf>,
    writes: Vec<PathBuf>,
    env: Vec<String>,
    kept: KeptCapabilities,
    is_unconfined: bool,
    is_trusted: bool,
    /// The span of the turn, in a copy that runs a command.
    trace_parent: Option<TraceParent>,
}

impl ShellExec {
    /// A shell in this folder. The first one of a process removes the private folders that commands of killed processes of this
    /// user have left.
    #[must_use]
    pub fn new(root: &Root) -> Self {
        home::remove_abandoned();
        Self {
            root: root.clone(),
            reads: Vec::new(),
            writes: Vec::new(),
            env: Vec::new(),
            kept: KeptCapabilities::Nothing,
            is_unconfined: false,
            is_trusted: false,
            trace_parent: None,
        }
    }

    /// Commands may also read this file or folder, and run the programs in it.
    #[must_use]
    pub fn reads(mut self, path: impl Into<PathBuf>) -> Self {
        self.reads.push(path.into());
        self
    }

    /// Commands may also write this file or folder.
    #[must_use]
    pub fn writes(mut self, path: impl Into<PathBuf>) -> Self {
        self.writes.push(path.into());
        self
    }

    /// Commands see this variable of the environment, if the role of the agent grants it: an agent in a file without a role has none.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>) -> Self {
        self.env.push(name.into());
        self
    }

    /// Commands of a board that runs as root keep the capabilities `CAP_CHOWN`, `CAP_DAC_OVERRIDE` and `CAP_FOWNER`, so that
    /// they may change files of other users where they may write at all. They have no capabilities otherwise.
    #[must_use]
    pub fn keep_file_capabilities(mut self) -> Self {
        self.kept = KeptCapabilities::FilesOfOthers;
        self
    }

    /// What commands print is not taken for untrusted input: for a machine whose commands reach no network.
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.is_trusted = true;
        self
    }

    /// Commands may do whatever this process may, the board's data folder included.
    #[must_use]
    pub fn unconfined(mut self) -> Self {
        self.is_unconfined = true;
        self
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Exec {
    /// A command line for `sh -c`.
    command: String,
    /// After how many seconds it is stopped; 60 if left out.
    #[schemars(range(min = 1, max = 600))]
    timeout_seconds: Option<u64>,
}

impl Tool for ShellExec {
    fn spec(&self) -> ToolSpec {
        let mut description = "Runs a command line with `sh -c` in the folder that the tools work in, and answers its exit code \
                               and what it printed (of a lot, the beginning and the end). It reads no input. When it ends, what \
                               it has left running is stopped."
            .to_owned();
        if !self.is_unconfined {
            description.push_str(" It may write in that folder and in $TMPDIR, and read system folders; nothing else.");
            if self.root.hidden.iter().any(|hidden| hidden.place.starts_with(&self.root.place)) {
                description.push_str(" It cannot make files beside folders that are hidden from it; FileWrite can.");
            }
        }
        let mut spec = ToolSpec::of::<Exec>("ShellExec", &description, Effect::Executes).target("command");
        // Commands have their own timeout, so that the model receives their output.
        spec.timeout = Duration::from_secs(MAX_SECONDS + 30);
        spec
    }

    fn call(&self, arguments: Json, scope: ToolScope) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        let shell = self.clone();
        async move {
            let exec: Exec =
                arguments.parse().map_err(|error| ToolError(format!("the arguments do not fit: {error}")))?;
            let env = shell.env.iter().filter(|name| scope.grants_variable(name)).cloned().collect();
            // Only keys of a board are unique.
            let key = scope.context.is_some().then_some(scope.key);
            Ok(ShellExec { env, trace_parent: scope.trace_parent, ..shell }.exec(exec, key, scope.turn).await?)
        }
        .boxed()
    }
}

impl ShellExec {
    async fn exec(self, exec: Exec, key: Option<Arc<str>>, turn: Option<Turn>) -> Result<ToolOutput, ToolError> {
        if exec.command.len() > MAX_COMMAND {
            let size = exec.command.len();
            return Err(ToolError(format!("the command has {size} bytes; write a script of more than {MAX_COMMAND}")));
        }
        let limit = Duration::from_secs(exec.timeout_seconds.unwrap_or(USUAL_SECONDS).clamp(1, MAX_SECONDS));
        let is_untrusted = !self.is_trusted;
        let running = self.start(exec.command, key, turn).await?;
        let (printed, end) = running.end(limit).await?;
        let ending = match end {
            End::Exited(status) => match status.code() {
                Some(code) => format!("exit code {code}"),
                None => format!("ended by {status}"),
            },
            End::TimedOut => format!("stopped after {} s, with what it had started", limit.as_secs()),
        };
        // A command may have read input from the network.
        Ok(ToolOutput { text: format!("{ending}\n{}", printed.shown()), is_untrusted })
    }

    /// Starts a command, and waits for it on a thread of its own.
    async fn start(self, command: String, key: Option<Arc<str>>, turn: Option<Turn>) -> Result<Running, ToolError> {
        let failed = |error: io::Error| ToolError(format!("the command cannot be run: {error}"));
        // The command may have read input from the network before it delegates.
        let taint = (!self.is_trusted).then_some("ShellExec");
        let socket = turn.map(|turn| TurnSocket::new().map(|(socket, end)| ((socket.open(&turn, taint), socket), end)));
        let (socket, end) = socket.transpose().map_err(failed)?.unzip();
        let (output, input) = io::pipe().map_err(failed)?;
        let rest = output.try_clone().map_err(failed)?;
        let output = ChildStdout::from_std(OwnedFd::from(output).into()).map_err(failed)?;
        let (has_started, started) = oneshot::channel();
        let (has_ended, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("callboard-shell".to_owned());
        let waits = move || {
            let mark = Env::system().id().to_string();
            // After a crash, the command of an earlier try may still run.
            if let Some(key) = key.as_ref().filter(|_| !has_started.is_closed()) {
                orphans::kill(KEY, key);
            }
            if has_started.is_closed() {
                return;
            }
            let home = match Home::new() {
                Ok(home) => home,
                Err(error) => return drop(has_started.send(Err(failed(error)))),
            };
            let spawned = self.spawned((&command, key.as_deref(), &mark), (input, end), &home);
            let (mut child, started, held) = match spawned {
                Ok(child) => child,
                Err(error) => return drop(has_started.send(Err(error))),
            };
            let group = Group::of(Pid::from_raw(child.id().cast_signed()));
            // If the receiver is gone, the guard is dropped and kills the command.
            drop(has_started.send(Ok(GroupGuard::on(&group))));
            see_out(&group);
            let status = child.wait();
            drop(started);
            orphans::kill(orphans::MARK, &mark);
            // The command has ended, so the resources can be released.
            drop(held);
            drop(home);
            // The receiver may be gone.
            let _ = has_ended.send(status);
        };
        thread.spawn(waits).map_err(failed)?;
        match started.await {
            Ok(group) => Ok(Running { group: group?, output, rest, ended, socket }),
            Err(_) => Err(ToolError("the command cannot be run: its thread has ended".to_owned())),
        }
    }

    fn spawned(
        &self,
        (command, key, mark): (&str, Option<&str>, &str),
        (output, socket): (io::PipeWriter, Option<OwnedFd>),
        home: &Home,
    ) -> Result<(Child, Started, Option<confinement::Held>), ToolError> {
        let failed = |error: io::Error| ToolError(format!("the command cannot be run: {error}"));
        enterable(&self.root).map_err(ToolError)?;
        let mut shell = self.command((command, key, mark), home);
        shell.stdin(Stdio::null()).stdout(output.try_clone().map_err(failed)?).stderr(output);
        let held = if self.is_unconfined { None } else { Some(self.confine(&mut shell, home)?) };
        socket.map(|socket| pass(&mut shell, socket)).transpose().map_err(failed)?;
        let (child, started) = start(|| shell.spawn(), |child| Some(child.id())).map_err(failed)?;
        Ok((child, started, held))
    }

    fn confine(&self, command: &mut Command, home: &Home) -> Result<confinement::Held, ToolError> {
        let own = home.folders();
        let writes: Vec<_> = self.writes.iter().chain(&own).map(PathBuf::as_path).collect();
        confinement::confine(command, &self.root, &self.reads, &writes, self.kept)
            .map_err(|problem| ToolError(format!("commands cannot be confined here, so none is run: {problem}")))
    }

    fn command(&self, (command, key, mark): (&str, Option<&str>, &str), home: &Home) -> Command {
        // Not from `PATH`, which may contain folders that commands write to.
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command);
        apart(&mut shell, CoreDumps::Forbidden);
        shell.env_clear().envs(self.environment()).envs(home.variables());
        if let Some(parent) = &self.trace_parent {
            shell.env("TRACEPARENT", parent.to_string());
            shell.envs(parent.state.iter().map(|state| ("TRACESTATE", &**state)));
        }
        // Marked, so that its processes can be distinguished from a person, and found by the next try.
        orphans::mark(&mut shell, mark, key);
        shell.current_dir(place_of(&self.root));
        shell
    }

    fn environment(&self) -> BTreeMap<OsString, OsString> {
        let is_wanted = |name: &str| {
            ENVIRONMENT.contains(&name) || name.starts_with("LC_") || self.env.iter().any(|wanted| wanted == name)
        };
        let own = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_wanted));
        [("PATH".into(), USUAL_PATH.into())].into_iter().chain(own).collect()
    }
}

/// Checks that a command can start in the folder of the tools: an earlier one may have removed the permission.
///
/// # Errors
/// Why not, and what to do.
fn enterable(root: &Root) -> Result<(), String> {
    rustix::fs::accessat(&root.folder, ".", Access::READ_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(|error| {
        let place = root.place.display();
        let why = io::Error::from(error);
        format!("the command cannot be run: the folder of the tools, {place}, cannot be entered: {why}. Give its permissions back: chmod u+rwx {place}")
    })
}

/// The path of the folder by its handle, where the system has such paths.
fn place_of(root: &Root) -> PathBuf {
    if cfg!(target_os = "linux") {
        format!("/proc/self/fd/{}", root.folder.as_raw_fd()).into()
    } else {
        root.place.to_path_buf()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_has_the_variables_that_the_role_of_the_agent_grants() {
        let folder = tempfile::tempdir().unwrap();
        let shell = ShellExec::new(&Root::open(folder.path()).unwrap()).unconfined().env("CARGO_PKG_NAME");
        for (granted, printed) in
            [(None, "callboard-agents"), (Some("CARGO_*"), "callboard-agents"), (Some("GITLAB_*"), "none")]
        {
            let variables = granted.map(|granted| [Arc::from(granted)].into());
            let scope =
                ToolScope { key: "test".into(), context: None, turn: None, variables, trace_parent: None, asker: None };
            let exec = serde_json::json!({ "command": "echo ${CARGO_PKG_NAME-none}" });
            let answer = shell.call(exec.into(), scope).await.unwrap().text;
            assert_eq!(answer, format!("exit code 0\n{printed}\n"), "{granted:?}");
        }
    }

    #[tokio::test]
    async fn a_command_has_the_span_of_its_turn() {
        let folder = tempfile::tempdir().unwrap();
        let shell = ShellExec::new(&Root::open(folder.path()).unwrap()).unconfined();
        let parent = TraceParent { trace: 7, span: 9, is_sampled: true, state: None };
        let trace_parent = Some(parent.with_state("vendor=1"));
        let scope =
            ToolScope { key: "test".into(), context: None, turn: None, variables: None, trace_parent, asker: None };
        let exec = serde_json::json!({ "command": "echo $TRACEPARENT $TRACESTATE" });
        let answer = shell.call(exec.into(), scope).await.unwrap().text;
        assert_eq!(answer, "exit code 0\n00-00000000000000000000000000000007-0000000000000009-01 vendor=1\n");
    }

    #[tokio::test]
    async fn a_command_that_has_begun_before_anybody_knew_is_killed_too() {
        let folder = tempfile::tempdir().unwrap();
        let alive = folder.path().join("alive");
        assert!(Command::new("mkfifo").arg(&alive).status().unwrap().success());
        let shell = ShellExec::new(&Root::open(folder.path()).unwrap()).unconfined();
        let mut start = Box::pin(shell.start("exec 3> alive; echo begun >&3; exec sleep 1000".to_owned(), None, None));
        assert!(futures::poll!(&mut start).is_pending());
        let mut pipe = io::BufReader::new(std::fs::File::open(alive).unwrap());
        let mut printed = String::new();
        io::BufRead::read_line(&mut pipe, &mut printed).unwrap();
        // The command runs; the report of its start was sent or is about to be, and is not received.
        drop(start);
        io::Read::read_to_string(&mut pipe, &mut printed).unwrap();
        assert_eq!(printed, "begun\n");
    }
}
