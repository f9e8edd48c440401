//! The agent that chooses the class of tasks without limits of their own (SEMANTICS 2).

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::messages::{AgentName, Complexity, Handoffs, Task};

use super::handle::Callboard;

/// The time limit of a run that chooses the class of a task.
const PATIENCE: Duration = Duration::from_secs(30);

impl Callboard {
    /// The class that an agent chooses. Not an `async fn`, because it submits a run and is itself part of a submission: the
    /// future would contain itself.
    pub(super) fn class_by<'a>(&'a self, agent: &'a str, task: &'a Task) -> BoxFuture<'a, Result<Complexity, String>> {
        async move {
            let name = AgentName::new(agent).map_err(|error| error.to_string())?;
            // One that sleeps has no value yet.
            self.board.scheduler.wake(&name).await;
            match self.board.scheduler.is_typed(&name) {
                Some(false) => self.class_by_a_run(agent, task).await,
                Some(true) | None => self.ask(agent, task.clone()).await.map_err(|error| error.to_string()),
            }
        }
        .boxed()
    }

    async fn class_by_a_run(&self, agent: &str, task: &Task) -> Result<Complexity, String> {
        let mut judging = Task::new(&task.body).to(agent).limits(Complexity::Simple).deadline(PATIENCE);
        (judging.is_untrusted, judging.grant, judging.handoffs) = (task.is_untrusted, task.grant, Handoffs::Off);
        // Whoever asks for the task pays for its class as well.
        judging.from_agent = task.from_agent.clone();
        if let Some(input) = &task.input {
            judging = judging.input(serde_json::json!({ "task": task.body, "input": input }));
        }
        // The classified task holds the permit for both; otherwise a full board would wait for itself.
        let run = self.accept(&mut judging, None, false, None).await.map_err(|error| error.to_string())?;
        let result = run.result().await.map_err(|error| error.to_string())?;
        if !result.outcome.is_finished() {
            return Err(format!("run {}: {}", run.id(), result.outcome));
        }
        result.output.parse().map_err(|error| format!("run {}: its output is no class: {error}", run.id()))
    }
}
