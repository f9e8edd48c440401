//! The arguments of `callboard serve` and of the commands that work with runs of other processes.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use crate::agents::arguments::Files;
use crate::arguments::Common;
use crate::limits::{LimitChoice, limit_choice};
use crate::stores::Choice;
use crate::values::{json, time_span, words};

/// The address that `serve` listens on.
const ADDRESS: &str = "127.0.0.1:7420";

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) files: Files,
    /// The model that all agents use, in place of those in their files; `fake` needs no network and repeats what it was asked
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The address for HTTP; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    pub(crate) listen: SocketAddr,
    /// Listen on an address that other machines reach, without TLS: tokens and all that is sent can be read on the way
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The origin under which clients reach this server, such as https://agents.example.org, if it is not the address
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) public_url: Option<String>,
    #[command(flatten)]
    pub(crate) choice: Choice,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The agent: its name, a role or a capability
    #[arg(value_name = "AGENT")]
    pub(crate) to: String,
    /// What is to be done, as text; @FILE reads it from a file, @- from standard input
    #[arg(value_parser = words)]
    pub(crate) task: String,
    /// The input of the agent, as JSON, in place of the task's text; @FILE reads it from a file, @- from standard input
    #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
    pub(crate) input: Option<Value>,
    /// The limits of the run: simple, medium, complex, or JSON such as '{"tokens": 50000}'; @FILE reads them from a file
    #[arg(long, value_name = "CLASS|JSON", value_parser = limit_choice)]
    pub(crate) limits: Option<LimitChoice>,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The run's id, short or whole, or @last
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The run's id, short or whole, or @last
    pub(crate) run: String,
    /// How long to wait: 30s, 90m, 12h or 7d. The run continues after that
    #[arg(long, value_name = "TIME", value_parser = time_span, default_value = "10m")]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The run's id, short or whole, or @last
    pub(crate) run: String,
    /// The reason, which the journal records
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Pending {
    /// Only what has this id, or what this run waits for
    #[arg(value_name = "ID|RUN")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What waits for a person.
#[derive(Debug, Args)]
pub(crate) struct What {
    /// What waits: its id, as `callboard pending` prints it, or the run's id, if nothing else of the run waits
    #[arg(value_name = "ID|RUN")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) choice: Choice,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    pub(crate) what: What,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    #[command(flatten)]
    pub(crate) what: What,
    /// The reason, which the agent is given
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Answer {
    #[command(flatten)]
    pub(crate) what: What,
    /// The answer, as text; @FILE reads it from a file, @- from standard input. For a node of a workflow, its new input; without
    /// one it keeps its own
    #[arg(value_parser = words)]
    pub(crate) answer: Option<String>,
    /// Read the answer as JSON
    #[arg(long = "as-json")]
    pub(crate) is_json: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tokens {
    /// List the tokens
    List {
        #[command(flatten)]
        choice: Choice,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Add a token, and print its secret, which is not kept
    Add {
        /// Its name, which decisions are recorded under
        name: String,
        /// What it allows; may be given several times. By default read and delegate
        #[arg(long, value_enum)]
        scope: Vec<Scope>,
        /// After what time it expires: 30s, 90m, 12h or 7d; without it, never
        #[arg(long, value_name = "TIME", value_parser = time_span)]
        lifetime: Option<Duration>,
        #[command(flatten)]
        choice: Choice,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token: its requests are refused from then on, and its event streams end
    Revoke {
        /// Its name
        name: String,
        #[command(flatten)]
        choice: Choice,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

impl Tokens {
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::List { json, .. } | Self::Add { json, .. } | Self::Revoke { json, .. } => *json,
        }
    }
}

/// What a token allows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Scope {
    /// Read delegations, their events, agents, and what waits for people
    Read,
    /// Delegate tasks, and cancel them
    Delegate,
    /// Decide and answer what waits for people
    Approve,
    /// Read the tree of supervisors; its tasks are trusted as those of a person at the terminal
    Admin,
}
