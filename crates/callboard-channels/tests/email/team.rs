//! A board with the channel.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Action, Envelope, Json};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard_channels::email::{EmailChannel, EmailConfig, EmailPassword, EmailState, EmailTls};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::fake::Smtp;

pub(crate) const ANN: &str = "ann@example.org";
pub(crate) const BOB: &str = "bob@example.org";
/// Its text has `CANARY`, whom nobody may see.
pub(crate) const PASSWORD: &str = "CANARY horse";

/// The settings of two people, with delays as short as tests need them.
pub(crate) fn config(smtp: &Smtp, folder: &Path) -> EmailConfig {
    let config = EmailConfig::new("127.0.0.1", "the board <board@example.org>", folder.join("email"));
    let config = config.port(smtp.port()).tls(EmailTls::None).login("board", EmailPassword::new(PASSWORD).unwrap());
    let config = config.page(|asked| format!("https://board.example.org/?run={}", asked.request.turn.run));
    let config = config.person(ANN, "ann").person(BOB, "bob").timeout(Duration::from_secs(30));
    config.delays(Duration::from_millis(1), Duration::from_millis(10))
}

/// A server, and a board whose agent asks for consent.
pub(crate) struct Team {
    pub(crate) smtp: Arc<Smtp>,
    pub(crate) board: Callboard,
    pub(crate) state: watch::Receiver<EmailState>,
    pub(crate) folder: TempDir,
}

impl Team {
    pub(crate) async fn start() -> Self {
        Self::with(|config| config, |board| board).await
    }

    pub(crate) async fn with(
        change: impl FnOnce(EmailConfig) -> EmailConfig,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        Self::on(Smtp::start(), change, build).await
    }

    pub(crate) async fn on(
        smtp: Arc<Smtp>,
        change: impl FnOnce(EmailConfig) -> EmailConfig,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let channel = EmailChannel::open(change(config(&smtp, folder.path()))).unwrap();
        let state = channel.state();
        let clerk = |turn: Turn| async move {
            let (target, arguments): (String, serde_json::Value) = turn.input()?;
            Ok(Command::output(match turn.people().approve(Action::new("pay", &target, arguments)).await {
                Ok(_) => "paid".to_owned(),
                Err(error) => error.to_string(),
            }))
        };
        let builder = Callboard::builder().agent("clerk", clerk).channel(channel);
        Self { smtp, board: build(builder).start().await.unwrap(), state, folder }
    }

    /// Has the agent ask for consent.
    pub(crate) async fn ask(&self, target: &str, arguments: impl Into<Json>) -> (RunHandle, Envelope) {
        let arguments: Json = arguments.into();
        self.submit(Task::new("pay").input(json!([target, arguments])), target).await
    }

    pub(crate) async fn submit(&self, task: Task, target: &str) -> (RunHandle, Envelope) {
        let run = self.board.submit(task).await.unwrap();
        let is_it = |open: &Pending| matches!(open, Pending::Approval(envelope) if &*envelope.action.target == target);
        match self.board.people().next_where(is_it).await {
            Some(Pending::Approval(envelope)) => (run, *envelope),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the state is as wanted.
    pub(crate) async fn state(&self, is_wanted: impl FnMut(&EmailState) -> bool) -> EmailState {
        self.state.clone().wait_for(is_wanted).await.unwrap().clone()
    }
}
