//! Work that may block its thread, as opening a store does while the process that has it open does not answer.

use std::time::Duration;

use callboard::messages::RunId;
use tokio::sync::{oneshot, watch};

use crate::exit::Exit;
use crate::page::Failure;
use crate::process::{no_runtime, no_thread};
use crate::signals::Signals;

/// How long work may take to begin when its time is over: opening a store and reading a run.
const BEGINNING: Duration = Duration::from_secs(1);

/// How work on a thread of its own ended. What is not done stays where it is, and ends with the process.
pub(crate) enum End<T> {
    Done(T),
    TimedOut,
    /// A signal came.
    Interrupted,
}

/// Runs work on a thread of its own until a signal comes, or until `limit` is over and the work has read a run, which it reports.
pub(crate) async fn apart<T, W>(
    limit: Option<Duration>,
    mut found: watch::Receiver<Option<RunId>>,
    work: impl FnOnce() -> W + Send + 'static,
) -> Result<End<T>, Failure>
where
    T: Send + 'static,
    W: Future<Output = Result<T, Failure>>,
{
    let mut signals = Signals::new()?;
    let (reply, done) = oneshot::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let _ = reply.send(runtime.map_err(no_runtime).and_then(|runtime| runtime.block_on(work())));
    };
    let thread = std::thread::Builder::new().name("callboard-apart".to_owned()).spawn(run);
    thread.map_err(|error| Failure::new(Exit::Unavailable, no_thread(&error)))?;
    let over = async {
        let Some(limit) = limit else { return std::future::pending().await };
        tokio::time::sleep(limit).await;
        let _ = tokio::time::timeout(BEGINNING, found.wait_for(Option::is_some)).await;
    };
    tokio::select! {
        biased;
        done = done => {
            done.unwrap_or_else(|_| Err(Failure::failed("its thread has ended unexpectedly".to_owned()))).map(End::Done)
        }
        () = signals.next() => Ok(End::Interrupted),
        () = over => Ok(End::TimedOut),
    }
}
