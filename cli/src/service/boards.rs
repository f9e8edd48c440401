//! The sockets of boards: each process with a board listens on one, named by the board, and `serve` on one more, named by its store.
//! Boards on other machines are reached by a board of this process: those on one store answer each other.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use callboard::Callboard;
use callboard::env::Env;
use callboard::messages::{BoardEntry, RunId, visible};
use callboard::runtime::Unfinished;
use callboard_server::private::{self, Client, ClientError};
use callboard_server::{Server, Tokens};

use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, note};
use crate::protection::refuses_decisions;
use crate::run_names::short;
use crate::stores::Stores;
use crate::stores::store::Store;

/// How long a process may take to answer that it works, where boards on other machines can be asked instead.
const HELLO: Duration = Duration::from_secs(2);
/// How many characters a whole id of a run has.
const WHOLE_ID: usize = 36;

/// Sockets on which other processes of this user reach a board.
#[derive(Default)]
pub(crate) struct Reachable {
    stop: watch::Sender<bool>,
    serving: Vec<JoinHandle<()>>,
}

impl Reachable {
    /// Listens on the socket of a board, which has no other server.
    pub(crate) async fn start(board: &Callboard) -> Self {
        let mut reachable = Self::default();
        let server = Server::new(board.clone(), Tokens::new(Env::system())).refuse_decisions(refuses_decisions);
        reachable.listen_for(board, &server).await;
        reachable
    }

    /// Listens on the socket of a board. Where that is not possible, a line on standard error reports it, and other
    /// processes see the board's runs but cannot act on them.
    pub(crate) async fn listen_for(&mut self, board: &Callboard, server: &Server) {
        if let Err(error) = self.listen(server, &name_of_board(board.id())).await {
            note(&format!("other processes cannot act on the runs of this one: {error}"));
        }
    }

    /// Listens on one more socket.
    pub(crate) async fn listen(&mut self, server: &Server, name: &str) -> Result<(), private::ListenError> {
        let listener = private::listen(&private::folder(), name).await?;
        let (server, stopped) = (server.clone(), self.stopped());
        self.serving.push(tokio::spawn(async move { server.serve_private(listener, stopped).await }));
        Ok(())
    }

    /// Listens on one more socket, for clients of the Model Context Protocol.
    pub(crate) async fn listen_mcp(&mut self, server: &Server, name: &str) -> Result<(), private::ListenError> {
        let listener = private::listen(&private::folder(), name).await?;
        let (server, stopped) = (server.clone(), self.stopped());
        self.serving.push(tokio::spawn(async move { server.serve_mcp(listener, stopped).await }));
        Ok(())
    }

    /// Returns when it is stopped.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// Ends the connections.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        for serving in self.serving {
            let _ = serving.await;
        }
    }
}

fn name_of_board(board: &str) -> String {
    format!("{board}.sock")
}

/// The name of the socket on which `serve` listens for its store.
pub(crate) fn name_of_service(stores: &Stores) -> String {
    name_of("serve", stores)
}

/// The name of the one on which it listens for clients of the Model Context Protocol.
pub(crate) fn name_of_mcp(stores: &Stores) -> String {
    name_of("mcp", stores)
}

fn name_of(kind: &str, stores: &Stores) -> String {
    let hash = Sha256::digest(stores.server_folder().as_os_str().as_bytes());
    let digits: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{kind}-{digits}.sock")
}

/// A client of the socket of this name.
fn client(name: &str) -> Client {
    let found = private::folders().into_iter().find(|folder| folder.join(name).symlink_metadata().is_ok());
    Client::new(&found.unwrap_or_else(private::folder), name)
}

/// A client of the board with this id.
fn of_board(board: &str) -> Client {
    client(&name_of_board(board))
}

/// A client of the board of another process on this store. On a database, one that does not answer at all is not waited for: it may be suspended,
/// and then others take its runs over.
pub(super) fn of_other(store: &Store, board: &str) -> Client {
    let client = of_board(board);
    if store.is_database() { client.hello_within(HELLO) } else { client }
}

/// A client of `callboard serve` for these stores. On a database, one that does not answer at all is not waited for.
pub(crate) fn of_service(stores: &Stores) -> Client {
    let client = client(&name_of_service(stores));
    if stores.database().is_some() { client.hello_within(HELLO) } else { client }
}

/// Whether a process has certainly not received the request: none listens, or it does not answer at all.
pub(super) fn is_unsent(error: &ClientError) -> bool {
    matches!(error, ClientError::Absent(_) | ClientError::Silent(_))
}

