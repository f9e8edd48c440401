//! A process that asks the one that has the store open.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use callboard::storage::{NewSession, SessionId, StorageError};
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt as _, BufReader, BufWriter};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::handshake::PATIENCE;
use crate::request::{Answer, Request};
use crate::wire::{MAX_FRAME, Wire as _, read_frame, write_frame};

/// What the handle of a store asks of its thread.
pub(crate) enum Job {
    Call(Call),
    /// Answered once the store is closed here.
    Close(oneshot::Sender<Result<(), StorageError>>),
}

/// A call, and where its answer goes.
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) reply: oneshot::Sender<Result<Answer, StorageError>>,
}

/// Calls that are not answered, in the order in which they were made.
#[derive(Default)]
pub(crate) struct Unanswered {
    last: u64,
    calls: BTreeMap<u64, Waiting>,
}

struct Waiting {
    call: Call,
    /// Whether a process that is gone may have carried it out.
    was_sent: bool,
    /// The parts that have arrived.
    so_far: Option<Answer>,
}

impl Unanswered {
    pub(crate) fn add(&mut self, call: Call) -> u64 {
        self.last += 1;
        self.calls.insert(self.last, Waiting { call, was_sent: false, so_far: None });
        self.last
    }

    /// Takes all calls, each with whether it was sent.
    pub(crate) fn take(&mut self) -> Vec<(Call, bool)> {
        std::mem::take(&mut self.calls).into_values().map(|waiting| (waiting.call, waiting.was_sent)).collect()
    }

    /// Notes that a call is sent now. Returns it, and whether it was sent before.
    fn send(&mut self, id: u64) -> Option<(Request, bool)> {
        let waiting = self.calls.get_mut(&id)?;
        waiting.so_far = None;
        Some((waiting.call.request.clone(), std::mem::replace(&mut waiting.was_sent, true)))
    }

    /// Takes a part of an answer; false if it is no answer to a call.
    fn answer(&mut self, id: u64, has_more: bool, part: Result<Answer, StorageError>) -> bool {
        let Some(waiting) = self.calls.get_mut(&id) else { return false };
        let whole = match (waiting.so_far.take(), part) {
            (Some(mut so_far), Ok(next)) => {
                if !so_far.join(next) {
                    return false;
                }
                Ok(so_far)
            }
            (None, part) | (Some(_), part @ Err(_)) => part,
        };
        match whole {
            Ok(so_far) if has_more => waiting.so_far = Some(so_far),
            whole => {
                if let Some(waiting) = self.calls.remove(&id) {
                    let _ = waiting.call.reply.send(whole);
                }
            }
        }
        true
    }

    /// Ends watches, which are made again at the process that has the store open next, and answers all calls if `error` is an error.
    pub(crate) fn fail(&mut self, error: Option<&StorageError>) {
        let lost = StorageError::Unavailable { detail: "the process that had the store open is gone".to_owned() };
        let failed = self.calls.extract_if(.., |_, waiting| {
            let is_watch = matches!(
                waiting.call.request,
                Request::Watch { .. } | Request::NextChange { .. } | Request::Unwatch { .. }
            );
            is_watch || error.is_some()
        });
        for (_, waiting) in failed {
            let _ = waiting.call.reply.send(Err(error.unwrap_or(&lost).clone()));
        }
    }
}

/// Why a process no longer asks another.
pub(crate) enum Ended {
    Closed(oneshot::Sender<Result<(), StorageError>>),
    /// The connection is lost.
    Lost,
}

/// Resumes the sessions of this process, and sends the calls that were not answered and those that are made from now on.
pub(crate) async fn ask(
    stream: UnixStream,
    jobs: &mut mpsc::UnboundedReceiver<Job>,
    unanswered: &Arc<Mutex<Unanswered>>,
    sessions: Vec<(SessionId, NewSession)>,
) -> Ended {
    let (read, write) = stream.into_split();
    // Each in a task of its own: neither a full socket nor a process that does not answer keeps this from closing.
    let (mut reading, mut writing) = (JoinSet::new(), JoinSet::new());
    reading.spawn(read_answers(BufReader::new(read), Arc::clone(unanswered)));
    let (frames, to_write) = mpsc::unbounded_channel();
    writing.spawn(write_frames(BufWriter::new(write), to_write));
    let earlier: Vec<u64> = unanswered.lock().calls.keys().copied().collect();
    let resumes = sessions.into_iter().map(|(id, session)| {
        // Who writes in a session that was ended meanwhile learns it from the write.
        let call = Call { request: Request::ResumeSession { id, session }, reply: oneshot::channel().0 };
        unanswered.lock().add(call)
    });
    let resumes: Vec<u64> = resumes.collect();
    resumes.into_iter().chain(earlier).for_each(|id| send(&frames, unanswered, id));
    let reply = loop {
        tokio::select! {
            biased;
            _ = reading.join_next() => return Ended::Lost,
            _ = writing.join_next() => {
                // What was answered before the connection ended is still read.
                let _ = timeout(PATIENCE, reading.join_next()).await;
                return Ended::Lost;
            }
            job = jobs.recv() => match job {
                Some(Job::Call(call)) => {
                    let id = unanswered.lock().add(call);
                    send(&frames, unanswered, id);
                }
                Some(Job::Close(reply)) => break reply,
                // The handle, which closes the store before it is dropped, is gone.
                None => break oneshot::channel().0,
            },
        }
    };
    drop(frames);
    // The other process answers what it has, and then ends the connection.
    let _ = timeout(PATIENCE, reading.join_next()).await;
    Ended::Closed(reply)
}

/// Hands a call to the writer. One that is too long for a frame fails.
fn send(frames: &mpsc::UnboundedSender<Vec<u8>>, unanswered: &Mutex<Unanswered>, id: u64) {
    let mut unanswered = unanswered.lock();
    let Some((request, was_sent)) = unanswered.send(id) else { return };
    let mut frame = Vec::new();
    id.put(&mut frame);
    was_sent.put(&mut frame);
    request.put(&mut frame);
    if frame.len() > MAX_FRAME {
        let error = StorageError::TooLarge { what: "a call".to_owned(), size: frame.len(), max: MAX_FRAME };
        unanswered.answer(id, false, Err(error));
        return;
    }
    let _ = frames.send(frame);
}

/// Writes frames until there are no more, and then ends this half of the connection.
async fn write_frames(
    mut write: BufWriter<OwnedWriteHalf>,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        write_frame(&mut write, |out| out.extend_from_slice(&frame)).await?;
        if frames.is_empty() {
            write.flush().await?;
        }
    }
    write.shutdown().await
}

/// Reads answers until the connection ends.
async fn read_answers(mut read: BufReader<OwnedReadHalf>, unanswered: Arc<Mutex<Unanswered>>) {
    while let Ok(Some(frame)) = read_frame(&mut read).await {
        let answer = <((u64, bool), Result<Answer, StorageError>)>::from_bytes(&frame);
        let Some(((id, has_more), part)) = answer else {
            return tracing::warn!("the process that has the store open sent what is no answer");
        };
        if !unanswered.lock().answer(id, has_more, part) {
            return tracing::warn!("the process that has the store open answered a call that was not made");
        }
    }
}
