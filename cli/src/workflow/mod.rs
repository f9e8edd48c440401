//! `callboard workflow …`: checks workflows, and runs them on a board in this process, with programs, and with agents in files.

pub(crate) mod arguments;
pub(crate) mod checking;
mod drawing;
mod following;
mod history;
mod inputs;
pub(crate) mod people;
mod program;
mod programs;
mod reading;
mod running;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use callboard::messages::RunId;

use crate::orphans;
use crate::page::{self, Failure, Page};
use crate::saying;
use crate::stops::Stops;

use arguments::Workflow;
pub(crate) use following::taking_back;
use running::Terms;
pub(crate) use running::{End, is_left_by_its_store};

/// How long a runtime may take to let go of what it runs. Whatever is left are reads from a terminal.
const LET_GO: Duration = Duration::from_millis(200);

/// How long a process that was stopped waits for its last words to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(crate) fn main(command: Workflow) -> ExitCode {
    match command {
        Workflow::Check { files, line, format: true, .. } => {
            page::print(checking::format(&files, line.as_deref()), false)
        }
        Workflow::Check { files, line, format: false, json } => {
            page::print(checking::check(&files, line.as_deref()), json)
        }
        Workflow::Draw { file, line, svg, run, choice, mermaid: _ } => {
            let files: Vec<_> = file.into_iter().collect();
            let run = run.as_deref().map(|run| (run, &choice));
            page::print(block_on(drawing::draw(&files, line.as_deref(), svg, run)), false)
        }
        Workflow::History { stored, json } => page::print(block_on(history(stored)), json),
        Workflow::Run {
            file,
            line,
            input,
            input_json,
            limits,
            approval_ttl,
            enable_handoffs,
            choice,
            ephemeral,
            conversation,
            going,
        } => {
            let limits = limits.map(|limits| limits.of_new_run());
            let terms = Terms { limits, approval_ttl, handoffs: page::handoffs(enable_handoffs), conversation };
            let files: Vec<_> = file.into_iter().collect();
            let input = inputs::whole(input, input_json);
            let json = going.json;
            let run = async {
                let stores = if ephemeral { None } else { Some(choice.stores()?) };
                running::run((&files, line.as_deref()), input?, terms, stores, &going).await
            };
            finish(block_on(run), json)
        }
        Workflow::Resume { stored, limits: Some(_), going, .. } => {
            print(move || page::print(Err(running::limits_are_kept(&stored.run)), going.json))
        }
        Workflow::Resume { stored, node, change, limits: None, going } => {
            finish(block_on(running::resume(&stored, &node, &change, &going)), going.json)
        }
        Workflow::Retry { stored, limits, going } => {
            finish(block_on(running::retry(&stored, limits.as_ref(), &going)), going.json)
        }
        Workflow::Fork { stored, turn, node, change, going } => {
            let place = (turn, node.as_deref());
            finish(block_on(running::fork(&stored, place, &change, &going)), going.json)
        }
    }
}

async fn history(stored: arguments::Stored) -> Result<Page, Failure> {
    Ok(history::history(&stored.choice.stores()?.load(&stored.run).await?))
}

/// An error where no thread can be started now, at which tokio would panic.
pub(crate) fn try_thread() -> io::Result<()> {
    std::thread::Builder::new().spawn(|| {}).map(drop)
}

fn no_thread(error: &io::Error) -> String {
    format!(
        "a thread cannot be started, and runs need some: {error}; end other processes of this user, or raise the limit of them \
         (`ulimit -u`)"
    )
}

/// Runs it on one thread: the work is that of the programs.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::trouble(format!("the runtime cannot be started: {error}")))?;
    // Persons are asked, and programs are seen to their end, on threads of their own.
    try_thread().map_err(|error| Failure::trouble(no_thread(&error)))?;
    orphans::adopt();
    runtime.spawn(orphans::reap());
    let done = runtime.block_on(work);
    // Turns that are still at work end here, and their programs with them.
    runtime.shutdown_timeout(LET_GO);
    orphans::end();
    done
}

/// How a process ends that a signal has stopped.
const STOPPED: u8 = 130;

/// That a signal came, as machines read it.
fn stopped(run: Option<RunId>, to_go_on: Option<&str>) -> Value {
    let error = if run.is_some() { "a signal came before the run ended" } else { "a signal came before the run began" };
    json!({ "error": error, "code": STOPPED, "run": run, "to_go_on": to_go_on })
}

/// The end of a run in this process.
pub(crate) fn finish(end: Result<End, Failure>, json: bool) -> ExitCode {
    match end {
        Ok(End::Result(result)) => print(move || page::print(Ok(running::page(&result, json)), json)),
        Ok(End::Told) => print(|| ExitCode::SUCCESS),
        Ok(End::Waits(asked)) => print(move || {
            let page = Page { code: 3, ..Page::new(String::new(), asked) };
            page::print(Ok(page), json)
        }),
        Ok(End::Stopped { run, to_go_on }) => {
            let page = Page { code: STOPPED, ..Page::new(String::new(), stopped(run, to_go_on.as_deref())) };
            // Whoever has stopped it does not wait for those who do not read.
            let printed = block_on(async {
                let printing = tokio::task::spawn_blocking(move || page::print(Ok(page), json));
                Ok(tokio::time::timeout(LAST_WORDS, printing).await.ok().and_then(Result::ok))
            });
            printed.ok().flatten().unwrap_or(ExitCode::from(STOPPED))
        }
        Err(failure) => print(move || page::print(Err(failure), json)),
    }
}

/// Prints on a thread of its own: a process that has heard signals does not end by them any more, so they are heard also while
/// nobody reads what it prints.
pub(crate) fn print(print: impl FnOnce() -> ExitCode + Send + 'static) -> ExitCode {
    if try_thread().is_err() {
        saying::flush();
        return print();
    }
    let printed = block_on(async {
        let mut stops = Stops::new()?;
        let printing = tokio::task::spawn_blocking(move || {
            saying::flush();
            print()
        });
        Ok(tokio::select! {
            biased;
            printed = printing => printed.unwrap_or(ExitCode::from(2)),
            () = stops.next() => ExitCode::from(STOPPED),
        })
    });
    printed.unwrap_or(ExitCode::from(2))
}
