//! The channel keeps every rule of channels.

use std::sync::Arc;

use callboard::actors::approvals::Channel;
use callboard::testing::channels::{Audience, SeenCard};
use callboard_channels::matrix::MatrixChannel;
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::fake::{ANN, BOB, Failing, Message, Server};
use crate::team::config;

callboard::channel_conformance! {
    whole matrix: Audited { server: Server::start(), folder: tempfile::tempdir().unwrap() }
}

/// Two people in a room.
struct Audited {
    server: Arc<Server>,
    folder: TempDir,
}

impl Audience for Audited {
    fn names(&self) -> [String; 2] {
        ["ann".to_owned(), "bob".to_owned()]
    }

    fn open(&self) -> Arc<dyn Channel> {
        Arc::new(MatrixChannel::open(config(&self.server, self.folder.path())).unwrap())
    }

    fn cards(&self) -> Vec<SeenCard> {
        let card = |message: &Message| SeenCard {
            place: message.room.clone(),
            key: message.event.clone(),
            text: message.text.clone(),
            is_open: message.is_open(),
        };
        self.server.state.lock().messages.iter().map(card).collect()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.server.changes()
    }

    fn choose<'a>(&'a self, person: usize, card: &'a SeenCard, approves: bool) -> BoxFuture<'a, String> {
        Box::pin(async move {
            let is_it = |message: &&Message| message.event == card.key;
            let message = self.server.state.lock().messages.iter().find(is_it).unwrap().clone();
            let text = if approves { "approve" } else { "deny" };
            self.server.answer([ANN, BOB][person], &message, text).await
        })
    }

    fn set_reachable(&self, is_reachable: bool) {
        self.server.change(|served| served.failing = if is_reachable { Failing::No } else { Failing::Silent });
    }
}
