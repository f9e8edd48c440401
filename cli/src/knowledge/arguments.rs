//! The arguments of `callboard kb`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::quote::quoted;
use crate::stores::Common;
use crate::values::words;

/// The namespace if none is named.
pub(crate) const NAMESPACE: &str = "default";

/// The title of a site if none is named.
pub(super) const TITLE: &str = "Knowledge";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Kb {
    /// Without one, commands are asked for at the terminal
    #[command(subcommand)]
    pub(crate) command: Option<KbCommand>,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// A line that was typed in place of arguments.
#[derive(Debug, Parser)]
#[command(name = "", disable_help_flag = true, disable_help_subcommand = true, no_binary_name = true)]
pub(super) struct Typed {
    #[command(subcommand)]
    pub(super) command: KbCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KbCommand {
    /// Index and link the files of a folder, or a file; what is there already is read again where it has changed
    Init(Init),
    /// End the documents of a file or folder that is gone, or is no longer to be known: they are found in the past alone
    Remove(Remove),
    /// Find what is known about a question: facts and passages, each with what it is cited by
    Query(Query),
    /// Submit a fact; if it contradicts another one, it is disputed until you decide
    Submit(Submit),
    /// Show what it would change that a fact no longer holds, and apply it once you agree
    Invalidate(Change),
    /// Show what it would change that a disputed fact holds, and apply it once you agree
    Accept(Change),
    /// Show the history of a fact
    Log(Log),
    /// List the facts that hold or are disputed, the newest first, with their states, sources and since when
    Facts(Facts),
    /// List the documents, each with the number of its passages
    Documents(List),
    /// List the predicates, and whether they have one value at a time
    Predicates(List),
    /// List the namespaces, each with the number of its documents and facts
    Namespaces(Namespaces),
    /// Write a static site of documents, facts and what they name, with a search that needs no server
    Publish(Publish),
    /// Check the base, with all namespaces: its file, the rules that its rows keep, and the full-text index
    Doctor(Doctor),
    /// Declare whether a predicate has one value at a time: then another value is a contradiction
    Predicate(Predicate),
    /// Export documents, facts and the past of all namespaces as lines of JSON
    Export(Export),
    /// Import an export, with all its namespaces, into a base that is empty or does not exist; an export that is not whole is refused
    Import(Import),
    /// Copy the file of the base, with all namespaces, also while other processes use it
    Backup(Backup),
    /// Put a backup in the place of the base, with all namespaces; the base is kept beside, and the backup is checked first
    Restore(Restore),
}

impl KbCommand {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Init(Init { place, .. })
            | Self::Remove(Remove { place, .. })
            | Self::Query(Query { place, .. })
            | Self::Submit(Submit { place, .. })
            | Self::Invalidate(Change { place, .. })
            | Self::Accept(Change { place, .. })
            | Self::Log(Log { place, .. })
            | Self::Facts(Facts { list: List { place, .. }, .. })
            | Self::Documents(List { place, .. })
            | Self::Predicates(List { place, .. })
            | Self::Publish(Publish { place, .. })
            | Self::Predicate(Predicate { place, .. }) => &place.common,
            Self::Namespaces(Namespaces { common, .. })
            | Self::Doctor(Doctor { common, .. })
            | Self::Export(Export { common, .. })
            | Self::Import(Import { common, .. })
            | Self::Backup(Backup { common, .. })
            | Self::Restore(Restore { common, .. }) => common,
        }
    }
}

/// The base, and where in it.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Facts and documents of other namespaces are neither found nor changed
    #[arg(long, value_name = "NAME", default_value = NAMESPACE, value_parser = namespace)]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

