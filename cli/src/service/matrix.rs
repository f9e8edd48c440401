//! The account by which `callboard serve` asks people for approvals in rooms of Matrix.

use std::path::Path;

use callboard::messages::{Pending, visible};
use callboard_channels::matrix::{MatrixChannel, MatrixConfig, MatrixError, MatrixState};
use callboard_private::FolderError;
use tokio::sync::watch;

use super::secret_files::hide;
use crate::command_line::command_line;
use crate::config::matrix::{Section, TOKEN};
use crate::config::people;
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
) -> Result<MatrixConfig, Failure> {
    hide(&section.token, TOKEN, root)?;
    let config = section.config(people, &stores.of_server("matrix"))?;
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
) -> Result<MatrixChannel, Failure> {
    MatrixChannel::open(config(section, people, places, pages)?).map_err(|error| {
        let exit = match &error {
            MatrixError::Folder(FolderError::Io { error, .. }) => Exit::of_file(error),
            MatrixError::Folder(_) => Exit::Denied,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    })
}

/// Reports once that Matrix is not reached, and that it is; and each room in which nobody is asked.
pub(super) async fn report(state: Option<watch::Receiver<MatrixState>>) {
    let Some(mut state) = state else { return };
    let (mut was_reported, mut is_reached, mut known) = (false, false, Vec::new());
    loop {
        let now = state.borrow_and_update().clone();
        match now {
            MatrixState::Reached { account, unusable } => {
                if !std::mem::replace(&mut is_reached, true) {
                    note(&format!("approvals are asked by {} on Matrix", visible(&account)));
                }
                unusable.iter().filter(|text| !known.contains(*text)).for_each(|text| note(text));
                known = unusable;
            }
            MatrixState::Unreachable { why } if !was_reported && !is_reached => {
                was_reported = true;
                note(&format!("Matrix is not reached, and is tried again: {}", visible(&why)));
            }
            _ => {}
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
