//! `callboard workflow …`: checks and draws workflows, and runs them on a board in this process, with programs and with agents in
//! files.

pub(crate) mod arguments;
pub(crate) mod check;
mod draw;
mod hints;
mod history;
pub(crate) mod input;
pub(crate) mod interrupts;
mod program;
mod programs;
pub(crate) mod progress;
mod read;
mod run;
mod saved;
mod session;
pub(crate) mod steps;

use std::process::ExitCode;

use crate::page::{self, Failure, Page};
use crate::process::{block_on, finish, print};
use crate::service;

use arguments::Workflow;
use session::SubmitOptions;
pub(crate) use session::is_left_by_its_store;

/// Runs a command of `callboard workflow`.
pub(crate) fn main(command: Workflow) -> ExitCode {
    match command {
        Workflow::Check { files, line, format: true, .. } => page::print(check::format(&files, line.as_deref()), false),
        Workflow::Check { files, line, format: false, json } => {
            page::print(check::check(&files, line.as_deref()), json)
        }
        Workflow::Draw { file, line, svg, run, choice, mermaid: _ } => {
            let files: Vec<_> = file.into_iter().collect();
            let run = run.as_deref().map(|run| (run, &choice));
            page::print(block_on(draw::draw(&files, line.as_deref(), svg, run)), false)
        }
        Workflow::Save { file, line, choice, json } => {
            let files: Vec<_> = file.into_iter().collect();
            let save = async { saved::save(&files, line.as_deref(), &choice.stores()?).await };
            page::print(block_on(save), json)
        }
        Workflow::Start(start) => service::start(start),
        Workflow::Versions { name, choice, json } => {
            page::print(block_on(async { saved::versions(name.as_deref(), &choice.stores()?).await }), json)
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
            execution,
        } => {
            let limits = limits.map(|limits| limits.of_new_run());
            let options =
                SubmitOptions { limits, approval_ttl, handoffs: page::handoffs(enable_handoffs), conversation };
            let files: Vec<_> = file.into_iter().collect();
            let input = input::whole(input, input_json);
            let json = execution.json;
            let run = async {
                let stores = if ephemeral { None } else { Some(choice.stores()?) };
                run::run((&files, line.as_deref()), input?, options, stores, &execution).await
            };
            finish(block_on(run), json)
        }
        Workflow::Resume { stored, limits: Some(_), execution, .. } => {
            print(move || page::print(Err(run::limits_are_kept(&stored, &execution)), execution.json))
        }
        Workflow::Resume { stored, node, change, limits: None, execution } => {
            finish(block_on(run::resume(&stored, &node, &change, &execution)), execution.json)
        }
        Workflow::Retry { stored, limits, execution } => {
            finish(block_on(run::retry(&stored, limits.as_ref(), &execution)), execution.json)
        }
        Workflow::Fork { stored, turn, node, change, execution } => {
            let place = (turn, node.as_deref());
            finish(block_on(run::fork(&stored, place, &change, &execution)), execution.json)
        }
    }
}

async fn history(stored: arguments::Stored) -> Result<Page, Failure> {
    Ok(history::history(&stored.choice.stores()?.load(&stored.run).await?))
}
