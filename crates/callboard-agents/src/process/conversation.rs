//! One turn of a process: makes the requests of its lines in their order, and sends it the results.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::task::Poll;

use callboard::actors::{Reservation, Turn, TurnError};
use callboard::messages::{Command, Effect, Json, Usage};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use crate::meta::MetaTool;
use crate::roles::{AgentGrant, Asked};

use super::child::{MAX_LINE, Process};
use super::lines::Line;
use super::protocol::{
    AnswerLine, BadLine, Ending, Entry, Id, IncomingMessage, OutgoingLine, Request, TurnLine, Unmet, read,
};
use super::requests::{Reply, delegated, of_context, step};
use super::tokens::Tokens;
use super::turn_socket::{OpenSocket, waits};

/// The most open requests of a turn, including those whose answers are not read yet; and the most reservations.
const MAX_OPEN: usize = 64;

/// The number of failed requests that are kept, so that the turn can end with the failure of one.
const KEPT_FAILURES: usize = 64;

/// The most notices of an attempt that are passed on.
const MAX_NOTICES: usize = 1_000;

/// The reason why a turn could not be completed.
#[derive(Debug)]
pub(super) enum Broken {
    /// The process has closed its output.
    Ended {
        /// It has sent a line in this turn.
        has_spoken: bool,
    },
    /// It broke the protocol.
    Unfit(String),
    /// The turn itself cannot continue.
    Turn(TurnError),
}

/// The way in which a turn ended.
pub(super) struct Ended {
    pub(super) result: Result<Command, TurnError>,
    /// No request is open: the process may take another turn.
    pub(super) is_clean: bool,
}

/// A turn in progress.
pub(super) struct Conversation<'a> {
    process: &'a mut Process,
    turn: &'a Turn,
    id: String,
    open: FuturesUnordered<BoxFuture<'static, (Id, Reply)>>,
    /// The ids of open requests; a step on which the process works has the sender for its value.
    ids: HashMap<Id, Option<oneshot::Sender<Json>>>,
    reservations: HashMap<Id, Reservation>,
    tokens: Tokens,
    grant: &'a AgentGrant,
    failures: VecDeque<(Id, TurnError)>,
    notices: usize,
    unread: Unread,
    begun: mpsc::Sender<(Id, oneshot::Sender<Json>)>,
    begins: mpsc::Receiver<(Id, oneshot::Sender<Json>)>,
    socket: Option<OpenSocket>,
}

/// Lines that the process has yet to read.
#[derive(Default)]
pub(super) struct Unread {
    lines: VecDeque<Vec<u8>>,
    /// The number of bytes of the first line that are written.
    written: usize,
}

impl Unread {
    pub(super) fn add(&mut self, message: &OutgoingLine<'_>) -> Result<(), serde_json::Error> {
        self.lines.push_back(message.line()?);
        Ok(())
    }

    /// The bytes to write next; empty if all are written.
    pub(super) fn next(&self) -> &[u8] {
        self.lines.front().map_or(&[], |line| &line[self.written..])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Removes bytes that were written.
    pub(super) fn take(&mut self, written: usize) {
        self.written += written;
        if self.next().is_empty() {
            self.lines.pop_front();
            self.written = 0;
        }
    }
}

impl<'a> Conversation<'a> {
    pub(super) fn new(
        process: &'a mut Process,
        turn: &'a Turn,
        token_budget: Option<u64>,
        grant: &'a AgentGrant,
    ) -> Self {
        let (begun, begins) = mpsc::channel(MAX_OPEN);
        let may_delegate = grant.has(MetaTool::Task.asked());
        let socket = process.socket.as_ref().filter(|_| may_delegate).map(|socket| socket.open(turn, None));
        Self {
            process,
            turn,
            id: turn.id().to_string(),
            open: FuturesUnordered::new(),
            ids: HashMap::new(),
            reservations: HashMap::new(),
            tokens: Tokens::up_to(token_budget),
            grant,
            failures: VecDeque::new(),
            notices: 0,
            unread: Unread::default(),
            begun,
            begins,
            socket,
        }
    }

    /// Has the process take the turn.
    pub(super) async fn hold(mut self) -> Result<Ended, Broken> {
        self.tell_turn()?;
        let mut has_spoken = false;
        loop {
            // Results are sent first: a completed step is journaled before the next line is read.
            tokio::select! {
                biased;
                Some((id, reply)) = self.open.next(), if !self.open.is_empty() => self.reply(id, reply)?,
                Some((id, value)) = self.begins.recv() => {
                    self.ids.insert(id, Some(value));
                    self.send(&OutgoingLine::Go { id })?;
                }
                written = self.process.input.write(self.unread.next()), if !self.unread.is_empty() => {
                    self.unread.take(written);
                }
                () = waits(self.socket.as_ref()) => {}
                line = self.process.output.line() => {
                    let Some(line) = whole(line, has_spoken)? else { return Err(Broken::Ended { has_spoken }) };
                    has_spoken = true;
                    if let Some(ended) = self.hear(&line).await? {
                        return Ok(ended);
                    }
                }
            }
        }
    }

