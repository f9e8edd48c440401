//! What these tests stand on: a server in the process or on a connection, its clients, and a store that counts.

pub(crate) mod client;
pub(crate) mod counted;
pub(crate) mod local;
pub(crate) mod service;
pub(crate) mod world;
