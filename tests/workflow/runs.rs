//! How the tests of this room run their workflows.

use std::time::Duration;

use crate::common::assert_nothing_left;
use callboard::messages::{Reducer, RunResult};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::supervision::runs::Replay;
use callboard::workflow::{Workflow, WorkflowBuilder};
use serde_json::Value;

/// A workflow whose channel `seen` keeps all that is written, and `one` a single value.
pub(crate) fn workflow() -> WorkflowBuilder {
    Workflow::builder("test").channel("seen", Reducer::Append).channel("one", Reducer::LastValue)
}

/// Agents that any workflow has a use for.
pub(crate) fn cast(builder: Builder) -> Builder {
    builder
        .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .agent("never", |_: Turn| async { std::future::pending::<Result<Command, TurnError>>().await })
        .agent("read", |turn: Turn| async move { Ok(Command::output(turn.state().to_json())) })
        // Writes each field of its input to the channel of that name.
        .agent("write", |turn: Turn| async move {
            let given = turn.input_json().clone();
            let command = Command::output(given.clone());
            let Value::Object(fields) = given.value() else { return Ok(command) };
            Ok(fields.iter().fold(command, |command, (channel, value)| command.with(channel, value.clone())))
        })
}

/// As [`run_plan`], of a workflow without defects.
pub(crate) async fn run_on(builder: Builder, workflow: WorkflowBuilder, input: impl Into<Json>) -> RunResult {
    run_plan(builder, &workflow.build().unwrap_or_else(|defects| panic!("{defects}")), input).await
}

/// Runs a workflow to its end on a board of its own. The replay of its journal has the same result, and nothing is left of it.
pub(crate) async fn run_plan(builder: Builder, workflow: &Workflow, input: impl Into<Json>) -> RunResult {
    let board = builder.start().await.unwrap();
    let run = board.submit(workflow.task(input)).await.unwrap_or_else(|error| panic!("{error}"));
    let result = tokio::time::timeout(Duration::from_secs(3_600), run.result()).await.expect("it hangs").unwrap();
    let replay = Replay::of(run.history().await.unwrap(), &Default::default()).unwrap();
    assert_eq!(replay.result(), Some(&result), "the journal tells another story");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
    result
}

/// Why the run has failed.
pub(crate) fn error(result: &RunResult) -> &str {
    match &result.outcome {
        Outcome::Failed { error } => error,
        other => panic!("{other:?}"),
    }
}
