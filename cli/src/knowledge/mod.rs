//! `callboard kb`: the base of facts of a project. Every intent is a run on a board of this process.

pub(crate) mod arguments;
pub(crate) mod base;
mod changes;
mod cycles;
mod init;
mod interactive;
mod lists;
mod queries;
mod removal;
mod session;
pub(crate) mod stored;
mod submissions;
mod transfer;
mod upkeep;

use std::process::ExitCode;

use crate::page::{self, Failure, Page};
use crate::process::block_on;

use arguments::{Kb, KbCommand};

/// Runs `callboard kb`.
pub(crate) fn main(arguments: &Kb) -> ExitCode {
    match &arguments.command {
        Some(given) => page::print(block_on(command(given)), given.common().json),
        None => interactive::main(&arguments.place, |typed| page::print(block_on(command(typed)), false)),
    }
}

async fn command(command: &KbCommand) -> Result<Page, Failure> {
    match command {
        KbCommand::Init(init) => init::main(init).await,
        KbCommand::Remove(remove) => removal::main(remove).await,
        KbCommand::Query(query) => queries::main(query).await,
        KbCommand::Submit(submit) => submissions::main(submit).await,
        KbCommand::Invalidate(change) => changes::main(change, false).await,
        KbCommand::Accept(change) => changes::main(change, true).await,
        KbCommand::Log(log) => changes::log(log).await,
        KbCommand::Facts(facts) => lists::facts(facts).await,
        KbCommand::Documents(list) => lists::documents(list).await,
        KbCommand::Predicates(list) => lists::predicates(list).await,
        KbCommand::Namespaces(namespaces) => lists::namespaces(namespaces).await,
        KbCommand::Publish(publish) => upkeep::publish(publish).await,
        KbCommand::Doctor(doctor) => upkeep::doctor(doctor).await,
        KbCommand::Export(export) => transfer::export(export).await,
        KbCommand::Import(import) => transfer::import(import).await,
        KbCommand::Backup(backup) => transfer::backup(backup).await,
        KbCommand::Restore(restore) => transfer::restore(restore).await,
        KbCommand::Predicate(predicate) => submissions::predicate(predicate).await,
    }
}
