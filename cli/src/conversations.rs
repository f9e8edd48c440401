//! `callboard conversations list|show|delete`.

use std::path::Path;

use serde_json::{Value, json};

use callboard::messages::{ConversationId, Message, visible, visible_lines};
use callboard::runtime::{ConversationError, ConversationInfo, ConversationRun};

use crate::opened::{Open, doubled};
use crate::page::{Failure, Page, brief, count, grouped, lines_of, table, time};
use crate::stores::Stores;

/// The conversations, one line each.
pub(crate) async fn list(open: &Open) -> Result<Page, Failure> {
    let mut found = Vec::new();
    for store in &open.stores {
        let infos = store.conversations().list().await.map_err(trouble)?;
        found.extend(infos.into_iter().map(|info| (info, store.folder())));
    }
    found.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
    let mut drawn = table(["conversation", "of", "runs", "messages", "last"], &[2, 3]);
    let (mut rows, mut notes) = (Vec::new(), open.notes());
    for doubles in found.chunk_by(|(one, _), (other, _)| one.id == other.id).filter(|doubles| doubles.len() > 1) {
        let folders = doubles.iter().map(|(_, folder)| *folder);
        notes.push_str(&format!("{}\n", doubled(&format!("conversation {}", doubles[0].0.id), folders)));
    }
    for (info, folder) in &found {
        let ConversationInfo { id, owner, runs, open_runs, messages, begun_at, last_at } = info;
        let open = if *open_runs > 0 { format!(" ({} open)", grouped(*open_runs as u64)) } else { String::new() };
        drawn.add_row([
            visible(id.as_str()),
            visible(owner),
            format!("{}{open}", grouped(*runs as u64)),
            grouped(*messages),
            time(*last_at),
        ]);
        let others = found.iter().filter(|(other, _)| other.id == *id).map(|(_, folder)| *folder);
        let also_in: Vec<_> = others.filter(|other| other != folder).map(Path::to_string_lossy).collect();
        rows.push(json!({
            "conversation": id, "owner": owner, "runs": runs, "open_runs": open_runs, "messages": messages,
            "begun_at": begun_at.to_string(), "last_at": last_at.to_string(), "store": folder.to_string_lossy(),
            "also_in": also_in,
        }));
    }
    let text = match found.len() {
        0 => format!("there are no conversations\n{notes}"),
        number => format!("{}{}\n{notes}", lines_of(&drawn), count(number, "conversation")),
    };
    Ok(Page::new(text, Value::from(rows)))
}

/// What the runs of a conversation have left, one after the other.
pub(crate) async fn show(open: &Open, conversation: &ConversationId) -> Result<Page, Failure> {
    let place = open.place_of_conversation(conversation).await?.ok_or_else(|| unknown(conversation, open))?;
    let runs = open.stores[place].conversations().read(conversation).await.map_err(trouble)?;
    let text = runs.iter().map(text_of).collect::<Vec<_>>().join("\n");
    let rows: Vec<Value> = runs.iter().map(row).collect();
    Ok(Page::new(text, json!({ "conversation": conversation, "runs": rows })))
}

/// Removes conversations with all their messages.
pub(crate) async fn delete(stores: &Stores, wanted: &[ConversationId]) -> Result<Page, Failure> {
    let (mut text, mut deleted) = (String::new(), Vec::new());
    let open = stores.open_to_change()?;
    for conversation in wanted {
        let place = open.place_of_conversation(conversation).await.map_err(|failure| failure.with(&text))?;
        let place = place.ok_or_else(|| unknown(conversation, &open).with(&text))?;
        let gone = open.stores[place].conversations().delete(conversation).await;
        gone.map_err(|error| refused(&error).with(&text))?;
        text.push_str(&format!("conversation {conversation} is deleted\n"));
        deleted.push(conversation);
    }
    for store in &open.stores {
        store.sled().close().await;
    }
    Ok(Page {
        done: Some("the conversations are deleted".to_owned()),
        ..Page::new(text, json!({ "deleted": deleted }))
    })
}

fn text_of(run: &ConversationRun) -> String {
    let end = match (run.ended_at, &run.failure) {
        (None, _) => ", has not ended".to_owned(),
        (Some(_), Some(failure)) => format!(", {}", brief(failure, 200)),
        (Some(_), None) => String::new(),
    };
    let mut text = format!("run {}, {}{end}\n", run.run, time(run.submitted_at));
    for message in &run.messages {
        let (who, words) = match message {
            Message::User { text } => ("user", text),
            Message::Assistant { text, .. } => ("assistant", text),
            Message::Tool { text, .. } => ("tool", text),
        };
        let indented = visible_lines(words).replace('\n', "\n    ");
        text.push_str(&format!("  {who}: {indented}\n"));
    }
    text
}

fn row(run: &ConversationRun) -> Value {
    json!({
        "run": run.run,
        "submitted_at": run.submitted_at.to_string(),
        "ended_at": run.ended_at.map(|at| at.to_string()),
        "failure": run.failure,
        "messages": run.messages,
    })
}

fn unknown(conversation: &ConversationId, open: &Open) -> Failure {
    if open.closed.is_empty() {
        let help = "`callboard conversations list` names all";
        return Failure::unknown(format!("there is no conversation {conversation}; {help}"));
    }
    let missed = format!("conversation {conversation} may be in a store that could not be looked into");
    Failure::trouble(missed).with(&open.notes())
}

fn refused(error: &ConversationError) -> Failure {
    match error {
        ConversationError::RunIsOpen { run, .. } => Failure::trouble(format!(
            "{error}: callboard run --resume {run} goes on with the run, and callboard runs delete {run} removes it"
        )),
        _ => Failure::trouble(error.to_string()),
    }
}

fn trouble(error: callboard::storage::StorageError) -> Failure {
    Failure::trouble(error.to_string())
}
