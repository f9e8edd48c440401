//! Ready-made ways for agents to work together: one after another, side by side in rounds, and with a reviewer.
//!
//! Each gives a [`Workflow`] like any other. It can be submitted, and it can be a member of another one: whoever takes part is an
//! agent (by its name, a role or a capability) or a workflow. docs/together.md has a figure of each, and when to use which;
//! the fourth way, a coordinator with workers, is [`Team`] of `callboard-agents`.
//!
//! [`Team`]: https://docs.rs/callboard-agents/latest/callboard_agents/struct.Team.html
//!
//! The channels of their state are those that every swarm has ([`Schema::swarm`]), so that an agent may write to `messages` in a
//! pipeline as it does alone; a member that is a workflow and declares one of them differently keeps its own.
//!
//! What agents are given and what they answer are plain values and plain words, so that any kind of agent can take part: a
//! function, a program, a language model. What a model must say is told to it as `answer_with`, where the work is.

mod peers;
mod pipeline;
mod review;

pub use peers::Peers;
pub use pipeline::Pipeline;
pub use review::Review;

use std::collections::BTreeMap;

use callboard_documents::template::is_free_name;
use callboard_documents::{Defect, Defects, Placed};
use callboard_text::quoted;

use crate::messages::state::Schema;

use super::draft::{Node, WorkDraft};
use super::written::{Workflow, WorkflowBuilder, called};

/// Who takes part: an agent or a workflow.
///
/// ```
/// use callboard::workflow::Workflow;
/// use callboard::workflow::ways::{Member, Pipeline};
/// let inner = Workflow::from_line("a line", "workflow draft: write -> shorten")?;
/// let outer = Pipeline::new("letter").then("plan").then(&inner).then(Member::agent("print")).build()?;
/// assert_eq!(outer.plan().cast().iter().map(|agent| &***agent).collect::<Vec<_>>(), ["plan", "write", "shorten", "print"]);
/// # Ok::<(), callboard::workflow::Defects>(())
/// ```
#[derive(Clone, Debug)]
pub struct Member(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Agent(String),
    Workflow(Box<Workflow>),
}

impl Member {
    /// An agent: its name, a role or a capability.
    #[must_use]
    pub fn agent(name: &str) -> Self {
        Self(Kind::Agent(name.to_owned()))
    }

    /// A workflow. It sees what it is given, and nothing of what is around it.
    #[must_use]
    pub fn workflow(workflow: &Workflow) -> Self {
        Self(Kind::Workflow(Box::new(workflow.clone())))
    }

    /// What it is called.
    fn name(&self) -> &str {
        match &self.0 {
            Kind::Agent(name) => name,
            Kind::Workflow(workflow) => workflow.name(),
        }
    }

    /// The node where it works.
    fn node(&self, name: &str) -> Node {
        match &self.0 {
            Kind::Agent(agent) => Node::agent(name, agent),
            Kind::Workflow(workflow) => Node::workflow(name, workflow.name()),
        }
    }
}

impl From<&str> for Member {
    fn from(agent: &str) -> Self {
        Self::agent(agent)
    }
}

impl From<&String> for Member {
    fn from(agent: &String) -> Self {
        Self::agent(agent)
    }
}

impl From<String> for Member {
    fn from(agent: String) -> Self {
        Self(Kind::Agent(agent))
    }
}

impl From<&Workflow> for Member {
    fn from(workflow: &Workflow) -> Self {
        Self::workflow(workflow)
    }
}

impl From<Workflow> for Member {
    fn from(workflow: Workflow) -> Self {
        Self(Kind::Workflow(Box::new(workflow)))
    }
}

/// Lets nodes name the workflows among the members, and declares the channels that every swarm has, except one that the way or
/// a member declares itself.
///
/// # Errors
/// Two workflows that differ have one name: the second would take the place of the first.
fn with_members<'a>(
    builder: WorkflowBuilder,
    (way, own_channel): (&str, Option<&str>),
    members: impl IntoIterator<Item = &'a Member>,
) -> Result<WorkflowBuilder, Defects> {
    let mut seen: BTreeMap<&str, &Workflow> = BTreeMap::new();
    for member in members {
        let Kind::Workflow(workflow) = &member.0 else { continue };
        if let Some(other) = seen.insert(workflow.name(), workflow)
            && other.plan() != workflow.plan()
        {
            let problem = format!("two workflows that differ are named {}", quoted(workflow.name()));
            return Err(defect(way, problem, "give one of them another name"));
        }
    }
    let swarm = Schema::swarm();
    let is_taken = |channel: &str| {
        own_channel == Some(channel) || seen.values().any(|workflow| workflow.plan().schema.declares(channel))
    };
    let free = swarm.declared().filter(|channel| !is_taken(channel));
    let builder = free.fold(builder, |builder, channel| match swarm.reducer(channel) {
        Ok(reducer) => builder.channel(channel, reducer.clone()),
        Err(_) => builder,
    });
    Ok(seen.into_values().fold(builder, WorkflowBuilder::with))
}

/// One thing that is wrong with a way.
fn defect(way: &str, problem: impl Into<String>, advice: &str) -> Defects {
    Defects::of(called(way), None, vec![Defect::new(&None, problem).advise(advice)])
}

/// Names for the nodes of these members: theirs, as far as templates can have them, each once, and none of `taken`.
fn node_names(members: &[Member], taken: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for member in members {
        let name = identifier(member.name());
        let is_taken = |name: &str| names.iter().any(|other| other == name) || taken.contains(&name);
        let is_free = |name: &str| is_free_name(name) && !is_taken(name);
        let mut candidates = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}_{number}")));
        names.extend(candidates.find(|name| is_free(name)));
    }
    names
}

/// A name that templates can have, as like to this one as may be.
fn identifier(name: &str) -> String {
    let is_first_digit = name.starts_with(|c: char| c.is_ascii_digit());
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let name: String = is_first_digit.then_some('_').into_iter().chain(letters).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// A node of nodes that comes to this.
fn group(name: &str, nodes: Vec<Node>, output: serde_json::Value) -> Node {
    let output = Some(Placed::made(output));
    Node::new(Placed::made(name.to_owned()), WorkDraft::Nodes { nodes, output })
}

/// An expression: the last line of a text, in capitals and without what people put around a word.
fn last_word(text: &str) -> String {
    let around = r#"' \t*_`#.!"\''"#;
    format!("({text} | trim | lines | last | default('') | upper | replace('VERDICT:', '') | trim({around}))")
}

/// An expression: a text without its last line.
fn without_last_line(text: &str) -> String {
    format!("(({text} | trim | lines | list)[:-1] | join('\\n') | trim)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_as_their_members_as_far_as_templates_can_have_the_names() {
        let members = ["code-analyzer", "input", "9to5", "code analyzer", "input", "träumer"].map(Member::agent);
        let expected = ["code_analyzer", "input_2", "_9to5", "code_analyzer_2", "input_3", "tr_umer"];
        assert_eq!(node_names(&members, &[]), expected);
        assert_eq!(node_names(&["", "begin"].map(Member::agent), &["begin"]), ["_", "begin_2"]);
    }
}
