//! A Unix socket for processes of this user: [`listen`] and [`Server::serve_private`](crate::Server::serve_private) on one
//! side, and [`Client`] on the other. Both refuse a process of another user, root included, by what the kernel reports of it.

mod client;
mod messages;
#[cfg(test)]
mod tests;

pub use callboard_private::{ListenError, Listener, folder, folders, listen};
pub use client::{Client, ClientError, Events};
pub use messages::Message;
