//! `callboard runs delete|prune`.

use serde_json::json;

use callboard::env::Env;

use crate::exit::Exit;
use crate::page::{Failure, Page, count};
use crate::run_names::{is_of_run, short};
use crate::runs::list::{Filter, folded};
use crate::stores::Stores;
use crate::stores::open::{ClosedStore, LAST};

/// Deletes runs, each from the store that has it. If one cannot be deleted, those before it stay deleted.
pub(crate) async fn delete(stores: &Stores, wanted: &[String]) -> Result<Page, Failure> {
    let (mut text, mut deleted) = (String::new(), Vec::new());
    for wanted in wanted {
        let open = stores.open_to_change().await.map_err(|failure| failure.with(&text))?;
        if let Some(exit) = open.exit().filter(|_| wanted == LAST || !is_of_run(wanted)) {
            let refused =
                "this could match a run in a store that could not be opened: name the run to delete by its whole id"
                    .to_owned();
            return Err(Failure::new(exit, refused).with(&open.notes()).with(&text));
        }
        let (store, run) = open.find(wanted).await.map_err(|failure| failure.with(&text))?;
        store.delete(run).await.map_err(|failure| failure.with(&text))?;
        store.close().await.map_err(|failure| failure.with(&text))?;
        text.push_str(&format!("run {} is deleted\n", short(run)));
        deleted.push(run);
    }
    Ok(Page { done: Some("the runs are deleted".to_owned()), ..Page::new(text, json!({ "deleted": deleted })) })
}

/// Deletes the runs that have ended and that the filter selects. Runs that have not ended, or cannot be read, are kept. A store that
/// cannot be opened is an error, and its runs are kept.
pub(crate) async fn prune(stores: &Stores, filter: &Filter) -> Result<Page, Failure> {
    if filter.is_empty() {
        return Err(Failure::usage("name the runs to delete, as in --older-than 30d or --state failed".to_owned()));
    }
    let (open, now, mut deleted) = (stores.open_to_change().await?, Env::system().now().wall, Vec::new());
    for store in &open.stores {
        for run in store.ids().await? {
            let read = store.history(run).await.map_err(|error| error.to_string()).and_then(folded);
            if read.is_ok_and(|fold| fold.result().is_some() && filter.selects(&fold, now)) {
                let so_far = || format!("{} deleted before\n", count(deleted.len(), "run"));
                store.delete(run).await.map_err(|failure| failure.with(&so_far()))?;
                deleted.push(run);
            }
        }
        store.close().await?;
    }
    let text = format!("{} deleted\n{}", count(deleted.len(), "run"), open.notes());
    let skipped: Vec<_> = open.closed.iter().map(ClosedStore::json).collect();
    let exit = open.exit().unwrap_or(Exit::Done);
    let page = Page::new(text, json!({ "deleted": deleted, "not_looked_into": skipped }));
    Ok(Page { exit, done: Some("the runs are deleted".to_owned()), ..page })
}
