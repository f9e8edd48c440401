//! The Model Context Protocol, over HTTP and in lines.

mod hostile;
#[cfg(unix)]
mod lines;
mod messages;
mod protocol;
