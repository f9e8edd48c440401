//! The account by which `callboard serve` asks people for approvals, and takes tasks for agents, in rooms of Matrix.

use std::path::Path;

use callboard::messages::{Pending, visible};
use callboard_channels::matrix::{AgentRooms, AgentRoomsConfig, MatrixChannel, MatrixConfig, MatrixError, MatrixState};
use callboard_private::FolderError;
use tokio::sync::watch;

use super::secret_files::hide;
use crate::command_line::command_line;
use crate::config::matrix::{Section, TOKEN};
use crate::config::people;
use crate::exit::Exit;
use crate::page::{Failure, note};
use crate::run_names::short;
use crate::stores::Stores;

/// The settings of the channel of these stores; `None` if people are asked in no room. The file with the token is hidden from programs of agents. `pages` is the address of the
/// server's pages, if people reach them from elsewhere.
///
/// # Errors
/// There is no token, or tools of agents could read its file.
pub(crate) fn config(
    section: &Section,
    people: &people::Section,
    (root, stores): (&Path, &Stores),
    pages: Option<&str>,
) -> Result<Option<MatrixConfig>, Failure> {
    hide(&section.token, TOKEN, root)?;
    let Some(config) = section.config(people, &stores.of_server("matrix"))? else { return Ok(None) };
    let how = how(stores, pages);
    Ok(Some(config.how_to_see(move |asked| how(&format!("pending {}", Pending::from(asked.clone()).id())))))
}

/// The settings of the rooms of agents of these stores, as [`config`]; `None` if no agent has a room.
///
/// # Errors
/// As [`config`].
pub(crate) fn agents_config(
    section: &Section,
    people: &people::Section,
    (root, stores): (&Path, &Stores),
    pages: Option<&str>,
) -> Result<Option<AgentRoomsConfig>, Failure> {
    if !section.has_agents() {
        return Ok(None);
    }
    hide(&section.token, TOKEN, root)?;
    let config = section.agents_config(people, &stores.of_server("matrix"))?;
    let (see, answer) = (how(stores, pages), how(stores, pages));
    let config = config.how_to_see(move |run| see(&format!("runs show {}", short(*run))));
    Ok(Some(config.how_to_answer(move |pending| answer(&format!("pending {}", pending.id())))))
}

/// How something is seen: by which command line, or on the pages.
fn how(stores: &Stores, pages: Option<&str>) -> impl Fn(&str) -> String + Send + Sync + 'static {
    let store = stores.named().map(Path::to_owned);
    let pages = pages.map_or_else(String::new, |pages| format!(", or {pages}"));
    move |command| visible(&format!("{}{pages}", command_line(command, store.as_deref())))
}

/// Opens the channel; `None` if people are asked in no room.
///
/// # Errors
/// There is no token, or what the channel has kept cannot be read.
pub(super) fn open(
    section: &Section,
    people: &people::Section,
    places: (&Path, &Stores),
    pages: Option<&str>,
) -> Result<Option<MatrixChannel>, Failure> {
    config(section, people, places, pages)?.map(MatrixChannel::open).transpose().map_err(|error| failure(&error))
}

/// Opens the rooms of agents; `None` if no agent has one.
///
/// # Errors
/// As [`open`].
pub(super) fn open_agents(
    section: &Section,
    people: &people::Section,
    places: (&Path, &Stores),
    pages: Option<&str>,
) -> Result<Option<AgentRooms>, Failure> {
    agents_config(section, people, places, pages)?.map(AgentRooms::open).transpose().map_err(|error| failure(&error))
}

fn failure(error: &MatrixError) -> Failure {
    let exit = match error {
        MatrixError::Folder(FolderError::Io { error, .. }) => Exit::of_file(error),
        MatrixError::Folder(_) => Exit::Denied,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

/// Reports once that Matrix is reached and what happens there, and each room that cannot be used; and `first` that it is not reached.
pub(super) async fn report(state: Option<watch::Receiver<MatrixState>>, what: &'static str, first: bool) {
    let Some(mut state) = state else { return };
    let (mut was_reported, mut is_reached, mut known) = (false, false, Vec::new());
    loop {
        let now = state.borrow_and_update().clone();
        match now {
            MatrixState::Reached { account, unusable } => {
                if !std::mem::replace(&mut is_reached, true) {
                    note(&format!("{what} by {} on Matrix", visible(&account)));
                }
                unusable.iter().filter(|text| !known.contains(*text)).for_each(|text| note(text));
                known = unusable;
            }
            MatrixState::Unreachable { why } if first && !was_reported && !is_reached => {
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
