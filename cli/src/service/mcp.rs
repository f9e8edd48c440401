//! `callboard mcp`: an MCP client that starts this program reaches `callboard serve` by it.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::exit::Exit;
use crate::page::{Failure, Page};

use super::arguments::Mcp;
use super::boards::{connect, name_of_mcp};

/// Carries lines between the standard streams and the server, until either ends.
pub(super) async fn mcp(arguments: &Mcp) -> Result<Page, Failure> {
    let stores = arguments.choice.stores()?;
    let stream = connect(&stores, &name_of_mcp(&stores)).await?;
    let lost = |error: io::Error| Failure::new(Exit::Unavailable, format!("the connection to the server: {error}"));
    let stream = stream.into_std().and_then(|stream| stream.set_nonblocking(false).map(|()| stream)).map_err(lost)?;
    let input = stream.try_clone().map_err(lost)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    // It blocks on standard input, and ends with this process.
    thread::spawn(move || send(&input, &over));
    receive(stream).map_err(lost)?;
    // The server answers to the end what was sent before the end of the input.
    if is_over.load(Ordering::Acquire) {
        return Ok(Page::new(String::new(), Value::Null));
    }
    Err(Failure::new(Exit::Unavailable, "the server has stopped".to_owned()))
}

fn send(mut server: &UnixStream, is_over: &AtomicBool) {
    let _ = io::copy(&mut io::stdin().lock(), &mut server);
    is_over.store(true, Ordering::Release);
    let _ = server.shutdown(Shutdown::Write);
}

fn receive(mut server: UnixStream) -> io::Result<()> {
    let mut chunk = [0; 16 * 1024];
    loop {
        let length = server.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        // A client that has gone.
        if out.write_all(&chunk[..length]).and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
    }
}
