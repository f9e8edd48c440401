//! `callboard runs delete`.

use serde_json::json;

use crate::page::{Failure, Page};
use crate::stores::Stores;

/// Removes runs, each from the store that has it. What was removed before one could not be stays removed.
pub(crate) async fn delete(stores: &Stores, wanted: &[String]) -> Result<Page, Failure> {
    let (mut text, mut deleted) = (String::new(), Vec::new());
    for wanted in wanted {
        let (store, run) = stores.take_with(wanted).await.map_err(|failure| failure.with(&text))?;
        store.delete(run).await.map_err(|failure| failure.with(&text))?;
        store.sled().close().await;
        text.push_str(&format!("run {run} is deleted\n"));
        deleted.push(run);
    }
    Ok(Page { done: Some("the runs are deleted".to_owned()), ..Page::new(text, json!({ "deleted": deleted })) })
}
