//! The socket by which the programs of a turn delegate in its name (docs/process-agents.md, "The socket of a turn").
//!
//! A program inherits one end of a pair, and all that it starts share it; a task of this process reads the other. Everything from there is
//! untrusted: lines are bounded in length and number, descriptors that are passed are dropped by the kernel, because they are not asked
//! for, and delegations are requests of the turn, so whatever limits it limits them.

mod protocol;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use callboard::actors::{DelegationError, Turn};
use callboard::messages::{Json, RequestId};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::child::MAX_LINE;
use super::lines::{Line, Lines};
use super::protocol::BadLine;

use protocol::{Answer, Kind, Request, VERSION, read, request_of};

/// The variable with the number of the descriptor.
const VARIABLE: &str = "CALLBOARD_TURN_SOCKET";

/// The longest line of a program, in bytes.
const MAX_REQUEST: usize = 1 << 20;

/// The most lines of programs in one turn, or of one command.
const MAX_REQUESTS: u32 = 100_000;

/// How long a turn waits for a delegation that programs do not ask about again.
const WAIT: Duration = Duration::from_secs(1);

/// The socket of a program. Requests are refused unless a turn is open.
#[derive(Debug)]
pub(crate) struct TurnSocket {
    turn: Arc<watch::Sender<Option<Opened>>>,
    waits: Arc<Notify>,
    serving: JoinHandle<()>,
}

/// The turn in whose name requests are answered.
#[derive(Clone, Debug)]
struct Opened {
    turn: Turn,
    /// What taints it before it delegates.
    taint: Option<&'static str>,
}

/// The socket while a turn is open.
#[derive(Debug)]
pub(crate) struct OpenSocket {
    turn: Arc<watch::Sender<Option<Opened>>>,
    waits: Arc<Notify>,
}

impl TurnSocket {
    /// A socket, and the end for the program ([`pass`]).
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (own, other) = std::os::unix::net::UnixStream::pair()?;
        own.set_nonblocking(true)?;
        let own = UnixStream::from_std(own)?;
        let (turn, waits) = (Arc::new(watch::Sender::new(None)), Arc::new(Notify::new()));
        let serving = tokio::spawn(serve(own, turn.subscribe(), Arc::clone(&waits)));
        Ok((Self { turn, waits, serving }, other.into()))
    }

    /// Answers requests in the name of this turn until the result is dropped. `taint` names what the programs are if they may have
    /// read untrusted input: the turn is tainted before it delegates for them.
    pub(crate) fn open(&self, turn: &Turn, taint: Option<&'static str>) -> OpenSocket {
        self.turn.send_replace(Some(Opened { turn: turn.for_programs(), taint }));
        OpenSocket { turn: Arc::clone(&self.turn), waits: Arc::clone(&self.waits) }
    }
}

/// Returns when the turn begins to wait for a delegation: whoever polls the turn then yields its permit.
pub(crate) async fn waits(socket: Option<&OpenSocket>) {
    match socket {
        Some(socket) => socket.waits.notified().await,
        None => std::future::pending().await,
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.turn.send_replace(None);
    }
}

impl Drop for TurnSocket {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The socket by which a program that you start delegates in the name of a turn (docs/process-agents.md, "The socket of a turn"). It is
/// closed when this is dropped.
///
/// ```no_run
/// # async fn take_turn(turn: callboard::prelude::Turn) -> std::io::Result<()> {
/// use callboard_agents::ProgramSocket;
///
/// let mut program = tokio::process::Command::new("./program");
/// let socket = ProgramSocket::pass(program.as_std_mut(), &turn)?;
/// let mut child = program.spawn()?;
/// loop {
///     tokio::select! {
///         ended = child.wait() => break ended.map(drop),
///         () = socket.waits() => {}
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct ProgramSocket {
    open: OpenSocket,
    _serving: TurnSocket,
}

impl ProgramSocket {
    /// Has a program inherit the socket as descriptor 3. Call it last, after what confines the program.
    ///
    /// # Errors
    /// No descriptor is left.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn pass(program: &mut std::process::Command, turn: &Turn) -> io::Result<Self> {
        let (socket, end) = TurnSocket::new()?;
        pass(program, end)?;
        Ok(Self { open: socket.open(turn, None), _serving: socket })
    }

