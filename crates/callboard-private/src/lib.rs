//! Folders, files and sockets of one user: what is found there was put there by this user, and nobody else may read or change it.
//!
//! [`Folder`] opens a folder that has the mode 0700 and belongs to this user, through a handle and without following links, and
//! reads and replaces files in it. [`check`] is for files elsewhere. [`listen`] makes a socket in such a folder; [`Listener::accept`] and [`is_of_this_user`] refuse
//! processes of other users, root included, by what the kernel reports of them.
//!
//! ```
//! use callboard_private::Folder;
//! let place = tempfile::tempdir()?;
//! let folder = Folder::create(&place.path().join("secrets"))?;
//! folder.write("token", b"cbt_0")?;
//! assert_eq!(folder.read("token")?.as_deref(), Some(b"cbt_0".as_slice()));
//! assert_eq!(folder.read("other")?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg(unix)]

mod folders;
mod sockets;
#[cfg(test)]
mod tests;

pub use folders::{Folder, FolderError, Owner, check, contents};
pub use sockets::{ListenError, Listener, SocketFile, folder, folders, is_of_this_user, listen, path_of, replace};
