//! What the command line takes.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde_json::Value;

use callboard::messages::ConversationId;

use crate::agents::arguments::{CHECK_CODES, Check, Init, RUN_CODES, Run};
use crate::runs::list::Filter;
use crate::stores::Choice;
use crate::values::{Setting, json, setting};
use crate::workflow::arguments::Workflow;

/// Runs agents and workflows, and looks into their runs
#[derive(Debug, Parser)]
#[command(name = "callboard", version)]
pub(crate) enum Arguments {
    /// Write a folder of agents to begin with
    Init(Init),
    /// Everything that is wrong with the agents of a folder, each defect with its place
    #[command(after_help = CHECK_CODES)]
    Check(Check),
    /// Have agents do something
    #[command(after_help = RUN_CODES)]
    Run(Run),
    /// The runs of the project, or of a store
    #[command(after_help = EXIT_CODES)]
    Runs {
        #[command(subcommand)]
        command: Runs,
    },
    /// Conversations, which several runs of an agent share: see `callboard run --conversation`
    #[command(after_help = EXIT_CODES)]
    Conversations {
        #[command(subcommand)]
        command: Conversations,
    },
    /// Workflows: checked, run with programs or agents in files, resumed, and forked
    Workflow {
        #[command(subcommand)]
        command: Workflow,
    },
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 no such run or turn, or two runs differ; 2 the command line is wrong, a \
                          store cannot be used or looked into, or the answer cannot be written.\n\nA store is open to one process at a \
                          time: stop its program first.";

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// All runs, or those that are wanted, oldest first
    List {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        filter: Filter,
    },
    /// One run: its task, its turns, what it came to, and who handed what to whom
    Show {
        #[command(flatten)]
        common: Common,
        /// The run's id, a beginning that no other run has, or @last
        run: String,
    },
    /// What happened in a run, event by event, with what each event changed
    Replay {
        #[command(flatten)]
        common: Common,
        /// The run's id, a beginning that no other run has, or @last
        run: String,
        /// The state as this turn saw it and as it left it, instead of all events
        #[arg(long, value_name = "N", conflicts_with = "step", allow_negative_numbers = true)]
        turn: Option<u32>,
        /// Stop after each event with the whole state; Enter continues, q ends
        #[arg(long, conflicts_with = "json")]
        step: bool,
    },
    /// Where two runs went apart: the first different event, how they ended, their channels and their turns
    Diff {
        #[command(flatten)]
        common: Common,
        /// The id of one run, a beginning that no other run has, or @last
        first: String,
        /// The other run
        second: String,
    },
    /// Remove runs, with everything that was kept for them
    Delete {
        #[command(flatten)]
        common: Common,
        /// Their ids, or beginnings that no other runs have
        #[arg(required = true)]
        runs: Vec<String>,
    },
    /// Remove the runs that have ended and are wanted: at least one choice has to be made
    Prune {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        filter: Filter,
    },
    /// Write a store as text, with its runs and all else that it keeps, to standard output or to a file
    Export {
        #[command(flatten)]
        common: Common,
        /// Where to; it must not be there yet
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Read an exported store into an empty or a new one
    Import {
        #[command(flatten)]
        common: Common,
        /// Read runs and conversations in also if other stores of the project have them already, with the same content: they are
        /// double then
        #[arg(long)]
        again: bool,
        /// The file; `-` is the standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// A new run that begins as a copy of one, up to a turn; the program with the agents continues it at its next start
    Fork {
        #[command(flatten)]
        common: Common,
        /// The run's id, a beginning that no other run has, or @last
        run: String,
        /// The turn that begins anew
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        turn: u32,
        /// What the turn works on, instead of what it worked on before; @FILE reads it from there, @- from standard input
        #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
        input: Option<Value>,
        /// What the turn finds in a channel; may be given several times
        #[arg(long, value_name = "CHANNEL=JSON", value_parser = setting)]
        set: Vec<Setting>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Conversations {
    /// All conversations
    List {
        #[command(flatten)]
        common: Common,
    },
    /// The messages of a conversation, run by run
    Show {
        #[command(flatten)]
        common: Common,
        /// Its id
        #[arg(value_parser = ConversationId::new)]
        conversation: ConversationId,
    },
    /// Copy a conversation under a new id, to continue it another way
    Fork {
        #[command(flatten)]
        common: Common,
        /// Its id
        #[arg(value_parser = ConversationId::new)]
        conversation: ConversationId,
        /// The id of the copy, which no conversation has yet
        #[arg(value_name = "NEW", value_parser = ConversationId::new)]
        copy: ConversationId,
        /// The last run whose messages are copied: its id, a beginning of it, or @last, which is the default
        #[arg(long, value_name = "RUN")]
        until: Option<String>,
    },
    /// Remove conversations with all their messages; their runs stay
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

    /// Whether something in a store is changed.
    pub(crate) fn changes_them(&self) -> bool {
        match self {
            Self::List { .. } | Self::Show { .. } => false,
            Self::Fork { .. } | Self::Delete { .. } => true,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Answer in JSON, for machines
    #[arg(long)]
    pub(crate) json: bool,
}

impl Runs {
    /// Whether it writes to a store: begins, brings in or removes runs.
    pub(crate) fn changes_runs(&self) -> bool {
        match self {
            Self::Fork { .. } | Self::Import { .. } | Self::Delete { .. } | Self::Prune { .. } => true,
            Self::List { .. } | Self::Show { .. } | Self::Replay { .. } | Self::Diff { .. } | Self::Export { .. } => {
                false
            }
        }
    }

    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::List { common, .. }
            | Self::Show { common, .. }
            | Self::Replay { common, .. }
            | Self::Diff { common, .. }
            | Self::Delete { common, .. }
            | Self::Prune { common, .. }
            | Self::Export { common, .. }
            | Self::Import { common, .. }
            | Self::Fork { common, .. } => common,
        }
    }
}
