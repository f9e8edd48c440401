//! The bot by which `callboard serve` asks people for approvals.

use std::path::Path;

use callboard::messages::{Pending, visible};
use callboard_channels::telegram::{TelegramChannel, TelegramConfig, TelegramError, TelegramState};
use callboard_private::FolderError;
use tokio::sync::watch;

use super::secret_files::hide;
use crate::command_line::command_line;
use crate::config::people;
use crate::config::telegram::{Section, TOKEN};
use crate::exit::Exit;
use crate::page::{Failure, note};
use crate::stores::Stores;

/// The settings of the channel of these stores. The file with the token is hidden from programs of agents. `pages` is the address of the
/// server's pages, if people reach them from elsewhere.
///
/// # Errors
/// There is no token, or tools of agents could read its file.
pub(crate) fn config(
    section: &Section,
    people: &people::Section,
    (root, stores): (&Path, &Stores),
    pages: Option<&str>,
) -> Result<TelegramConfig, Failure> {
    hide(&section.token, TOKEN, root)?;
    let config = section.config(people, &stores.of_server("telegram"))?;
    let store = stores.named().map(Path::to_owned);
    let pages = pages.map_or_else(String::new, |pages| format!(", or {pages}"));
    Ok(config.how_to_see(move |asked| {
        let id = Pending::from(asked.clone()).id();
        visible(&format!("{}{pages}", command_line(&format!("pending {id}"), store.as_deref())))
    }))
}

/// Opens the channel.
///
/// # Errors
/// There is no token, or what the channel has kept cannot be read.
pub(super) fn open(
    section: &Section,
    people: &people::Section,
    places: (&Path, &Stores),
    pages: Option<&str>,
) -> Result<TelegramChannel, Failure> {
    TelegramChannel::open(config(section, people, places, pages)?).map_err(|error| {
        let exit = match &error {
            TelegramError::Folder(FolderError::Io { error, .. }) => Exit::of_file(error),
            TelegramError::Folder(_) => Exit::Denied,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    })
}

/// Reports once that Telegram is not reached, and that it is.
pub(super) async fn report(state: Option<watch::Receiver<TelegramState>>) {
    let Some(mut state) = state else { return };
    let mut was_reported = false;
    loop {
        let now = state.borrow_and_update().clone();
        match now {
            TelegramState::Reached { bot } => {
                note(&format!("approvals are asked by {} on Telegram", visible(&bot)));
                return;
            }
            TelegramState::Unreachable { why } if !was_reported => {
                was_reported = true;
                note(&format!("Telegram is not reached, and is tried again: {}", visible(&why)));
            }
            _ => {}
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
