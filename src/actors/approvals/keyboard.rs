//! The person at the terminal: prints a question with a prompt, and reads a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, PipeReader, Write};

use super::Rows;

/// How a question at a terminal ended, as [`Keyboard::ask_unless`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// The line that was typed, without its line break; bytes that are not UTF-8 are replaced by U+FFFD.
    Line(String),
    /// The input of the terminal has ended, for example by Ctrl-D, or cannot be read.
    End,
    /// The question was withdrawn before a line was complete.
    Withdrawn,
}

/// The assumed width of a terminal that reports none, in columns.
const COLUMNS: usize = 80;

/// The terminal at which this process is used, opened apart from standard input and closed in every program that is started.
///
/// Questions go to standard error. What was typed before a question was complete is discarded: it cannot have been meant for it.
#[derive(Debug)]
pub struct Keyboard {
    input: BufReader<File>,
}

impl Keyboard {
    /// The terminal of this process; `None` where standard input or standard error is none, because then nobody sees the
    /// question or it is not a person who answers.
    #[must_use]
    pub fn open() -> Option<Self> {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return None;
        }
        Some(Self { input: BufReader::new(open_terminal()?) })
    }

    /// How wide the terminal of standard error is, in columns; 80 if it does not say. `None` if standard error is no terminal.
    #[must_use]
    pub fn columns() -> Option<usize> {
        io::stderr().is_terminal().then(columns)
    }

    /// Shows a text, folded to the terminal's width, whose last line is a prompt, and returns the next line that is typed
    /// after it, without its line break. `None` at the end of the input. Blocks until then.
    ///
    /// If the terminal has become narrower by then, it may have wrapped the text, and the middle of a line may have begun a row:
    /// then the line answers nothing, and the text is shown again.
    pub fn ask(&mut self, question: &str) -> Option<String> {
        match self.asked(question, None) {
            Typed::Line(line) => Some(line),
            Typed::End | Typed::Withdrawn => None,
        }
    }

    /// As [`Keyboard::ask`], and returns as soon as the question is withdrawn: when the other end of this pipe ([`io::pipe`]), which
    /// another thread may hold, is dropped. On Windows only a line ends it.
    pub fn ask_unless(&mut self, question: &str, withdrawal: &PipeReader) -> Typed {
        self.asked(question, Some(withdrawal))
    }

    fn asked(&mut self, question: &str, withdrawal: Option<&PipeReader>) -> Typed {
        loop {
            let width = columns();
            let question = Rows::fold(question, width);
            let (text, prompt) = question.split_at(question.rfind('\n').map_or(0, |end| end + 1));
            show(text);
            self.forget();
            show(prompt);
            if withdrawal.is_some_and(|withdrawal| self.is_withdrawn_first(withdrawal)) {
                return Typed::Withdrawn;
            }
            let mut line = Vec::new();
            let read = self.input.read_until(b'\n', &mut line);
            if !read.is_ok_and(|bytes| bytes > 0) {
                return Typed::End;
            }
            if columns() >= width {
                // Invalid UTF-8 is no clear answer, but not the end of the input either.
                return Typed::Line(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned());
            }
            show("the terminal has become narrower: this is shown again, and your answer was not taken\n");
        }
    }

    /// Waits until a line is complete, or the question is withdrawn, which the end of the pipe signals.
    #[cfg(unix)]
    fn is_withdrawn_first(&self, withdrawal: &PipeReader) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        use rustix::io::Errno;

        loop {
            let mut ready = [PollFd::new(withdrawal, PollFlags::IN), PollFd::new(self.input.get_ref(), PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) if !ready[0].revents().is_empty() => return true,
                Ok(_) if !ready[1].revents().is_empty() => return false,
                Ok(_) | Err(Errno::INTR) => {}
                // The following read returns the error.
                Err(_) => return false,
            }
        }
    }

    #[cfg(not(unix))]
    fn is_withdrawn_first(&self, _: &PipeReader) -> bool {
        false
    }

    /// Discards typed input that was not read.
    fn forget(&mut self) {
        let buffered = self.input.buffer().len();
        self.input.consume(buffered);
        #[cfg(unix)]
        {
            use rustix::termios::{QueueSelector, tcdrain, tcflush};
            // Input that was typed before the card was shown cannot be an answer to it.
            let _ = tcdrain(io::stderr());
            let _ = tcflush(self.input.get_ref(), QueueSelector::IFlush);
        }
    }
}

/// As [`Keyboard::columns`], where there is a terminal.
pub(super) fn columns() -> usize {
    #[cfg(unix)]
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    #[cfg(not(unix))]
    let columns = 0;
    if columns == 0 { COLUMNS } else { columns }
}

/// Shows a text on standard error.
pub(super) fn show(text: &str) {
    let mut out = io::stderr().lock();
    // If the terminal is gone, nothing is shown and the approval stays open.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Opens the terminal by its name: programs that inherited standard input do not share the state of this descriptor. It does not
/// become the controlling terminal.
#[cfg(unix)]
fn open_terminal() -> Option<File> {
    use std::os::fd::AsFd as _;
    use std::os::unix::ffi::OsStringExt as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    use rustix::fs::OFlags;

    let stdin = io::stdin();
    let opened = rustix::termios::ttyname(&stdin, Vec::new()).ok().and_then(|name| {
        let path = std::ffi::OsString::from_vec(name.into_bytes());
        let flags = i32::try_from(OFlags::NOCTTY.bits()).ok()?;
        File::options().read(true).custom_flags(flags).open(path).ok()
    });
    // A terminal of another user or of another mount namespace can be used, but not opened.
    opened.or_else(|| Some(File::from(stdin.as_fd().try_clone_to_owned().ok()?)))
}

#[cfg(not(unix))]
fn open_terminal() -> Option<File> {
    File::open("CONIN$").ok()
}
