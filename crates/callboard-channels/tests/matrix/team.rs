//! A board with the channel.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Action, Decision, Envelope, Json};
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard_channels::matrix::{AccessToken, MatrixChannel, MatrixConfig, MatrixState};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::fake::{ANN, BOB, LIMIT, ROOM, Server, TOKEN};

/// The settings of two people, with delays as short as tests need them.
pub(crate) fn config(server: &Server, folder: &Path) -> MatrixConfig {
    let config = MatrixConfig::new(&server.url(), AccessToken::new(TOKEN).unwrap(), folder.join("matrix"));
    let config = config.person(ANN, "ann").person(BOB, "bob").room(ROOM);
    config.delays(Duration::from_millis(1), Duration::from_millis(10))
}

/// A board whose agent asks for consent.
pub(crate) async fn board(channel: MatrixChannel) -> Callboard {
    let clerk = |turn: Turn| async move {
        let (target, arguments): (String, serde_json::Value) = turn.input()?;
        Ok(Command::output(match turn.people().approve(Action::new("pay", &target, arguments)).await {
            Ok(_) => "paid".to_owned(),
            Err(error) => error.to_string(),
        }))
    };
    Callboard::builder().agent("clerk", clerk).channel(channel).start().await.unwrap()
}

/// Has the agent ask for consent.
pub(crate) async fn asked(board: &Callboard, target: &str, arguments: impl Into<Json>) -> (RunHandle, Envelope) {
    let arguments: Json = arguments.into();
    let run = board.submit(Task::new("pay").input(json!([target, arguments]))).await.unwrap();
    let is_it = |open: &Pending| matches!(open, Pending::Approval(envelope) if &*envelope.action.target == target);
    match board.people().next_where(is_it).await {
        Some(Pending::Approval(envelope)) => (run, *envelope),
        other => panic!("{other:?}"),
    }
}

/// A server, and a board whose agent asks for consent.
pub(crate) struct Team {
    pub(crate) server: Arc<Server>,
    pub(crate) board: Callboard,
    pub(crate) state: watch::Receiver<MatrixState>,
    pub(crate) folder: TempDir,
}

impl Team {
    pub(crate) async fn start() -> Self {
        Self::on(Server::start(), |config| config).await
    }

    pub(crate) async fn on(server: Arc<Server>, change: impl FnOnce(MatrixConfig) -> MatrixConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let channel = MatrixChannel::open(change(config(&server, folder.path()))).unwrap();
        let state = channel.state();
        Self { server, board: board(channel).await, state, folder }
    }

    /// Has the agent ask for consent.
    pub(crate) async fn ask(&self, target: &str, arguments: impl Into<Json>) -> (RunHandle, Envelope) {
        asked(&self.board, target, arguments).await
    }

    pub(crate) async fn decision(&self, asked: &Envelope) -> Option<Decision> {
        self.board.people().decision(asked.id()).await.unwrap()
    }

    /// Waits until the state is as wanted.
    pub(crate) async fn state(&self, is_wanted: impl FnMut(&MatrixState) -> bool) -> MatrixState {
        let mut state = self.state.clone();
        let wanted = tokio::time::timeout(LIMIT, state.wait_for(is_wanted)).await.map(|state| state.unwrap().clone());
        wanted.unwrap_or_else(|_| panic!("the state was not as wanted in {LIMIT:?}: {:?}", self.state.borrow()))
    }
}
