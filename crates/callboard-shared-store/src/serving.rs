//! The process that has the store open answers the calls of others.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use callboard::storage::{Change, Storage as _, StorageError, Watch};
use callboard_private::is_of_this_user;
use futures::future::{AbortHandle, BoxFuture, abortable};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::io::{AsyncWriteExt as _, BufReader, BufWriter};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::handshake::{Hello, PATIENCE};
use crate::holder::Holder;
use crate::request::{Answer, Request};
use crate::wire::{Wire as _, read_frame, write_frame};

/// The calls of one process that are read before the first of them is answered.
const READ_AHEAD: usize = 1024;
/// How long to wait after a connection could not be accepted, as when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The processes that use the store of this one.
pub(crate) struct Server {
    connections: JoinSet<()>,
    is_closing: watch::Sender<bool>,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self { connections: JoinSet::new(), is_closing: watch::Sender::new(false) }
    }

    /// Accepts connections; never returns.
    pub(crate) async fn accept(&mut self, listener: &UnixListener, holder: &Arc<Holder>) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = self.connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) if is_of_this_user(&stream) => {
                    let (holder, is_closing) = (Arc::clone(holder), self.is_closing.subscribe());
                    self.connections.spawn(async move {
                        if let Err(error) = connection(stream, &holder, is_closing).await {
                            tracing::debug!(%error, "the connection of another process ended");
                        }
                    });
                }
                Ok(_) => tracing::warn!("another user's process was refused at the store's socket"),
                Err(error) => {
                    tracing::warn!(%error, "a process could not be connected to the store");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Answers the calls that are under way, and takes no more.
    pub(crate) async fn close(mut self) {
        self.is_closing.send_replace(true);
        let _ = timeout(PATIENCE, async { while self.connections.join_next().await.is_some() {} }).await;
    }
}

type Answered = (u64, Result<Answer, StorageError>);
/// The number of the call; the watch, its stream and the change, or `None` if it is no longer watched.
type Changed = (u64, Option<(u64, Watch, Option<Change>)>);

/// A watch of another process.
enum Watching {
    Idle(Watch),
    /// Its next change is waited for.
    Waiting(AbortHandle),
}

/// One process that uses the store.
struct Connection<'a> {
    holder: &'a Arc<Holder>,
    calls: FuturesUnordered<BoxFuture<'static, Answered>>,
    watches: HashMap<u64, Watching>,
    changes: FuturesUnordered<BoxFuture<'static, Changed>>,
    write: BufWriter<OwnedWriteHalf>,
}

async fn connection(stream: UnixStream, holder: &Arc<Holder>, mut is_closing: watch::Receiver<bool>) -> io::Result<()> {
    let (read, write) = stream.into_split();
    let (mut read, mut write) = (BufReader::new(read), BufWriter::new(write));
    let Ok(hello) = timeout(PATIENCE, read_frame(&mut read)).await else { return Err(io::ErrorKind::TimedOut.into()) };
    let hello = hello?.and_then(|frame| Hello::from_bytes(&frame)).ok_or(io::ErrorKind::InvalidData)?;
    let welcome = hello.answer();
    write_frame(&mut write, |out| welcome.put(out)).await?;
    write.flush().await?;
    if welcome.is_err() {
        return Ok(());
    }
    let (sender, mut requests) = mpsc::channel(READ_AHEAD);
    let mut reading = JoinSet::new();
    reading.spawn(read_requests(read, sender));
    let mut connection = Connection {
        holder,
        calls: FuturesUnordered::new(),
        watches: HashMap::new(),
        changes: FuturesUnordered::new(),
        write,
    };
    loop {
        tokio::select! {
            biased;
            _ = is_closing.changed() => break,
            Some(answered) = connection.calls.next() => connection.answer(answered).await?,
            Some(changed) = connection.changes.next() => connection.changed(changed).await?,
            request = requests.recv() => match request {
                Some((id, is_repeated, request)) => connection.begin(id, is_repeated, request),
                None => break,
            },
        }
    }
    while let Some(answered) = connection.calls.next().await {
        connection.answer(answered).await?;
    }
    Ok(())
}

async fn read_requests(mut read: BufReader<OwnedReadHalf>, requests: mpsc::Sender<(u64, bool, Request)>) {
    loop {
        let frame = match read_frame(&mut read).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "a process that uses the store is gone"),
        };
        let Some(((id, is_repeated), request)) = <((u64, bool), Request)>::from_bytes(&frame) else {
            return tracing::warn!("a process sent what is no call of a store, and was disconnected");
        };
        if requests.send((id, is_repeated, request)).await.is_err() {
            return;
        }
    }
}

impl Connection<'_> {
    fn begin(&mut self, id: u64, is_repeated: bool, request: Request) {
        match request {
            Request::Watch { watch, prefix } => {
                self.watches.insert(watch, Watching::Idle(self.holder.sled.watch(&prefix)));
                self.calls.push(std::future::ready((id, Ok(Answer::Done {}))).boxed());
            }
            Request::NextChange { watch } => match self.watches.remove(&watch) {
                Some(Watching::Idle(mut stream)) => {
                    let next = async move {
                        let change = stream.next().await;
                        (watch, stream, change)
                    };
                    let (next, handle) = abortable(next);
                    self.watches.insert(watch, Watching::Waiting(handle));
                    self.changes.push(next.map(move |next| (id, next.ok())).boxed());
                }
                Some(waiting @ Watching::Waiting(_)) => drop(self.watches.insert(watch, waiting)),
                None => self.calls.push(self.holder.perform(request).map(move |answer| (id, answer)).boxed()),
            },
            Request::Unwatch { watch } => {
                if let Some(Watching::Waiting(handle)) = self.watches.remove(&watch) {
                    handle.abort();
                }
                self.calls.push(std::future::ready((id, Ok(Answer::Done {}))).boxed());
            }
            call => {
                let call = if is_repeated { self.holder.repeat(call) } else { self.holder.perform(call) };
                self.calls.push(call.map(move |answer| (id, answer)).boxed());
            }
        }
    }

    async fn changed(&mut self, (id, changed): Changed) -> io::Result<()> {
        let change = changed.and_then(|(watch, stream, change)| {
            self.watches.insert(watch, Watching::Idle(stream));
            change
        });
        self.answer((id, Ok(Answer::Change { change }))).await
    }

    /// Sends an answer, and those that are ready beside it.
    async fn answer(&mut self, answered: Answered) -> io::Result<()> {
        self.send(answered).await?;
        while let Some(Some(answered)) = self.calls.next().now_or_never() {
            self.send(answered).await?;
        }
        self.write.flush().await
    }

    async fn send(&mut self, (id, answer): Answered) -> io::Result<()> {
        let mut parts = match answer {
            Ok(answer) => answer.parts().into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        let last = parts.pop();
        let parts = parts.into_iter().map(|part| (true, part)).chain(last.map(|last| (false, last)));
        for (has_more, part) in parts {
            write_frame(&mut self.write, |out| {
                id.put(out);
                has_more.put(out);
                part.put(out);
            })
            .await?;
        }
        Ok(())
    }
}
