//! Agents that are programs in any language (docs/process-agents.md). A program is started when a turn needs one, takes one
//! turn at a time, and waits for the next: JSON lines on its standard input and output.
//!
//! A program ends with its turn when that is cancelled, takes too long, or is not kept to the protocol, and always with the
//! agent. Whatever it has started ends with it: the processes of its group, and on Linux those that have left it and have the
//! program's `CALLBOARD_PROCESS` in their environment, or its limit of resident memory. It runs in real time, also on a board whose time is virtual.

pub(super) mod child;
mod conversation;
mod declared;
pub(super) mod group;
mod hidden;
pub(super) mod lines;
pub(super) mod orphans;
mod protocol;
mod requests;
mod tokens;
pub(super) mod turn_socket;
mod variables;
#[cfg(target_os = "linux")]
mod zombies;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use callboard::actors::{Agent, Turn, TurnError};
use callboard::messages::{AgentName, Command};
use callboard_text::quoted;
use parking_lot::Mutex;
use tokio::process::Command as Program;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::definition::READY_WITHIN;
use super::definition::process_settings::DeclaredFolder;
use super::program::is_always_passed;
use super::roles::{AgentGrant, Asked};
use super::secret::Secret;

use child::Process;
use conversation::{Broken, Conversation, Ended, Unread};
use lines::Line;
use protocol::{OutgoingLine, VERSION, hint_of_misplaced, read_ready, refused_version};
use turn_socket::TurnSocket;

use declared::located;
pub(super) use declared::{find, spec};
pub(super) use hidden::{Sockets, names_docker};
pub use hidden::{
    can_hide_from_programs, hide_folder_from_programs, hide_from, hide_from_programs, is_exposed_to_programs,
};
#[cfg(target_os = "linux")]
pub use orphans::is_program_of_board;
pub use turn_socket::ProgramSocket;
pub(super) use variables::redacted;
#[cfg(target_os = "linux")]
pub use zombies::reap_orphans;

/// An agent that is a program in any language, spoken to in JSON lines as docs/process-agents.md says.
///
/// Several turns at once have a program each; one that has ended its turn waits for the next. A program that dies in a turn
/// counts as a panic does: the attempt fails, and the agent is rebuilt within its restart window. A program sees `PATH`, `HOME`,
/// `LANG`, `LC_*` and `TMPDIR` of the environment, and what it is given by [`ProcessAgent::env`] and
/// [`ProcessAgent::env_from`]. One that a file declares is made by [`ProcessAgent::spec`].
///
/// ```
/// use callboard::prelude::*;
/// use callboard_agents::ProcessAgent;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// const SHELL: &str = r#"
///     read hello; echo '{"type":"ready","protocol":2}'
///     while read turn; do
///         id=${turn#*'"id":"'}
///         echo '{"type":"command","turn":"'${id%%'"'*}'","output":"done"}'
///     done"#;
/// let worker = AgentSpec::new("worker", || ProcessAgent::new("sh").args(["-c", SHELL]));
/// let board = Callboard::builder().with(worker).start().await?;
/// let run = board.submit(Task::new("anything")).await?;
/// assert_eq!(run.result().await?.output, "done");
/// # board.shutdown().await;
/// # Ok::<(), callboard::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct ProcessAgent {
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    /// The variables that are passed on from the board's own environment, by name.
    passed: Vec<String>,
    folder: StartFolder,
    ready_within: Duration,
    token_budget: Option<u64>,
    grant: AgentGrant,
    /// Idle programs; each is held by its watcher, which sends it to the turn that claims it.
    resting: Mutex<Vec<oneshot::Sender<Claim>>>,
}

/// The folder in which a program starts.
#[derive(Debug)]
enum StartFolder {
    /// In the board's own folder.
    Own,
    /// In the folder that [`ProcessAgent::current_dir`] has set.
    At(PathBuf),
    /// A folder below a root, as a file declares it. A program with a `/` is relative to it.
    Declared(DeclaredFolder),
}

/// Receives an idle program from its watcher.
type Claim = oneshot::Sender<Process>;