/// Sends a request to the board that works on a run of this store, also if that is on another machine.
pub(crate) async fn ask_board(
    store: &Store,
    board: &str,
    (method, path): (&str, &str),
    body: Option<&Value>,
) -> Result<Value, Failure> {
    match of_other(store, board).request(method, path, body).await {
        Err(error) if is_unsent(&error) && store.is_database() => ask_from_here(store, (method, path), &[], body).await,
        answer => accepted(answer.map_err(|error| unanswered(&error))?),
    }
}

/// Sends a request to the board that takes over a run whose board is gone; `None` if there are no boards that could.
pub(super) async fn ask_heir(
    store: &Store,
    request: (&str, &str),
    body: Option<&Value>,
) -> Result<Option<Value>, Failure> {
    match store.is_database() && has_boards(store).await? {
        true => ask_from_here(store, request, &[], body).await.map(Some),
        false => Ok(None),
    }
}

/// Sends a request to a board of this process, which asks the boards on the store.
async fn ask_from_here(
    store: &Store,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<Value, Failure> {
    // What it begins is continued by the others at once.
    let builder = Callboard::builder().storage(store.storage()).shutdown_grace(Duration::ZERO);
    with_own_board(builder, async |client| {
        accepted(client.request_with(method, path, headers, body).await.map_err(|error| unanswered(&error))?)
    })
    .await
}

/// What `ask` returns, which asks a board of this process that has no agents and leaves the runs that it finds.
pub(super) async fn with_own_board<T>(
    builder: callboard::Builder,
    ask: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let board = builder.on_unfinished(Unfinished::Leave).start().await.map_err(Failure::of)?;
    let reachable = Reachable::start(&board).await;
    let answer = ask(&of_board(board.id())).await;
    reachable.stop().await;
    board.shutdown().await;
    answer
}

/// Whether boards with agents work on the store, such as those on other machines.
pub(super) async fn has_boards(store: &Store) -> Result<bool, Failure> {
    Ok(store.boards().await?.iter().any(works))
}

/// Whether `callboard serve` runs for these stores.
pub(crate) async fn is_served(stores: &Stores) -> bool {
    of_service(stores).connect().await.is_ok()
}

/// Sends a request to `callboard serve`.
pub(crate) async fn ask_service(
    stores: &Stores,
    (method, path): (&str, &str),
    body: Option<&Value>,
) -> Result<Value, Failure> {
    answer_of_service(stores, of_service(stores).request(method, path, body).await).await
}

/// As [`ask_service`]; where no server answers here and boards on other machines work on the store, for the agents and runs of those.
pub(crate) async fn ask_any(
    stores: &Stores,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<Value, Failure> {
    let answer = of_service(stores).request_with(method, path, headers, body).await;
    if answer.as_ref().is_err_and(is_unsent) && stores.database().is_some() {
        for store in &stores.open_existing().await?.stores {
            if has_boards(store).await? {
                return ask_from_here(store, (method, path), headers, body).await;
            }
        }
    }
    answer_of_service(stores, answer).await
}

/// The answer of `callboard serve`.
pub(crate) async fn answer_of_service(
    stores: &Stores,
    answer: Result<(u16, Value), ClientError>,
) -> Result<Value, Failure> {
    match answer {
        Ok(answer) => accepted(answer),
        Err(error) => Err(unserved(stores, &error).await),
    }
}

/// Why `callboard serve` has not answered, and where else boards run.
async fn unserved(stores: &Stores, error: &ClientError) -> Failure {
    match error {
        ClientError::Absent(_) => no_server(stores).await,
        error => match elsewhere(stores).await {
            Some(boards) if is_unsent(error) => unanswered(error).with(&format!("    {}", at_boards(&boards))),
            Some(_) | None => unanswered(error),
        },
    }
}

/// Connects to a socket of `callboard serve`.
pub(crate) async fn connect(stores: &Stores, name: &str) -> Result<UnixStream, Failure> {
    let connected = async {
        if stores.database().is_some() {
            // Whoever listens may be suspended, and what is spoken on the socket begins with no answer of its own.
            of_service(stores).request("GET", "/v1/health", None).await?;
        }
        client(name).connect().await
    };
    match connected.await {
        Ok(stream) => Ok(stream),
        Err(error) => Err(unserved(stores, &error).await),
    }
}

pub(crate) async fn no_server(stores: &Stores) -> Failure {
    let (line, described) = (visible(&command_line("serve", stores.named())), stores.described());
    let text = match elsewhere(stores).await {
        Some(boards) => {
            format!(
                "no server of this project runs on this machine\n    {}\n    to start one here: {line}",
                at_boards(&boards)
            )
        }
        None => format!(
            "no server runs for {described}\n    to start one: {line}\n    one of another project is reached from its folder, or with its --store"
        ),
    };
    Failure::new(Exit::Unavailable, text)
}

/// What an inbox lacks without the server of the project, and which boards list what they have of it.
pub(super) async fn without_server(stores: &Stores, error: &ClientError) -> String {
    let why = match error {
        ClientError::Silent(_) => "the server does not answer",
        _ => "no server runs",
    };
    let boards = elsewhere(stores).await;
    let boards = boards.map(|boards| format!("; those of other boards are listed where they run: {boards}"));
    format!("{why}: failures, agents and runs in quarantine are not listed{}", boards.unwrap_or_default())
}

fn at_boards(boards: &str) -> String {
    format!(
        "boards work on the store elsewhere; ask where they run, in the folder of their project, or on their pages: {boards}"
    )
}

/// The boards that work on a database, each with its address; `None` if there are none, or it cannot be read.
async fn elsewhere(stores: &Stores) -> Option<String> {
    const SHOWN: usize = 5;
    stores.database()?;
    let mut all = Vec::new();
    for store in &stores.open_existing().await.ok()?.stores {
        all.extend(store.boards().await.ok()?.into_iter().filter(works));
    }
    let named = |BoardEntry { name, info, .. }: &BoardEntry| match &info.address {
        Some(address) => format!("{} ({})", visible(name), visible(address)),
        None => visible(name),
    };
    let mut named: Vec<String> = all.iter().take(SHOWN).map(named).collect();
    named.extend((all.len() > SHOWN).then(|| format!("and {} more", all.len() - SHOWN)));
    (!named.is_empty()).then(|| named.join(", "))
}

/// Whether a board lives and has agents.
fn works(board: &BoardEntry) -> bool {
    !board.left.is_zero() && !board.info.agents.is_empty()
}

/// The body of an answer that is no problem.
pub(crate) fn accepted((status, body): (u16, Value)) -> Result<Value, Failure> {
    if status < 400 {
        return Ok(body);
    }
    let exit = match status {
        // No agent, role or capability of this name.
        422 if body["code"] == "unknown-agent" => Exit::NotFound,
        400 | 405 | 413 | 415 | 422 => Exit::Usage,
        401 | 403 => Exit::Denied,
        404 => Exit::NotFound,
        429 | 503 => Exit::Unavailable,
        408 | 504 => Exit::TimedOut,
        _ => Exit::Failed,
    };
    let detail = body["detail"].as_str().or(body["title"].as_str()).unwrap_or("the server has refused it");
    Err(Failure::new(exit, with_short_ids(&visible(detail))))
}

/// The same text with short ids in place of whole ones.
fn with_short_ids(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let words = text.split_inclusive(|c: char| !is_part(c));
    let shown = |word: &str| {
        let id = word.trim_end_matches(|c: char| !is_part(c));
        match id.parse::<RunId>() {
            Ok(run) if id.len() == WHOLE_ID => short(run) + &word[id.len()..],
            _ => word.to_owned(),
        }
    };
    words.map(shown).collect()
}

/// The run of a delegation, as HTTP answers it.
pub(crate) fn run_of(delegation: &Value) -> Result<RunId, Failure> {
    let id = delegation["request_id"].as_str().and_then(|id| id.parse().ok());
    id.ok_or_else(|| Failure::failed("the server's answer names no run".to_owned()))
}

pub(crate) fn unanswered(error: &ClientError) -> Failure {
    let exit = match error {
        ClientError::Folder(_) | ClientError::Foreign(_) => Exit::Denied,
        _ => Exit::Unavailable,
    };
    Failure::new(exit, error.to_string())
}

/// A text as a part of a path or of a query.
pub(super) fn encoded(text: &str) -> String {
    let part = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_short_ids() {
        let id = "019a0000-0000-7000-8000-0123456789ab";
        let text = format!("turn 1 of {id}, as {id}/2: a-b é {id}0");
        assert_eq!(with_short_ids(&text), format!("turn 1 of req-0123456789ab, as req-0123456789ab/2: a-b é {id}0"));
    }

    #[test]
    fn a_name_is_a_part_of_a_path() {
        assert_eq!(encoded("the coder/é"), "the%20coder%2F%C3%A9");
    }
}
