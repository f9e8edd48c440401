//! A board with rooms of its agent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::Builder;
use callboard::env::Env;
use callboard::messages::{Json, Response, RunId};
use callboard::prelude::*;
use callboard::storage::Memory;
use callboard_channels::matrix::{AccessToken, AgentRooms, AgentRoomsConfig, MatrixState};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fake::{ANN, BOB, LIMIT, Served, Server, TOKEN};

pub(crate) const WRITER: &str = "!writer:example.org";
pub(crate) const SPACE: &str = "!space:example.org";
pub(crate) const REQUEST: &str = "com.aiagentchat.request";
pub(crate) const STATUS: &str = "com.aiagentchat.status";

/// The settings of an agent, of one who may give it tasks, and of one who may not.
pub(crate) fn config(server: &Server, folder: &Path) -> AgentRoomsConfig {
    let token = AccessToken::new(TOKEN).unwrap();
    let config = AgentRoomsConfig::new(&server.url(), token, folder.join("matrix")).agent("writer", WRITER);
    let config = config.person(ANN, "ann").person(BOB, "bob").notices_every(Duration::ZERO);
    config.delays(Duration::from_millis(1), Duration::from_millis(10))
}

/// A server whose account is invited to the room of the agent.
pub(crate) fn server() -> Arc<Server> {
    let server = Server::start();
    server.change(|served| served.invited = [WRITER.to_owned()].into());
    server
}

/// Does what its task says: asks a person, reports, fails, or repeats it.
async fn write(turn: Turn) -> Result<Command, TurnError> {
    let input = turn.input_json().clone();
    match input.as_str() {
        Some("ask") => Ok(Command::output(turn.people().ask("Which \u{202e}one?").await?)),
        Some("report") => {
            ["one", "two", "three"].iter().for_each(|text| turn.notice(text));
            turn.people().ask("Go on?").await?;
            turn.notice("four");
            Ok(Command::output(turn.people().ask("Enough?").await?))
        }
        Some("fail") => Err(TurnError::terminal("no \u{202e}paper")),
        Some("nothing") => Ok(Command::new()),
        _ => Ok(Command::output(input)),
    }
}

pub(crate) async fn board(store: &Arc<Memory>) -> Callboard {
    board_of(store, |builder| builder).await
}

async fn board_of(store: &Arc<Memory>, change: impl FnOnce(Builder) -> Builder) -> Callboard {
    let writer = AgentSpec::new("writer", write).role("author").capability("prose").project("book");
    change(Callboard::builder().storage(Arc::clone(store)).with(writer)).start().await.unwrap()
}

/// A server, and a board with rooms.
pub(crate) struct Crew {
    pub(crate) server: Arc<Server>,
    pub(crate) board: Callboard,
    pub(crate) rooms: AgentRooms,
    pub(crate) store: Arc<Memory>,
    pub(crate) folder: TempDir,
}

impl Crew {
    pub(crate) async fn start() -> Self {
        Self::on(server(), |config| config).await
    }

