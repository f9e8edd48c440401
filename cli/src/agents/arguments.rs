//! The arguments of `callboard init|check|run`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use callboard::messages::{ConversationId, visible};
use callboard_agents::files_of_agents;

use crate::exit::Exit;
use crate::limits::{LimitChoice, limit_choice};
use crate::page::{Failure, shown_path};
use crate::quote::quoted_path;
use crate::run_names::written;
use crate::stores::Choice;
use crate::stores::project::root_of;
use crate::values::{json, variable};

use super::patterns::Pattern;
use super::trust::User;

/// Initialize a folder with example agents
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The folder to write to; files that exist are not changed
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Print the JSON Schema of the files with agents, for editors, and check nothing
    #[arg(long)]
    pub(crate) schema: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where agents and models are declared.
#[derive(Debug, Args)]
pub(crate) struct Files {
    /// The folder with the agents, one per file *.toml; by default the folder agents of the project, which is the nearest folder, from the
    /// current one upwards, that has one or is the top of a repository; without one, `run` uses the team of `callboard init`
    #[arg(long, value_name = "FOLDER")]
    pub(crate) agents: Option<PathBuf>,
    /// The file with the models that agents may use; by default models.toml beside the folder of agents, if it exists
    #[arg(long, value_name = "FILE")]
    pub(crate) models: Option<PathBuf>,
    /// The file with the MCP servers whose tools agents may use; by default mcp.toml beside the folder of agents, if it exists. Its
    /// programs are started
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp: Option<PathBuf>,
    /// The file with settings; the variable CALLBOARD_CONFIG names one too. By default callboard.toml beside the folder of agents, if it
    /// exists
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder that tools work in: they read, write and search its files, and run programs in it
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) root: PathBuf,
    /// A folder outside of --root that commands of ShellExec may read, and whose programs they may run, such as a toolchain in
    /// a home folder; may be given several times
    #[arg(long, value_name = "FOLDER")]
    pub(crate) allow_read: Vec<PathBuf>,
    /// Further files that tools may read but not change; the command sets them, no option does.
    #[arg(skip)]
    pub(crate) protected: Vec<PathBuf>,
    /// The folder of agents of the project, used if none is named; the command sets it, no option does.
    #[arg(skip)]
    pub(crate) found: Option<Found>,
    /// The folder of the project, if nothing is where its folder of agents would be; the command sets it, no option does.
    #[arg(skip)]
    pub(crate) free: Option<PathBuf>,
}

/// The folder of agents of a project.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) folder: PathBuf,
    /// The folder of the project.
    project: PathBuf,
    /// Whether the current folder is the project's.
    is_here: bool,
}

/// The name of the default folder of agents.
pub(crate) const AGENTS: &str = "agents";
/// The name of the default file of models.
pub(super) const DEFAULT_CATALOG: &str = "models.toml";
/// The name of the default file of MCP servers.
pub(super) const DEFAULT_SERVERS: &str = "mcp.toml";
/// The name of the default file of settings.
pub(crate) const DEFAULT_CONFIG: &str = "callboard.toml";

impl Files {
    /// Those of the project, where nothing is named.
    pub(crate) fn of_project() -> Self {
        let (root, allow_read, protected) = (PathBuf::from("."), Vec::new(), Vec::new());
        let all = Self {
            agents: None,
            models: None,
            mcp: None,
            config: None,
            root,
            allow_read,
            protected,
            found: None,
            free: None,
        };
        all.search()
    }

    /// Searches the project for the folder that is used if none is named.
    pub(crate) fn search(mut self) -> Self {
        let Ok(current) = std::env::current_dir() else { return self };
        let project = root_of(&current).to_owned();
        let is_here = project == current;
        let folder = if is_here { PathBuf::from(AGENTS) } else { project.join(AGENTS) };
        let is_free = folder.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.free = is_free.then(|| if is_here { PathBuf::new() } else { project.clone() });
        self.found = folder.is_dir().then_some(Found { folder, project, is_here });
        self
    }

    /// The folder of agents.
    pub(crate) fn folder(&self) -> &Path {
        let found = self.found.as_ref().map(|found| &*found.folder);
        self.agents.as_deref().or(found).unwrap_or(Path::new(AGENTS))
    }

    /// The file of settings that was named.
    pub(crate) fn named_config(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| variable("CALLBOARD_CONFIG").map(PathBuf::from))
    }

    /// Whether there is no folder of agents, and none was named.
    pub(crate) fn are_missing(&self) -> bool {
        self.agents.is_none() && self.found.is_none() && self.free.is_some()
    }

    /// The path of the default file of this name, which is beside the folder of agents, or where that would be.
    pub(crate) fn default_file(&self, name: &str) -> PathBuf {
        match &self.free {
            Some(project) if self.are_missing() => project.join(name),
            Some(_) | None => beside(self.folder(), name),
        }
    }

    /// A line about the folder of agents, if none was named and that of the project lies above the current folder.
    ///
    /// # Errors
    /// None was named, and the project has none, or another user may have changed the project.
    pub(crate) fn remark(&self) -> Result<Option<String>, Failure> {
        if self.agents.is_some() {
            return Ok(None);
        }
        // One that somebody makes from now on is not used.
        let found = self.found.as_ref().ok_or_else(|| no_folder(Path::new(AGENTS)))?;
        found.check()?;
        Ok((!found.is_here).then(|| format!("the agents are those of {}", shown_path(&found.folder))))
    }

    /// Checks what a command of an agent or a server of the project starts. `paths` returns the paths that the command names in a project.
    ///
    /// # Errors
    /// No folder of agents was named, and another user may have changed where one of them leads; or `paths` fails.
    pub(super) fn check_paths(&self, paths: impl FnOnce(&Path) -> io::Result<Vec<PathBuf>>) -> Result<(), Failure> {
        let Some(found) = self.found.as_ref().filter(|_| self.agents.is_none()) else { return Ok(()) };
        let paths = paths(&found.project)
            .map_err(|error| Failure::file(&error, format!("the folder of a program cannot be determined: {error}")))?;
        found.check_all(&paths)
    }
}

