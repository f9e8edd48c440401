//! A board with the channel.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Action, Decision, Envelope, Json};
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard_channels::telegram::{BotToken, TelegramChannel, TelegramConfig, TelegramState};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::fake::{ANN, BOB, Server, TOKEN};

/// The settings of two people, with delays as short as tests need them.
pub(crate) fn config(server: &Server, folder: &Path) -> TelegramConfig {
    let config = TelegramConfig::new(BotToken::new(TOKEN).unwrap(), folder.join("telegram"));
    let config = config.person(ANN, "ann").person(BOB, "bob").api(&server.url());
    config.delays(Duration::from_millis(1), Duration::from_millis(10)).poll_time(Duration::from_secs(30))
}

/// A server, and a board whose agent asks for consent.
pub(crate) struct Team {
    pub(crate) server: Arc<Server>,
    pub(crate) board: Callboard,
    pub(crate) state: watch::Receiver<TelegramState>,
    pub(crate) folder: TempDir,
}

impl Team {
    pub(crate) async fn start() -> Self {
        Self::with(|config| config).await
    }

    pub(crate) async fn with(change: impl FnOnce(TelegramConfig) -> TelegramConfig) -> Self {
        Self::on(Server::start(), change).await
    }

    pub(crate) async fn on(server: Arc<Server>, change: impl FnOnce(TelegramConfig) -> TelegramConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let channel = TelegramChannel::open(change(config(&server, folder.path()))).unwrap();
        let state = channel.state();
        let clerk = |turn: Turn| async move {
            let (target, arguments): (String, serde_json::Value) = turn.input()?;
            Ok(Command::output(match turn.people().approve(Action::new("pay", &target, arguments)).await {
                Ok(_) => "paid".to_owned(),
                Err(error) => error.to_string(),
            }))
        };
        let builder = Callboard::builder().agent("clerk", clerk).channel(channel);
        Self { server, board: builder.start().await.unwrap(), state, folder }
    }

    /// Has the agent ask for consent.
    pub(crate) async fn ask(&self, target: &str, arguments: impl Into<Json>) -> (RunHandle, Envelope) {
        let arguments: Json = arguments.into();
        let run = self.board.submit(Task::new("pay").input(json!([target, arguments]))).await.unwrap();
        let is_it = |open: &Pending| matches!(open, Pending::Approval(envelope) if &*envelope.action.target == target);
        match self.board.people().next_where(is_it).await {
            Some(Pending::Approval(envelope)) => (run, *envelope),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn decision(&self, asked: &Envelope) -> Option<Decision> {
        self.board.people().decision(asked.id()).await.unwrap()
    }

    /// Waits until the state is as wanted.
    pub(crate) async fn state(&self, is_wanted: impl FnMut(&TelegramState) -> bool) -> TelegramState {
        self.state.clone().wait_for(is_wanted).await.unwrap().clone()
    }
}
