//! `callboard conversations list|show|fork|delete`.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use callboard::messages::{ConversationId, Message, RunId, visible, visible_lines};
use callboard::runtime::{ConversationError, ConversationInfo, ConversationRun};

use crate::agents::patterns::is_of_workflow;
use crate::arguments::Conversations;
use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, brief, count, folded, grouped, lines_of, table, time};
use crate::process;
use crate::run_names::{self, short};
use crate::stores::Stores;
use crate::stores::open::{LAST, OpenStores, in_several_stores};
use crate::stores::project::number_of;
use crate::stores::store::{Loaded, Store};

pub(crate) fn main(command: &Conversations) -> ExitCode {
    process::print_answer(answer(command), command.common().json)
}

async fn answer(command: &Conversations) -> Result<Page, Failure> {
    let stores = command.common().choice.stores()?;
    match command {
        Conversations::List { .. } => {
            let mut page = list(&stores.open().await?).await?;
            page.remarks.extend(stores.hint().await.map(|hint| format!("{hint}\n")));
            Ok(page)
        }
        Conversations::Show { conversation, .. } => show(&stores, conversation).await,
        Conversations::Delete { conversations: wanted, .. } => delete(&stores, wanted).await,
        Conversations::Fork { conversation, copy, until, .. } => {
            fork(&stores, conversation, copy, until.as_deref()).await
        }
    }
}

