//! The arguments of `callboard serve` and of the commands that work with runs of other processes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use callboard::messages::{AgentName, Cost};
use callboard_server::{Network, Server};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use crate::agents::arguments::Files;
use crate::limits::{LimitChoice, limit_choice};
use crate::run_names::written;
use crate::stores::Choice;
use crate::stores::Common;
use crate::values::{json, time_span, words};

/// How long `wait` waits by default.
pub(crate) const WAIT: Duration = Duration::from_secs(600);

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// A JSON object in each line
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) files: Files,
    /// The model that all agents use, in place of those in their files; `fake` needs no network and repeats what it was asked
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The address for HTTP, such as 127.0.0.1:7420, which is the default; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The file with the certificate of the server in PEM, followed by those that lead to its issuer; the server answers HTTPS then.
    /// It is read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The file with the key of the certificate in PEM, which nobody else may read
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A proxy before the server, as an address or a network such as 10.0.0.0/8: the audit log has the address that it reports in
    /// X-Forwarded-For. May be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) trusted_proxy: Vec<Network>,
    /// Listen on an address that other machines reach, without TLS: tokens and all that is sent can be read on the way
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The origin under which clients reach this server, such as https://agents.example.org, if it is not the address
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    pub(crate) public_url: Option<String>,
    /// The name of the board among those on its store, which no other one there may have; the variable CALLBOARD_NAME has it too
    #[arg(long, value_name = "NAME", value_parser = board_name)]
    pub(crate) name: Option<String>,
    /// How many turns of all agents run at once; 5 by default
    #[arg(long, value_name = "NUMBER", value_parser = turns)]
    pub(crate) turns: Option<u32>,
    /// How the log on standard error is written; the variable CALLBOARD_LOG sets what is logged, such as info
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<Format>,
    #[command(flatten)]
    pub(crate) choice: Choice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Context {
    /// List the entries of a namespace
    List {
        /// The namespace; without one, the error names those that agents have
        namespace: Option<String>,
        /// Only those whose keys begin with this
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Print the value of an entry
    Get {
        /// The namespace
        namespace: String,
        /// The key
        key: String,
        #[command(flatten)]
        common: Common,
    },
    /// Set an entry
    Set {
        /// The namespace
        namespace: String,
        /// The key
        key: String,
        /// The value, as text; @FILE reads it from a file, @- from standard input, and @@ at the beginning is an @
        #[arg(value_parser = words)]
        value: String,
        /// How long the entry is kept: 30s, 90m, 12h or 7d; without it, until it is deleted
        #[arg(long, value_name = "TIME", value_parser = time_span)]
        ttl: Option<Duration>,
        #[command(flatten)]
        common: Common,
    },
    /// Delete an entry
    #[command(visible_alias = "remove")]
    Delete {
        /// The namespace
        namespace: String,
        /// The key
        key: String,
        #[command(flatten)]
        common: Common,
    },
}

impl Context {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::List { common, .. }
            | Self::Get { common, .. }
            | Self::Set { common, .. }
            | Self::Delete { common, .. } => common,
        }
    }

    /// Whether the command writes to the shared context.
    pub(crate) fn changes_entries(&self) -> bool {
        match self {
            Self::List { .. } | Self::Get { .. } => false,
            Self::Set { .. } | Self::Delete { .. } => true,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    #[command(flatten)]
    pub(crate) choice: Choice,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The agent: its name, a role or a capability
    #[arg(value_name = "AGENT")]
    pub(crate) to: String,
    /// What is to be done, as text; @FILE reads it from a file, @- from standard input, and @@ at the beginning is an @
    #[arg(value_parser = words)]
    pub(crate) task: String,
    /// The input of the agent, as JSON, in place of the task's text; @FILE reads it from a file, @- from standard input
    #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
    pub(crate) input: Option<Value>,
    #[command(flatten)]
    pub(crate) delivery: Delivery,
}

/// How a task is given to a server.
#[derive(Debug, Args)]
pub(crate) struct Delivery {
    /// The limits of the run: simple, medium, complex, or JSON such as '{"tokens": 50000}'; @FILE reads them from a file
    #[arg(long, value_name = "CLASS|JSON", value_parser = limit_choice)]
    pub(crate) limits: Option<LimitChoice>,
    /// An outside resource that the task is about, such as an issue, which agents read
    #[arg(long, value_name = "TEXT")]
    pub(crate) reference: Option<String>,
    /// A text of your choice: the same task sent again with it is the same run
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) key: Option<String>,
    /// Wait for the answer and print it, as `callboard wait` does
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The run's id, short or whole, or @last; without it all runs of `callboard serve`, and on a database those of all boards
    #[arg(value_parser = written)]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print a JSON object in each line, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Read {
    /// The agent, or the name of a token; `owner` has the statuses of what was sent from terminals
    #[arg(default_value = "owner")]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// Only runs that were submitted from then on: a day or a time in UTC, such as 2026-01-31 or 2026-01-31T12:00:00Z; or within
    /// this time: 12h or 7d
    #[arg(long, value_name = "DAY|TIME", value_parser = day)]
    pub(crate) since: Option<String>,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// The run's id, short or whole, or @last
    #[arg(value_parser = written)]
    pub(crate) run: String,
    /// The number of the turn, one that failed for good; by default the last one
    #[arg(long, value_name = "N")]
    pub(crate) turn: Option<u32>,
    /// Other limits for the new run: simple, medium, complex, or JSON such as '{"tokens": 50000}', where limits that are not named
    /// stay the same; @FILE reads them from a file
    #[arg(long, value_name = "CLASS|JSON", value_parser = limit_choice)]
    pub(crate) limits: Option<LimitChoice>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DeadLetters {
    #[command(subcommand)]
    command: Option<DeadLettersCommand>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum DeadLettersCommand {
    /// List the turns that failed for good, those of the newest runs first; also without a command
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Try a turn that failed for good again, in a run of its own
    Retry {
        /// The letter, as the list has it; or its run, for the last turn that failed
        #[arg(value_name = "RUN/TURN", value_parser = written)]
        letter: String,
        #[command(flatten)]
        common: Common,
    },
}

impl DeadLetters {
    pub(crate) fn common(&self) -> &Common {
        match &self.command {
            Some(DeadLettersCommand::List { common } | DeadLettersCommand::Retry { common, .. }) => common,
            None => &self.common,
        }
    }

    /// The letter that is retried; `None` to list them.
    pub(crate) fn retried(&self) -> Option<&str> {
        match &self.command {
            Some(DeadLettersCommand::Retry { letter, .. }) => Some(letter),
            Some(DeadLettersCommand::List { .. }) | None => None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The run's id, short or whole, or @last
    #[arg(value_parser = written)]
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
    #[arg(value_parser = written)]
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
    #[arg(value_parser = written)]
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
pub(crate) struct Inbox {
    /// Only the items with these ids
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Only items of this kind: approval, question, unknown_outcome, node, attention, failed_agent, refused_file, quarantined, conflict or
    /// dead_letter
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Only items of this agent
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Only items of this run
    #[arg(long, value_name = "RUN", value_parser = written)]
    pub(crate) run: Option<String>,
    /// Decide this about each of them: approve, deny, edit, answer, resume, restart, retry, drop, overwrite or read_again
    #[arg(long = "do", value_name = "RESPONSE")]
    pub(crate) response: Option<String>,
    /// The reason, for the agent and the audit log
    #[arg(long, value_name = "TEXT", requires = "response")]
    pub(crate) reason: Option<String>,
    /// What `answer`, `edit`, `resume` and `overwrite` take, as JSON; @FILE reads it from a file
    #[arg(long, value_name = "JSON", requires = "response", value_parser = words)]
    pub(crate) value: Option<String>,
    /// Ask nothing at a terminal: print the list
    #[arg(long)]
    pub(crate) no_input: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Pending {
    /// Only what has this id, or what this run waits for
    #[arg(value_name = "ID|RUN", value_parser = written)]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What waits for a person.
#[derive(Debug, Args)]
pub(crate) struct What {
    /// What waits: its id, as `callboard pending` prints it, or the run's id, if nothing else of the run waits
    #[arg(value_name = "ID|RUN", value_parser = written)]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) choice: Choice,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    pub(crate) what: What,
    /// Also approve when the same is asked again in this run, until it would have expired
    #[arg(long)]
    pub(crate) for_run: bool,
    /// Approve it with these arguments, a JSON object, in place of those that were asked about; @FILE and @- read them
    #[arg(long, value_name = "JSON", conflicts_with = "for_run")]
    pub(crate) edit: Option<String>,
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
    /// The answer, as text; @FILE reads it from a file, @- from standard input, and @@ at the beginning is an @. For a node of a workflow, its new input; without
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
        /// What it allows, with commas between several, or given several times. By default read and delegate
        #[arg(long, value_enum, value_delimiter = ',')]
        scope: Vec<Scope>,
        /// After what time it expires: 30s, 90m, 12h or 7d; without it, never
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        lifetime: Option<Duration>,
        /// The person who answers for it
        #[arg(long, value_name = "PERSON")]
        owner: Option<String>,
        /// A namespace of the shared context that it reaches; may be given several times. By default none
        #[arg(long, value_name = "NAMESPACE")]
        namespace: Vec<String>,
        /// How many requests it may send in a minute; without it, any number
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        requests_a_minute: Option<u32>,
        /// How many tokens of models its delegations may use in a day; without it, any number
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        tokens_per_day: Option<u64>,
        /// What its delegations may cost in a day, in US dollars, as 2.50; without it, that is not limited
        #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
        cost_per_day: Option<Cost>,
        /// How many tokens of models each run that it begins may use; without it, as many as its task may
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        tokens_per_run: Option<u64>,
        /// What each run that it begins may cost, in US dollars, as 2.50; without it, as much as its task may
        #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
        cost_per_run: Option<Cost>,
        /// How many agents each run that it begins may have; without it, as many as its task may
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        agents: Option<u32>,
        #[command(flatten)]
        choice: Choice,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token, which deletes it: its requests are refused from then on, and its event streams end
    #[command(visible_aliases = ["delete", "remove"])]
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
    /// Query the facts of the namespaces of --namespace
    #[value(name = "knowledge:read")]
    KnowledgeRead,
    /// Submit facts in these namespaces, and see what a change of one would do
    #[value(name = "knowledge:write")]
    KnowledgeWrite,
}

/// The most turns at once.
pub(crate) const MAX_TURNS: u32 = 10_000;

/// The longest idempotency key, in characters.
const MAX_KEY: usize = 128;

fn key(text: &str) -> Result<String, String> {
    let is_key = (1..=MAX_KEY).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_key.then(|| text.to_owned()).ok_or_else(|| format!("it is 1 to {MAX_KEY} visible ASCII characters"))
}

fn dollars(text: &str) -> Result<Cost, String> {
    match text.parse()? {
        Cost(0) => Err("it has to be above zero: no model could be asked".to_owned()),
        cost => Ok(cost),
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match time_span(text)? {
        Duration::ZERO => Err("it has to be above zero: the token would have expired at once".to_owned()),
        time => Ok(time),
    }
}

/// An origin, as the server takes it.
pub(crate) fn origin(text: &str) -> Result<String, String> {
    Server::check_origin(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// A day or a time in UTC, as the server takes it, or how long ago that is.
fn day(text: &str) -> Result<String, String> {
    let is_time = text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok();
    let is_day = text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok();
    let advice = "write a day or a time in UTC, such as 2026-01-31 or 2026-01-31T12:00:00Z, or how long ago: 12h or 7d";
    (is_time || is_day || time_span(text).is_ok()).then(|| text.to_owned()).ok_or_else(|| advice.to_owned())
}

/// The name of a board.
pub(crate) fn board_name(text: &str) -> Result<String, String> {
    AgentName::new(text).map(|name| name.to_string()).map_err(|error| error.to_string().replace("agent", "board"))
}

/// How many turns run at once.
pub(crate) fn turns(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_TURNS).contains(number));
    number.ok_or_else(|| format!("write a whole number from 1 to {MAX_TURNS}"))
}

/// An address with its port. A name is not resolved: what it resolves to may be an address that other machines reach.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        let port = match text.rsplit_once(':') {
            Some((host, port)) if is_port(port) && ["", "localhost", "*"].contains(&host) => Some(port),
            Some(_) => None,
            None => Some(text).filter(|port| is_port(port)),
        };
        match port {
            Some(port) => format!("write the IP address too: 127.0.0.1:{port} is this machine alone"),
            None => "write an IP address and a port, such as 127.0.0.1:7420 or [::1]:0".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_an_ip_is_answered_with_what_to_write() {
        for (text, port) in [("localhost:0", "0"), (":7420", "7420"), ("*:1", "1"), ("7420", "7420")] {
            let expected = format!("write the IP address too: 127.0.0.1:{port} is this machine alone");
            assert_eq!(address(text), Err(expected), "{text}");
        }
        for text in ["", "localhost", "127.0.0.1", "::1", "example.org:80", "127.0.0.1:99999", ":x"] {
            let expected = "write an IP address and a port, such as 127.0.0.1:7420 or [::1]:0";
            assert_eq!(address(text), Err(expected.to_owned()), "{text}");
        }
        assert!(address("127.0.0.2:0").is_ok() && address("[::1]:0").is_ok());
        assert!(["yesterday", "", "2026-01-31 12:00:00Z+1", "2026-13-01"].into_iter().all(|text| day(text).is_err()));
        assert!(day("1d").is_ok() && day("2026-01-31").is_ok() && day("2026-01-31T12:00:00Z").is_ok());
        assert!(turns("0").is_err() && turns("10001").is_err() && turns("x").is_err() && turns("10000") == Ok(10_000));
        assert!(lifetime("0s").is_err() && lifetime("1s").is_ok());
        assert!(key("").is_err() && key("a b").is_err() && key(&"k".repeat(129)).is_err() && key("k-1").is_ok());
    }
}
