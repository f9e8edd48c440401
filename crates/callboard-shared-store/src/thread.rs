//! The thread of a store: it answers other processes, or asks the one that has the files open, and takes over from it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, mem};

use callboard::storage::StorageError;
use callboard_private::is_of_this_user;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use crate::asking::{Call, Ended, Job, Unanswered, ask};
use crate::opening::{self, Here, LATER, Opened};
use crate::serving::Server;
use crate::store::{Core, Mode};

/// How long calls that are under way when the store closes may take.
const GRACE: Duration = Duration::from_millis(200);

/// How long to wait before the store is opened again, after it could not be.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The error of a store that was closed.
pub(crate) fn closed() -> StorageError {
    StorageError::Stopped { detail: "it was closed".to_owned() }
}

/// Starts the thread.
pub(crate) fn start(core: Arc<Core>, opened: Opened, jobs: mpsc::UnboundedReceiver<Job>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("callboard-share".to_owned()).spawn(move || run(&core, opened, jobs, runtime))
}

fn run(core: &Arc<Core>, opened: Opened, jobs: mpsc::UnboundedReceiver<Job>, runtime: Runtime) {
    let _stop = StopOnDrop(Arc::clone(core));
    runtime.block_on(work(core, opened, jobs));
    runtime.shutdown_timeout(GRACE);
}

/// Stops the store however its thread ends, so that no caller waits for it.
struct StopOnDrop(Arc<Core>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        stop(&self.0, StorageError::Stopped { detail: "its thread has ended unexpectedly".to_owned() });
    }
}

/// Fails all calls from now on with the first error.
fn stop(core: &Core, error: StorageError) {
    let mut mode = core.mode.write();
    if !matches!(*mode, Mode::Stopped(_)) {
        *mode = Mode::Stopped(error);
    }
}

async fn work(core: &Arc<Core>, mut opened: Opened, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let unanswered = Arc::new(Mutex::new(Unanswered::default()));
    loop {
        let stream = match opened {
            Opened::Here(here) => return serve(core, *here, jobs, &unanswered).await,
            Opened::Elsewhere(stream) => stream,
        };
        let ended = match UnixStream::from_std(stream) {
            Ok(stream) if is_of_this_user(&stream) => ask(stream, &mut jobs, &unanswered, core.own_sessions()).await,
            Ok(_) | Err(_) => Ended::Lost,
        };
        if let Ended::Closed(reply) = ended {
            return close(core, &unanswered, reply);
        }
        unanswered.lock().fail(None);
        let mut reopening = std::pin::pin!(reopen(core));
        opened = loop {
            tokio::select! {
                biased;
                reopened = &mut reopening => match reopened {
                    Ok(opened) => break opened,
                    Err(error) => return give_up(core, jobs, &unanswered, &error),
                },
                Some(job) = jobs.recv() => match job {
                    Job::Call(call) => drop(unanswered.lock().add(call)),
                    Job::Close(reply) => return close(core, &unanswered, reply),
                },
            }
        };
    }
}

/// Opens the store again, or connects to the process that was faster. What may be over soon, such as a lack of descriptors, is waited
/// for.
async fn reopen(core: &Core) -> Result<Opened, StorageError> {
    let mut tries = LATER.as_secs();
    loop {
        let (folder, clock) = (core.folder.clone(), Arc::clone(&core.clock));
        let opened = tokio::task::spawn_blocking(move || opening::open(&folder, &clock, LATER, false)).await;
        let error = match opened {
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(error)) if tries == 0 => return Err(error),
            Ok(Err(error)) => error,
            Err(error) => return Err(StorageError::Unavailable { detail: error.to_string() }),
        };
        tracing::warn!(%error, "the store cannot be opened, and is tried again");
        tries -= 1;
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

fn close(core: &Core, unanswered: &Mutex<Unanswered>, reply: oneshot::Sender<Result<(), StorageError>>) {
    stop(core, closed());
    unanswered.lock().fail(Some(&closed()));
    let _ = reply.send(Ok(()));
}

/// The store can be opened neither here nor at another process.
fn give_up(core: &Core, mut jobs: mpsc::UnboundedReceiver<Job>, unanswered: &Mutex<Unanswered>, error: &StorageError) {
    let stopped = StorageError::Stopped {
        detail: format!("the process that had it open is gone, and it cannot be opened again: {error}"),
    };
    stop(core, stopped.clone());
    unanswered.lock().fail(Some(&stopped));
    while let Ok(job) = jobs.try_recv() {
        match job {
            Job::Call(call) => drop(call.reply.send(Err(stopped.clone()))),
            Job::Close(reply) => drop(reply.send(Err(stopped.clone()))),
        }
    }
}

/// Has the files open until the store is closed.
async fn serve(
    core: &Arc<Core>,
    mut here: Here,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    unanswered: &Mutex<Unanswered>,
) {
    let mut closing = issue(core, &here, &mut jobs, unanswered);
    let mut server = Server::new();
    let socket = here.socket.take().map(|(listener, file)| (UnixListener::from_std(listener), file));
    if closing.is_none() {
        let accept = async {
            match &socket {
                Some((Ok(listener), _)) => server.accept(listener, &here.holder).await,
                Some((Err(_), _)) | None => std::future::pending().await,
            }
        };
        let closed = async {
            while let Some(job) = jobs.recv().await {
                match job {
                    // One that waited for a permit while the store was opened here.
                    Job::Call(Call { request, reply }) => {
                        tokio::spawn(here.holder.perform(request).map(move |answer| reply.send(answer)));
                    }
                    Job::Close(reply) => return Some(reply),
                }
            }
            None
        };
        tokio::select! {
            () = accept => {}
            reply = closed => closing = reply,
        }
    }
    drop(socket);
    server.close().await;
    stop(core, closed());
    let done = here.holder.sled.close().await;
    drop(here);
    if let Some(reply) = closing {
        let _ = reply.send(done);
    }
}

/// Issues the calls that were not answered, in their order, and has callers make theirs here from now on. Returns who closes the store,
/// if it was to be closed meanwhile.
fn issue(
    core: &Core,
    here: &Here,
    jobs: &mut mpsc::UnboundedReceiver<Job>,
    unanswered: &Mutex<Unanswered>,
) -> Option<oneshot::Sender<Result<(), StorageError>>> {
    let mut closing = None;
    let mut mode = core.mode.write();
    while let Ok(job) = jobs.try_recv() {
        match job {
            Job::Call(call) => drop(unanswered.lock().add(call)),
            Job::Close(reply) => closing = Some(reply),
        }
    }
    for (id, session) in core.own_sessions() {
        tokio::spawn(here.holder.resume_session(id, session));
    }
    for (call, was_sent) in unanswered.lock().take() {
        let answer: BoxFuture<'static, _> =
            if was_sent { here.holder.repeat(call.request) } else { here.holder.perform(call.request) };
        tokio::spawn(answer.map(move |answer| call.reply.send(answer)));
    }
    drop(mem::replace(&mut *mode, Mode::Here(Arc::clone(&here.holder))));
    closing
}
