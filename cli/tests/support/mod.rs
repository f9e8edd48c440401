//! What the tests of the command line share: the program as a process, folders with agents, a model, a project and a store with runs.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "each test binary uses its part of it; a test may panic"
)]

pub(crate) mod agents;
pub(crate) mod bot;
pub(crate) mod homeserver;
pub(crate) mod mail;
pub(crate) mod model;
#[cfg(target_os = "linux")]
pub(crate) mod orders;
pub(crate) mod project;
pub(crate) mod relay;
pub(crate) mod running;
pub(crate) mod runs;
pub(crate) mod serving;

use std::borrow::BorrowMut;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub(crate) const CALLBOARD: &str = env!("CARGO_BIN_EXE_callboard");

/// What the program has printed, and its exit code; `None` if a signal has ended it.
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl From<Output> for Printed {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
    }
}

impl Printed {
    /// Standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        self.parsed()
    }

    /// Standard output as JSON of this type.
    pub(crate) fn parsed<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {} {}", self.out, self.error))
    }

    /// The rest of the line of standard error that begins with this.
    pub(crate) fn line(&self, prefix: &str) -> &str {
        let line = self.error.lines().find_map(|line| line.strip_prefix(prefix));
        line.unwrap_or_else(|| panic!("{prefix:?} is not printed: {}", self.error))
    }

    /// The arguments of the command line that is printed to continue the run.
    pub(crate) fn continuation(&self) -> Vec<&str> {
        self.line("to continue: callboard ").split(' ').collect()
    }
}

/// `callboard ARGUMENTS` in the folder, with an empty standard input, no keys of providers, and the state folder of all tests.
pub(crate) fn command(folder: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(CALLBOARD);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("USER", "ann");
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// Runs `callboard ARGUMENTS` in the folder to its end.
pub(crate) fn callboard(folder: impl AsRef<Path>, arguments: &[&str]) -> Printed {
    output_of(command(folder, arguments))
}

/// Runs a command to its end.
pub(crate) fn output_of(mut command: impl BorrowMut<Command>) -> Printed {
    let command: &mut Command = command.borrow_mut();
    command.output().unwrap().into()
}

/// The short id of a run.
pub(crate) fn short(run: &str) -> String {
    format!("req-{}", run.rsplit('-').next().unwrap())
}

/// Waits for the end of a process.
pub(crate) fn ended(child: Child) -> Printed {
    child.wait_with_output().unwrap().into()
}

/// A process that is killed when this is dropped.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with these files.
pub(crate) fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| write(&folder, name, text));
    folder
}

/// Writes a file in the folder; one whose name ends with `.sh` can be executed.
pub(crate) fn write(folder: impl AsRef<Path>, name: &str, text: &str) {
    let file = folder.as_ref().join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    if file.extension().is_some_and(|extension| extension == "sh") {
        write_program(&file, text);
    } else {
        fs::write(&file, text).unwrap();
    }
}

/// Writes a program. Another process does so: what this one has open for writing is open, for a moment, in programs that other tests
/// start too, and nothing can be executed meanwhile.
fn write_program(file: &Path, text: &str) {
    let mut shell =
        Command::new("sh").args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(file).stdin(Stdio::piped()).spawn();
    let shell = shell.as_mut().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}

/// Copies the program under test, as [`write_program`] writes one.
pub(crate) fn copy_callboard(to: &Path) {
    assert!(Command::new("cp").arg(CALLBOARD).arg(to).status().unwrap().success());
}

/// The text of a file in the folder; `None` if there is none.
pub(crate) fn content(folder: impl AsRef<Path>, path: &str) -> Option<String> {
    fs::read_to_string(folder.as_ref().join(path)).ok()
}

/// Makes a named pipe.
pub(crate) fn make_pipe(path: impl AsRef<Path>) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    mknodat(CWD, path.as_ref(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Calls `check` with each kind of entry that is not read as a file of a folder, at `path`, and the problem that is reported of it.
/// A link to `secret`, which is outside of the folder, is one of them.
pub(crate) fn for_each_wrong_entry(path: &Path, secret: &Path, check: impl Fn(&str, &str)) {
    use std::os::unix::fs::symlink;

    let cases: [(&str, &dyn Fn(), &str); 4] = [
        ("fifo", &|| make_pipe(path), "no regular file"),
        ("folder", &|| fs::create_dir(path).unwrap(), "no regular file"),
        ("dangling", &|| symlink("nothing", path).unwrap(), "a link to nothing"),
        ("link", &|| symlink(secret, path).unwrap(), "leads out of its folder"),
    ];
    for (case, make, problem) in cases {
        make();
        check(case, problem);
        fs::remove_file(path).or_else(|_| fs::remove_dir(path)).unwrap();
    }
}

/// Asserts that a text has no characters that change how a terminal shows it.
pub(crate) fn assert_visible(text: &str) {
    let deceiving = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(deceiving), "{text:?}");
}