    /// Returns when the turn begins to wait for a delegation: whoever polls the turn then yields its permit. Cancel safe.
    pub async fn waits(&self) {
        waits(Some(&self.open)).await;
    }
}

/// Has a program inherit its end. To be called last.
pub(crate) fn pass(program: &mut std::process::Command, end: OwnedFd) -> io::Result<()> {
    program.env(VARIABLE, "3");
    callboard_confine::inherits(program, end).map(drop)
}

/// Answers the lines of a program until it has closed its end.
async fn serve(stream: UnixStream, mut turn: watch::Receiver<Option<Opened>>, waits: Arc<Notify>) {
    let (input, mut output) = stream.into_split();
    let mut lines = Lines::new(input, MAX_REQUEST);
    let mut session: Option<Session> = None;
    loop {
        let answer = tokio::select! {
            biased;
            changed = turn.changed() => match changed {
                Ok(()) => {
                    session = session_of(&mut turn, &waits);
                    continue;
                }
                Err(_) => return,
            },
            () = work(session.as_mut()) => continue,
            line = lines.next() => match line {
                Ok(Some(Line::Whole(line))) if line.is_empty() => continue,
                Ok(Some(Line::Whole(line))) => answer(&line, &mut session, &mut turn, &waits).await,
                Ok(Some(Line::Cut(line))) => {
                    let why = format!("it has more than {} MiB", MAX_REQUEST >> 20);
                    Answer::failed(None, Kind::Unfit, BadLine::new(&line[..400], why).to_string())
                }
                Ok(Some(Line::Unended(_)) | None) | Err(_) => return,
            },
        };
        let line = answer.line(MAX_LINE);
        let mut written = pin!(output.write_all(&line));
        loop {
            tokio::select! {
                biased;
                written = &mut written => match written {
                    Ok(()) => break,
                    Err(_) => return,
                },
                // A program that does not read its answer keeps nothing of a turn that has ended.
                changed = turn.changed() => match changed {
                    Ok(()) => session = session_of(&mut turn, &waits),
                    Err(_) => return,
                },
                () = work(session.as_mut()) => {}
            }
        }
    }
}

fn session_of(turn: &mut watch::Receiver<Option<Opened>>, waits: &Arc<Notify>) -> Option<Session> {
    let Opened { turn, taint } = turn.borrow_and_update().clone()?;
    Some(Session {
        turn,
        taint,
        waits: Arc::clone(waits),
        requests: 0,
        open: FuturesUnordered::new(),
        awaited: BTreeMap::new(),
    })
}

/// The answer to a line.
async fn answer(
    line: &[u8],
    session: &mut Option<Session>,
    turn: &mut watch::Receiver<Option<Opened>>,
    waits: &Arc<Notify>,
) -> Answer {
    let request = match read(line) {
        Ok(request) => request,
        Err(unfit) => return unfit,
    };
    let closed =
        Answer::failed(Some(request.id()), Kind::Closed, "no turn of the agent is open, so nothing can be delegated");
    let Some(open) = session else { return closed };
    tokio::select! {
        biased;
        answer = open.answer(request) => answer,
        _ = turn.changed() => {
            *session = session_of(turn, waits);
            closed
        }
    }
}

/// Advances what the turn waits for.
async fn work(session: Option<&mut Session>) {
    match session {
        Some(session) if !session.open.is_empty() => session.next().await,
        Some(_) | None => std::future::pending().await,
    }
}

/// The result of a delegation.
type Outcome = Result<Json, DelegationError>;

