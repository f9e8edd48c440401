//! Sessions of processes: they last when another process opens the files, and end with their own. Processes are killed here.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use callboard::storage::{Append, Delete, Key, NewSession, Put, SessionId, Storage as _, StorageError};
use callboard_shared_store::SharedStore;

/// The environment of a child: the folder of the store.
const FOLDER: &str = "CALLBOARD_SHARED_FOLDER";

fn open(folder: &Path) -> SharedStore {
    SharedStore::open(folder).unwrap()
}

fn session(name: &str) -> NewSession {
    NewSession { name: name.into(), about: b"x".as_slice().into(), lease: Duration::from_secs(3600) }
}

fn append(session: SessionId, expected: u64) -> Append {
    Append { session: Some(session), ..Append::new(Key::new(["run", "1"]), expected, b"x".as_slice().into()) }
}

/// Another process that uses the store, in a session named `there`.
struct Process {
    child: Child,
    session: SessionId,
}

impl Process {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["the_child", "--exact", "--nocapture", "--quiet"])
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let session = lines.find_map(|line| line.ok()?.strip_prefix("begun ")?.parse().ok());
        Self { child, session: SessionId(session.unwrap()) }
    }
}

/// Kills it.
impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Not a test: what is killed.
#[tokio::test]
async fn the_child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store = open(Path::new(&folder));
    let SessionId(id) = store.begin_session(session("there")).await.unwrap();
    let records = store.read(&Key::new(["run", "1"]), 1, 9).await.unwrap();
    store.append(append(SessionId(id), records.len() as u64)).await.unwrap();
    println!("begun {id}");
    // Until it is killed.
    let _ = std::io::stdin().lines().count();
}

#[tokio::test]
async fn a_session_lasts_when_the_process_that_had_the_files_open_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let there = Process::start(folder.path());
    let (store, other) = (open(folder.path()), open(folder.path()));
    assert!(!store.is_here() && !other.is_here());
    let id = store.begin_session(session("here")).await.unwrap();
    assert_eq!(store.append(append(id, 1)).await, Ok(2));
    let gone = there.session;
    drop(there);
    assert_eq!(store.append(append(id, 2)).await, Ok(3), "it still counts");
    for looking in [&store, &other] {
        let sessions = looking.sessions().await.unwrap();
        let brief: Vec<_> = sessions.iter().map(|info| (info.id, &*info.name, info.left.is_zero())).collect();
        assert_eq!(brief, [(gone, "there", true), (id, "here", false)], "whoever takes over from the other finds it");
        assert!(matches!(looking.begin_session(session("here")).await, Err(StorageError::NameTaken { .. })));
        assert!(matches!(looking.end_session(id, true).await, Err(StorageError::SessionLives { .. })));
        assert_eq!(looking.append(append(gone, 3)).await, Err(gone.has_ended()));
    }
    store.renew_session(id, b"y".as_slice().into()).await.unwrap();
    assert_eq!(other.sessions().await.unwrap()[1].about[..], *b"y");
    other.end_session(gone, true).await.unwrap();
    other.forget_session(gone).await.unwrap();
    assert_eq!(store.sessions().await.unwrap().len(), 1);
    store.end_session(id, false).await.unwrap();
    assert_eq!(store.append(append(id, 3)).await, Err(id.has_ended()));
}

#[tokio::test]
async fn a_session_lasts_when_its_own_process_opens_the_files_next() {
    let folder = tempfile::tempdir().unwrap();
    let there = Process::start(folder.path());
    let store = open(folder.path());
    let id = store.begin_session(session("here")).await.unwrap();
    drop(there);
    assert_eq!(store.append(append(id, 1)).await, Ok(2));
    assert!(store.is_here());
    assert!(matches!(store.end_session(id, true).await, Err(StorageError::SessionLives { .. })));
}

#[tokio::test]
async fn the_session_of_a_killed_process_can_be_ended_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (open(folder.path()), open(folder.path()));
    let there = Process::start(folder.path());
    let id = there.session;
    assert!(matches!(other.begin_session(session("there")).await, Err(StorageError::NameTaken { .. })));
    for looking in [&store, &other] {
        assert!(matches!(looking.end_session(id, true).await, Err(StorageError::SessionLives { .. })));
    }
    drop(there);
    let left = |sessions: &[callboard::storage::SessionInfo]| sessions.iter().map(|info| info.left).collect::<Vec<_>>();
    for looking in [&store, &other] {
        assert_eq!(left(&looking.sessions().await.unwrap()), [Duration::ZERO], "its lease is over");
    }
    assert_eq!(other.end_session(id, true).await, Ok(()));
    assert_eq!(store.append(append(id, 1)).await, Err(id.has_ended()));
    other.forget_session(id).await.unwrap();
    assert_eq!(store.sessions().await, Ok(vec![]));
    // The name is also free if nobody has ended the session.
    let there = Process::start(folder.path());
    drop(there);
    assert!(store.begin_session(session("there")).await.is_ok());
}

#[tokio::test]
async fn a_session_that_was_ended_elsewhere_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second, third) = (open(folder.path()), open(folder.path()), open(folder.path()));
    let id = second.begin_session(session("second")).await.unwrap();
    second.append(append(id, 0)).await.unwrap();
    let revision = second.put_if_revision(Put { session: Some(id), ..put() }).await.unwrap();
    third.end_session(id, false).await.unwrap();
    let writes_nothing = async |when: &str| {
        assert_eq!(second.append(append(id, 1)).await, Err(id.has_ended()), "{when}");
        assert_eq!(second.put_if_revision(Put { session: Some(id), ..put() }).await, Err(id.has_ended()), "{when}");
        let delete = Delete::new(Key::new(["x"]), revision, callboard::messages::Durability::Sync);
        let deleted = second.delete_if_revision(Delete { session: Some(id), ..delete }).await;
        assert_eq!(deleted, Err(id.has_ended()), "{when}");
        assert_eq!(second.renew_session(id, b"y".as_slice().into()).await, Err(id.has_ended()), "{when}");
    };
    writes_nothing("at the holder that knows of the end").await;
    drop(first);
    writes_nothing("at the next one").await;
    third.forget_session(id).await.unwrap();
    writes_nothing("when it is forgotten").await;
    assert_eq!(second.get(&Key::new(["x"])).await.unwrap().map(|entry| entry.revision), Some(revision));
}

fn put() -> Put {
    Put::new(Key::new(["x"]), b"1".as_slice().into())
}
