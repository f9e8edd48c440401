//! The socket for processes of this user, and processes of others.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Stdio};

use callboard::env::Env;
use callboard::prelude::*;
use callboard_server::private::{Client, ClientError, Listener, listen};
use callboard_server::{Server, Tokens};
use rustix::process::geteuid;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Service {
    board: Callboard,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Service {
    async fn start(listener: Listener) -> Self {
        let board = Callboard::builder()
            .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
            .agent("waiter", |_: Turn| std::future::pending::<Result<Command, TurnError>>())
            .shutdown_grace(std::time::Duration::ZERO)
            .start()
            .await
            .unwrap();
        let server = Server::new(board.clone(), Tokens::new(Env::system()));
        let (stop, stopped) = oneshot::channel();
        let serving =
            tokio::spawn(
                async move { server.serve_private(listener, async { stopped.await.unwrap_or_default() }).await },
            );
        Self { board, stop, serving }
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap();
        self.board.shutdown().await;
    }
}

#[tokio::test]
async fn a_process_of_this_user_delegates_and_follows_without_a_token() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("callboard");
    let service = Service::start(listen(&folder, "a").await.unwrap()).await;
    let client = Client::new(&folder, "a");
    let task = json!({ "to": "echo", "body": "x" });
    let (status, created) = client.request("POST", "/v1/delegations", Some(&task)).await.unwrap();
    assert_eq!((status, &created["to_agent"]), (202, &json!("echo")), "{created}");
    let path = format!("/v1/delegations/{}", created["request_id"].as_str().unwrap());
    let mut events = client.events(&format!("{path}/events?modes=debug"), None).await.unwrap();
    let mut read = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        read.push((event.id, event.kind));
    }
    assert_eq!(read, [(Some(1), "submitted".to_owned()), (Some(2), "turn_ended".to_owned())]);
    let mut rest = client.events(&format!("{path}/events?modes=debug"), Some(1)).await.unwrap();
    assert_eq!(rest.next().await.unwrap().unwrap().kind, "turn_ended");
    assert_eq!(client.events(&format!("{path}/events"), Some(2)).await.unwrap().next().await.unwrap(), None);

    let (_, ended) = client.request("GET", &path, None).await.unwrap();
    assert_eq!((&ended["status"], &ended["result"]["is_tainted"]), (&json!("complete"), &json!(false)));
    assert_eq!(client.request("GET", "/v1/tree", None).await.unwrap().0, 200, "it has all scopes");
    let Err(ClientError::Refused { status: 404, code, .. }) = client.events("/v1/delegations/x/events", None).await
    else {
        panic!("a stream of nothing");
    };
    assert_eq!(code, "not-found");
    service.end().await;
    assert!(!folder.join("a").exists(), "the socket's file is removed");
}

#[tokio::test]
async fn a_stream_ends_with_the_server() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("callboard");
    let service = Service::start(listen(&folder, "a").await.unwrap()).await;
    let client = Client::new(&folder, "a");
    let task = json!({ "to": "waiter", "body": "x" });
    let (_, created) = client.request("POST", "/v1/delegations", Some(&task)).await.unwrap();
    let path = format!("/v1/delegations/{}/events", created["request_id"].as_str().unwrap());
    let mut events = client.events(&path, None).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().kind, "submitted");
    service.end().await;
    assert_eq!(events.next().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_not_sent_to_a_process_that_does_not_answer() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("callboard");
    let client = || Client::new(&folder, "a").hello_within(std::time::Duration::from_secs(2));
    let task = json!({ "to": "echo", "body": "x" });
    let listener = listen(&folder, "a").await.unwrap();
    // It has the socket, and does nothing with it.
    let silent = client().request("POST", "/v1/delegations", Some(&task)).await;
    assert!(matches!(&silent, Err(ClientError::Silent(path)) if *path == folder.join("a")), "{silent:?}");
    let silent = client().events("/v1/tree/events", None).await;
    assert!(matches!(silent, Err(ClientError::Silent(_))));

    let service = Service::start(listener).await;
    let (status, created) = client().request("POST", "/v1/delegations", Some(&task)).await.unwrap();
    assert_eq!(status, 202, "{created}");
    let (_, listed) = client().request("GET", "/v1/delegations", None).await.unwrap();
    assert_eq!(listed["delegations"].as_array().unwrap().len(), 1, "{listed}");
    service.board.shutdown().await;
    let ended = client().request("POST", "/v1/delegations", Some(&task)).await;
    assert!(matches!(ended, Err(ClientError::Silent(_))), "{ended:?}");
    service.end().await;
    let absent = client().request("GET", "/v1/tree", None).await;
    assert!(matches!(absent, Err(ClientError::Absent(_))), "{absent:?}");
}

