//! One after another.

use super::super::written::Workflow;
use super::{Defects, Member, defect, node_names, with_members};

/// Members that work one after another: each gets what the one before made, and the first what the workflow is given.
///
/// One that fails for good fails the pipeline; the error names it.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::workflow::ways::Pipeline;
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
    members: Vec<Member>,
}

impl Pipeline {
    /// A pipeline without members yet.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), members: Vec::new() }
    }

    /// Adds who works next.
    pub fn then(mut self, member: impl Into<Member>) -> Self {
        self.members.push(member.into());
        self
    }

    /// Adds several, one after another.
    pub fn all(self, members: impl IntoIterator<Item = impl Into<Member>>) -> Self {
        members.into_iter().fold(self, Self::then)
    }

    /// Makes the workflow.
    ///
    /// # Errors
    /// There are no members, a name breaks a rule, or two workflows that differ have one name.
    pub fn build(&self) -> Result<Workflow, Defects> {
        if self.members.is_empty() {
            return Err(defect(&self.name, "a pipeline of nobody", "name who works with `then`"));
        }
        let names = node_names(&self.members, &[]);
        let mut builder = with_members(Workflow::builder(&self.name), (&self.name, None), &self.members)?;
        for (position, (member, name)) in self.members.iter().zip(&names).enumerate() {
            let node = member.node(name);
            let before = position.checked_sub(1).and_then(|before| names.get(before));
            builder = builder.node(before.into_iter().fold(node, |node, before| node.after(before)));
        }
        builder.build()
    }
}