    fn tell_turn(&mut self) -> Result<(), Broken> {
        let (turn, id, span) = (self.turn, self.id.clone(), self.turn.trace_parent());
        let line = TurnLine {
            id: &id,
            attempt: turn.attempt(),
            agent: turn.agent(),
            task: &turn.task().body,
            input: turn.input_json(),
            state: turn.state().to_json(),
            previous_agent: turn.previous_agent(),
            chain: turn.chain(),
            trace: turn.trace(),
            traceparent: span.to_string(),
            tracestate: span.state.as_deref(),
            deadline_ms: turn.deadline().map(|deadline| deadline.as_millis()),
            earlier_answers: turn.earlier_answers().iter().map(AnswerLine::from).collect(),
            is_tainted: turn.is_tainted(),
            authority: turn.authority().effects().collect(),
            conversation: turn.conversation().map_err(Broken::Turn)?,
        };
        self.send(&OutgoingLine::Turn(Box::new(line)))
    }

    fn send(&mut self, message: &OutgoingLine<'_>) -> Result<(), Broken> {
        let reported = self.unread.add(message);
        reported.map_err(|error| Broken::Turn(TurnError::terminal(format!("a line cannot be written: {error}"))))
    }

    /// Processes a line; returns the end of the turn if the line has it.
    async fn hear(&mut self, line: &[u8]) -> Result<Option<Ended>, Broken> {
        let bad = |why: &dyn std::fmt::Display| Broken::Unfit(wrote(&BadLine::new(line, why)));
        match read(line).map_err(|bad| Broken::Unfit(wrote(&bad)))? {
            IncomingMessage::Request(id, request) => {
                if self.ids.contains_key(&id) || self.reservations.contains_key(&id) {
                    return Err(bad(&format!("the id {id} is that of an open request")));
                }
                if self.ids.len() + self.unread.lines.len() >= MAX_OPEN {
                    let why =
                        format!("at most {MAX_OPEN} requests may be open at once, or have answers that were not read");
                    return Err(bad(&why));
                }
                let asked = self.ask(id, request).map_err(|why| bad(&why))?;
                self.ids.insert(id, None);
                self.begin(id, asked).await?;
            }
            IncomingMessage::StepDone(id, value) => {
                // The sender is taken and the id stays until the step is journaled.
                let Some(done) = self.ids.get_mut(&id).and_then(Option::take) else {
                    return Err(bad(&format!("no step with the id {id} has received `go`")));
                };
                let _ = done.send(value);
            }
            IncomingMessage::Notice(text) => self.notice(&text),
            IncomingMessage::Taint(source) => self.turn.taint(&source),
            IncomingMessage::TurnEnd(turn, ending) => {
                if turn != self.id {
                    return Err(bad(&format!("it ends another turn; this one is {:?}", self.id)));
                }
                let result = match ending {
                    Ending::Command(command) => self.within_grant(*command),
                    Ending::Error(text, false) => Err(TurnError::transient(text)),
                    Ending::Error(text, true) => Err(TurnError::terminal(text)),
                    Ending::AsFailed(id) => {
                        let failed = self.failures.iter().rev().find(|(failed, _)| *failed == id);
                        Err(failed.ok_or_else(|| bad(&format!("no request with the id {id} has failed")))?.1.clone())
                    }
                };
                let is_clean = self.ids.is_empty() && self.unread.is_empty() && self.process.is_clean();
                return Ok(Some(Ended { result, is_clean }));
            }
        }
        Ok(None)
    }

    fn notice(&mut self, text: &str) {
        self.notices += 1;
        if self.notices <= MAX_NOTICES {
            self.turn.notice(text);
        }
        if self.notices == MAX_NOTICES {
            self.turn.notice(&format!("further notices of this attempt are not passed on: there were {MAX_NOTICES}"));
        }
    }

    /// Polls a request once before the next line is read, so that requests get their ordinals in the order of their lines.
    async fn begin(&mut self, id: Id, mut asked: BoxFuture<'static, Reply>) -> Result<(), Broken> {
        match poll_fn(|context| Poll::Ready(asked.poll_unpin(context))).await {
            Poll::Ready(reply) => self.reply(id, reply)?,
            Poll::Pending => self.open.push(asked.map(move |reply| (id, reply)).boxed()),
        }
        Ok(())
    }

    fn reply(&mut self, id: Id, reply: Reply) -> Result<(), Broken> {
        self.ids.remove(&id);
        match reply {
            Reply::Value(value) => self.send(&OutgoingLine::Result { id, value: &value }),
            Reply::Reserved(reservation) => {
                self.reservations.insert(id, reservation);
                self.send(&OutgoingLine::Result { id, value: &Json::from(id) })
            }
            Reply::Unmet { kind, error, output } => {
                self.tokens.settle(id, 0);
                self.send(&OutgoingLine::Failed { id, kind, error: &error.to_string(), output: output.as_ref() })?;
                if self.failures.len() == KEPT_FAILURES {
                    self.failures.pop_front();
                }
                self.failures.push_back((id, error));
                Ok(())
            }
            Reply::Known => Ok(()),
            Reply::Fatal(error) => Err(Broken::Turn(error)),
        }
    }

