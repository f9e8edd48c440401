//! `callboard workflow save` and `versions`: the workflows that a store keeps, which `callboard serve` starts by their names.

use std::path::PathBuf;

use serde_json::json;

use callboard::Callboard;
use callboard::messages::visible;
use callboard::runtime::{Unfinished, WorkflowStoreError};

use crate::exit::Exit;
use crate::page::{Failure, Page, count};
use crate::stores::Stores;
use crate::stores::store::Store;

use super::read;

/// Saves a workflow as the next version of its name, unless it equals the latest one.
pub(crate) async fn save(files: &[PathBuf], line: Option<&str>, stores: &Stores) -> Result<Page, Failure> {
    let texts = read::texts_or_warn(files, line)?;
    let workflow = match <[_; 1]>::try_from(read::workflows(files, &texts)) {
        Ok([Ok(workflow)]) => workflow,
        Ok([Err(defects)]) => return Err(Failure::usage(defects.to_string())),
        Err(several) => {
            return Err(Failure::usage(format!("one workflow is saved at a time, and there are {}", several.len())));
        }
    };
    let name = workflow.name();
    let board = board(&stores.take_new(None).await?).await?;
    let saved = board.workflows().save(&workflow).await;
    board.shutdown().await;
    let version = saved.map_err(failure)?;
    let page = Page::new(
        format!("{} is saved as version {version}\n", visible(name)),
        json!({ "name": name, "version": version }),
    );
    Ok(Page { done: Some(format!("the workflow is saved as version {version}")), ..page })
}

/// Lists the versions of a workflow, or all workflows.
pub(crate) async fn versions(name: Option<&str>, stores: &Stores) -> Result<Page, Failure> {
    let board = board(&stores.take().await?).await?;
    let listed = match name {
        Some(name) => of_one(&board, name).await,
        None => of_all(&board).await,
    };
    board.shutdown().await;
    listed
}

async fn of_one(board: &Callboard, name: &str) -> Result<Page, Failure> {
    let versions = board.workflows().versions(name).await.map_err(Failure::of)?;
    let line = line(name, &versions)
        .ok_or_else(|| Failure::not_found(format!("no workflow {} is saved in this store", visible(name))))?;
    Ok(Page::new(line, json!({ "name": name, "versions": versions })))
}

async fn of_all(board: &Callboard) -> Result<Page, Failure> {
    let (mut text, mut shown) = (String::new(), Vec::new());
    for name in board.workflows().names().await.map_err(Failure::of)? {
        let versions = board.workflows().versions(&name).await.map_err(Failure::of)?;
        text.extend(line(&name, &versions));
        shown.push(json!({ "name": name, "version": versions.last() }));
    }
    if shown.is_empty() {
        text.push_str("no workflow is saved in this store\n");
    }
    Ok(Page::new(text, json!({ "workflows": shown })))
}

fn line(name: &str, versions: &[u32]) -> Option<String> {
    let last = versions.last()?;
    Some(format!("{}: {}, the latest is {last}\n", visible(name), count(versions.len(), "version")))
}

/// A board for the store, which works on no run.
async fn board(store: &Store) -> Result<Callboard, Failure> {
    let board = Callboard::builder().on_unfinished(Unfinished::Leave).storage(store.storage()).start().await;
    board.map_err(Failure::of)
}

fn failure(error: WorkflowStoreError) -> Failure {
    match error {
        WorkflowStoreError::Storage(error) => Failure::of(error),
        WorkflowStoreError::Name(error) => Failure::usage(error.to_string()),
        error => Failure::new(Exit::Failed, error.to_string()),
    }
}