impl ProcessAgent {
    /// Creates an agent that is this program, looked for in `PATH`.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
            passed: Vec::new(),
            folder: StartFolder::Own,
            ready_within: READY_WITHIN,
            token_budget: None,
            grant: AgentGrant::of_code(),
            resting: Mutex::default(),
        }
    }

    /// Adds arguments of the program, after those that it has.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Adds a variable to the program's environment.
    #[must_use]
    pub fn env(mut self, variable: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((variable.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Passes a variable of the board's own environment on, as it is when the program is started; a turn for which it is not set
    /// fails. Where the program says what is in it (8 bytes or more) on its standard error, or in a line that is not of the
    /// protocol, `[the key]` stands in logs and errors.
    #[must_use]
    pub fn env_from(mut self, variable: &str) -> Self {
        self.passed.push(variable.to_owned());
        self
    }

    /// Sets the folder that the program starts in (default: the board's own).
    #[must_use]
    pub fn current_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = StartFolder::At(folder.into());
        self
    }

    /// Sets how long the program may take to say that it is ready (10 s), in real time.
    #[must_use]
    pub fn ready_within(mut self, time: Duration) -> Self {
        self.ready_within = time;
        self
    }

    /// Sets how many tokens one attempt of a turn may reserve and use (those of the run). What would be more is refused; what it
    /// delegates does not count.
    #[must_use]
    pub fn token_budget(mut self, tokens: Option<u64>) -> Self {
        self.token_budget = tokens;
        self
    }

    /// The command line for errors.
    fn name(&self) -> String {
        let program = match &self.folder {
            StartFolder::Own | StartFolder::At(_) => self.program.clone(),
            StartFolder::Declared(folder) => located(&self.program, &folder.as_written()),
        };
        let words = std::iter::once(&program).chain(&self.arguments);
        let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        format!("the process {}", quoted(&line))
    }

    fn command(&self, agent: &AgentName) -> Result<Program, TurnError> {
        let (program, folder) = match &self.folder {
            StartFolder::Own => (self.program.clone(), None),
            StartFolder::At(folder) => (self.program.clone(), Some(folder.clone())),
            // Resolved at each start, because a link may have changed since the file was read.
            StartFolder::Declared(folder) => {
                let folder = folder.resolved();
                let folder = folder.map_err(|error| TurnError::terminal(format!("{}: {error}", self.name())))?;
                (located(&self.program, &folder), Some(folder))
            }
        };
        let mut program = scrubbed(&program);
        program.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        for variable in &self.passed {
            let value = std::env::var_os(variable).ok_or_else(|| {
                TurnError::terminal(format!("{} needs the variable {variable}, which is not set; set it", self.name()))
            })?;
            program.env(variable, value);
        }
        program.env("CALLBOARD_AGENT", agent.as_str());
        if let Some(folder) = folder {
            program.current_dir(folder);
        }
        Ok(program)
    }

    /// The values of the variables that are passed on.
    fn secrets(&self) -> Vec<Secret> {
        variables::secrets(&self.passed)
    }

    /// Starts the program and negotiates the version.
    async fn start(&self, agent: &AgentName) -> Result<Process, TurnError> {
        let (whose, secrets) = (agent.clone(), self.secrets());
        let hear = move |pid: i32, line: String| {
            let line = redacted(&secrets, line);
            tracing::info!(target: "callboard::process", agent = %whose, pid, "{line}");
            line
        };
        let sockets = if self.grant.has(Asked::DockerSocket) { Sockets::Named } else { Sockets::NamedButDocker };
        let command = self.command(agent)?;
        let process = TurnSocket::new()
            .and_then(|socket| Process::start(command, sockets, Some(socket), hear))
            .map_err(|error| TurnError::terminal(format!("{} cannot be started: {error}", self.name())))?;
        let time = self.ready_within;
        timeout(time, self.agree(process, agent)).await.unwrap_or_else(|_| {
            let text = format!("{} did not say that it is ready within {time:?}", self.name());
            Err(TurnError::transient(text))
        })
    }

    async fn agree(&self, mut process: Process, agent: &AgentName) -> Result<Process, TurnError> {
        let terminal = |text: String| TurnError::terminal(format!("{} {text}", self.name()));
        let mut hello = Unread::default();
        hello.add(&OutgoingLine::Hello { protocol: VERSION, agent }).map_err(|error| terminal(error.to_string()))?;
        while !hello.is_empty() {
            let written = process.input.write(hello.next()).await;
            hello.take(written);
        }
        let line = match process.output.line().await {
            Some(Line::Whole(line) | Line::Cut(line)) => line,
            Some(Line::Unended(_)) | None => return Err(self.died(process).await),
        };
        match read_ready(&line) {
            Ok(VERSION) => Ok(process),
            Ok(version) => Err(terminal(refused_version(version))),
            Err(bad) => Err(terminal(redacted(&self.secrets(), format!("did not say that it is ready: {bad}")))),
        }
    }

    /// The error of a turn whose program has ended.
    async fn died(&self, process: Process) -> TurnError {
        TurnError::broken(format!("{} {}", self.name(), process.end().await.reported(" before it ended its turn")))
    }

    /// Takes an idle program; `None` if there is none.
    async fn rested(&self) -> Option<Process> {
        loop {
            let watcher = self.resting.lock().pop()?;
            let (claim, claimed) = oneshot::channel();
            if watcher.send(claim).is_ok()
                && let Ok(process) = claimed.await
            {
                return Some(process);
            }
        }
    }

    /// Keeps a program for its next turn.
    fn rest(&self, process: Process, agent: &AgentName) {
        let (watcher, claimed) = oneshot::channel();
        tokio::spawn(watch(process, claimed, self.name(), agent.clone(), self.secrets()));
        let mut resting = self.resting.lock();
        resting.retain(|watcher| !watcher.is_closed());
        resting.push(watcher);
    }
}

impl Agent for ProcessAgent {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        // The program acts outside as it likes.
        turn.committed().await?;
        loop {
            let (mut process, is_fresh) = match self.rested().await {
                Some(process) => (process, false),
                None => (self.start(turn.agent()).await?, true),
            };
            match Conversation::new(&mut process, &turn, self.token_budget, &self.grant).hold().await {
                Ok(Ended { result, is_clean }) => {
                    if is_clean {
                        self.rest(process, turn.agent());
                    } else {
                        log_misplaced(process.output.rest(), &self.name(), turn.agent(), &self.secrets());
                    }
                    return result;
                }
                // The program may have ended before it received the turn.
                Err(Broken::Ended { has_spoken: false }) if !is_fresh => {}
                Err(Broken::Ended { .. }) => return Err(self.died(process).await),
                Err(Broken::Unfit(what)) => {
                    let what = redacted(&self.secrets(), what);
                    return Err(TurnError::terminal(format!("{} {what}", self.name())));
                }
                Err(Broken::Turn(error)) => return Err(error),
            }
        }
    }
}