/// Lists the conversations, one line each.
async fn list(open: &OpenStores) -> Result<Page, Failure> {
    let mut found = Vec::new();
    for store in &open.stores {
        let infos = store.conversations().list().await.map_err(Failure::of)?;
        found.extend(infos.into_iter().map(|info| (info, store.place())));
    }
    found.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
    let mut drawn = table(["conversation", "of", "runs", "messages", "last"], &[2, 3]);
    let (mut rows, mut notes) = (Vec::new(), open.notes());
    for copies in found.chunk_by(|(one, _), (other, _)| one.id == other.id).filter(|copies| copies.len() > 1) {
        let folders = copies.iter().map(|(_, folder)| *folder);
        notes.push_str(&format!("{}\n", in_several_stores(&format!("conversation {}", copies[0].0.id), folders)));
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
    let (text, exit) = match found.len() {
        0 => open.nothing_found("conversations"),
        number => (format!("{}{}\n{notes}", lines_of(&drawn), count(number, "conversation")), Exit::Done),
    };
    Ok(Page { exit, ..Page::new(text, Value::from(rows)) })
}

/// Shows the messages of a conversation, run by run.
async fn show(stores: &Stores, conversation: &ConversationId) -> Result<Page, Failure> {
    let open = stores.open().await?;
    let place = open.place_of_conversation(conversation).await?;
    let place = place.ok_or_else(|| unknown(conversation, &open, stores.named()))?;
    let runs = open.stores[place].conversations().read(conversation).await.map_err(Failure::of)?;
    let text = runs.iter().map(text_of).collect::<Vec<_>>().join("\n");
    let rows: Vec<Value> = runs.iter().map(row).collect();
    Ok(Page::new(folded(&text), json!({ "conversation": conversation, "runs": rows })))
}

/// Copies a conversation under a new id, up to a run of it; by default up to the last that has ended.
async fn fork(
    stores: &Stores,
    conversation: &ConversationId,
    copy: &ConversationId,
    until: Option<&str>,
) -> Result<Page, Failure> {
    let open = stores.open_to_change().await?;
    // The copy may not be in another store either: its id would be ambiguous.
    if open.place_of_conversation(copy).await?.is_some() {
        return Err(Failure::usage(ConversationError::Exists(copy.clone()).to_string()));
    }
    let place = open.place_of_conversation(conversation).await?;
    let store = &open.stores[place.ok_or_else(|| unknown(conversation, &open, stores.named()))?];
    let runs = store.conversations().read(conversation).await.map_err(Failure::of)?;
    let ended: Vec<RunId> = runs.iter().filter(|run| run.ended_at.is_some()).map(|run| run.run).collect();
    let last = *ended.last().ok_or_else(|| {
        Failure::usage(format!("no run of conversation {conversation} has ended, so there is nothing to copy"))
    })?;
    let until = match until {
        None | Some(LAST) => last,
        Some(wanted) => run_names::find(wanted, &ended, None).map_err(|failure| {
            failure.with(&format!("only runs of conversation {conversation} that have ended can be named"))
        })?,
    };
    record_placement(stores, copy, (store, &open))?;
    store.conversations().fork(conversation, until, copy).await.map_err(Failure::of)?;
    let copied = ended.iter().position(|run| *run == until).map_or(0, |last| last + 1);
    for store in &open.stores {
        store.close().await?;
    }
    let text =
        format!("conversation {copy} is a copy of {conversation}: {}, up to {}\n", count(copied, "run"), short(until));
    let json = json!({ "conversation": copy, "forked_from": conversation, "until": until, "runs": copied });
    Ok(Page { done: Some(format!("the conversation {copy} is in the store")), ..Page::new(text, json) })
}

/// Refuses a conversation with an open run: the next run of the conversation would wait for it. `line` is the command line that
/// continues a run.
pub(crate) async fn check_none_is_open(
    store: &Store,
    conversation: &ConversationId,
    named: Option<&Path>,
    line: impl Fn(&Loaded) -> String,
) -> Result<(), Failure> {
    let runs = store.conversations().read(conversation).await.map_err(Failure::of)?;
    let Some(open) = runs.iter().find(|run| run.ended_at.is_none()) else { return Ok(()) };
    if store.board_of(open.run).await?.is_some() {
        let run = open.run;
        return Err(Failure::new(
            Exit::Unavailable,
            format!(
                "another process works on run {run} of conversation {conversation}: wait until it has ended, or cancel it"
            ),
        ));
    }
    let loaded = store.load(open.run).await?;
    Err(Failure::usage(format!(
        "run {run} of conversation {conversation} has not ended; to continue it: {}; to remove it: {}",
        visible(&line(&loaded)),
        visible(&deletion(open.run, named)),
        run = short(open.run),
    )))
}

/// Records the store of a project that a conversation is written to, before it is written.
fn record_placement(
    stores: &Stores,
    conversation: &ConversationId,
    (store, open): (&Store, &OpenStores),
) -> Result<(), Failure> {
    let Stores::Project(project) = stores else { return Ok(()) };
    let placement = project.placement(conversation);
    let number = number_of(store.place()).unwrap_or_default();
    match placement.number()? {
        Some(earlier) if open.closed.iter().any(|closed| number_of(closed.folder()) == Some(earlier)) => {
            let text =
                format!("conversation {conversation} may be in a store that could not be opened: choose another id");
            Err(Failure::usage(text).with(&open.notes()))
        }
        Some(_) => placement.replace(number),
        None if placement.claim(number)? => Ok(()),
        None => {
            Err(Failure::usage(format!("another process is creating conversation {conversation}: choose another id")))
        }
    }
}

/// Deletes conversations with all their messages.
async fn delete(stores: &Stores, wanted: &[ConversationId]) -> Result<Page, Failure> {
    let (mut text, mut deleted) = (String::new(), Vec::new());
    let open = stores.open_to_change().await?;
    for conversation in wanted {
        let place = open.place_of_conversation(conversation).await.map_err(|failure| failure.with(&text))?;
        // If no store has it, leftovers of a deletion or a copy that was killed are removed from all of them.
        let searched = place.map_or(&open.stores[..], |place| &open.stores[place..=place]);
        let mut is_deleted = false;
        for store in searched {
            match store.conversations().delete(conversation).await {
                Ok(was_there) => is_deleted |= was_there,
                Err(error) => return Err(refused(store, &error, stores.named()).await.with(&text)),
            }
        }
        if !is_deleted {
            return Err(unknown(conversation, &open, stores.named()).with(&text));
        }
        text.push_str(&format!("conversation {conversation} is deleted\n"));
        deleted.push(conversation);
    }
    for store in &open.stores {
        store.close().await.map_err(|failure| failure.with(&text))?;
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
    let mut text = format!("run {}, {}{end}\n", short(run.run), time(run.submitted_at));
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

fn unknown(conversation: &ConversationId, open: &OpenStores, named: Option<&Path>) -> Failure {
    let Some(exit) = open.exit() else {
        let line = command_line("conversations list", named);
        return Failure::not_found(format!("there is no conversation {conversation}; `{}` names all", visible(&line)));
    };
    let missed = format!("conversation {conversation} may be in a store that could not be opened");
    Failure::new(exit, missed).with(&open.notes())
}

/// The command line that deletes a run.
fn deletion(run: RunId, named: Option<&Path>) -> String {
    command_line(&format!("runs delete {}", short(run)), named)
}

async fn refused(store: &Store, error: &ConversationError, named: Option<&Path>) -> Failure {
    match error {
        ConversationError::RunIsOpen { run, .. } => {
            let is_planned = store.load(*run).await.is_ok_and(|run| is_of_workflow(run.replay.submission()));
            let line = if is_planned { "workflow resume" } else { "run --resume" };
            let line = command_line(&format!("{line} {}", short(*run)), named);
            let (line, deletion) = (visible(&line), visible(&deletion(*run, named)));
            Failure::usage(format!("{error}; to continue the run: {line}; to remove it: {deletion}"))
        }
        _ => Failure::new(Exit::from(error), error.to_string()),
    }
}
