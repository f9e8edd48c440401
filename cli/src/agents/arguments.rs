//! What `callboard init|check|run` take.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use callboard::messages::ConversationId;

use crate::limits::{LimitChoice, limit_choice};
use crate::values::json;

use crate::stores::Choice;

use super::patterns::Way;

/// Write a folder of agents to begin with
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Where to; what is there already stays as it is
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
    /// Answer in JSON, for machines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where agents and models are declared.
#[derive(Debug, Args)]
pub(crate) struct Files {
    /// The folder with the agents, one in each file *.toml
    #[arg(long, value_name = "FOLDER", default_value = "agents")]
    pub(crate) agents: PathBuf,
    /// The file with the models that agents may choose among; models.toml, if there is one
    #[arg(long, value_name = "FILE")]
    pub(crate) models: Option<PathBuf>,
    /// The file with the MCP servers whose tools agents may use; mcp.toml, if there is one. Its programs are started
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp: Option<PathBuf>,
    /// The folder that tools may see: files are read, written and searched in it, and programs run in it
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) root: PathBuf,
    /// A folder outside of --root that commands of ShellExec may read, and whose programs they may run, such as a toolchain in
    /// a home folder; may be given several times
    #[arg(long, value_name = "FOLDER")]
    pub(crate) allow_read: Vec<PathBuf>,
    /// Further files that tools may read and not change.
    #[arg(skip)]
    pub(crate) kept: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// What to do, in words; @FILE reads it from there, @- from standard input
    #[arg(required_unless_present_any = ["resume", "retry"], conflicts_with_all = ["resume", "retry"], value_parser = crate::values::words)]
    pub(crate) task: Option<String>,
    /// Who does it: an agent, a role or a capability. It need not be said where there is one agent
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["resume", "retry"])]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) way: Way,
    /// How many rounds peers, or an executor and its reviewer, have at most; 3 if nothing is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["resume", "retry"])]
    pub(crate) rounds: Option<u32>,
    /// Values that the agent is given in place of the words, which its prompt may still name; @FILE reads them from there, @-
    /// from standard input
    #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true, conflicts_with_all = ["resume", "retry"])]
    pub(crate) input: Option<Value>,
    #[command(flatten)]
    pub(crate) files: Files,
    /// The model that all agents ask, whatever their files say; `fake` is one that needs no network and does not think
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// What the run may use: simple, medium, complex, JSON such as '{"tokens": 50000}', or auto: the agent `complexity` judges the
    /// task first, in a run of its own; @FILE reads it from there. With --retry, figures that are not named stay as they were
    #[arg(long, value_name = "CLASS|JSON|auto", value_parser = allowance)]
    pub(crate) limits: Option<Allowance>,
    /// How long what people are asked about waits before silence denies it: 30s, 90m, 12h or 7d; 7d by default
    #[arg(long, value_name = "TIME", value_parser = crate::values::time_span, conflicts_with_all = ["resume", "retry"])]
    pub(crate) approval_ttl: Option<Duration>,
    /// Let agents pass control to each other; without it each finishes its task alone, and may give tasks to others
    #[arg(long, conflicts_with_all = ["resume", "retry"])]
    pub(crate) enable_handoffs: bool,
    /// Ask nobody: what would have to be asked ends the run
    #[arg(long)]
    pub(crate) no_input: bool,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Keep nothing of the run
    #[arg(long, conflicts_with_all = ["store", "resume", "retry"])]
    pub(crate) ephemeral: bool,
    /// Make the run part of a conversation: the agent sees what earlier runs of it were asked and answered
    #[arg(long, value_name = "ID", value_parser = ConversationId::new, conflicts_with_all = ["resume", "retry", "ephemeral"])]
    pub(crate) conversation: Option<ConversationId>,
    /// Continue a run that a process left, or that waits for a person: its id, a beginning that no other run has, or @last. Of a
    /// run that has ended the result is printed, which needs neither agents nor a model
    #[arg(long, value_name = "RUN")]
    pub(crate) resume: Option<String>,
    /// Do what failed in a run again, in a new run that has what came before it: its id, a beginning of it, or @last. --limits
    /// gives it other limits
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    pub(crate) retry: Option<String>,
    /// Say nothing of what happens on the way
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Print the whole result as JSON, for machines
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const CHECK_CODES: &str = "Exit codes: 0 all is well; 1 there are defects; 2 the files cannot be read.";

pub(crate) const RUN_CODES: &str = "Exit codes: 0 the run finished; 1 it failed, was refused, denied or cancelled, or there is no such run; 2 the command \
     line, an agent that it needs or the store is wrong; 3 it waits for a person; 130 it was stopped by Ctrl-C.\n\nThe output goes to standard output, all \
     else to standard error.";

/// What a run may use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Allowance {
    Named(LimitChoice),
    /// As an agent judges.
    Judged,
}

fn allowance(text: &str) -> Result<Allowance, String> {
    if text == "auto" {
        return Ok(Allowance::Judged);
    }
    limit_choice(text).map(Allowance::Named).map_err(|error| format!("{error}, or auto"))
}
