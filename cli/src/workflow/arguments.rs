//! What `callboard workflow` takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::Value;

use callboard::messages::ConversationId;

use crate::agents::arguments::Files;
use crate::limits::{LimitChoice, limit_choice};
use crate::stores::Choice;
use crate::values::{Setting, json, setting, text_in, time_span, value_of};

#[derive(Debug, Subcommand)]
pub(crate) enum Workflow {
    /// Everything that is wrong with workflows, each defect with its place
    #[command(after_help = CHECK_CODES, group = ArgGroup::new("text").required(true).multiple(true))]
    Check {
        /// TOML (*.toml), the one-line syntax (*.flow, or - for standard input), or folders with such files
        #[arg(value_name = "FILE", group = "text")]
        files: Vec<PathBuf>,
        /// A text of the one-line syntax
        #[arg(long, value_name = "TEXT", group = "text")]
        line: Option<String>,
        /// Print a text of the one-line syntax in its usual form
        #[arg(long, conflicts_with = "json")]
        format: bool,
        /// Answer in JSON, for machines
        #[arg(long)]
        json: bool,
    },
    /// A picture of a workflow, and of how a run of it stands
    #[command(after_help = DRAW_CODES, group = ArgGroup::new("text").required(true))]
    Draw {
        /// TOML (*.toml), or the one-line syntax (*.flow, or - for standard input)
        #[arg(group = "text")]
        file: Option<PathBuf>,
        /// A text of the one-line syntax, in place of a file
        #[arg(long, value_name = "TEXT", group = "text")]
        line: Option<String>,
        /// As SVG, which browsers show; Mermaid if nothing is said
        #[arg(long, conflicts_with = "mermaid")]
        svg: bool,
        /// As a Mermaid flowchart
        #[arg(long)]
        mermaid: bool,
        /// Show how the nodes of this run stand: its id, or a beginning that no other run has
        #[arg(long)]
        run: Option<String>,
        #[command(flatten)]
        choice: Choice,
    },
    /// Run a workflow to its end, with programs or agents in files
    #[command(after_help = RUN_CODES, group = ArgGroup::new("text").required(true))]
    Run {
        /// TOML (*.toml), or the one-line syntax (*.flow, or - for standard input)
        #[arg(group = "text")]
        file: Option<PathBuf>,
        /// A text of the one-line syntax, in place of a file
        #[arg(long, value_name = "TEXT", group = "text")]
        line: Option<String>,
        /// A field of the input: JSON if it is any (except null), else text; KEY=@FILE is the text in a file
        #[arg(long, value_name = "KEY=VALUE", value_parser = field)]
        input: Vec<Field>,
        /// The whole input; @FILE reads it from there, @- from standard input
        #[arg(long, value_name = "JSON", value_parser = json, conflicts_with = "input", allow_negative_numbers = true)]
        input_json: Option<Value>,
        /// What the run may use: simple, medium, complex, or JSON such as '{"attempts": 1, "tokens": 5000}'; @FILE reads it from
        /// there
        #[arg(long, value_name = "CLASS|JSON", value_parser = limit_choice)]
        limits: Option<LimitChoice>,
        /// How long what people are asked about waits before silence denies it: 30s, 90m, 12h or 7d; 7d by default
        #[arg(long, value_name = "TIME", value_parser = time_span)]
        approval_ttl: Option<Duration>,
        /// Let agents that think pass control to other nodes; without it each finishes its task alone
        #[arg(long)]
        enable_handoffs: bool,
        #[command(flatten)]
        choice: Choice,
        /// Keep nothing of the run
        #[arg(long, conflicts_with = "store")]
        ephemeral: bool,
        /// Make the run part of a conversation: agents see what earlier runs of the workflow were given and what they resulted in
        #[arg(long, value_name = "ID", value_parser = ConversationId::new, conflicts_with = "ephemeral")]
        conversation: Option<ConversationId>,
        #[command(flatten)]
        going: Going,
    },
    /// Go on with a run that a process left, or that waits for a person
    #[command(after_help = RUN_CODES)]
    Resume {
        #[command(flatten)]
        stored: Stored,
        /// Resume this node alone; may be given several times. All that wait if none is named
        #[arg(long, value_name = "NODE")]
        node: Vec<String>,
        #[command(flatten)]
        change: Change,
        /// For an error that names what works
        #[arg(long, hide = true)]
        limits: Option<String>,
        #[command(flatten)]
        going: Going,
    },
    /// Do what failed in a run again, in a new run that has what came before it
    #[command(after_help = RUN_CODES)]
    Retry {
        #[command(flatten)]
        stored: Stored,
        /// What the new run may use: simple, medium, complex, or JSON such as '{"tokens": 50000}', in which figures that are not
        /// named stay as they were; @FILE reads it from there
        #[arg(long, value_name = "CLASS|JSON", value_parser = limit_choice)]
        limits: Option<LimitChoice>,
        #[command(flatten)]
        going: Going,
    },
    /// Every checkpoint of a run: which node, what it gave and wrote, and the state after it
    #[command(after_help = HISTORY_CODES)]
    History {
        #[command(flatten)]
        stored: Stored,
        /// Answer in JSON, for machines, with whole values
        #[arg(long)]
        json: bool,
    },
    /// A new run that begins as a copy of one, up to a node, and is run from there to its end
    #[command(after_help = RUN_CODES, group = ArgGroup::new("place").required(true))]
    Fork {
        #[command(flatten)]
        stored: Stored,
        /// The turn that begins anew
        #[arg(long, value_name = "N", group = "place")]
        turn: Option<u32>,
        /// The node that begins anew, as `history` has it
        #[arg(long, value_name = "NODE", group = "place")]
        node: Option<String>,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        going: Going,
    },
}

