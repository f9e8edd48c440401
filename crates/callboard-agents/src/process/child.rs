//! A running program: its streams, its end, and the end of all processes that it has started.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::visible;
use callboard_confine::{CoreDumps, Started, apart, start};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{Signal as Changes, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::coop::consume_budget;
use tokio::task::spawn_blocking;
use tokio::time::{Sleep, sleep, timeout};

use super::group::{Group, GroupGuard};
use super::hidden::{Sockets, hide};
use super::lines::{Line, Lines};
use super::orphans;
use super::turn_socket::{TurnSocket, pass};

/// The longest line of a process, in bytes.
pub(crate) const MAX_LINE: usize = 8 << 20;

/// The most bytes of a line on standard error that are logged.
const MAX_LOGGED: usize = 4 << 10;

/// The most of a program's last standard error that an error shows, in lines and in bytes.
const KEPT_LINES: usize = 20;
const KEPT_BYTES: usize = 4 << 10;

/// The time in which a program that has closed its output has to exit.
const GRACE: Duration = Duration::from_secs(2);

/// The time for which output is read after a program has exited, if its streams stay open: processes that have left its group may
/// hold them.
const LAST_CALL: Duration = Duration::from_secs(1);

/// A program that was started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) group_guard: GroupGuard,
    pub(crate) input: Input,
    pub(crate) output: Output,
    /// By which the programs of its turns delegate.
    pub(crate) socket: Option<TurnSocket>,
}

/// The standard input of a program; `None` once it is closed.
#[derive(Debug)]
pub(crate) struct Input(Option<ChildStdin>);

/// The output of a program, and its end.
#[derive(Debug)]
pub(crate) struct Output {
    stdout: Lines<ChildStdout>,
    end: watch::Receiver<Option<End>>,
    /// Starts when the program is known to have ended; output that it has written is still read.
    last_call: Option<Pin<Box<Sleep>>>,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// `None` if it was already taken.
    status: Option<ExitStatus>,
    /// It continued after it had closed its standard output, and was killed.
    was_mute: bool,
    /// The last lines of its standard error.
    stderr_tail: String,
}

impl Process {
    /// Starts a program, which reaches these of the hidden sockets and inherits the end of its own. `hear` receives each line of its standard
    /// error with its process id, and returns the text that may be shown in an error.
    pub(crate) fn start(
        mut command: Command,
        sockets: Sockets,
        socket: Option<(TurnSocket, OwnedFd)>,
        hear: impl Fn(i32, String) -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let changes = signal(SignalKind::child())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mark = Env::system().id().to_string();
        apart(command.as_std_mut(), CoreDumps::Inherited);
        orphans::mark(command.as_std_mut(), &mark, None);
        hide(command.as_std_mut(), &[], sockets)?;
        let (socket, end) = socket.unzip();
        end.map(|end| pass(command.as_std_mut(), end)).transpose()?;
        let (mut child, started) = start(|| command.kill_on_drop(true).spawn(), Child::id)?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) =
            (pid, child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("it has no standard streams"));
        };
        let group = Group::of(Some(pid));
        let (ended, end) = watch::channel(None);
        tokio::spawn(keep((child, started), (pid, mark), Arc::clone(&group), stderr, hear, changes, ended));
        let output = Output { stdout: Lines::new(stdout, MAX_LINE), end, last_call: None };
        Ok(Self { group_guard: GroupGuard::on(&group), input: Input(Some(stdin)), output, socket })
    }

    /// Whether it can take another turn: its streams have no rest of the last one.
    pub(crate) fn is_clean(&self) -> bool {
        self.input.0.is_some() && !self.output.stdout.has_more() && self.output.end.borrow().is_none()
    }

    /// Its end, once it has closed its output.
    pub(crate) async fn end(mut self) -> End {
        self.output.end(&self.group_guard).await
    }
}

impl Input {
    /// Whether it reads no more.
    #[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "only the pipes of MCP servers ask"))]
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_none()
    }

    /// Writes some bytes; returns how many. Writing to a program that no longer reads is no error, because it may still write.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> usize {
        let Some(stdin) = &mut self.0 else { return bytes.len() };
        match stdin.write(bytes).await {
            Ok(written) if written > 0 => written,
            Ok(_) | Err(_) => {
                self.0 = None;
                bytes.len()
            }
        }
    }
}

impl Output {
    /// The unread bytes after its last line that was taken.
    pub(crate) fn rest(&self) -> &[u8] {
        self.stdout.rest()
    }

    /// Waits for output that the program was not asked for; returns its beginning, or nothing when the program has ended.
    pub(crate) async fn disturbance(&mut self) -> Vec<u8> {
        tokio::select! {
            biased;
            read = self.stdout.peek() => read.map(<[u8]>::to_vec).unwrap_or_default(),
            _ = self.end.wait_for(Option::is_some) => Vec::new(),
        }
    }

    /// The next line; `None` at the end. Cancel safe: nothing is lost when the future is dropped.
    pub(crate) async fn line(&mut self) -> Option<Line> {
        if self.last_call.is_none() {
            tokio::select! {
                biased;
                line = self.stdout.next() => return line.ok().flatten(),
                // The task that keeps it ends only with the runtime.
                _ = self.end.wait_for(Option::is_some) => {}
            }
        }
        let last_call = self.last_call.get_or_insert_with(|| Box::pin(sleep(LAST_CALL)));
        tokio::select! {
            biased;
            line = self.stdout.next() => line.ok().flatten(),
            () = last_call => None,
        }
    }

