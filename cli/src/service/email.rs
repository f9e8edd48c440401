//! The mails by which `callboard serve` asks people for approvals.

use std::collections::BTreeMap;
use std::path::Path;

use callboard::messages::{Envelope, Pending, visible};
use callboard_channels::email::{EmailChannel, EmailConfig, EmailError, EmailState};
use callboard_private::FolderError;
use tokio::sync::watch;

use super::secret_files::hide;
use crate::command_line::command_line;
use crate::config::email::{PASSWORD, Section};
use crate::config::people;
use crate::exit::Exit;
use crate::page::{Failure, note};
use crate::stores::Stores;

/// The settings of the channel of these stores. The file with the password is hidden from programs of agents. `pages` is the address of the
/// server's pages, if people reach them from elsewhere.
///
/// # Errors
/// There is no password, or tools of agents could read its file.
pub(crate) fn config(
    section: &Section,
    people: &people::Section,
    (root, stores): (&Path, &Stores),
    pages: Option<&str>,
) -> Result<EmailConfig, Failure> {
    if let Some(password) = &section.password {
        hide(password, PASSWORD, root)?;
    }
    let config = section.config(people, &stores.of_server("email"))?;
    let store = stores.named().map(Path::to_owned);
    let config = config.how_to_see(move |asked| {
        let id = Pending::from(asked.clone()).id();
        visible(&command_line(&format!("pending {id}"), store.as_deref()))
    });
    Ok(match pages.map(|pages| pages.trim_end_matches('/').to_owned()) {
        Some(pages) => config.page(move |asked| page(&pages, asked)),
        None => config,
    })
}

/// The address of an approval on the pages at this origin: nothing of it is secret.
fn page(pages: &str, asked: &Envelope) -> String {
    let id = Pending::from(asked.clone()).id();
    format!("{pages}/?run={}#{id}", asked.request.turn.run)
}

/// Opens the channel.
///
/// # Errors
/// There is no password, or what the channel has kept cannot be read.
pub(super) fn open(
    section: &Section,
    people: &people::Section,
    places: (&Path, &Stores),
    pages: Option<&str>,
) -> Result<EmailChannel, Failure> {
    EmailChannel::open(config(section, people, places, pages)?).map_err(|error| {
        let exit = match &error {
            EmailError::Folder(FolderError::Io { error, .. }) => Exit::of_file(error),
            EmailError::Folder(_) => Exit::Denied,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    })
}

/// Reports once that the server of mail is not reached, and of each address once that it takes no mail to it.
pub(super) async fn report(state: Option<watch::Receiver<EmailState>>) {
    let Some(mut state) = state else { return };
    let (mut was_reported, mut reported) = (false, BTreeMap::new());
    loop {
        let now = state.borrow_and_update().clone();
        match now {
            EmailState::Reached { refused } => {
                for (address, why) in refused {
                    reported.entry(address).or_insert_with_key(|address| {
                        note(&format!("no mail is sent to {}: {}", visible(address), visible(&why)));
                    });
                }
            }
            EmailState::Unreachable { why } if !was_reported => {
                was_reported = true;
                note(&format!("the server of mail is not reached, and is tried again: {}", visible(&why)));
            }
            _ => {}
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
