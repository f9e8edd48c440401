//! `callboard send`, `status` and `wait` in a program that an agent's turn has started: by the turn's socket, in the name of its agent
//! (docs/process-agents.md). Whatever starts such a program cannot delegate in another way.

use std::io;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use callboard::env::Env;
use callboard::messages::{Refusal, visible, visible_lines};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send as send_to};

use crate::exit::Exit;
use crate::page::{Failure, Page, output_text};

use super::arguments::{Delivery, Send, Status, Wait};

/// The variable with the number of the descriptor.
const VARIABLE: &str = "CALLBOARD_TURN_SOCKET";

/// The protocol version of the socket.
const VERSION: u64 = 1;

/// The longest answer, in bytes.
const MAX_ANSWER: usize = 8 << 20;

/// How long an answer may take, and how long the socket may be in use by other programs of the turn.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// The pauses before a delegation is asked about again.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];

/// The socket of the turn that has started this process.
pub(super) struct TurnSocket(UnixStream);

impl TurnSocket {
    /// `None` if no turn has started this process.
    ///
    /// # Errors
    /// What the variable names is no socket of a turn.
    pub(super) fn inherited() -> Option<Result<Self, Failure>> {
        (std::env::var_os(VARIABLE)? == "3").then(|| {
            let foreign = |why: &str| {
                let text =
                    format!("{VARIABLE} is set, and descriptor 3 is not the socket of a turn of callboard: {why}");
                Failure::new(Exit::Denied, text)
            };
            let socket = callboard_confine::inherited().map_err(|error| foreign(&error.to_string()))?;
            let socket = Self(socket);
            let answer = socket.request(&json!({ "type": "hello", "protocol": VERSION }))?;
            match answer["type"].as_str() {
                Some("turn") if answer["protocol"] == VERSION => Ok(socket),
                _ => Err(foreign(answer["error"].as_str().unwrap_or("it answers something else"))),
            }
        })
    }