    pub(crate) async fn on(server: Arc<Server>, change: impl FnOnce(AgentRoomsConfig) -> AgentRoomsConfig) -> Self {
        let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(Memory::new(Env::system().clock())));
        Self::again(server, store, folder, change).await
    }

    /// One whose board works on one run at a time.
    pub(crate) async fn of_one_run() -> Self {
        let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(Memory::new(Env::system().clock())));
        let board = board_of(&store, |builder| builder.capacity(|capacity| capacity.runs_in_flight(1))).await;
        Self::with(board, server(), store, folder, |config| config).await
    }

    /// The next process.
    pub(crate) async fn again(
        server: Arc<Server>,
        store: Arc<Memory>,
        folder: TempDir,
        change: impl FnOnce(AgentRoomsConfig) -> AgentRoomsConfig,
    ) -> Self {
        Self::with(board(&store).await, server, store, folder, change).await
    }

    async fn with(
        board: Callboard,
        server: Arc<Server>,
        store: Arc<Memory>,
        folder: TempDir,
        change: impl FnOnce(AgentRoomsConfig) -> AgentRoomsConfig,
    ) -> Self {
        let rooms = AgentRooms::open(change(config(&server, folder.path()))).unwrap();
        rooms.start(&board, |person, agent| match person {
            "ann" => Ok(AgentName::new("laptop").unwrap()),
            _ => Err(format!("{person} has no token with the scope delegate for {agent}")),
        });
        let crew = Self { server, board, rooms, store, folder };
        // What was written before it has joined is no request.
        crew.state(|state| matches!(state, MatrixState::Reached { .. })).await;
        crew
    }

    /// Ends the process, and returns what is left of it.
    pub(crate) async fn end(self) -> (Arc<Server>, Arc<Memory>, TempDir) {
        drop(self.rooms);
        self.board.shutdown().await;
        (self.server, self.store, self.folder)
    }

    /// Has an account send a request; returns its event.
    pub(crate) fn requests(&self, from: &str, content: Value) -> String {
        self.server.sends(from, WRITER, REQUEST, content)
    }

    /// Has an account write a message; returns its event.
    pub(crate) fn writes(&self, from: &str, text: &str) -> String {
        self.server.sends(from, WRITER, "m.room.message", json!({ "msgtype": "m.text", "body": text }))
    }

    /// The status of this name, as soon as it is there.
    pub(crate) async fn status(&self, event: &str, name: &str) -> Value {
        let is_it = |status: &Value| status["status"] == name;
        self.server.found(|served| statuses(served, event).into_iter().find(is_it)).await
    }

    /// The names of all statuses so far.
    pub(crate) fn names(&self, event: &str) -> Vec<String> {
        let statuses = statuses(&self.server.state.lock(), event);
        statuses.iter().map(|status| status["status"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn run(&self, status: &Value) -> callboard::RunHandle {
        self.board.run(status["run"].as_str().unwrap().parse::<RunId>().unwrap())
    }

    /// Answers what a run asks.
    pub(crate) async fn answer(&self, run: &callboard::RunHandle, value: impl Into<Json>) {
        let asked = run.next_pending().await.unwrap().unwrap();
        self.board.people().answer(&asked, Response::Value(value.into()), "carl").await.unwrap();
    }

    /// Waits until the state is as wanted.
    pub(crate) async fn state(&self, is_wanted: impl FnMut(&MatrixState) -> bool) -> MatrixState {
        let mut state = self.rooms.state();
        let wanted = tokio::time::timeout(LIMIT, state.wait_for(is_wanted)).await.map(|state| state.unwrap().clone());
        wanted.unwrap_or_else(|_| panic!("the state was not as wanted in {LIMIT:?}: {:?}", self.rooms.state().borrow()))
    }

    /// The text about what cannot be used, as soon as there is one with these words.
    pub(crate) async fn unusable(&self, words: &str) -> String {
        let found = |state: &MatrixState| match state {
            MatrixState::Reached { unusable, .. } => unusable.iter().find(|text| text.contains(words)).cloned(),
            _ => None,
        };
        found(&self.state(|state| found(state).is_some()).await).unwrap()
    }
}

/// The statuses of a request, in order: those of a message are in its replies.
pub(crate) fn statuses(served: &Served, event: &str) -> Vec<Value> {
    let sent = served.sent.iter().filter(|sent| {
        let related = &sent.content["m.relates_to"];
        related["event_id"] == event || related["m.in_reply_to"]["event_id"] == event
    });
    let status = |sent: &crate::fake::Sent| match &*sent.kind {
        STATUS => sent.content.clone(),
        _ => {
            let mut status = sent.content[STATUS].clone();
            status["body"] = sent.content["body"].clone();
            status["msgtype"] = sent.content["msgtype"].clone();
            status
        }
    };
    sent.map(status).collect()
}
