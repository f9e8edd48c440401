//! `callboard runs delete|prune`.

use serde_json::json;

use callboard::env::Env;

use crate::page::{Failure, Page, count};
use crate::runs::list::{Filter, folded};
use crate::stores::Stores;
use crate::stores::open::{Closed, LAST};
use crate::stores::store::is_whole_id;

/// Removes runs, each from the store that has it. What was removed before one could not be stays removed.
pub(crate) async fn delete(stores: &Stores, wanted: &[String]) -> Result<Page, Failure> {
    let (mut text, mut deleted) = (String::new(), Vec::new());
    for wanted in wanted {
        let open = stores.open_to_change().map_err(|failure| failure.with(&text))?;
        if (wanted == LAST || !is_whole_id(wanted)) && !open.closed.is_empty() {
            let refused =
                "this could mean a run in a store that could not be looked into: name what is to be removed by its \
                           whole id"
                    .to_owned();
            return Err(Failure::trouble(refused).with(&open.notes()).with(&text));
        }
        let (store, run) = open.find(wanted).await.map_err(|failure| failure.with(&text))?;
        store.delete(run).await.map_err(|failure| failure.with(&text))?;
        store.sled().close().await;
        text.push_str(&format!("run {run} is deleted\n"));
        deleted.push(run);
    }
    Ok(Page { done: Some("the runs are deleted".to_owned()), ..Page::new(text, json!({ "deleted": deleted })) })
}

/// Removes the runs that have ended and are wanted. Those that have not ended, or cannot be read, stay. A store that cannot be looked into is
/// an error: what it has of them stays, too.
pub(crate) async fn prune(stores: &Stores, filter: &Filter) -> Result<Page, Failure> {
    if filter.is_empty() {
        return Err(Failure::trouble("say which runs are to be removed: --older-than 30d, --state failed".to_owned()));
    }
    let (open, now, mut deleted) = (stores.open_to_change()?, Env::system().now().wall, Vec::new());
    for store in &open.stores {
        for run in store.ids().await? {
            let read = store.history(run).await.map_err(|error| error.to_string()).and_then(folded);
            if read.is_ok_and(|fold| fold.result().is_some() && filter.has(&fold, now)) {
                let so_far = || format!("{} deleted before\n", count(deleted.len(), "run"));
                store.delete(run).await.map_err(|failure| failure.with(&so_far()))?;
                deleted.push(run);
            }
        }
        store.sled().close().await;
    }
    let text = format!("{} deleted\n{}", count(deleted.len(), "run"), open.notes());
    let skipped: Vec<_> = open.closed.iter().map(Closed::json).collect();
    let code = if skipped.is_empty() { 0 } else { 2 };
    let page = Page::new(text, json!({ "deleted": deleted, "not_looked_into": skipped }));
    Ok(Page { code, done: Some("the runs are deleted".to_owned()), ..page })
}
