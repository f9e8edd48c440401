//! The folders and the socket.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::process::geteuid;

use super::sockets::below;
use super::*;

#[test]
fn the_folder_is_below_the_runtime_folder_of_this_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let of = |path: &Path| below(Some(path.as_os_str().to_owned()));
    assert_eq!(of(folder.path()), Some(folder.path().join("callboard")));
    assert_eq!(below(None), None);
    assert_eq!(of(Path::new("relative")), None);
    assert_eq!(of(&folder.path().join("missing")), None);
    fs::set_permissions(folder.path(), Permissions::from_mode(0o770)).unwrap();
    assert_eq!(of(folder.path()), None);
    if geteuid().is_root() {
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        chown(folder.path(), Some(65_534), None).unwrap();
        assert_eq!(of(folder.path()), None, "after sudo it may be that of another user");
    }
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
        assert_eq!(replace(&folder, "a").unwrap_err().to_string(), advice);
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

#[test]
fn a_folder_of_another_user_is_refused() {
    if !geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(65_534), None).unwrap();
    let refused = replace(folder.path(), "a").unwrap_err();
    assert!(matches!(refused, FolderError::Foreign { owner: 65_534, .. }), "{refused:?}");
}

#[test]
fn a_file_that_would_be_too_large_to_read_is_not_written() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::create(&place.path().join("callboard")).unwrap();
    let most = vec![b'x'; 4 * 1024 * 1024];
    folder.write("a", &most).unwrap();
    let refused = folder.write("a", &[&most[..], b"x"].concat()).unwrap_err().to_string();
    assert!(refused.ends_with("it has more than 4194304 bytes"), "{refused}");
    assert_eq!(folder.read("a").unwrap().unwrap().len(), most.len());
}