    /// Sends a request, and returns its answer. Programs of one turn share the socket, so the answers of one would be read by another: a
    /// lock keeps them apart. The kernel releases it when this process ends.
    fn request(&self, request: &Value) -> Result<Value, Failure> {
        let unusable = |error: io::Error| {
            Failure::new(Exit::Unavailable, format!("the socket of this agent's turn cannot be used: {error}"))
        };
        let until = now() + ANSWERED_WITHIN;
        while let Err(error) = fcntl_lock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            if !matches!(error, Errno::AGAIN | Errno::ACCESS | Errno::INTR) {
                return Err(unusable(error.into()));
            }
            if now() >= until {
                let text = "another program of this agent's turn uses the socket of the turn, and does not release it";
                return Err(Failure::new(Exit::Unavailable, text.to_owned()));
            }
            sleep(Duration::from_millis(5));
        }
        let answer = self.exchange(request, until);
        let released = fcntl_lock(&self.0, FlockOperation::Unlock).map_err(io::Error::from);
        answer.and_then(|answer| released.map(|()| answer)).map_err(unusable)
    }

    /// Reads while it writes, because the answer to a program that has ended may fill the socket. Other lines than the answer are skipped.
    fn exchange(&self, request: &Value, until: Duration) -> io::Result<Value> {
        // A number that no other program of the turn uses.
        let id = Env::system().id().as_u64_pair().1 >> 12;
        let mut line = request.clone();
        line["id"] = json!(id);
        // The first line feed ends what a program has left that ended while it wrote.
        let line = format!("\n{line}\n");
        let (mut unsent, mut read) = (line.as_bytes(), Vec::new());
        let mut buffer = vec![0; 64 << 10];
        loop {
            let left = until.saturating_sub(now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
            }
            let wanted = if unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let mut ready = [PollFd::new(&self.0, wanted)];
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut ready, Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready = ready[0].revents();
            if ready.contains(PollFlags::OUT) {
                match send_to(&self.0, unsent, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(sent) => unsent = &unsent[sent..],
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                match recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT) {
                    Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok((_, received)) => read.extend_from_slice(&buffer[..received]),
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = read.drain(..=end).collect();
                if let Ok(answer) = serde_json::from_slice::<Value>(&line)
                    && answer["id"] == id
                {
                    return Ok(answer);
                }
            }
            if read.len() > MAX_ANSWER {
                return Err(io::Error::other("its answer is too long"));
            }
        }
    }

    /// Where a delegation stands.
    fn standing(&self, how: &str, request: &str) -> Result<Value, Failure> {
        accepted(self.request(&json!({ "type": how, "request": request }))?)
    }

    /// Delegates a task; with `--wait`, waits for its answer.
    pub(super) fn send(&self, arguments: &Send, within: Duration) -> Result<Page, Failure> {
        let Send { to, task, input, delivery: Delivery { limits, reference, key, wait, choice: _, json: _ } } =
            arguments;
        if limits.is_some() || key.is_some() {
            let text = "within the turn of an agent, --limits and --key have no meaning: what is delegated has the limits of the agent's \
                        run, and a repeated turn delegates the same; leave them out";
            return Err(Failure::usage(text.to_owned()));
        }
        let mut request = json!({ "type": "delegate", "to": to, "body": task, "wait": wait });
        if let Some(input) = input {
            request["input"] = input.clone();
        }
        if let Some(reference) = reference {
            request["reference"] = json!(reference);
        }
        let answer = accepted(self.request(&request)?)?;
        let id = answer["request"].as_str().unwrap_or_default().to_owned();
        if *wait {
            return self.wait(&id, within);
        }
        let json = json!({ "request_id": id, "to_agent": to, "status": "ack" });
        let done = Some(format!("the task is journaled as {}", visible(&id)));
        Ok(Page { done, ..Page::of_data(&visible(&id), &format!("delegated to {}", visible(to)), json) })
    }

    pub(super) fn status(&self, arguments: &Status) -> Result<Page, Failure> {
        let standing = self.standing("status", &arguments.run)?;
        Ok(Page::new(status_line(&standing), shown(&standing)))
    }

    /// Waits until a delegation has ended.
    pub(super) fn wait(&self, request: &str, within: Duration) -> Result<Page, Failure> {
        let (until, [mut pause, longest]) = (now() + within, PAUSES);
        loop {
            let standing = self.standing("wait", request)?;
            match standing["status"].as_str() {
                Some("ack") => {}
                Some("complete") => return Ok(Page::of_end(Exit::Done, Ok(&standing["body"]), shown(&standing))),
                _ => {
                    let why = standing["detail"].as_str().unwrap_or_default();
                    return Ok(Page::of_end(Exit::Failed, Err(why), shown(&standing)));
                }
            }
            if now() >= until {
                let text = format!(
                    "the time is over, and the delegation continues; to wait again: callboard wait {}",
                    visible(request)
                );
                return Err(Failure::new(Exit::TimedOut, text));
            }
            sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }

    /// Runs `callboard wait`.
    pub(super) fn waited(&self, arguments: &Wait) -> Result<Page, Failure> {
        self.wait(&arguments.run, arguments.timeout)
    }
}

fn now() -> Duration {
    Env::system().now().monotonic
}

/// An answer that is no failure. A refusal has the text and the exit code that it has everywhere.
fn accepted(answer: Value) -> Result<Value, Failure> {
    if answer["type"] != "failed" {
        return Ok(answer);
    }
    let refusal = serde_json::from_value::<Refusal>(answer["refusal"].clone()).ok();
    let exit = match (&refusal, answer["kind"].as_str()) {
        (Some(refusal), _) => Exit::from(refusal),
        (None, Some("closed")) => Exit::Denied,
        (None, _) => Exit::Failed,
    };
    Err(Failure::new(exit, visible(answer["error"].as_str().unwrap_or("it was refused"))))
}

/// Where a delegation stands, in words.
fn status_line(standing: &Value) -> String {
    let text = |field: &str| standing[field].as_str().unwrap_or_default();
    let what = match text("status") {
        "complete" => visible_lines(&output_text(&standing["body"])),
        "fail" => visible(text("detail")),
        _ => "the delegation has not ended".to_owned(),
    };
    format!("{}: {what}\n", visible(text("status")))
}

/// A delegation as JSON (docs/json-output.md).
fn shown(standing: &Value) -> Value {
    json!({
        "request_id": standing["request"],
        "status": standing["status"],
        "detail": standing["detail"],
        "body": standing["body"],
    })
}