impl Workflow {
    /// Whether agents work for it.
    pub(crate) fn begins_runs(&self) -> bool {
        match self {
            Self::Run { .. } | Self::Resume { .. } | Self::Retry { .. } | Self::Fork { .. } => true,
            Self::Check { .. } | Self::Draw { .. } | Self::History { .. } => false,
        }
    }
}

const CHECK_CODES: &str = "Exit codes: 0 nothing is wrong; 1 there are defects; 2 the command line is wrong, or a file \
                           cannot be read.\n\nA workflow that another one names is looked for in all files that are given, \
                           and beside them.";

const DRAW_CODES: &str = "Exit codes: 0 drawn; 1 the workflow has defects, or there is no such run; 2 the command line or \
                          the store is wrong.";

const RUN_CODES: &str = "Exit codes: 0 the run finished; 1 it failed, was refused, denied or cancelled, or there is no such \
                         run; 2 the command line, the workflow or the store is wrong; 3 it waits for a person; 130 it was \
                         stopped by Ctrl-C.\n\nThe output goes to standard output, all else to standard error. A program \
                         that is an agent is run with `sh -c` for each turn: it reads the input from standard input (a \
                         text as it is, else JSON) and prints the output. A failure is an exit code that is not 0.";

const HISTORY_CODES: &str = "Exit codes: 0 done; 1 no such run; 2 the command line or the store is wrong.";

/// A run in a store.
#[derive(Debug, Args)]
pub(crate) struct Stored {
    /// The run's id, a beginning that no other run has, or @last
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) choice: Choice,
}

/// What is changed before a node starts.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// What the node works on, in place of its input; @FILE reads it from there, @- from standard input
    #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
    pub(crate) input: Option<Value>,
    /// What the node finds in a channel; may be given several times
    #[arg(long, value_name = "CHANNEL=JSON", value_parser = setting)]
    pub(crate) set: Vec<Setting>,
}

/// How a run is worked on in this process.
#[derive(Debug, Args)]
pub(crate) struct Going {
    /// The program that is an agent; '*=COMMAND' is all that are not named
    #[arg(long, value_name = "NAME=COMMAND", value_parser = program)]
    pub(crate) agent: Vec<Program>,
    #[command(flatten)]
    pub(crate) thinkers: Thinkers,
    /// Show each event as it happens
    #[arg(long)]
    pub(crate) watch: bool,
    /// Ask nobody at the terminal: a run that waits for a person ends this process with 3
    #[arg(long)]
    pub(crate) no_input: bool,
    /// Print the whole result as JSON, for machines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Agents from files, for those that have no program here.
#[derive(Clone, Debug, Args)]
pub(crate) struct Thinkers {
    /// The folder with agents, one in each file *.toml; a program of the same name goes first
    #[arg(long, value_name = "FOLDER")]
    pub(crate) agents: Option<PathBuf>,
    /// The file with the models that they may choose among; models.toml, if there is one
    #[arg(long, value_name = "FILE", requires = "agents")]
    pub(crate) models: Option<PathBuf>,
    /// The file with the MCP servers whose tools they may use; mcp.toml, if there is one. Its programs are started
    #[arg(long, value_name = "FILE", requires = "agents")]
    pub(crate) mcp: Option<PathBuf>,
    /// The folder that their tools may see
    #[arg(long, value_name = "FOLDER", requires = "agents", default_value = ".")]
    pub(crate) root: PathBuf,
    /// A folder outside of --root that their commands may read, and whose programs they may run; may be given several times
    #[arg(long, value_name = "FOLDER", requires = "agents")]
    pub(crate) allow_read: Vec<PathBuf>,
    /// The model that all of them ask; `fake` is one that needs no network and does not think
    #[arg(long, value_name = "MODEL", requires = "agents")]
    pub(crate) model: Option<String>,
}

impl Thinkers {
    /// Where they are declared, and what their tools may see, if there are any. They may not change these workflows.
    pub(crate) fn files(&self, workflows: &[PathBuf]) -> Option<Files> {
        let Self { agents, models, mcp, root, allow_read, model: _ } = self.clone();
        Some(Files { agents: agents?, models, mcp, root, allow_read, kept: workflows.to_vec() })
    }
}

/// An agent's name, or `*`, and the command line that it is.
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
        None => value_of(value),
    };
    Ok(Field { key: key.to_owned(), value })
}
