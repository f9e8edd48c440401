//! The channel keeps every rule of channels.

use std::sync::Arc;

use callboard::actors::approvals::Channel;
use callboard::testing::channels::{Audience, SeenCard};
use callboard_channels::telegram::TelegramChannel;
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::fake::{ANN, BOB, Failing, Message, Server};
use crate::team::config;

callboard::channel_conformance! {
    whole telegram: Chats { server: Server::start(), folder: tempfile::tempdir().unwrap() }
}

/// Two people, each in a chat with the bot.
struct Chats {
    server: Arc<Server>,
    folder: TempDir,
}

/// The line with the id of the approval.
fn title(text: &str) -> &str {
    text.lines().find(|line| line.starts_with("── approval ")).unwrap()
}

impl Chats {
    /// The message about the same question in the chat of this person.
    fn message(&self, person: i64, card: &SeenCard) -> Message {
        let served = self.server.state.lock();
        let is_it = |it: &&Message| it.chat == person && title(&it.text) == title(&card.text);
        served.messages.iter().find(is_it).unwrap().clone()
    }
}

impl Audience for Chats {
    fn names(&self) -> [String; 2] {
        ["ann".to_owned(), "bob".to_owned()]
    }

    fn open(&self) -> Arc<dyn Channel> {
        Arc::new(TelegramChannel::open(config(&self.server, self.folder.path())).unwrap())
    }

    fn cards(&self) -> Vec<SeenCard> {
        let card = |message: &Message| SeenCard {
            place: message.chat.to_string(),
            key: message.id.to_string(),
            text: message.text.clone(),
            is_open: !message.buttons.is_empty(),
        };
        self.server.state.lock().messages.iter().map(card).collect()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.server.changes()
    }

    fn choose<'a>(&'a self, person: usize, card: &'a SeenCard, approves: bool) -> BoxFuture<'a, String> {
        Box::pin(async move {
            let account = [ANN, BOB][person];
            let title = title(&card.text).to_owned();
            // Both are asked at the same time; the message of this one may come last.
            let is_there = |it: &Message| it.chat == account && it.text.contains(&title);
            self.server.found(|served| served.messages.iter().any(is_there).then_some(())).await;
            let message = self.message(account, card);
            let data = message.button(if approves { "Approve" } else { "Deny" });
            self.server.click(account, account, message.id, &data).await
        })
    }

    fn set_reachable(&self, is_reachable: bool) {
        self.server.change(|served| served.failing = if is_reachable { Failing::No } else { Failing::Silent });
    }
}
