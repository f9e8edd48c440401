//! A person at a pseudo-terminal, with echo and line editing, where end of input is a key, and a program on it.
//!
//! The person reads and types on the other side, and waits for the program's output before each answer.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Longer than any program takes to print something on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// The person's side of a terminal, and the program on the other.
pub(crate) struct Screen {
    program: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    /// Everything that was shown.
    seen: Vec<u8>,
    /// How much of it was read.
    read: usize,
}

impl Screen {
    /// The program on a terminal of its own.
    pub(crate) fn of(program: Process) -> Self {
        Self::typed_ahead(program, "")
    }

    /// As [`Screen::of`], on a terminal where these keys were pressed before the program began.
    pub(crate) fn typed_ahead(program: Process, keys_before: &str) -> Self {
        Self::begin(program, keys_before, None)
    }

    /// As [`Screen::of`], on a terminal that is so many columns wide.
    pub(crate) fn of_columns(program: Process, columns: u16) -> Self {
        Self::begin(program, "", Some(columns))
    }

    fn begin(mut program: Process, keys_before: &str, columns: Option<u16>) -> Self {
        // Programs that other tests of this process start inherit neither side, or its end would not be seen before theirs.
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let theirs = || -> Stdio {
            let end: OwnedFd =
                rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
            end.into()
        };
        program.stdin(theirs()).stdout(theirs()).stderr(theirs());
        if let Some(columns) = columns {
            tcsetwinsize(&person, size(columns)).unwrap();
        }
        let mut keys = File::from(person);
        keys.write_all(keys_before.as_bytes()).unwrap();
        let running = program.spawn().unwrap();
        // Only the program holds its side now: its end is seen.
        drop(program);
        let mut screen = keys.try_clone().unwrap();
        let (show, shown) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // The read fails when the program has closed its side.
            while let Ok(length @ 1..) = screen.read(&mut chunk) {
                if show.send(chunk[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { program: running, keys, shown, seen: Vec::new(), read: 0 }
    }

    /// Reads on until this is shown, and returns what was shown until then.
    pub(crate) fn until(&mut self, expected: &str) -> String {
        let expected = expected.replace('\n', "\r\n");
        loop {
            let unread = &self.seen[self.read..];
            if let Some(at) = unread.windows(expected.len()).position(|shown| shown == expected.as_bytes()) {
                let text = text(&unread[..at + expected.len()]);
                self.read += at + expected.len();
                return text;
            }
            match self.shown.recv_timeout(DEADLINE) {
                Ok(chunk) => self.seen.extend(chunk),
                Err(why) => panic!("{expected:?} is not shown ({why}) in: {}", text(&self.seen)),
            }
        }
    }

    /// Makes the terminal so many columns wide.
    pub(crate) fn resize(&self, columns: u16) {
        tcsetwinsize(&self.keys, size(columns)).unwrap();
    }

    /// Presses these keys.
    pub(crate) fn types(&mut self, keys: impl AsRef<[u8]>) {
        self.keys.write_all(keys.as_ref()).unwrap();
    }

    /// Answers yes to this card, as a person does who has read it.
    pub(crate) fn consents(&mut self, card: &str) {
        self.types(format!("y {}\n", code_on(card)));
    }

    /// Sends the program a signal.
    pub(crate) fn sends(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.program), signal).unwrap();
    }

    /// Ends the program by SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.program.kill().unwrap();
        self.program.wait().unwrap();
    }

    /// Waits for the program's end, which is a good one.
    pub(crate) fn ended(self) -> String {
        let (code, seen) = self.exited();
        assert_eq!(code, Some(0), "{seen}");
        seen
    }

    /// Waits for the program's end: its code, and everything that was shown.
    pub(crate) fn exited(mut self) -> (Option<i32>, String) {
        loop {
            match self.shown.recv_timeout(DEADLINE) {
                Ok(chunk) => self.seen.extend(chunk),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {}", text(&self.seen)),
            }
        }
        (self.program.wait().unwrap().code(), text(&self.seen))
    }
}

fn size(columns: u16) -> Winsize {
    Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// A program that a test has let go of is stopped.
impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// The code on the last card of what was shown.
pub(crate) fn code_on(card: &str) -> &str {
    card.lines()
        .rev()
        .find_map(|line| line.strip_prefix("code      "))
        .unwrap_or_else(|| panic!("no code is on {card}"))
}

/// What was shown, with the line ends of programs instead of those of terminals.
fn text(shown: &[u8]) -> String {
    String::from_utf8_lossy(shown).replace("\r\n", "\n")
}
