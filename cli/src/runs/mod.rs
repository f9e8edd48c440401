//! `callboard runs …`: lists, shows, replays, compares, forks, removes and moves the runs of stores.

mod all;
mod check;
mod database;
mod delete;
mod diff;
mod duplicates;
mod fork;
pub(crate) mod list;
mod replay;
pub(crate) mod show;
mod transfer;

use std::path::Path;
use std::process::ExitCode;

use crate::arguments::{Export, Import, Replay, Runs, StoreCommand};
use crate::page::{Failure, Page};
use crate::process;
use crate::stores::Stores;

pub(crate) fn main(command: &Runs) -> ExitCode {
    process::print_answer(answer(command), command.common().json)
}

/// Runs `callboard store`.
pub(crate) fn store(command: &StoreCommand) -> ExitCode {
    process::print_answer(answer_of_store(command), command.common().json)
}

/// Runs `callboard replay`.
pub(crate) fn replay(arguments: &Replay) -> ExitCode {
    process::print_answer(answer_of_replay(arguments), arguments.common.json)
}

async fn answer_of_replay(arguments: &Replay) -> Result<Page, Failure> {
    let Replay { common, run, all, against, turn, step } = arguments;
    let stores = common.choice.stores()?;
    match against {
        Some(build) => return all::against(&stores, build).await,
        None if *all && common.json => {
            return Err(Failure::usage(
                "--all prints a JSON object in each line, and is no JSON as a whole: leave --json out".to_owned(),
            ));
        }
        None if *all => return all::all(&stores).await,
        None => {}
    }
    let loaded = stores.load(run.as_deref().unwrap_or_default()).await?;
    match turn {
        Some(turn) => replay::at_turn(&loaded, *turn),
        None if *step => replay::step_by_step(&loaded),
        None => Ok(replay::whole(&loaded)),
    }
}

async fn answer_of_store(command: &StoreCommand) -> Result<Page, Failure> {
    let stores = command.stores()?;
    match command {
        StoreCommand::Check { .. } => check::check(&stores).await,
        StoreCommand::Migrate { runtime_role, reader_role, .. } => {
            let database = stores.database().ok_or_else(|| {
                Failure::usage(
                    "only a database is migrated: callboard store migrate postgres://USER@HOST/DATABASE".to_owned(),
                )
            })?;
            database::migrate(database, runtime_role.as_deref(), reader_role.as_deref()).await
        }
        StoreCommand::Backup { folder, .. } => match stores.database() {
            Some(database) => {
                Err(database.refuse("a backup", "pg_dump --schema=callboard is one, also while boards write"))
            }
            None => transfer::backup(&stores, folder).await,
        },
        StoreCommand::Export(Export { file, common }) => export(&stores, file.as_deref(), common.json).await,
        StoreCommand::Import(Import { file, again, .. }) => transfer::import(&stores, file, *again).await,
    }
}

async fn export(stores: &Stores, file: Option<&Path>, is_json: bool) -> Result<Page, Failure> {
    let file = file.filter(|file| *file != Path::new("-"));
    if file.is_none() && is_json {
        return Err(Failure::usage(
            "without a FILE the export itself goes to standard output: leave --json out, or name a FILE".to_owned(),
        ));
    }
    transfer::export(stores, file).await
}

async fn answer(command: &Runs) -> Result<Page, Failure> {
    let stores = command.common().choice.stores()?;
    match command {
        Runs::List { filter, limit, .. } => {
            let open = stores.open().await?;
            let mut page = list::list(&open, filter, *limit).await?;
            page.remarks.extend(stores.without_store(&open).map(|why| format!("{why}\n")));
            page.remarks.extend(stores.hint().await.map(|hint| format!("{hint}\n")));
            Ok(page)
        }
        Runs::Show { run, .. } => show::show(&stores.load(run).await?),
        Runs::Diff { first, second, .. } => {
            let open = stores.open().await?;
            Ok(diff::diff(&open.load(first).await?, &open.load(second).await?))
        }
        Runs::Fork { run, turn, input, set, .. } => {
            let (store, run) = stores.take_with(run).await?;
            let loaded = store.load(run).await?;
            fork::fork(&store, &loaded, *turn, input.as_ref(), set, stores.named()).await
        }
        Runs::Export(Export { file, common }) => export(&stores, file.as_deref(), common.json).await,
        Runs::Import(Import { file, again, .. }) => transfer::import(&stores, file, *again).await,
        Runs::Prune { filter, .. } => delete::prune(&stores, filter).await,
        Runs::Delete { runs, .. } => delete::delete(&stores, runs).await,
        Runs::Replay(arguments) => answer_of_replay(arguments).await,
    }
}