    /// The command, unless it passes control on and the role of the agent does not grant that.
    fn within_grant(&self, command: Command) -> Result<Command, TurnError> {
        let asked = MetaTool::HandoffToAgent.asked();
        match self.grant.lacks(asked).filter(|_| command.goto.targets().next().is_some()) {
            Some((why, _)) => Err(TurnError::terminal(why)),
            None => Ok(command),
        }
    }

    /// The request to the turn; `Err` is the reason why the line is no valid request.
    fn ask(&mut self, id: Id, request: Request) -> Result<BoxFuture<'static, Reply>, String> {
        if let Some((why, _)) = asked_by(&request).and_then(|asked| self.grant.lacks(asked)) {
            let kind = if matches!(request, Request::Context(_)) { Unmet::Context } else { Unmet::Refused };
            return Ok(ready(Reply::Unmet { kind, error: TurnError::terminal(why), output: None }).boxed());
        }
        let turn = self.turn.clone();
        Ok(match request {
            Request::Step { name, once, is_tool } => step(turn, name, once, is_tool, id, self.begun.clone()).boxed(),
            Request::Delegate(delegate) => delegated(turn, delegate).boxed(),
            Request::Ask(question) => async move { Reply::of(turn.people().ask(question).await) }.boxed(),
            Request::Approve { action, each_time, reason } => async move {
                let people = turn.people().because(&*reason);
                let approved = match each_time {
                    true => people.approve_each_time(action).await,
                    false => people.approve(action).await,
                };
                Reply::of(approved.and_then(|action| Json::of(action).map_err(TurnError::from)))
            }
            .boxed(),
            Request::CheckHandoff(command) => async move {
                match turn.check_handoff(&command).await {
                    Ok(None) => Reply::Value(Json::null()),
                    Ok(Some(refusal)) => Reply::failed(refusal.into()),
                    Err(error) => Reply::failed(error),
                }
            }
            .boxed(),
            Request::Context(entry) => async move { of_context(turn.context(), entry).await }.boxed(),
            Request::Reserve(_) if self.reservations.len() >= MAX_OPEN => {
                return Err(format!("at most {MAX_OPEN} reservations may be open at once"));
            }
            Request::Reserve(tokens) => {
                let held = self.tokens.hold(id, tokens);
                async move {
                    let reserved = match held {
                        Ok(()) => turn.reserve(tokens).await,
                        Err(error) => return Reply::Unmet { kind: Unmet::Refused, error, output: None },
                    };
                    reserved.map_or_else(Reply::failed, Reply::Reserved)
                }
                .boxed()
            }
            Request::Settle(reserved, usage) => {
                let reservation = self.reservations.remove(&reserved);
                let reservation = reservation.ok_or_else(|| format!("there is no open reservation {reserved}"))?;
                self.tokens.settle(reserved, usage.map_or(0, Usage::total));
                let reported = match usage {
                    Some(usage) => reservation.settle(usage),
                    None => reservation.release(),
                };
                async move {
                    match reported.await {
                        Ok(()) => Reply::Value(Json::null()),
                        Err(late) => Reply::Unmet { kind: Unmet::TooLate, error: late, output: None },
                    }
                }
                .boxed()
            }
        })
    }
}

/// The tool of models that does what the request asks for; its role has to grant that one.
fn asked_by(request: &Request) -> Option<Asked<'static>> {
    let of_context = |name, effect| Some(Asked::Tool(name, Some(effect)));
    match request {
        Request::Delegate(_) => Some(MetaTool::Task.asked()),
        Request::Ask(_) => Some(MetaTool::AskUser.asked()),
        Request::CheckHandoff(_) => Some(MetaTool::HandoffToAgent.asked()),
        Request::Context(Entry::Get { .. }) => of_context("ContextGet", Effect::Reads),
        Request::Context(Entry::Query { .. }) => of_context("ContextQuery", Effect::Reads),
        Request::Context(Entry::Search { .. }) => of_context("ContextSearch", Effect::Reads),
        Request::Context(Entry::Set { .. }) => of_context("ContextSet", Effect::Notes),
        Request::Context(Entry::Touch { .. }) => of_context("ContextTouch", Effect::Notes),
        Request::Context(Entry::Delete { .. }) => of_context("ContextDelete", Effect::Notes),
        Request::Step { .. } | Request::Approve { .. } | Request::Reserve(_) | Request::Settle(..) => None,
    }
}

/// A complete line; `None` at the end.
fn whole(line: Option<Line>, has_spoken: bool) -> Result<Option<Vec<u8>>, Broken> {
    match line {
        Some(Line::Whole(line)) => Ok(Some(line)),
        Some(Line::Cut(line)) => {
            let why = format!("it has more than {} MiB", MAX_LINE >> 20);
            Err(Broken::Unfit(wrote(&BadLine::new(&line[..line.len().min(400)], why))))
        }
        Some(Line::Unended(_)) => Err(Broken::Ended { has_spoken }),
        None => Ok(None),
    }
}

fn wrote(bad: &BadLine) -> String {
    format!("wrote a line that is not of the protocol: {bad}")
}
