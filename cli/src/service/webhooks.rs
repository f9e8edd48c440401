//! The webhooks by which `callboard serve` sends approvals to other services.

use std::collections::BTreeMap;
use std::path::Path;

use callboard::messages::{Pending, visible};
use callboard_channels::webhooks::{WebhookChannel, WebhooksConfig, WebhooksError};
use callboard_private::FolderError;
use tokio::sync::watch;

use super::secret_files::hide;
use crate::command_line::command_line;
use crate::config::channels::{Section, secret_of};
use crate::exit::Exit;
use crate::page::{Failure, note};
use crate::stores::Stores;

/// The settings of the channel of these stores, if there are webhooks. Files with secrets are hidden from programs of agents. `pages` is
/// the address of the server's pages, if people reach them from elsewhere.
///
/// # Errors
/// A secret is missing or none, or tools of agents could read its file.
pub(crate) fn config(
    section: &Section,
    (root, stores): (&Path, &Stores),
    pages: Option<&str>,
) -> Result<Option<WebhooksConfig>, Failure> {
    for webhook in &section.webhooks {
        hide(&webhook.secret, &secret_of(&webhook.name), root)?;
    }
    let config = section.config(&stores.of_server("webhooks"))?;
    let store = stores.named().map(Path::to_owned);
    let pages = pages.map_or_else(String::new, |pages| format!(", or {pages}"));
    Ok(config.map(|config| {
        config.how_to_see(move |asked| {
            let id = Pending::from(asked.clone()).id();
            visible(&format!("{}{pages}", command_line(&format!("pending {id}"), store.as_deref())))
        })
    }))
}

/// Opens the channel, if there are webhooks.
///
/// # Errors
/// A secret is missing or none, or what the channel has kept cannot be read.
pub(super) fn open(
    section: &Section,
    places: (&Path, &Stores),
    pages: Option<&str>,
) -> Result<Option<WebhookChannel>, Failure> {
    let Some(config) = config(section, places, pages)? else { return Ok(None) };
    let channel = WebhookChannel::open(config).map_err(|error| {
        let exit = match &error {
            WebhooksError::Folder(FolderError::Io { error, .. }) => Exit::of_file(error),
            WebhooksError::Folder(_) => Exit::Denied,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    })?;
    Ok(Some(channel))
}

/// Reports of each webhook once that its receiver is not reached.
pub(super) async fn report(unreachable: Option<watch::Receiver<BTreeMap<String, String>>>) {
    let Some(mut unreachable) = unreachable else { return };
    let mut reported = BTreeMap::new();
    loop {
        for (name, why) in unreachable.borrow_and_update().clone() {
            reported.entry(name).or_insert_with_key(|name| {
                note(&format!("the webhook {name} is not reached, and is tried again: {}", visible(&why)));
            });
        }
        if unreachable.changed().await.is_err() {
            return;
        }
    }
}
