//! `callboard store check`: everything of a store is read, and the first damage of each run is reported, with what is wrong with the base of
//! facts.

use serde_json::{Value, json};

use crate::exit::Exit;
use crate::knowledge::stored;
use crate::page::{Failure, Page, count, shown_path};
use crate::run_names::names;
use crate::stores::Stores;
use crate::stores::open::{ClosedStore, OpenStores};
use crate::stores::store::Store;

use super::database;

/// Reads all stores.
pub(crate) async fn check(of: &Stores) -> Result<Page, Failure> {
    let (mut text, mut rows, mut is_damaged) = (String::new(), Vec::new(), false);
    if let Some(database) = of.database() {
        let (found, row) = database::checked(database).await?;
        text.push_str(&found);
        rows.push(row);
    }
    let open = match of.open().await {
        // What was found may be the cause.
        Err(failure) if !rows.is_empty() => {
            text.push_str(&format!("damaged: {}\n", failure.text()));
            rows.push(json!({ "error": failure.text() }));
            return Ok(Page { exit: failure.exit(), ..Page::new(text, Value::from(rows)) });
        }
        opened => opened?,
    };
    text.push_str(&open.notes());
    let OpenStores { stores, closed } = &open;
    for store in stores {
        let (mut damaged, runs) = (Vec::new(), store.ids().await?);
        let name = names(runs.iter().copied());
        for run in &runs {
            if let Err(why) = store.load(*run).await {
                text.push_str(&format!("damaged: {}\n", why.text()));
                damaged.push(json!({ "run": run, "name": name(*run), "error": why.text() }));
            }
        }
        let mut notes = Vec::new();
        for (key, why) in store.unreadable_rows().await? {
            text.push_str(&format!("damaged: {key}: {why}\n"));
            notes.push(json!({ "key": key, "error": why }));
        }
        let conversations = conversations(store, &mut text).await;
        let found = match damaged.len() + notes.len() {
            0 => "no damage".to_owned(),
            all => format!("{all} damaged"),
        };
        text.push_str(&format!("{}: {}, {found}\n", shown_path(store.place()), count(runs.len(), "run")));
        is_damaged |= !damaged.is_empty() || !notes.is_empty() || conversations.is_some();
        rows.push(json!({
            "store": store.place().to_string_lossy(), "runs": runs.len(), "damaged": damaged, "notes": notes, "conversations": conversations,
        }));
    }
    rows.extend(closed.iter().map(ClosedStore::json));
    if rows.is_empty() {
        text.push_str("there is no store\n");
    }
    let mut exit_of_base = Exit::Done;
    if let Some((found, row, exit)) = stored::check(of).await {
        text.push_str(&found);
        rows.push(row);
        exit_of_base = exit;
    }
    let exit = if is_damaged { Exit::Failed } else { open.exit().unwrap_or(exit_of_base) };
    Ok(Page { exit, ..Page::new(text, Value::from(rows)) })
}

/// Why the conversations cannot be read, if they cannot.
async fn conversations(store: &Store, text: &mut String) -> Option<String> {
    let error = store.conversations().list().await.err()?.to_string();
    text.push_str(&format!("damaged: the conversations: {error}\n"));
    Some(error)
}
