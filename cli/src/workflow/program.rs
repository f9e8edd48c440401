//! Runs one turn as a process: its input, its output, and its end when the turn ends.

use std::io::ErrorKind;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command as Process};
use tokio::time::timeout;

use callboard::prelude::*;
use callboard_agents::{ProgramSocket, hide_from};
use callboard_confine::{CoreDumps, apart, start};

use crate::page::brief;
use crate::scratch;
use crate::stores::{VARIABLE, has_variable_a_password};

/// The most that a program may print on standard output, in bytes.
const MAX_OUTPUT: usize = 8 << 20;

/// How much of the end of standard error is kept for the error, in bytes and in lines.
const KEPT_BYTES: usize = 4 << 10;
const KEPT_LINES: usize = 20;

/// How long the streams are read after the program has ended, where processes that it started hold them open.
const AFTER_END: Duration = Duration::from_secs(1);

/// How much of a command line an error shows, in characters.
const SHOWN: usize = 40;

/// The exit codes of a shell for a program that does not exist or cannot be executed: a retry would fail too.
const NOT_RUN: [i32; 2] = [126, 127];

/// Runs the command line once, for this turn. If the turn is stopped, the program and its process group are killed.
pub(crate) async fn take_turn(command: &str, turn: &Turn) -> Result<Command, TurnError> {
    let state = state_file(turn)?;
    let name = &*format!("`{}`", brief(command, SHOWN));
    let mut process = Process::new("sh");
    process.arg("-c").arg(command).kill_on_drop(true);
    // It leads a session and a process group, by which it is killed with the processes that it has started.
    apart(process.as_std_mut(), CoreDumps::Inherited);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    process.env("CALLBOARD_AGENT", turn.agent().as_str());
    process.env("CALLBOARD_RUN", turn.id().run.to_string());
    process.env("CALLBOARD_TURN", turn.id().number.to_string());
    process.env("CALLBOARD_ATTEMPT", turn.attempt().to_string());
    process.env("CALLBOARD_STATE", state.path());
    if has_variable_a_password() {
        process.env_remove(VARIABLE);
    }
    match turn.node() {
        Some(node) => process.env("CALLBOARD_NODE", node),
        None => process.env_remove("CALLBOARD_NODE"),
    };
    let cannot = |error: std::io::Error| TurnError::terminal(format!("{name} cannot be run: {error}"));
    hide_from(process.as_std_mut(), &[state.path()]).map_err(cannot)?;
    let socket = ProgramSocket::pass(process.as_std_mut(), turn).map_err(cannot)?;
    // Registered, so that the reaper of orphans does not take its status.
    let (mut child, _started) = start(|| process.spawn(), Child::id).map_err(cannot)?;
    let mut group = ProcessGroupGuard::of(&child);
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(TurnError::terminal(format!("{name} has no standard streams")));
    };
    let input = match turn.input_json().as_str() {
        Some(text) => text.to_owned(),
        None => turn.input_json().to_string(),
    };
    let write = async move {
        match stdin.write_all(input.as_bytes()).await {
            // A program need not read its input.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(TurnError::transient(error.to_string())),
            Ok(()) | Err(_) => Ok(()),
        }
    };
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let status = {
        let mut streams = pin!(async {
            tokio::try_join!(write, whole(stdout, &mut output, name), end_of(stderr, &mut errors)).map(|_| ())
        });
        let mut are_read = false;
        loop {
            tokio::select! {
                done = &mut streams, if !are_read => {
                    done?;
                    are_read = true;
                }
                status = child.wait() => {
                    if !are_read {
                        // Processes that it started may hold the streams open without end.
                        timeout(AFTER_END, streams).await.unwrap_or(Ok(()))?;
                    }
                    break status;
                }
                () = socket.waits() => {}
            }
        }
    };
    let status = status.map_err(|error| TurnError::transient(error.to_string()))?;
    group.has_ended();
    if status.success() { Ok(Command::output(value(output, name)?)) } else { Err(failure(name, status, &errors)) }
}

/// The channels as the turn sees them, as JSON in a file that is removed with the turn.
fn state_file(turn: &Turn) -> Result<NamedTempFile, TurnError> {
    let cannot =
        |error: std::io::Error| TurnError::transient(format!("the state cannot be written to a file: {error}"));
    let mut file = scratch::file(".json").map_err(cannot)?;
    std::io::Write::write_all(&mut file, turn.state().to_json().to_string().as_bytes()).map_err(cannot)?;
    Ok(file)
}

/// Reads all of standard output; an error beyond [`MAX_OUTPUT`].
async fn whole(mut stdout: impl AsyncRead + Unpin, output: &mut Vec<u8>, name: &str) -> Result<(), TurnError> {
    while read(&mut stdout, output).await? {
        if output.len() > MAX_OUTPUT {
            return Err(TurnError::terminal(format!("{name} printed more than {} MiB", MAX_OUTPUT >> 20)));
        }
    }
    Ok(())
}

/// Reads all of standard error, and keeps its end.
async fn end_of(mut stderr: impl AsyncRead + Unpin, kept: &mut Vec<u8>) -> Result<(), TurnError> {
    while read(&mut stderr, kept).await? {
        let surplus = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..surplus);
    }
    Ok(())
}

/// Reads once; `false` at the end of the stream. Cancel safe.
async fn read(stream: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>) -> Result<bool, TurnError> {
    let mut buffer = [0; KEPT_BYTES];
    let count = stream.read(&mut buffer).await.map_err(|error| TurnError::transient(error.to_string()))?;
    into.extend_from_slice(&buffer[..count]);
    Ok(count > 0)
}

/// The output: parsed if it is JSON, else text without its last line break.
fn value(output: Vec<u8>, name: &str) -> Result<Value, TurnError> {
    let text = String::from_utf8(output)
        .map_err(|error| TurnError::terminal(format!("{name} printed what is not UTF-8: {error}")))?;
    Ok(serde_json::from_str(&text).unwrap_or_else(|_| {
        let line = text.strip_suffix('\n').unwrap_or(&text);
        Value::from(line.strip_suffix('\r').unwrap_or(line))
    }))
}

fn failure(name: &str, status: ExitStatus, errors: &[u8]) -> TurnError {
    let errors = String::from_utf8_lossy(errors);
    let lines: Vec<&str> = errors.trim_end().lines().collect();
    let last = lines[lines.len().saturating_sub(KEPT_LINES)..].join("\n");
    let colon = if last.is_empty() { "" } else { ":\n" };
    let text = format!("{name} {}{colon}{last}", exited(status));
    match status.code() {
        Some(code) if NOT_RUN.contains(&code) => TurnError::terminal(text),
        Some(_) | None => TurnError::transient(text),
    }
}

/// The process group of a program; killed when this is dropped before the program has ended.
struct ProcessGroupGuard(Option<Pid>);

impl ProcessGroupGuard {
    fn of(child: &tokio::process::Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.cast_signed())))
    }

    fn has_ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroupGuard {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // An error means that it has just ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// `exited with status 3`, or `was ended by signal: 9 (SIGKILL)`.
fn exited(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exited with status {code}"),
        None => format!("was ended by {status}"),
    }
}