fn namespace(text: &str) -> Result<String, String> {
    callboard_text::check_own_name("namespace", text, 128).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// A command line, with the namespace if it is not the usual one.
pub(super) fn with_namespace(line: String, namespace: &str) -> String {
    if namespace == NAMESPACE { line } else { format!("{line} --namespace {}", quoted(namespace)) }
}

/// The language model that is asked.
#[derive(Debug, Default, Args)]
pub(crate) struct Asked {
    /// Ask this language model: it answers questions with claims that cite what was found, judges whether a statement contradicts facts,
    /// and writes documents about files. Without one, no model is asked
    #[arg(long, value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,
    /// The file with the models; by default models.toml of the project, if it exists
    #[arg(long, value_name = "FILE", requires = "model")]
    pub(crate) models: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The folder or file
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Have the model write a document about this, in place of the usual topics; may be given several times
    #[arg(long, value_name = "TEXT", requires = "model", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) topic: Vec<String>,
    /// Ask nobody at the terminal: without it, people are asked what the files do not say
    #[arg(long, requires = "model")]
    pub(crate) no_input: bool,
    /// What is found in these documents is untrusted input: a run that reads it needs consent for what it does afterwards;
    /// and so is what is new in this folder later
    #[arg(long)]
    pub(crate) untrusted: bool,
    /// These documents are trusted, also those that an earlier `kb init --untrusted` has indexed: without it, they stay untrusted
    #[arg(long, conflicts_with = "untrusted")]
    pub(crate) trusted: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The file or folder, which need not exist; what exists is read again by the next `kb init` of it
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Query {
    /// The question, in words; @FILE reads it from a file, @- from standard input, and @@ at the beginning is an @
    #[arg(value_parser = words)]
    pub(crate) question: String,
    /// How many results
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=640))]
    pub(crate) limit: u16,
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Look at words alone, and not at links and names
    #[arg(long)]
    pub(crate) shallow: bool,
    /// What was known at the end of this day or second, in UTC: such as 2026-01-31 or 2026-01-31T12:00:00Z, as `kb log` prints times
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) as_of: Option<u64>,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// From the beginning of a second to its last millisecond.
const END: Duration = Duration::from_millis(999);

/// A time in UTC, in milliseconds since 1970; a day means its end, and so does a second without a fraction.
fn instant(text: &str) -> Result<u64, String> {
    let day = text.parse::<jiff::civil::Date>().ok().filter(|_| text.len() == 10);
    let time = match day {
        Some(day) => {
            day.at(23, 59, 59, 999_000_000).to_zoned(jiff::tz::TimeZone::UTC).ok().map(|time| time.timestamp())
        }
        None => {
            text.parse::<jiff::Timestamp>().ok().map(|time| if text.contains(['.', ',']) { time } else { time + END })
        }
    };
    let millis = time.and_then(|time| u64::try_from(time.as_millisecond()).ok());
    millis.ok_or_else(|| "write a day or a time in UTC, such as 2026-01-31 or 2026-01-31T12:00:00Z".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// What is known, as a sentence; @FILE reads it from a file, @- from standard input, and @@ at the beginning is an @
    #[arg(value_parser = words)]
    pub(crate) statement: String,
    /// What it is about
    #[arg(long, requires_all = ["predicate", "value"])]
    pub(crate) subject: Option<String>,
    /// Which property of it
    #[arg(long, requires_all = ["subject", "value"])]
    pub(crate) predicate: Option<String>,
    /// What the property is
    #[arg(long, requires_all = ["subject", "predicate"])]
    pub(crate) value: Option<String>,
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// The predicate has one value at a time
    #[arg(long, requires = "predicate")]
    pub(crate) single: bool,
    /// The place that says so, such as docs/auth.md:12 or an address
    #[arg(long, value_name = "PLACE")]
    pub(crate) from: Option<String>,
    /// What happens if it contradicts current facts
    #[arg(long, value_name = "HOW", value_enum, default_value_t = OnContradiction::Dispute)]
    pub(crate) on_contradiction: OnContradiction,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnContradiction {
    /// It is stored as disputed, and you decide with `kb accept` or `kb invalidate`
    Dispute,
    /// It is refused
    Refuse,
    /// It takes the place of what it contradicts
    Supersede,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    /// The fact: its id, as much of it as no other fact has, or its statement
    pub(crate) fact: String,
    /// Why, for the fact's history
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    /// Apply it without asking
    #[arg(long, conflicts_with = "apply")]
    pub(crate) yes: bool,
    /// Apply the change that was shown with this hash, or nothing
    #[arg(long, value_name = "HASH")]
    pub(crate) apply: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// The fact: its id, as much of it as no other fact has, or its statement
    pub(crate) fact: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// How much of a list is printed.
#[derive(Debug, Args)]
pub(crate) struct Limit {
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) limit: Limit,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Facts {
    /// Only those that you have to decide about
    #[arg(long)]
    pub(crate) disputed: bool,
    /// Those that no longer hold, in place of the others; with --disputed both
    #[arg(long)]
    pub(crate) invalid: bool,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Args)]
pub(crate) struct Namespaces {
    #[command(flatten)]
    pub(crate) limit: Limit,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// The folder of the site: one that does not exist, is empty, or has a site, which is replaced
    pub(crate) folder: PathBuf,
    /// The title of the site
    #[arg(long, value_name = "TEXT", default_value = TITLE)]
    pub(crate) title: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Build the full-text index again from the rows
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The file to write, which must not exist; `-` is standard output, as is no FILE
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The export; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file to write, which must not exist
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Predicate {
    /// The predicate
    pub(crate) name: String,
    /// How many values it has at a time
    #[arg(value_enum)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Values {
    /// One: another value contradicts it
    Single,
    /// Any number
    Several,
}
