//! Usual patterns of agents that work together: one after another, concurrently in rounds, and with a reviewer.
//!
//! Each builds a [`Workflow`] like any other. It can be submitted, and it can be a participant of another one: participants
//! are agents (by name, role or capability) and workflows. docs/together.md has a figure of each, and when to use which;
//! the fourth pattern, a coordinator with workers, is [`Team`] of `callboard-agents`.
//!
//! [`Team`]: https://docs.rs/callboard-agents/latest/callboard_agents/struct.Team.html
//!
//! The channels of their state are those that every swarm has ([`Schema::swarm`]), so that an agent may write to `messages` in a
//! pipeline as it does alone; a workflow among the participants that declares one of them differently keeps its own.
//!
//! What agents are given and what they answer are plain values and plain words, so that any kind of agent can take part: a
//! function, a program, a language model. What a model has to answer is in `answer_with`, beside the work.

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

/// A participant of a pattern: an agent or a workflow.
///
/// ```
/// use callboard::workflow::Workflow;
/// use callboard::workflow::patterns::{Participant, Pipeline};
/// let inner = Workflow::from_line("a line", "workflow draft: write -> shorten")?;
/// let outer = Pipeline::new("letter").then("plan").then(&inner).then(Participant::agent("print")).build()?;
/// assert_eq!(outer.plan().cast().iter().map(|agent| &***agent).collect::<Vec<_>>(), ["plan", "write", "shorten", "print"]);
/// # Ok::<(), callboard::workflow::Defects>(())
/// ```
#[derive(Clone, Debug)]
pub struct Participant(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Agent(String),
    Workflow(Box<Workflow>),
}

impl Participant {
    /// An agent: its name, a role or a capability.
    #[must_use]
    pub fn agent(name: &str) -> Self {
        Self(Kind::Agent(name.to_owned()))
    }

    /// A workflow. It sees its input alone, and nothing of the workflow that it is part of.
    #[must_use]
    pub fn workflow(workflow: &Workflow) -> Self {
        Self(Kind::Workflow(Box::new(workflow.clone())))
    }

    /// Its name.
    fn name(&self) -> &str {
        match &self.0 {
            Kind::Agent(name) => name,
            Kind::Workflow(workflow) => workflow.name(),
        }
    }

    /// The node of this name with the participant's work.
    fn node(&self, name: &str) -> Node {
        match &self.0 {
            Kind::Agent(agent) => Node::agent(name, agent),
            Kind::Workflow(workflow) => Node::workflow(name, workflow.name()),
        }
    }
}

impl From<&str> for Participant {
    fn from(agent: &str) -> Self {
        Self::agent(agent)
    }
}

impl From<&String> for Participant {
    fn from(agent: &String) -> Self {
        Self::agent(agent)
    }
}

impl From<String> for Participant {
    fn from(agent: String) -> Self {
        Self(Kind::Agent(agent))
    }
}

impl From<&Workflow> for Participant {
    fn from(workflow: &Workflow) -> Self {
        Self::workflow(workflow)
    }
}

impl From<Workflow> for Participant {
    fn from(workflow: Workflow) -> Self {
        Self(Kind::Workflow(Box::new(workflow)))
    }
}

/// Lets nodes name the workflows among the participants, and declares the channels that every swarm has, except those that the pattern or
/// a participant declares itself.
///
/// # Errors
/// Two workflows that differ have one name: the second would take the place of the first.
fn with_participants<'a>(
    builder: WorkflowBuilder,
    (pattern, own_channel): (&str, Option<&str>),
    participants: impl IntoIterator<Item = &'a Participant>,
) -> Result<WorkflowBuilder, Defects> {
    let mut seen: BTreeMap<&str, &Workflow> = BTreeMap::new();
    for participant in participants {
        let Kind::Workflow(workflow) = &participant.0 else { continue };
        if let Some(other) = seen.insert(workflow.name(), workflow)
            && other.plan() != workflow.plan()
        {
            let problem = format!("two workflows that differ are named {}", quoted(workflow.name()));
            return Err(defect(pattern, problem, "give one of them another name"));
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

/// A defect of a pattern, with the pattern's name.
fn defect(pattern: &str, problem: impl Into<String>, advice: &str) -> Defects {
    Defects::of(called(pattern), None, vec![Defect::new(&None, problem).advise(advice)])
}

/// Names for the nodes of these participants: their own, made fit for templates, unique, and none of `taken`.
fn node_names(participants: &[Participant], taken: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for participant in participants {
        let name = identifier(participant.name());
        let is_taken = |name: &str| names.iter().any(|other| other == name) || taken.contains(&name);
        let is_free = |name: &str| is_free_name(name) && !is_taken(name);
        let mut candidates = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}_{number}")));
        names.extend(candidates.find(|name| is_free(name)));
    }
    names
}

/// The most similar name that templates accept.
fn identifier(name: &str) -> String {
    let is_first_digit = name.starts_with(|c: char| c.is_ascii_digit());
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let name: String = is_first_digit.then_some('_').into_iter().chain(letters).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// A group with this result.
fn group(name: &str, nodes: Vec<Node>, output: serde_json::Value) -> Node {
    let output = Some(Placed::made(output));
    Node::new(Placed::made(name.to_owned()), WorkDraft::Nodes { nodes, output })
}

/// An expression: the last line of a text, in capitals and without punctuation around it.
fn last_word(text: &str) -> String {
    let punctuation = r#"' \t*_`#.!"\''"#;
    format!("({text} | trim | lines | last | default('') | upper | replace('VERDICT:', '') | trim({punctuation}))")
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
        let participants =
            ["code-analyzer", "input", "9to5", "code analyzer", "input", "träumer"].map(Participant::agent);
        let expected = ["code_analyzer", "input_2", "_9to5", "code_analyzer_2", "input_3", "tr_umer"];
        assert_eq!(node_names(&participants, &[]), expected);
        assert_eq!(node_names(&["", "begin"].map(Participant::agent), &["begin"]), ["_", "begin_2"]);
    }
}
