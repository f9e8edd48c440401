//! The arguments of the command line, as clap reads them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::Value;

use callboard::messages::ConversationId;

use crate::agents::arguments::{Check, Init, OUTPUT, Run};
use crate::doctor::Doctor;
use crate::knowledge::arguments::Kb;
use crate::page::Failure;
use crate::run_names::written;
use crate::runs::list::Filter;
use crate::service::arguments::{
    Answer, Approve, Cancel, Context, DeadLetters, Deny, Inbox, Mcp, Pending, Read, Retry, Send, Serve, Status, Tokens,
    Usage, Wait, Watch,
};
use crate::service::schedule::Schedule;
use crate::service::sign_in::SignIn;
use crate::stores::database::Given;
use crate::stores::{Common, Stores};
use crate::values::{Setting, json, setting};
use crate::workflow::arguments::Workflow;

/// Runs agents and workflows, and shows their runs
#[derive(Debug, Parser)]
#[command(name = "callboard", version)]
pub(crate) enum Arguments {
    /// Initialize a folder with example agents
    Init(Init),
    /// Check the agents of a folder, and report every defect with its place
    Check(Check),
    /// Run a task with agents
    #[command(after_help = OUTPUT)]
    Run(Run),
    /// Serve the agents to other processes and over HTTP, until it is stopped
    Serve(Serve),
    /// Have an MCP client, which starts this command, use the agents of `callboard serve` as tools, over the standard streams
    Mcp(Mcp),
    /// Send a task to an agent of `callboard serve`, and return once it is journaled
    Send(Send),
    /// Show where a run stands
    Status(Status),
    /// Wait until a run has ended or waits for a person, and print its result; the exit code is 124 if the time is over
    Wait(Wait),
    /// Print what happens to a run, or to all runs of `callboard serve`, as it happens; ends with the run and its exit code
    Watch(Watch),
    /// Print the newest messages of an inbox: tasks that an agent was given, and statuses of those that it gave
    Read(Read),
    /// Try a turn that failed for good again, in a run of its own
    Retry(Retry),
    /// List turns that failed for good, and try them again
    DeadLetters(DeadLetters),
    /// Show what runs have used, by day, agent, model and who gave them
    Usage(Usage),
    /// List the boards that work on the store: what each hosts, how many runs it works on, and when it has last renewed its lease
    Boards(Common),
    /// Show the supervision tree of `callboard serve`, with states and restarts
    Tree(Common),
    /// Cancel a run, also one of another process
    Cancel(Cancel),
    /// List everything that needs a person - approvals, questions, failures - and decide about it, item by item at a terminal
    Inbox(Inbox),
    /// List what waits for a person, each with the command that decides it
    #[command(visible_alias = "approvals")]
    Pending(Pending),
    /// Approve an action that waits for consent, once; or start a turn again that needs attention
    Approve(Approve),
    /// Deny an action that waits for consent
    Deny(Deny),
    /// Answer a question, or resume a node of a workflow that waits for a person
    Answer(Answer),
    /// List the agents of `callboard serve`
    Agents(Common),
    /// Print a link with which you sign in to the pages of `callboard serve`, in a browser
    SignIn(SignIn),
    /// List, add and revoke the tokens of `callboard serve`
    Tokens {
        #[command(subcommand)]
        command: Tokens,
    },
    /// List, add, show, pause, resume, run and delete schedules: tasks that `callboard serve` starts at times
    Schedule {
        #[command(subcommand)]
        command: Schedule,
    },
    /// List, print, set and delete entries of the shared context of `callboard serve`, which agents read and write too
    Context {
        #[command(subcommand)]
        command: Context,
    },
    /// List, show, replay, diff, delete, prune, export, import and fork the runs of the project, or of a store
    Runs {
        #[command(subcommand)]
        command: Runs,
    },
    /// Replay a run: show it event by event, with what each event changed; or compare what another build makes of all runs
    Replay(Replay),
    /// Check, migrate, back up, export and import the store of the project, or another one
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Index documents, find what is known, and submit, accept and invalidate facts
    Kb(Kb),
    /// Report whether this machine has what agents and servers need; the exit code is 1 if something has failed
    Doctor(Doctor),
    /// Print the script that completes command lines in a shell: callboard completions bash > FILE
    Completions(Completions),
    /// Write a man page for each command into a folder
    Man(Man),
    /// List, show, fork and delete conversations, which several runs of an agent share: see `callboard run --conversation`
    Conversations {
        #[command(subcommand)]
        command: Conversations,
    },
    /// Check, draw, run, resume, retry and fork workflows, with programs or agents in files, and show the history of their runs; save
    /// them, and start those on `callboard serve`
    Workflow {
        #[command(subcommand)]
        command: Workflow,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The folder, which is made if it is missing; pages of the same names are replaced
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The run: its id, short or whole, as much of it as no other run has, or @last
    #[arg(required_unless_present = "all", value_parser = written)]
    pub(crate) run: Option<String>,
    /// Print what this build makes of each run, as a JSON object in a line
    #[arg(long, conflicts_with_all = ["run", "turn", "step"])]
    pub(crate) all: bool,
    /// Another callboard program: compare what it makes of a copy of the store, and print the first difference of each run; the
    /// exit code is 1 if there is one
    #[arg(long, value_name = "BUILD", requires = "all")]
    pub(crate) against: Option<OsString>,
    /// Show the state before and after this turn, instead of all events
    #[arg(long, value_name = "N", conflicts_with = "step", allow_negative_numbers = true)]
    pub(crate) turn: Option<u32>,
    /// Show one event at a time with the whole state; Enter shows the next, q ends
    #[arg(long, conflicts_with = "json")]
    pub(crate) step: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The file to write, which must not exist; `-` is standard output, as is no FILE
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Import also the runs and conversations that other stores of the project have with the same content; they are
    /// stored twice then
    #[arg(long)]
    pub(crate) again: bool,
    /// The file to read; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, oldest first: all of them, or those that the options select
    List {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        filter: Filter,
        /// Only the newest N of them
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: Option<u32>,
    },
    /// Show one run: its task, its turns, its result, and which agent handed what to which
    Show {
        #[command(flatten)]
        common: Common,
        /// The run: its id, short or whole, as much of it as no other run has, or @last
        #[arg(value_parser = written)]
        run: String,
    },
    /// Replay a run, as `callboard replay` does
    Replay(Replay),
    /// Show the diff of two runs: the first event that differs, their outcomes, their channels and their turns
    Diff {
        #[command(flatten)]
        common: Common,
        /// One run: its id, short or whole, as much of it as no other run has, or @last
        #[arg(value_parser = written)]
        first: String,
        /// The other run
        #[arg(value_parser = written)]
        second: String,
    },
    /// Delete runs, with all that the store keeps of them
    #[command(visible_alias = "remove")]
    Delete {
        #[command(flatten)]
        common: Common,
        /// Their ids, or prefixes of them that no other runs have
        #[arg(required = true, value_parser = written)]
        runs: Vec<String>,
    },
    /// Prune the store: delete the runs that have ended and that the options select; at least one option is required
    Prune {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        filter: Filter,
    },
    /// Export all records and values of a store as text, to standard output or to a file
    Export(Export),
    /// Import an export into an empty or a new store
    Import(Import),
    /// Fork a run: start a copy of it, up to a turn; the program with the agents continues it at its next start
    Fork {
        #[command(flatten)]
        common: Common,
        /// The run: its id, short or whole, as much of it as no other run has, or @last
        #[arg(value_parser = written)]
        run: String,
        /// The turn that runs again
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        turn: u32,
        /// The input of the turn, in place of its earlier one; @FILE reads it from a file, @- from standard input
        #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
        input: Option<Value>,
        /// The value of a channel when the turn begins; may be given several times
        #[arg(long, value_name = "CHANNEL=JSON", value_parser = setting)]
        set: Vec<Setting>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Read everything of the stores, and report the first damage of each run; the exit code is 1 if there is some. Of a database also
    /// its versions, rights, sizes, and settings that may lose data
    Check {
        /// The URL of a database: postgres://USER@HOST/DATABASE
        #[arg(value_name = "URL", conflicts_with = "store")]
        url: Option<Given>,
        #[command(flatten)]
        common: Common,
    },
    /// Create the schema of a database, or bring it up to date; the user of the URL owns its tables
    Migrate {
        /// The URL of the database: postgres://USER@HOST/DATABASE
        #[arg(value_name = "URL", conflicts_with = "store")]
        url: Option<Given>,
        /// The role that boards connect as, which may read and write rows; it is created without a password if it does not exist
        #[arg(long, value_name = "ROLE")]
        runtime_role: Option<String>,
        /// A role that may read all rows and change none, for reports in SQL, not for boards; it is created without a password if it does not exist
        #[arg(long, value_name = "ROLE")]
        reader_role: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Copy the store into a new folder, also while other processes use it
    Backup {
        /// The folder, which is empty or does not exist
        folder: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Export all records and values of a store as text, as `callboard runs export` does
    Export(Export),
    /// Import an export into an empty or a new store, as `callboard runs import` does
    Import(Import),
}

impl StoreCommand {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Check { common, .. }
            | Self::Migrate { common, .. }
            | Self::Backup { common, .. }
            | Self::Export(Export { common, .. })
            | Self::Import(Import { common, .. }) => common,
        }
    }

    /// The stores that the command is for.
    pub(crate) fn stores(&self) -> Result<Stores, Failure> {
        match self {
            Self::Check { url: Some(url), .. } | Self::Migrate { url: Some(url), .. } => Stores::of_argument(url),
            Self::Check { common, .. }
            | Self::Migrate { common, .. }
            | Self::Backup { common, .. }
            | Self::Export(Export { common, .. })
            | Self::Import(Import { common, .. }) => common.choice.stores(),
        }
    }

    /// Whether the command makes a store.
    pub(crate) fn makes_stores(&self) -> bool {
        match self {
            Self::Check { .. } | Self::Export(_) => false,
            Self::Backup { .. } | Self::Import(_) | Self::Migrate { .. } => true,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Conversations {
    /// List all conversations
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Show the messages of a conversation, run by run
    Show {
        #[command(flatten)]
        common: Common,
        /// Its id
        #[arg(value_parser = ConversationId::new)]
        conversation: ConversationId,
    },
    /// Fork a conversation: copy it under a new id, to continue the copy independently
    Fork {
        #[command(flatten)]
        common: Common,
        /// Its id
        #[arg(value_parser = ConversationId::new)]
        conversation: ConversationId,
        /// The id of the copy, which no conversation may have
        #[arg(value_name = "NEW", value_parser = ConversationId::new)]
        copy: ConversationId,
        /// The last run whose messages are copied: its id, short or whole, or @last, which is the default
        #[arg(long, value_name = "RUN", value_parser = written)]
        until: Option<String>,
    },
    /// Delete conversations with all their messages; their runs are kept
    #[command(visible_alias = "remove")]
    Delete {
        #[command(flatten)]
        common: Common,
        /// Their ids
        #[arg(required = true, value_parser = ConversationId::new)]
        conversations: Vec<ConversationId>,
    },
}

impl Conversations {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::List { common }
            | Self::Show { common, .. }
            | Self::Fork { common, .. }
            | Self::Delete { common, .. } => common,
        }
    }

    /// Whether the command writes to a store.
    pub(crate) fn changes_them(&self) -> bool {
        match self {
            Self::List { .. } | Self::Show { .. } => false,
            Self::Fork { .. } | Self::Delete { .. } => true,
        }
    }
}

impl Runs {
    /// Whether the command writes to a store: starts, imports or removes runs.
    pub(crate) fn changes_runs(&self) -> bool {
        match self {
            Self::Fork { .. } | Self::Import(_) | Self::Delete { .. } | Self::Prune { .. } => true,
            Self::List { .. } | Self::Show { .. } | Self::Replay(_) | Self::Diff { .. } | Self::Export(_) => false,
        }
    }

    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::List { common, .. }
            | Self::Show { common, .. }
            | Self::Replay(Replay { common, .. })
            | Self::Diff { common, .. }
            | Self::Delete { common, .. }
            | Self::Prune { common, .. }
            | Self::Export(Export { common, .. })
            | Self::Import(Import { common, .. })
            | Self::Fork { common, .. } => common,
        }
    }
}