/// What the programs of one turn have asked for.
struct Session {
    turn: Turn,
    taint: Option<&'static str>,
    waits: Arc<Notify>,
    requests: u32,
    /// Delegations for which the turn waits. The result is missing if no program has asked for it for a while.
    open: FuturesUnordered<BoxFuture<'static, (RequestId, Option<Outcome>)>>,
    /// The same, and their results; at most as many as a turn's programs may make requests.
    awaited: BTreeMap<RequestId, Option<Outcome>>,
}

impl Session {
    async fn next(&mut self) {
        let Some((request, outcome)) = self.open.next().await else { return };
        match outcome {
            Some(outcome) => self.awaited.insert(request, Some(outcome)),
            None => self.awaited.remove(&request),
        };
    }

    async fn answer(&mut self, request: Request) -> Answer {
        self.requests += 1;
        if self.requests > MAX_REQUESTS {
            let why = format!("the programs of this turn have sent {MAX_REQUESTS} requests, and may send no more");
            return Answer::failed(Some(request.id()), Kind::Turn, why);
        }
        match request {
            Request::Hello { id, protocol: VERSION } => {
                let (turn, agent) = (self.turn.id(), self.turn.agent().clone());
                Answer::Turn { id, protocol: VERSION, run: turn.run, turn: turn.number, agent }
            }
            Request::Hello { id, protocol } => {
                let why =
                    format!("it speaks version {protocol} of the protocol, and callboard speaks version {VERSION}");
                Answer::failed(Some(id), Kind::Unfit, why)
            }
            Request::Delegate { id, to, body, input, tokens, deadline_seconds, reference, wait } => {
                if let Some(source) = self.taint {
                    self.turn.taint(source);
                }
                let mut delegation = self.turn.delegate(&to, &body);
                if let Some(input) = input {
                    delegation = delegation.input(input);
                }
                if let Some(tokens) = tokens {
                    delegation = delegation.tokens(tokens);
                }
                if let Some(seconds) = deadline_seconds {
                    delegation = delegation.deadline(Duration::from_secs(seconds));
                }
                if let Some(reference) = reference {
                    delegation = delegation.reference(&reference);
                }
                let request = delegation.request_id();
                if wait {
                    self.wait_for(request, delegation.map(move |outcome| (request, Some(outcome))).boxed());
                } else if let Err(error) = delegation.detach().await {
                    return Answer::refused(id, error);
                }
                Answer::Delegated { id, request: request.to_string() }
            }
            Request::Status { id, request } => self.standing(id, request, false).await,
            Request::Wait { id, request } => self.standing(id, request, true).await,
        }
    }

    async fn standing(&mut self, id: u64, text: String, waits: bool) -> Answer {
        let Some(request) = request_of(&self.turn, &text) else {
            return Answer::failed(Some(id), Kind::Turn, format!("this turn has made no delegation {text:?}"));
        };
        match self.awaited.get(&request) {
            Some(None) => return Answer::standing(id, text, None),
            // The turn has the answer to what it waits for once.
            Some(Some(_)) => {
                let outcome = self.awaited.remove(&request).flatten();
                return Answer::standing(id, text, outcome);
            }
            None => {}
        }
        match self.turn.status(request).await {
            Poll::Ready(outcome) => Answer::standing(id, text, Some(outcome)),
            Poll::Pending => {
                if waits {
                    let turn = self.turn.clone();
                    let answer = async move { (request, timeout(WAIT, turn.answer(request)).await.ok()) };
                    self.wait_for(request, answer.boxed());
                }
                Answer::standing(id, text, None)
            }
        }
    }

    /// Has the turn wait for a delegation.
    fn wait_for(&mut self, request: RequestId, mut answer: BoxFuture<'static, (RequestId, Option<Outcome>)>) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match answer.poll_unpin(&mut context) {
            Poll::Ready((request, outcome)) => drop(self.awaited.insert(request, outcome)),
            Poll::Pending => {
                self.awaited.insert(request, None);
                self.open.push(answer);
                self.waits.notify_one();
            }
        }
    }
}
