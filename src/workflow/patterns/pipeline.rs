//! One after another.

use super::super::written::Workflow;
use super::{Defects, Participant, defect, node_names, with_participants};

/// Participants that work one after another: each gets the output of the one before, and the first the input of the workflow.
///
/// One that fails for good fails the pipeline; the error names it.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::workflow::patterns::Pipeline;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let pipeline = Pipeline::new("shout").then("loud").then("twice").build()?;
/// let board = Callboard::builder()
///     .agent("loud", |turn: Turn| async move { Ok(Command::output(turn.input::<String>()?.to_uppercase())) })
///     .agent("twice", |turn: Turn| async move { Ok(Command::output(turn.input::<String>()?.repeat(2))) })
///     .start()
///     .await?;
/// let run = board.submit(pipeline.task("hey")).await?;
/// assert_eq!(run.result().await?.output, "HEYHEY");
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a pipeline is a workflow once it is built"]
pub struct Pipeline {
    name: String,
    participants: Vec<Participant>,
}

impl Pipeline {
    /// Creates a pipeline without participants; its workflow has this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), participants: Vec::new() }
    }

    /// Adds a participant, whose input is the output of the one that was added before it.
    pub fn then(mut self, participant: impl Into<Participant>) -> Self {
        self.participants.push(participant.into());
        self
    }

    /// Adds several participants, which work one after another in this order.
    pub fn all(self, participants: impl IntoIterator<Item = impl Into<Participant>>) -> Self {
        participants.into_iter().fold(self, Self::then)
    }

    /// Builds the workflow.
    ///
    /// # Errors
    /// There are no participants, a name breaks a rule, or two workflows that differ have one name.
    pub fn build(&self) -> Result<Workflow, Defects> {
        if self.participants.is_empty() {
            return Err(defect(&self.name, "a pipeline without participants", "name who works with `then`"));
        }
        let names = node_names(&self.participants, &[]);
        let mut builder = with_participants(Workflow::builder(&self.name), (&self.name, None), &self.participants)?;
        for (position, (participant, name)) in self.participants.iter().zip(&names).enumerate() {
            let node = participant.node(name);
            let before = position.checked_sub(1).and_then(|before| names.get(before));
            builder = builder.node(before.into_iter().fold(node, |node, before| node.after(before)));
        }
        builder.build()
    }
}