    /// Its end, once it has closed its output.
    pub(crate) async fn end(&mut self, group_guard: &GroupGuard) -> End {
        let is_over = timeout(GRACE, self.end.wait_for(Option::is_some)).await.is_ok();
        group_guard.kill();
        let end = self.end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        let end = end.unwrap_or(End { status: None, was_mute: false, stderr_tail: String::new() });
        End { was_mute: !is_over, ..end }
    }
}

impl End {
    /// `exited with status 3`, when, and its last standard error.
    pub(crate) fn reported(&self, when: &str) -> String {
        let how = match self.status {
            _ if self.was_mute => "closed its standard output".to_owned(),
            Some(status) => in_words(status),
            None => "ended".to_owned(),
        };
        let (colon, stderr_tail) = if self.stderr_tail.is_empty() { ("", "") } else { (":\n", &*self.stderr_tail) };
        format!("{how}{when}{colon}{stderr_tail}")
    }
}

/// `exited with status 3`, or `was ended by signal: 9 (SIGKILL)`.
fn in_words(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exited with status {code}"),
        None => format!("was ended by {status}"),
    }
}

/// Kills the group when the runtime ends.
struct Keeping(Arc<Group>);

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// The processes that a program has started and that have left its group. They are found by a variable of its environment, and
/// killed when this is dropped: also if the runtime ends before they were searched for. That reads `/proc`, so it blocks.
struct Orphans(String);

impl Drop for Orphans {
    fn drop(&mut self) {
        orphans::kill(orphans::MARK, &self.0);
    }
}

/// Waits for a program's end: logs its standard error, and reaps it after its group was killed, so that no zombie stays.
async fn keep(
    (mut child, started): (Child, Started),
    (pid, mark): (Pid, String),
    group: Arc<Group>,
    stderr: ChildStderr,
    hear: impl Fn(i32, String) -> String,
    changes: Changes,
    ended: watch::Sender<Option<End>>,
) {
    // The group is killed first, however this ends.
    let (orphans, keeping) = (Orphans(mark), Keeping(group));
    let (mut lines, mut stderr_tail) = (Lines::new(stderr, MAX_LOGGED), StderrTail::default());
    let mut exited = pin!(exited(pid, changes));
    tokio::select! {
        biased;
        () = &mut exited => {}
        () = log(&mut lines, &mut stderr_tail, &hear, pid) => exited.await,
    }
    drop(keeping);
    let status = child.wait().await.ok();
    drop(started);
    if Env::can_start_thread() {
        let _ = timeout(LAST_CALL, spawn_blocking(move || drop(orphans))).await;
    } else {
        drop(orphans);
    }
    // Streams that other processes hold open are closed here.
    let _ = timeout(LAST_CALL, log(&mut lines, &mut stderr_tail, &hear, pid)).await;
    ended.send_replace(Some(End { status, was_mute: false, stderr_tail: stderr_tail.text() }));
}

/// Logs what the program writes on its standard error, until that ends.
async fn log<R: AsyncRead + Unpin>(
    lines: &mut Lines<R>,
    tail: &mut StderrTail,
    hear: &impl Fn(i32, String) -> String,
    pid: Pid,
) {
    while let Ok(Some(line)) = lines.next().await {
        tail.add(line, hear, pid);
        // Lines that have been read together wait for nothing, and the thread has other work.
        consume_budget().await;
    }
}

/// Returns when the program has exited, without reaping it.
async fn exited(pid: Pid, mut changes: Changes) {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT) {
            Ok(None) => {}
            Err(Errno::INTR) => continue,
            // Code that reaps all children has reaped this one.
            Ok(Some(_)) | Err(_) => return,
        }
        if changes.recv().await.is_none() {
            return;
        }
    }
}

/// The last lines on a standard error.
#[derive(Default)]
struct StderrTail {
    lines: VecDeque<String>,
    bytes: usize,
}

impl StderrTail {
    fn add(&mut self, line: Line, hear: &impl Fn(i32, String) -> String, pid: Pid) {
        let (text, rest) = match &line {
            Line::Whole(text) | Line::Unended(text) => (text, ""),
            Line::Cut(text) => (text, "…"),
        };
        let line = hear(pid.as_raw_nonzero().get(), visible(&String::from_utf8_lossy(text)) + rest);
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > KEPT_LINES || (self.bytes > KEPT_BYTES && self.lines.len() > 1) {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }

    fn text(self) -> String {
        Vec::from(self.lines).join("\n")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_flood_of_lines_leaves_the_thread_to_others() {
        let (flood, heard) = ([b'\n'; 100_000], Cell::new(0_u32));
        let (mut lines, mut tail) = (Lines::new(&flood[..], MAX_LOGGED), StderrTail::default());
        let hear = |_, line| {
            heard.set(heard.get() + 1);
            line
        };
        let mut logging = pin!(log(&mut lines, &mut tail, &hear, Pid::INIT));
        assert!(logging.as_mut().now_or_never().is_none() && (1..1_000).contains(&heard.get()), "{}", heard.get());
        logging.await;
        assert_eq!(heard.get(), 100_000);
    }
}
