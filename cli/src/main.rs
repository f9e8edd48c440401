//! `callboard`: runs agents that are declared in files, with language models; checks workflows and runs them, with other programs
//! as their agents; and shows, replays, compares and forks the runs of a store.

mod agents;
#[cfg(feature = "mimalloc")]
mod allocator;
mod apart;
mod arguments;
mod atomic_file;
mod command_line;
mod config;
mod conversations;
mod doctor;
mod exit;
mod figures;
mod knowledge;
mod limits;
mod logs;
mod nested;
mod orphans;
mod output;
mod page;
mod person;
mod process;
mod protection;
mod quote;
mod retry;
mod run_names;
mod runs;
mod scratch;
mod service;
mod shell;
mod signals;
mod stores;
mod submitting;
#[cfg(feature = "otel")]
mod telemetry;
#[cfg(not(feature = "otel"))]
#[path = "without_telemetry.rs"]
mod telemetry;
mod trace_parent;
mod usage;
mod values;
mod waits;
mod workflow;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use arguments::Arguments;
use nested::{unless_hidden, unless_nested};

fn main() -> ExitCode {
    let parsed = usage::command()
        .try_get_matches_from(usage::arguments())
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return usage::refuse(error),
    };
    match arguments {
        Arguments::Init(init) => agents::init(&init),
        Arguments::Check(check) => agents::check(check),
        Arguments::Run(run) => unless_nested(|| agents::run(run)),
        Arguments::Serve(serve) => unless_nested(|| service::serve(serve)),
        Arguments::Mcp(mcp) => unless_nested(|| service::mcp(&mcp)),
        Arguments::Send(send) => {
            service::send_within_turn(&send).unwrap_or_else(|| unless_nested(|| service::send(&send)))
        }
        Arguments::Status(status) => {
            service::status_within_turn(&status).unwrap_or_else(|| unless_hidden(|| service::status(&status)))
        }
        Arguments::Wait(wait) => {
            service::wait_within_turn(&wait).unwrap_or_else(|| unless_hidden(|| service::wait(&wait)))
        }
        Arguments::Watch(watch) => unless_hidden(|| service::watch(&watch)),
        Arguments::Read(read) => unless_hidden(|| service::read(&read)),
        Arguments::Retry(retry) => unless_nested(|| service::retry(&retry)),
        Arguments::DeadLetters(letters) if letters.retried().is_some() => {
            unless_nested(|| service::dead_letters(&letters))
        }
        Arguments::DeadLetters(letters) => unless_hidden(|| service::dead_letters(&letters)),
        Arguments::Usage(usage) => unless_hidden(|| service::usage(&usage)),
        Arguments::Boards(boards) => unless_hidden(|| service::list_boards(&boards)),
        Arguments::Tree(tree) => unless_hidden(|| service::tree(&tree)),
        Arguments::Cancel(cancel) => unless_nested(|| service::cancel(&cancel)),
        Arguments::Inbox(inbox) => unless_nested(|| service::inbox(&inbox)),
        Arguments::Pending(pending) => unless_hidden(|| service::pending(&pending)),
        Arguments::Approve(approve) => unless_nested(|| service::approve(&approve)),
        Arguments::Deny(deny) => unless_nested(|| service::deny(&deny)),
        Arguments::Answer(answer) => unless_nested(|| service::answer(&answer)),
        Arguments::Agents(agents) => unless_hidden(|| service::agents(&agents)),
        Arguments::SignIn(sign_in) => unless_nested(|| service::sign_in(&sign_in)),
        Arguments::Tokens { command } => unless_nested(|| service::tokens(&command)),
        Arguments::Schedule { command } if command.changes_them() => unless_nested(|| service::schedule(&command)),
        Arguments::Schedule { command } => unless_hidden(|| service::schedule(&command)),
        Arguments::Context { command } if command.changes_entries() => unless_nested(|| service::context(&command)),
        Arguments::Context { command } => unless_hidden(|| service::context(&command)),
        Arguments::Runs { command } if command.changes_runs() => unless_nested(|| runs::main(&command)),
        Arguments::Runs { command } => unless_hidden(|| runs::main(&command)),
        Arguments::Replay(replay) => unless_hidden(|| runs::replay(&replay)),
        Arguments::Store { command } if command.makes_stores() => unless_nested(|| runs::store(&command)),
        Arguments::Store { command } => unless_hidden(|| runs::store(&command)),
        Arguments::Kb(kb) => unless_nested(|| knowledge::main(&kb)),
        Arguments::Doctor(doctor) => doctor::main(doctor),
        Arguments::Completions(completions) => shell::completions(&completions),
        Arguments::Man(man) => shell::man(&man),
        Arguments::Conversations { command } if command.changes_them() => {
            unless_nested(|| conversations::main(&command))
        }
        Arguments::Conversations { command } => unless_hidden(|| conversations::main(&command)),
        Arguments::Workflow { command } if command.begins_runs() => unless_nested(|| workflow::main(command)),
        Arguments::Workflow { command } if command.reads_stores() => unless_hidden(|| workflow::main(command)),
        Arguments::Workflow { command } => workflow::main(command),
    }
}
