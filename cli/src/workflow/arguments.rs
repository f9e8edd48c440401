//! The arguments of `callboard workflow`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args, Subcommand};
use serde_json::Value;

use callboard::messages::ConversationId;

use crate::agents::arguments::Files;
use crate::limits::{LimitChoice, limit_choice};
use crate::run_names::written;
use crate::service::arguments::Delivery;
use crate::stores::Choice;
use crate::values::{Setting, json, setting, text_in, time_to_answer, value_of, words};

#[derive(Debug, Subcommand)]
pub(crate) enum Workflow {
    /// Check workflows, and report every defect with its place
    #[command(after_help = CHECKED, group = ArgGroup::new("text").required(true).multiple(true))]
    Check {
        /// TOML (*.toml), the one-line syntax (*.flow, or - for standard input), or folders with such files
        #[arg(value_name = "FILE", group = "text")]
        files: Vec<PathBuf>,
        /// A workflow in the one-line syntax
        #[arg(long, value_name = "TEXT", group = "text")]
        line: Option<String>,
        /// Print workflows of the one-line syntax in canonical form
        #[arg(long, conflicts_with = "json")]
        format: bool,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Draw a workflow, with the node states of a run if one is named
    #[command(group = ArgGroup::new("text").required(true))]
    Draw {
        /// TOML (*.toml), or the one-line syntax (*.flow, or - for standard input)
        #[arg(group = "text")]
        file: Option<PathBuf>,
        /// A workflow in the one-line syntax, in place of a file
        #[arg(long, value_name = "TEXT", group = "text")]
        line: Option<String>,
        /// Draw an SVG, which browsers show; Mermaid is the default
        #[arg(long, conflicts_with = "mermaid")]
        svg: bool,
        /// Draw a Mermaid flowchart
        #[arg(long)]
        mermaid: bool,
        /// Show the node states of this run: its id, short or whole, or @last
        #[arg(long, value_parser = written)]
        run: Option<String>,
        #[command(flatten)]
        choice: Choice,
    },
    /// Keep a workflow in the store: as the next version of its name, unless it equals the latest one
    #[command(group = ArgGroup::new("text").required(true))]
    Save {
        /// TOML (*.toml), or the one-line syntax (*.flow, or - for standard input)
        #[arg(group = "text")]
        file: Option<PathBuf>,
        /// A workflow in the one-line syntax, in place of a file
        #[arg(long, value_name = "TEXT", group = "text")]
        line: Option<String>,
        #[command(flatten)]
        choice: Choice,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Start the latest version of a saved workflow on `callboard serve`, and return once the task is journaled
    Start(Start),
    /// List the workflows that the store keeps, or the versions of one
    Versions {
        /// The workflow's name; without one, all are listed
        name: Option<String>,
        #[command(flatten)]
        choice: Choice,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Run a workflow to its end, with programs or agents in files
    #[command(after_help = RUN, group = ArgGroup::new("text").required(true))]
    Run {
        /// TOML (*.toml), or the one-line syntax (*.flow, or - for standard input)
        #[arg(group = "text")]
        file: Option<PathBuf>,
        /// A workflow in the one-line syntax, in place of a file
        #[arg(long, value_name = "TEXT", group = "text")]
        line: Option<String>,
        /// A field of the input: JSON if the value parses (except null), else text. What begins with {, [ or " has to be JSON. KEY=@FILE is
        /// the text in a file
        #[arg(long, value_name = "KEY=VALUE", value_parser = field)]
        input: Vec<Field>,
        /// The whole input; @FILE reads it from a file, @- from standard input
        #[arg(long, value_name = "JSON", value_parser = json, conflicts_with = "input", allow_negative_numbers = true)]
        input_json: Option<Value>,
        /// The limits of the run: simple, medium, complex, or JSON such as '{"attempts": 1, "tokens": 5000}'; @FILE reads them from
        /// a file
        #[arg(long, value_name = "CLASS|JSON", value_parser = limit_choice)]
        limits: Option<LimitChoice>,
        /// How long an approval waits for a person before it is denied: 30s, 90m, 12h or 7d; 7d by default
        #[arg(long, value_name = "TIME", value_parser = time_to_answer)]
        approval_ttl: Option<Duration>,
        /// Let agents with models hand control to other nodes; without it each agent finishes its own task
        #[arg(long)]
        enable_handoffs: bool,
        #[command(flatten)]
        choice: Choice,
        /// Store nothing of the run
        #[arg(long, conflicts_with = "store")]
        ephemeral: bool,
        /// Make the run part of a conversation: agents receive the inputs and outputs of earlier runs of the workflow
        #[arg(long, value_name = "ID", value_parser = ConversationId::new, conflicts_with = "ephemeral")]
        conversation: Option<ConversationId>,
        #[command(flatten)]
        execution: Execution,
    },
    /// Resume a run that a process left, or that waits for a person
    #[command(after_help = RUN)]
    Resume {
        #[command(flatten)]
        stored: Stored,
        /// Resume only this node; may be given several times. By default all nodes that wait
        #[arg(long, value_name = "NODE")]
        node: Vec<String>,
        #[command(flatten)]
        change: Change,
        /// Refused with an error that names `retry`, which accepts it.
        #[arg(long, hide = true)]
        limits: Option<String>,
        #[command(flatten)]
        execution: Execution,
    },
    /// Retry the failed turn of a run, in a new run that copies the turns before it
    #[command(after_help = RUN)]
    Retry {
        #[command(flatten)]
        stored: Stored,
        /// The limits of the new run: simple, medium, complex, or JSON such as '{"tokens": 50000}', in which limits that are not
        /// named stay the same; @FILE reads them from a file
        #[arg(long, value_name = "CLASS|JSON", value_parser = limit_choice)]
        limits: Option<LimitChoice>,
        #[command(flatten)]
        execution: Execution,
    },
    /// Show the history of a run: every checkpoint with its node, its output and writes, and the state after it
    History {
        #[command(flatten)]
        stored: Stored,
        /// Print JSON, for programs, with whole values
        #[arg(long)]
        json: bool,
    },
    /// Fork a run: start a copy of it, up to a node, and run that from there to its end
    #[command(after_help = RUN, group = ArgGroup::new("place").required(true))]
    Fork {
        #[command(flatten)]
        stored: Stored,
        /// The turn that runs again
        #[arg(long, value_name = "N", group = "place")]
        turn: Option<u32>,
        /// The node that runs again, by its name in `history`
        #[arg(long, value_name = "NODE", group = "place")]
        node: Option<String>,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        execution: Execution,
    },
}

impl Workflow {
    /// Whether the command runs agents, or changes what others run.
    pub(crate) fn begins_runs(&self) -> bool {
        !matches!(self, Self::Check { .. } | Self::Draw { .. } | Self::History { .. } | Self::Versions { .. })
    }

    /// Whether the command reads runs or workflows of a store.
    pub(crate) fn reads_stores(&self) -> bool {
        !matches!(self, Self::Check { .. } | Self::Draw { run: None, .. })
    }
}

/// A saved workflow, and what it works on.
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// The workflow's name
    pub(crate) name: String,
    /// What it is for, in words; its name by default. @FILE reads it from a file, @- from standard input, and @@ at the beginning is an @
    #[arg(value_parser = words)]
    pub(crate) task: Option<String>,
    /// A field of the input: JSON if the value parses (except null), else text. What begins with {, [ or " has to be JSON. KEY=@FILE is
    /// the text in a file
    #[arg(long, value_name = "KEY=VALUE", value_parser = field)]
    pub(crate) input: Vec<Field>,
    /// The whole input; @FILE reads it from a file, @- from standard input
    #[arg(long, value_name = "JSON", value_parser = json, conflicts_with = "input", allow_negative_numbers = true)]
    pub(crate) input_json: Option<Value>,
    #[command(flatten)]
    pub(crate) delivery: Delivery,
}

const CHECKED: &str = "Workflows that a workflow refers to are searched for in all files that are given, and in the files \
                       beside them.";

const RUN: &str = "The output is written to standard output, all else to standard error. A program that is an agent is run with \
                   `sh -c` for each turn: it reads the input from standard input (text unchanged, other values as JSON) and \
                   prints the output. An exit code other than 0 is a failure.";

/// A run in a store, as the command line names it.
#[derive(Debug, Args)]
pub(crate) struct Stored {
    /// The run: its id, short or whole, as much of it as no other run has, or @last
    #[arg(value_parser = written)]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) choice: Choice,
}

/// Changes to a node's input and state before it starts.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// The input of the node, in place of its own; @FILE reads it from a file, @- from standard input
    #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
    pub(crate) input: Option<Value>,
    /// The value of a channel when the node starts; may be given several times
    #[arg(long, value_name = "CHANNEL=JSON", value_parser = setting)]
    pub(crate) set: Vec<Setting>,
}

/// Which agents work on a run in this process, and what is printed.
#[derive(Debug, Args)]
pub(crate) struct Execution {
    /// A program as the agent NAME; '*=COMMAND' stands for all agents that are not named
    #[arg(long, value_name = "NAME=COMMAND", value_parser = program)]
    pub(crate) agent: Vec<Program>,
    #[command(flatten)]
    pub(crate) folder: FolderAgents,
    /// Print each event as it happens
    #[arg(long)]
    pub(crate) watch: bool,
    /// Ask nobody at the terminal: the process ends with code 5 when the run waits for a person
    #[arg(long)]
    pub(crate) no_input: bool,
    /// Print the whole result as JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where agents without a program on the command line are declared, and what their tools may access.
#[derive(Clone, Debug, Args)]
pub(crate) struct FolderAgents {
    /// The folder with agents, one per file *.toml; --agent with the same name has precedence
    #[arg(long, value_name = "FOLDER")]
    pub(crate) agents: Option<PathBuf>,
    /// The file with the models that they may use; by default models.toml beside that folder, if it exists
    #[arg(long, value_name = "FILE", requires = "agents")]
    pub(crate) models: Option<PathBuf>,
    /// The file with the MCP servers whose tools they may use; by default mcp.toml beside that folder, if it exists. Its programs are
    /// started
    #[arg(long, value_name = "FILE", requires = "agents")]
    pub(crate) mcp: Option<PathBuf>,
    /// The folder that their tools work in
    #[arg(long, value_name = "FOLDER", requires = "agents", default_value = ".")]
    pub(crate) root: PathBuf,
    /// A folder outside of --root that their commands may read, and whose programs they may run; may be given several times
    #[arg(long, value_name = "FOLDER", requires = "agents")]
    pub(crate) allow_read: Vec<PathBuf>,
    /// The model that all of them use; `fake` needs no network and repeats what it was asked
    #[arg(long, value_name = "MODEL", value_parser = NonEmptyStringValueParser::new(), requires = "agents")]
    pub(crate) model: Option<String>,
}

impl FolderAgents {
    /// The same as arguments of `callboard run`; `None` without a folder. Their tools may not change the files `workflows`.
    pub(crate) fn files(&self, workflows: &[PathBuf]) -> Option<Files> {
        let Self { agents, models, mcp, root, allow_read, model: _ } = self.clone();
        let agents = Some(agents?);
        let (config, protected) = (None, workflows.to_vec());
        Some(Files { agents, models, mcp, config, root, allow_read, protected, found: None, free: None }.search())
    }
}

/// An agent's name, or `*`, and the command line that runs it.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) command: String,
}

/// A field of an input.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) key: String,
    pub(crate) value: Value,
}

fn program(text: &str) -> Result<Program, String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
            Ok(Program { name: name.to_owned(), command: command.to_owned() })
        }
        Some(_) | None => Err("write NAME=COMMAND".to_owned()),
    }
}

fn field(text: &str) -> Result<Field, String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, or KEY=@FILE")?;
    let value = match value.strip_prefix('@') {
        Some(file) => Value::from(text_in(file)?),
        None => value_of(value).map_err(|problem| format!("{problem}, or as KEY=@FILE"))?,
    };
    Ok(Field { key: key.to_owned(), value })
}
