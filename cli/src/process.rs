//! How a command runs in this process and how the process ends: the runtime on one thread, what is printed, and the exit code.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use callboard::messages::{RunId, RunResult};
use callboard_server::json as shapes;

use crate::exit::Exit;
use crate::page::{self, Failure, Page, output_text};
use crate::retry::without_limits;
use crate::signals::Signals;
use crate::{orphans, output, protection};

/// How long the runtime's shutdown waits for blocking tasks. Those that are left by then read from a terminal.
const SHUTDOWN: Duration = Duration::from_millis(200);

/// How long a process that a signal has stopped waits until its last output is read.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// How a run ended in this process.
pub(crate) enum End {
    Result(Box<RunResult>),
    /// It has a result, which this terminal has shown already.
    Shown,
    /// It waits for a person; the value is what for, as machines read it.
    Waits(Value),
    /// A signal came.
    Stopped {
        /// The run, if it has begun.
        run: Option<RunId>,
        /// The command line that continues it, if one does.
        resumption: Option<String>,
    },
}

impl End {
    /// A signal came before there was a run.
    pub(crate) fn not_begun() -> Self {
        Self::Stopped { run: None, resumption: None }
    }
}

/// An error where no thread can be started now, at which tokio would panic.
pub(crate) fn try_thread() -> io::Result<()> {
    std::thread::Builder::new().spawn(|| {}).map(drop)
}

pub(crate) fn no_thread(error: &io::Error) -> String {
    format!(
        "a thread cannot be started, and runs need some: {error}; end other processes of this user, or raise the limit of them \
         (`ulimit -u`)"
    )
}

/// Runs the future on one thread: the work of a run is done by other programs and by models.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(no_runtime)?;
    // Prompts at the terminal, and the supervision of programs, block threads of their own.
    try_thread().map_err(|error| Failure::new(Exit::Unavailable, no_thread(&error)))?;
    orphans::adopt();
    runtime.spawn(orphans::reap());
    protection::protect();
    let done = runtime.block_on(work);
    // Turns that are still at work end here, and their programs with them.
    runtime.shutdown_timeout(SHUTDOWN);
    orphans::end();
    done
}

/// Computes an answer that needs no programs, and prints it.
pub(crate) fn print_answer(answer: impl Future<Output = Result<Page, Failure>>, is_json: bool) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    page::print(runtime.map_err(no_runtime).and_then(|runtime| runtime.block_on(answer)), is_json)
}

pub(crate) fn no_runtime(error: io::Error) -> Failure {
    Failure::failed(format!("the runtime cannot be started: {error}"))
}

/// That a signal came, as machines read it.
fn stopped(run: Option<RunId>, resumption: Option<&str>) -> Value {
    let error = if run.is_some() { "a signal came before the run ended" } else { "a signal came before the run began" };
    json!({ "error": error, "code": Exit::Interrupted.code(), "run": run, "to_continue": resumption })
}

/// Prints how the run ended, and returns the exit code of the process.
pub(crate) fn finish(end: Result<End, Failure>, json: bool) -> ExitCode {
    match end {
        Ok(End::Result(result)) => print(move || page::print(Ok(result_page(&result, json)), json)),
        Ok(End::Shown) => print(|| ExitCode::SUCCESS),
        Ok(End::Waits(waits)) => print(move || {
            let page = Page { exit: Exit::Waits, ..Page::new(String::new(), waits) };
            page::print(Ok(page), json)
        }),
        Ok(End::Stopped { run, resumption }) => {
            let stopped = stopped(run, resumption.as_deref());
            let page = Page { exit: Exit::Interrupted, ..Page::new(String::new(), stopped) };
            // A process that a signal has stopped does not wait for readers without end.
            let printed = block_on(async {
                let printing = tokio::task::spawn_blocking(move || page::print(Ok(page), json));
                Ok(tokio::time::timeout(LAST_OUTPUT, printing).await.ok().and_then(Result::ok))
            });
            printed.ok().flatten().unwrap_or(Exit::Interrupted.into())
        }
        Err(failure) => print(move || page::print(Err(failure), json)),
    }
}

/// Prints on a thread of its own: once signal handlers are installed, a signal no longer ends the process by itself, so signals are
/// received here while the print blocks on a reader that does not read.
pub(crate) fn print(print: impl FnOnce() -> ExitCode + Send + 'static) -> ExitCode {
    if try_thread().is_err() {
        output::flush();
        return print();
    }
    let printed = block_on(async {
        let mut signals = Signals::new()?;
        let printing = tokio::task::spawn_blocking(move || {
            output::flush();
            print()
        });
        Ok(tokio::select! {
            biased;
            printed = printing => printed.unwrap_or(Exit::Failed.into()),
            () = signals.next() => Exit::Interrupted.into(),
        })
    });
    printed.unwrap_or(Exit::Failed.into())
}

/// The result of a run: for people its output alone, for machines all of it.
fn result_page(result: &RunResult, as_json: bool) -> Page {
    let RunResult { outcome, output, .. } = result;
    let has_output = outcome.is_finished() && !output.is_null();
    let text = if has_output { format!("{}\n", output_text(output)) } else { String::new() };
    let remarks = if outcome.is_finished() || as_json {
        String::new()
    } else {
        format!("{}\n", output::fit(&format!("error: {}", without_limits(&outcome.to_string()))))
    };
    Page { exit: outcome.into(), remarks, ..Page::new(text, shapes::result(result)) }
}
