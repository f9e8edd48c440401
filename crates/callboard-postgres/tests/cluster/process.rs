//! The processes of boards, as the driver sees them.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::SyncSender;

use rustix::process::{Pid, Signal, kill_process};

use crate::board::{BOARD, LINE, Life};

pub(crate) enum Event {
    Tick,
    Line(String, String),
    Closed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Starting,
    Ready,
    /// Stopped until its session has ended.
    Frozen,
    /// Cut off until its session has ended.
    Apart,
    /// It does not notice that its lease is over, and ends when the store refuses what it writes.
    Zombie,
    /// It was killed, shuts down, or has to end because its session was ended.
    Ending,
    /// It has ended, and starts again with the next look.
    Down,
}

pub(crate) struct Process {
    pub(crate) life: Life,
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) state: State,
    /// The last that it said.
    pub(crate) last: String,
    pub(crate) was_killed: bool,
    /// At which look it was noted as fenced while it worked on.
    pub(crate) fenced_at: Option<u64>,
}

impl Process {
    /// Starts one, which says what it has to say to `sender`.
    pub(crate) fn start(life: Life, sender: &SyncSender<Event>) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_board", "--nocapture", "--quiet"])
            .env(BOARD, life.to_lines())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, who) = (sender.clone(), life.who());
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            while stdout.read_line(&mut line).is_ok_and(|length| length > 0) {
                // Of one that was killed the last line may be torn.
                if let Some(said) = line.strip_prefix(LINE).and_then(|line| line.strip_suffix('\n'))
                    && sender.send(Event::Line(who.clone(), said.to_owned())).is_err()
                {
                    return;
                }
                line.clear();
            }
            let _ = sender.send(Event::Closed(who));
        });
        Self { life, child, stdin, state: State::Starting, last: String::new(), was_killed: false, fenced_at: None }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        self.was_killed = true;
        if !matches!(self.state, State::Apart | State::Zombie) {
            self.state = State::Ending;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