impl Found {
    /// Checks the project's folder, its agents, servers and models: agents and servers start programs, and in a folder such as `/tmp` anybody
    /// could put some.
    fn check(&self) -> Result<(), Failure> {
        let agents = self.project.join(AGENTS);
        let files = [DEFAULT_CATALOG, DEFAULT_SERVERS].map(|name| self.project.join(name));
        self.check_all(&[self.project.clone(), agents.clone()])?;
        let agents = files_of_agents(&agents).map_err(|error| Failure::usage(error.to_string()))?;
        self.check_all(&[&files[..], &agents].concat())
    }

    /// # Errors
    /// Another user may have changed where one of these absolute paths leads.
    fn check_all(&self, paths: &[PathBuf]) -> Result<(), Failure> {
        let user = User::current();
        let Some(untrusted) = paths.iter().find_map(|path| user.untrusted(path)) else { return Ok(()) };
        let text = format!(
            "the agents of {} are not used: another user may have changed {} ({}); to use them: --agents {}",
            shown_path(&self.folder),
            shown_path(&untrusted),
            user.reason(&untrusted),
            visible(&quoted_path(&self.folder))
        );
        Err(Failure::new(Exit::Denied, text))
    }
}

/// The error where there is no folder of agents.
pub(super) fn no_folder(folder: &Path) -> Failure {
    let shown = shown_path(folder);
    Failure::usage(format!("there is no folder {shown}; `callboard init` writes one, --agents names another"))
}

/// The path of a file beside a folder.
pub(crate) fn beside(folder: &Path, name: &str) -> PathBuf {
    match folder.file_name() {
        Some(_) => folder.with_file_name(name),
        // `.` and `..` have no name to replace.
        None => folder.join("..").join(name),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The task, as text; @FILE reads it from a file, @- from standard input, and @@ at the beginning is an @
    #[arg(required_unless_present_any = ["resume", "retry"], conflicts_with_all = ["resume", "retry"], value_parser = crate::values::words)]
    pub(crate) task: Option<String>,
    /// The agent that receives the task: its name, a role or a capability; by default the only agent, or the one named coordinator
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["resume", "retry"])]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) pattern: Pattern,
    /// The most rounds of peers, or of an executor and its reviewer; 3 by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["resume", "retry"])]
    pub(crate) rounds: Option<u32>,
    /// The input of the agent, as JSON, in place of the task's text, which prompts can still refer to; @FILE reads it from a
    /// file, @- from standard input
    #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true, conflicts_with_all = ["resume", "retry"])]
    pub(crate) input: Option<Value>,
    #[command(flatten)]
    pub(crate) files: Files,
    /// The model that all agents use, in place of those in their files; `fake` needs no network and repeats what it was asked
    #[arg(long, value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,
    /// The limits of the run: simple, medium, complex, JSON such as '{"tokens": 50000}', or auto: the agent `complexity` first
    /// classifies the task, in a run of its own; @FILE reads them from a file. With --retry, limits that are not named stay the same
    #[arg(long, value_name = "CLASS|JSON|auto", value_parser = allowance)]
    pub(crate) limits: Option<Allowance>,
    /// How long an approval waits for a person before it is denied: 30s, 90m, 12h or 7d; 7d by default
    #[arg(long, value_name = "TIME", value_parser = crate::values::time_to_answer, conflicts_with_all = ["resume", "retry"])]
    pub(crate) approval_ttl: Option<Duration>,
    /// Let agents hand control to each other; without it each agent finishes its own task, and can still delegate
    #[arg(long, conflicts_with_all = ["resume", "retry"])]
    pub(crate) enable_handoffs: bool,
    /// Ask nobody: the process ends when the run waits for a person
    #[arg(long)]
    pub(crate) no_input: bool,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Store nothing of the run
    #[arg(long, conflicts_with_all = ["store", "resume", "retry"])]
    pub(crate) ephemeral: bool,
    /// Make the run part of a conversation: the agent receives the messages of its earlier runs
    #[arg(long, value_name = "ID", value_parser = ConversationId::new, conflicts_with_all = ["resume", "retry", "ephemeral"])]
    pub(crate) conversation: Option<ConversationId>,
    /// Resume a run that a process left, or that waits for a person: its id, short or whole, or @last. If
    /// the run has ended, its result is printed, which needs neither agents nor a model
    #[arg(long, value_name = "RUN", value_parser = written)]
    pub(crate) resume: Option<String>,
    /// Retry the failed turn of a run, in a new run that copies the turns before it: the run's id, short or whole, or @last.
    /// --limits gives the new run other limits
    #[arg(long, value_name = "RUN", conflicts_with = "resume", value_parser = written)]
    pub(crate) retry: Option<String>,
    /// Print no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Print the whole result as JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Of commands that begin or continue a run.
pub(crate) const OUTPUT: &str = "The output is written to standard output, all else to standard error.";

/// The value of `--limits`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Allowance {
    Named(LimitChoice),
    /// `auto`: the agent `complexity` chooses the class.
    Judged,
}

fn allowance(text: &str) -> Result<Allowance, String> {
    if text == "auto" {
        return Ok(Allowance::Judged);
    }
    let is_word = !text.starts_with(['@', '{']);
    limit_choice(text).map(Allowance::Named).map_err(|error| if is_word { format!("{error}, or auto") } else { error })
}