/// The id of the user `nobody`.
const OTHER: u32 = 65534;
/// Has this binary, started as another user, do one side of a test there; its value is the folder.
const AS_OTHER: &str = "CALLBOARD_PRIVATE_AS_OTHER";

/// Whether the test has to be skipped, because this process cannot start others as another user.
fn is_skipped() -> bool {
    let is_skipped = !geteuid().is_root();
    if is_skipped {
        eprintln!("SKIPPED: another user's process can be started by root alone");
    }
    is_skipped
}

/// A folder that all users may enter, with a copy of this binary.
fn shared() -> TempDir {
    let place = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let copy =
        process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(place.path().join("test")).status();
    assert!(copy.unwrap().success());
    place
}

/// Starts a test of this binary as another user, where it begins with its part as that user.
fn start_as_other(place: &Path, test: &str) -> Child {
    let mut command = process::Command::new("setpriv");
    command.arg(format!("--reuid={OTHER}")).arg(format!("--regid={OTHER}")).arg("--clear-groups");
    command.arg(place.join("test")).args(["--exact", &format!("private::{test}"), "--nocapture"]).current_dir("/");
    command.env(AS_OTHER, place.join("callboard")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The folder of the socket, in a process that a test has started as another user.
fn folder_as_other() -> Option<PathBuf> {
    std::env::var_os(AS_OTHER).map(PathBuf::from)
}

/// Connects without any check of one's own, and returns what comes back.
fn answer_of(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    // It may have been closed already.
    let _ = stream.write_all(b"GET /v1/tree HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_cannot_connect_and_is_not_answered_if_the_modes_let_it() {
    if let Some(folder) = folder_as_other() {
        return connect_as_other(&folder);
    }
    if is_skipped() {
        return;
    }
    let place = shared();
    let folder = place.path().join("callboard");
    let service = Service::start(listen(&folder, "a").await.unwrap()).await;
    let attempt = || {
        let output =
            start_as_other(place.path(), "another_user_cannot_connect_and_is_not_answered_if_the_modes_let_it")
                .wait_with_output()
                .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(attempt().contains("ATTEMPT PermissionDenied"), "by the folder: {}", attempt());
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    assert!(attempt().contains("ATTEMPT PermissionDenied"), "by the socket: {}", attempt());
    fs::set_permissions(folder.join("a"), Permissions::from_mode(0o777)).unwrap();
    assert!(attempt().contains("ATTEMPT answered \"\""), "by who it is: {}", attempt());
    assert!(answer_of(&folder.join("a")).unwrap().starts_with("HTTP/1.1 200 "), "this user is answered");
    service.end().await;
}

fn connect_as_other(folder: &Path) {
    match answer_of(&folder.join("a")) {
        Ok(answer) => println!("ATTEMPT answered {answer:?}"),
        Err(error) => println!("ATTEMPT {:?}", error.kind()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn root_is_not_answered_by_the_socket_of_a_user_and_sends_nothing_to_it() {
    if let Some(folder) = folder_as_other() {
        return serve_as_other(&folder).await;
    }
    if is_skipped() {
        return;
    }
    let place = shared();
    let folder = place.path().join("callboard");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    chown(&folder, Some(OTHER), Some(OTHER)).unwrap();
    let refused = listen(&folder, "a").await.unwrap_err().to_string();
    let foreign = format!("{} belongs to the user {OTHER}, not to this one; use one of this user", folder.display());
    assert_eq!(refused, foreign, "a folder that another user put there");

    let mut server =
        start_as_other(place.path(), "root_is_not_answered_by_the_socket_of_a_user_and_sends_nothing_to_it");
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("READY")));
    assert_eq!(answer_of(&folder.join("a")).unwrap(), "");
    let client = Client::new(&folder, "a");
    assert_eq!(client.request("GET", "/v1/tree", None).await.unwrap_err().to_string(), foreign);
    // The folder of this user, and the socket of another in it.
    chown(&folder, Some(0), Some(0)).unwrap();
    let error = client.request("GET", "/v1/tree", None).await.unwrap_err();
    assert!(matches!(&error, ClientError::Foreign(path) if *path == folder.join("a")), "{error:?}");
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

async fn serve_as_other(folder: &Path) {
    let service = Service::start(listen(folder, "a").await.unwrap()).await;
    let client = Client::new(folder, "a");
    assert_eq!(client.request("GET", "/v1/tree", None).await.unwrap().0, 200);
    println!("READY");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    service.end().await;
}
