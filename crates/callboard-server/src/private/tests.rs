//! The folder and the socket, and events as they arrive.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use super::messages::Reader;
use super::*;

#[test]
fn the_folder_is_below_the_runtime_folder_of_this_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let user = geteuid().as_raw();
    let runtime = |path: &Path| Some(path.as_os_str().to_owned());
    let other = PathBuf::from(format!("/tmp/callboard-{user}"));
    assert_eq!(folder_in(runtime(folder.path()), user), folder.path().join("callboard"));
    assert_eq!(folder_in(None, user), other);
    assert_eq!(folder_in(Some("relative".into()), user), other);
    assert_eq!(folder_in(runtime(&folder.path().join("missing")), user), other);
    assert_eq!(folder_in(runtime(folder.path()), user + 1), PathBuf::from(format!("/tmp/callboard-{}", user + 1)));
    fs::set_permissions(folder.path(), Permissions::from_mode(0o770)).unwrap();
    assert_eq!(folder_in(runtime(folder.path()), user), other);
}

#[tokio::test]
async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("callboard");
    let first = listen(&folder, "a").await.unwrap();
    let mode = |path: &Path| path.symlink_metadata().unwrap().mode() & 0o7777;
    assert_eq!((mode(&folder), mode(first.path())), (0o700, 0o600));
    let refused = listen(&folder, "a").await.unwrap_err();
    assert!(matches!(&refused, ListenError::InUse(path) if path == first.path()), "{refused:?}");
    let path = first.path().to_owned();
    drop(first);
    assert!(!path.exists(), "its file is removed");

    drop(UnixListener::bind(&path).unwrap());
    let replaced = listen(&folder, "a").await.unwrap();
    // Another process has removed the file, and listens on one of its own.
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(replaced);
    assert!(path.exists(), "what is not ours is not removed");
}

#[tokio::test]
async fn a_folder_or_a_file_that_somebody_put_there_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("callboard");
    fs::create_dir(&folder).unwrap();
    let listened = async |folder: &Path, name: &str| listen(folder, name).await.unwrap_err().to_string();
    for mode in [0o755, 0o770, 0o777, 0o1777] {
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        let advice = format!("{0} has the mode {mode:04o}; run `chmod 0700 {0}`", folder.display());
        assert_eq!(listened(&folder, "a").await, advice);
        let sent = Client::new(&folder, "a").request("GET", "/v1/health", None).await.unwrap_err();
        assert_eq!(sent.to_string(), advice);
    }
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    let link = place.path().join("link");
    symlink(&folder, &link).unwrap();
    assert_eq!(listened(&link, "a").await, format!("{} is no folder; links are not followed", link.display()));
    let file = folder.join("a");
    let none = format!("{} is no socket; links are not followed", file.display());
    fs::write(&file, "kept").unwrap();
    assert_eq!(listened(&folder, "a").await, none);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    fs::remove_file(&file).unwrap();
    symlink("elsewhere", &file).unwrap();
    assert_eq!(listened(&folder, "a").await, none);
    for name in ["", ".", "..", "../a", "a/b", "/a", "a/"] {
        assert_eq!(listened(&folder, name).await, format!("`{name}` is no name of a socket"));
    }
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on_is_absent() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("callboard");
    let client = Client::new(&folder, "a");
    let absent = async || {
        let error = client.request("GET", "/v1/health", None).await.unwrap_err();
        assert!(matches!(&error, ClientError::Absent(path) if *path == folder.join("a")), "{error:?}");
    };
    absent().await;
    drop(listen(&folder, "a").await.unwrap());
    absent().await;
    drop(UnixListener::bind(folder.join("a")).unwrap());
    absent().await;
}

#[test]
fn events_are_read_from_any_pieces() {
    let text = ": comment\n\nid: 1\nevent: turn_ended\ndata: {\"a\": 1}\n\ndata: x\r\ndata:\r\ndata:y\r\n\r\nid: z\n\nevent: cut\ndata: off";
    let message = |id, kind: &str, data: &str| Message { id, kind: kind.to_owned(), data: data.to_owned() };
    let expected = [message(Some(1), "turn_ended", "{\"a\": 1}"), message(None, "message", "x\n\ny")];
    for size in 1..=text.len() {
        let mut reader = Reader::default();
        text.as_bytes().chunks(size).for_each(|piece| reader.push(piece));
        let read: Vec<Message> = std::iter::from_fn(|| reader.pop()).collect();
        assert_eq!(read, expected, "in pieces of {size}");
    }
}
