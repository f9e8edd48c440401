//! Sockets that nobody listens on, and events as they arrive.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use callboard_private::FolderError;

use super::messages::Reader;
use super::*;

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

#[tokio::test]
async fn a_folder_that_others_may_enter_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let sent = Client::new(folder.path(), "a").request("GET", "/v1/health", None).await.unwrap_err();
    assert!(matches!(&sent, ClientError::Folder(FolderError::Mode { mode: 0o755, .. })), "{sent:?}");
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
