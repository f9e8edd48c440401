//! `callboard kb publish` and `callboard kb doctor`.

use std::fmt::Write as _;

use callboard::messages::visible;
use callboard_knowledge::KnowledgeError;
use callboard_knowledge::cycles::{self, PublishRequest};
use callboard_knowledge::site::{Published, SiteError, check_folder};
use callboard_knowledge::store::Finding;
use serde_json::json;

use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, count, counted, grouped, shown_path};
use crate::quote::{quoted, quoted_path};
use crate::stores::Stores;

use super::arguments::{Doctor, NAMESPACE, Publish, TITLE};
use super::base::{end_after_board, failure_of, open, open_to_check};
use super::cycles::{Cycles, Ended, not_finished};

/// Writes the site of a namespace.
pub(super) async fn publish(publish: &Publish) -> Result<Page, Failure> {
    let stores = publish.place.common.choice.stores()?;
    let base = open(&stores).await?;
    let (namespace, title) = (publish.place.namespace.clone(), publish.title.clone());
    let folder = std::path::absolute(&publish.folder)
        .map_err(|error| Failure::file(&error, format!("{}: {error}", shown_path(&publish.folder))))?;
    check_folder(&folder).map_err(|error| match error {
        SiteError::NotASite { .. } | SiteError::NoName { .. } => Failure::usage(error.to_string()),
        error => Failure::failed(error.to_string()),
    })?;
    let request = PublishRequest { namespace, folder: folder.clone(), title };
    let input = json!(request);
    let run = Cycles {
        stores: &stores,
        agents: vec![cycles::publish_agent(&base, &folder)],
        models: None,
        task: cycles::publish_task(&request).map_err(|error| Failure::usage(error.to_string()))?,
        is_same: &|before| *before == input,
        line: line_of(publish, &stores),
        no_input: true,
        is_shown: false,
    };
    let ended = run.run().await;
    end_after_board(base, None).await;
    let result = match ended? {
        Ended::Result { result, .. } => result,
        Ended::Left(page) => return Ok(page),
    };
    if !result.outcome.is_finished() {
        return Err(not_finished(&result));
    }
    let published = cycles::publish_result(&result).map_err(|error| Failure::failed(error.to_string()))?;
    let published = Published { folder: publish.folder.clone(), ..published };
    let state = if published.is_unchanged { "is as it was" } else { "is written" };
    let text = format!(
        "{} {state}: {}, {}; open {}\n",
        shown_path(&published.folder),
        count(published.files, "file"),
        counted(published.bytes, "byte"),
        shown_path(&published.folder.join("index.html"))
    );
    let json = json!({
        "folder": published.folder, "files": published.files, "bytes": published.bytes, "is_unchanged": published.is_unchanged,
        "kept": published.kept.iter().map(|(folder, why)| (folder.to_string_lossy(), why)).collect::<Vec<_>>(),
    });
    let mut remarks = String::new();
    for (folder, why) in &published.kept {
        let _ = writeln!(
            remarks,
            "{} looks like a folder of an interrupted publication and is kept, because {why}; delete it if nothing in it is yours",
            shown_path(folder)
        );
    }
    Ok(Page { remarks, ..Page::new(text, json) })
}

/// The command line that continues it.
fn line_of(publish: &Publish, stores: &Stores) -> String {
    let mut line = format!("kb publish {}", quoted_path(&publish.folder));
    for (option, value, usual) in
        [("--title", &publish.title, TITLE), ("--namespace", &publish.place.namespace, NAMESPACE)]
    {
        if value != usual {
            let _ = write!(line, " {option} {}", quoted(value));
        }
    }
    command_line(&line, stores.named())
}

/// Checks the base, and makes its index again if that was asked for.
pub(super) async fn doctor(doctor: &Doctor) -> Result<Page, Failure> {
    let stores = doctor.common.choice.stores()?;
    let base = open_to_check(&stores).await?;
    let repaired = if doctor.repair { base.repair().await } else { Ok(()) };
    let findings = base.check().await.map_err(|error| failure_of(&stores, &error))?;
    match repaired {
        // A base with another schema is not changed: that is what was found.
        Err(KnowledgeError::Damaged { .. }) if !findings.is_empty() => {}
        repaired => repaired.map_err(|error| failure_of(&stores, &error))?,
    }
    let counts = match base.counts().await {
        Err(KnowledgeError::Damaged { .. }) if !findings.is_empty() => None,
        counts => Some(counts.map_err(|error| failure_of(&stores, &error))?),
    };
    let mut text = String::new();
    for Finding { what, is_repairable } in &findings {
        let repair = command_line("kb doctor --repair", stores.named());
        let remedy = if *is_repairable { format!("; to build it again: {repair}") } else { String::new() };
        let _ = writeln!(text, "wrong: {}{remedy}", visible(what));
    }
    match &counts {
        Some(counts) => {
            let facts = counted(counts.current + counts.disputed + counts.invalid, "fact");
            let [current, disputed, invalid] = [counts.current, counts.disputed, counts.invalid].map(grouped);
            let _ = writeln!(
                text,
                "{} with {}, {facts} ({current} current, {disputed} disputed, {invalid} invalid), {}, {}",
                counted(counts.documents, "document"),
                counted(counts.passages, "passage"),
                counted(counts.entities, "entity"),
                counted(counts.edges, "edge")
            );
        }
        None => text.push_str("what it has is not counted: its tables are not those of a base\n"),
    }
    let exit = if findings.is_empty() { Exit::Done } else { Exit::Failed };
    Ok(Page { exit, ..Page::new(text, json!({ "findings": findings, "counts": counts })) })
}