/// A program with only the necessary variables of the board's own environment.
pub(super) fn scrubbed(program: &OsStr) -> Program {
    let mut program = Program::new(program);
    let passed = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_always_passed));
    program.env_clear().envs(passed);
    program
}

/// Keeps an idle program until it is claimed or the agent is gone. A program that prints anything meanwhile is ended.
async fn watch(
    mut process: Process,
    claimed: oneshot::Receiver<Claim>,
    name: String,
    agent: AgentName,
    secrets: Vec<Secret>,
) {
    let output = tokio::select! {
        biased;
        output = process.output.disturbance() => output,
        claimed = claimed => {
            if let Ok(claim) = claimed {
                // A turn that was stopped meanwhile does not receive it.
                let _ = claim.send(process);
            }
            return;
        }
    };
    if output.is_empty() {
        tracing::debug!(target: "callboard::process", %agent, "{name} ended between turns");
    }
    log_misplaced(&output, &name, &agent, &secrets);
}

/// Logs the output of a program after its turn, because of which the program is ended.
fn log_misplaced(output: &[u8], name: &str, agent: &AgentName, secrets: &[Secret]) {
    if output.is_empty() {
        return;
    }
    let hint = hint_of_misplaced(output).map(|hint| format!("{hint}, and belongs to a turn: ")).unwrap_or_default();
    let output = quoted(&redacted(secrets, String::from_utf8_lossy(output).into_owned()));
    tracing::warn!(target: "callboard::process", %agent, "{name} wrote between turns and is ended: {hint}{output}");
}
