//! The Model Context Protocol, over HTTP and in lines.

mod hostile;
#[cfg(unix)]
mod lines;
pub(crate) mod messages;
mod protocol;
