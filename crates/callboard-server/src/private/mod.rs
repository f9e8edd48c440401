//! A Unix socket for processes of this user: [`listen`] and [`Server::serve_private`](crate::Server::serve_private) on one
//! side, and [`Client`] on the other. Both refuse a process of another user, root included, by what the kernel reports of it.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

mod client;
mod messages;
mod socket;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientError, Events};
pub use messages::Message;
pub use socket::{ListenError, Listener, listen};

/// Returns the folder for sockets of this user: `$XDG_RUNTIME_DIR/callboard`, or `/tmp/callboard-UID` if that variable has no
/// folder of this user.
#[must_use]
pub fn folder() -> PathBuf {
    folder_in(std::env::var_os("XDG_RUNTIME_DIR"), geteuid().as_raw())
}

fn folder_in(runtime: Option<OsString>, user: u32) -> PathBuf {
    // After `sudo` it may be that of another user, who could replace what is in it.
    let is_own = |path: &Path| {
        path.is_absolute() && path.metadata().is_ok_and(|it| it.is_dir() && it.uid() == user && it.mode() & 0o022 == 0)
    };
    match runtime.map(PathBuf::from).filter(|path| is_own(path)) {
        Some(runtime) => runtime.join("callboard"),
        None => PathBuf::from(format!("/tmp/callboard-{user}")),
    }
}
