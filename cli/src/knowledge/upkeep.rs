//! `callboard kb publish` and `callboard kb doctor`.

use std::fmt::Write as _;

use callboard::messages::visible;
use callboard_knowledge::publishing::{self, PublishError};
use callboard_knowledge::site::{SiteError, SiteSettings};
use callboard_knowledge::store::Finding;
use serde_json::json;

use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, count, grouped, shown_path};

use super::arguments::{Doctor, Publish};
use super::base::{failure, open};

/// Writes the site of a namespace.
pub(super) async fn publish(publish: &Publish) -> Result<Page, Failure> {
    let stores = publish.place.common.choice.stores()?;
    let base = open(&stores)?;
    // Its bytes depend on the base alone, so a site that is published again does not change.
    let settings = SiteSettings { title: publish.title.clone(), about: None, as_of: None };
    let published = publishing::publish(&base, &publish.place.namespace, &publish.folder, settings).await;
    let published = published.map_err(|error| match error {
        PublishError::Base(error) => failure(&error),
        PublishError::Site(SiteError::NotASite { .. } | SiteError::NoName { .. }) => Failure::usage(error.to_string()),
        PublishError::Site(error) => Failure::failed(error.to_string()),
    })?;
    let state = if published.is_unchanged { "is as it was" } else { "is written" };
    let text = format!(
        "{} {state}: {}, {} bytes; open {}\n",
        shown_path(&published.folder),
        count(published.files, "file"),
        grouped(published.bytes),
        shown_path(&published.folder.join("index.html"))
    );
    let json = json!({
        "folder": published.folder, "files": published.files, "bytes": published.bytes, "is_unchanged": published.is_unchanged,
    });
    Ok(Page::new(text, json))
}

/// Checks the base, and makes its index again if that was asked for.
pub(super) async fn doctor(doctor: &Doctor) -> Result<Page, Failure> {
    let stores = doctor.place.common.choice.stores()?;
    let base = open(&stores)?;
    if doctor.repair {
        base.repair().await.map_err(|error| failure(&error))?;
    }
    let findings = base.check().await.map_err(|error| failure(&error))?;
    let counts = base.counts().await.map_err(|error| failure(&error))?;
    let mut text = String::new();
    for Finding { what, is_repairable } in &findings {
        let repair = command_line("kb doctor --repair", stores.named());
        let remedy = if *is_repairable { format!("; to build it again: {repair}") } else { String::new() };
        let _ = writeln!(text, "wrong: {}{remedy}", visible(what));
    }
    let facts = grouped(counts.current + counts.disputed + counts.invalid);
    let _ = writeln!(
        text,
        "{} documents with {} passages, {facts} facts ({} current, {} disputed, {} invalid), {} entities, {} edges",
        grouped(counts.documents),
        grouped(counts.passages),
        grouped(counts.current),
        grouped(counts.disputed),
        grouped(counts.invalid),
        grouped(counts.entities),
        grouped(counts.edges)
    );
    let exit = if findings.is_empty() { Exit::Done } else { Exit::Failed };
    Ok(Page { exit, ..Page::new(text, json!({ "findings": findings, "counts": counts })) })
}
