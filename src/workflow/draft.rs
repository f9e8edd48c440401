//! A workflow as it was written, with the positions of its parts in the text: the common form of TOML, the one-line syntax and
//! the builder.

use std::time::Duration;

use callboard_documents::Placed;
use serde_json::Value;

use crate::messages::{Condition, JoinPolicy, On, Reducer};

/// A workflow as it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Draft {
    pub(crate) name: Placed<String>,
    pub(crate) description: Option<String>,
    pub(crate) channels: Vec<ChannelDraft>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) output: Option<Placed<Value>>,
}

/// A channel of the state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChannelDraft {
    pub(crate) name: Placed<String>,
    pub(crate) reducer: Reducer,
    /// A JSON Schema for the channel's value.
    pub(crate) schema: Option<Placed<Value>>,
}

/// A place in a workflow's graph, for [`Workflow::builder`](super::Workflow::builder): what is done there, after what, and
/// on which input.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(crate) name: Placed<String>,
    pub(crate) work: WorkDraft,
    pub(crate) after: Vec<EdgeDraft>,
    pub(crate) join: Placed<JoinPolicy>,
    pub(crate) when: Option<Placed<Condition>>,
    pub(crate) input: Option<Placed<Value>>,
    pub(crate) goto: Vec<GotoDraft>,
    /// Earlier nodes to which a command may go back, which repeats the loop that lowering made of them.
    pub(crate) repeats: Vec<GotoDraft>,
    /// The nodes outside that loop that it may go to.
    pub(crate) exits: Vec<GotoDraft>,
    pub(crate) repeat: Option<RepeatDraft>,
    pub(crate) attempts: Option<Placed<u32>>,
    pub(crate) timeout: Option<Placed<Duration>>,
    pub(crate) compensation: Option<Placed<String>>,
    pub(crate) saves: Option<Placed<String>>,
    pub(crate) is_interrupted: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WorkDraft {
    Agent(Placed<String>),
    Join,
    /// Nodes written in its place; they see what it sees. `output` is their result, if it is written.
    Nodes {
        nodes: Vec<Node>,
        output: Option<Placed<Value>>,
    },
    /// Another workflow, by name.
    Workflow(Placed<String>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EdgeDraft {
    pub(crate) from: Placed<String>,
    pub(crate) on: On,
    pub(crate) when: Option<Placed<Condition>>,
}

/// A node that a command may go to; to an earlier one at most `max` times in total.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GotoDraft {
    pub(crate) to: Placed<String>,
    pub(crate) max: Option<Placed<u32>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RepeatDraft {
    Loop {
        until: Option<Placed<Condition>>,
        max: Placed<u32>,
        ends_at_max: bool,
    },
    Map {
        over: Placed<String>,
        max: Option<Placed<u32>>,
    },
    /// Made by lowering from `goto`, not written: another iteration for each command that goes back to the first node.
    Back {
        max: Placed<u32>,
    },
}

impl Node {
    /// A node where an agent takes a turn: its name, a role, or a capability.
    #[must_use]
    pub fn agent(name: &str, agent: &str) -> Self {
        Self::new(Placed::made(name.to_owned()), WorkDraft::Agent(Placed::made(agent.to_owned())))
    }

    /// A node where nothing is done: it joins what comes before it, and its output is its input.
    #[must_use]
    pub fn join(name: &str) -> Self {
        Self::new(Placed::made(name.to_owned()), WorkDraft::Join)
    }

    /// A node that consists of nodes. They see the outputs of the enclosing block; nodes outside see theirs when it has ended.
    #[must_use]
    pub fn nodes(name: &str, nodes: impl IntoIterator<Item = Node>) -> Self {
        let nodes = nodes.into_iter().collect();
        Self::new(Placed::made(name.to_owned()), WorkDraft::Nodes { nodes, output: None })
    }

    /// A node where another workflow is run, found by its name. It sees its own input alone.
    #[must_use]
    pub fn workflow(name: &str, workflow: &str) -> Self {
        Self::new(Placed::made(name.to_owned()), WorkDraft::Workflow(Placed::made(workflow.to_owned())))
    }

    pub(crate) fn new(name: Placed<String>, work: WorkDraft) -> Self {
        Self {
            name,
            work,
            after: Vec::new(),
            join: Placed::default(),
            when: None,
            input: None,
            goto: Vec::new(),
            repeats: Vec::new(),
            exits: Vec::new(),
            repeat: None,
            attempts: None,
            timeout: None,
            compensation: None,
            saves: None,
            is_interrupted: false,
        }
    }

    /// Starts it after this node has finished. Call it once for each node that it comes after.
    #[must_use]
    pub fn after(self, node: &str) -> Self {
        self.edge(node, On::Success, None)
    }

    /// Starts it after this node has finished, if the condition holds then: an expression over inputs, outputs and state.
    #[must_use]
    pub fn after_if(self, node: &str, condition: &str) -> Self {
        self.edge(node, On::Success, Some(Condition::Expression(condition.into())))
    }

    /// Starts it when this node has failed. The failure is then handled: it ends nothing else.
    #[must_use]
    pub fn after_failure_of(self, node: &str) -> Self {
        self.edge(node, On::Failure, None)
    }

    fn edge(mut self, from: &str, on: On, when: Option<Condition>) -> Self {
        self.after.push(EdgeDraft { from: Placed::made(from.to_owned()), on, when: when.map(Placed::made) });
        self
    }

    /// Starts it as soon as one of the nodes before it has finished; what only led to the others is cancelled.
    #[must_use]
    pub fn any(self) -> Self {
        self.at_least(1)
    }

    /// Starts it as soon as so many of the nodes before it have finished; what only led to the others is cancelled.
    #[must_use]
    pub fn at_least(mut self, nodes: u32) -> Self {
        self.join = Placed::made(JoinPolicy::AtLeast(nodes));
        self
    }

    /// Starts it when all nodes before it have ended, also those that failed.
    #[must_use]
    pub fn settled(mut self) -> Self {
        self.join = Placed::made(JoinPolicy::Settled);
        self
    }

    /// Skips it unless this expression over inputs, outputs and state is true when it could start.
    #[must_use]
    pub fn when(mut self, expression: &str) -> Self {
        self.when = Some(Placed::made(Condition::Expression(expression.into())));
        self
    }

    /// Skips it unless the predicate that the board knows by this name holds.
    #[must_use]
    pub fn when_predicate(mut self, name: &str) -> Self {
        self.when = Some(Placed::made(Condition::Predicate(name.into())));
        self
    }

    /// Sets what it works on: JSON in which strings are templates, as `"{{ analyze.output }}"`.
    #[must_use]
    pub fn input(mut self, template: impl Into<Value>) -> Self {
        self.input = Some(Placed::made(template.into()));
        self
    }

    /// Lets its command go to this later node, in place of those that come after it.
    #[must_use]
    pub fn may_go_to(mut self, node: &str) -> Self {
        self.goto.push(GotoDraft { to: Placed::made(node.to_owned()), max: None });
        self
    }

    /// Lets its command go back to this earlier node, so that it is begun at most `max` times in all.
    #[must_use]
    pub fn may_go_back_to(mut self, node: &str, max: u32) -> Self {
        self.goto.push(GotoDraft { to: Placed::made(node.to_owned()), max: Some(Placed::made(max)) });
        self
    }

    /// Repeats it until the expression holds after an iteration; more than `max` iterations are refused.
    #[must_use]
    pub fn until(mut self, expression: &str, max: u32) -> Self {
        let until = Some(Placed::made(Condition::Expression(expression.into())));
        self.repeat = Some(RepeatDraft::Loop { until, max: Placed::made(max), ends_at_max: false });
        self
    }

    /// Repeats it this many times, from 1 to 1,000,000, one iteration after the other.
    #[must_use]
    pub fn times(mut self, iterations: u32) -> Self {
        self.repeat = Some(RepeatDraft::Loop { until: None, max: Placed::made(iterations), ends_at_max: true });
        self
    }

    /// Ends a loop that reaches its bound there, with the result of its last iteration, instead of refusing it.
    #[must_use]
    pub fn or_stop(mut self) -> Self {
        if let Some(RepeatDraft::Loop { ends_at_max, .. }) = &mut self.repeat {
            *ends_at_max = true;
        }
        self
    }

    /// Runs it concurrently for each item of the list that this expression gives; templates see `item` and `index`.
    #[must_use]
    pub fn for_each(mut self, list: &str) -> Self {
        self.repeat = Some(RepeatDraft::Map { over: Placed::made(list.to_owned()), max: None });
        self
    }

    /// As [`Node::for_each`], with another bound than (1,000) items.
    #[must_use]
    pub fn for_each_up_to(mut self, list: &str, max: u32) -> Self {
        self.repeat = Some(RepeatDraft::Map { over: Placed::made(list.to_owned()), max: Some(Placed::made(max)) });
        self
    }

    /// Sets how often its turn is tried before it ends in dead letters, from 1; by default as often as the limits of
    /// the run allow. Only the node of an agent has attempts.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(Placed::made(attempts));
        self
    }

    /// Sets how long an attempt of its turn may take, in place of the agent's own
    /// [`AgentSpec::timeout`](crate::AgentSpec::timeout). Zero is a defect, and so is any timeout of a node that is not
    /// an agent's.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(Placed::made(timeout));
        self
    }

    /// Names the agent that takes back what this node has done, if the workflow fails later. Its input is the node's output.
    #[must_use]
    pub fn compensated_by(mut self, agent: &str) -> Self {
        self.compensation = Some(Placed::made(agent.to_owned()));
        self
    }

    /// Writes its output to this channel of the run's state too, through the channel's reducer. The workflow has to
    /// declare the channel.
    #[must_use]
    pub fn saved_to(mut self, channel: &str) -> Self {
        self.saves = Some(Placed::made(channel.to_owned()));
        self
    }

    /// Starts it only when a person resumes it: the run lists it as a [`Pending::Node`](crate::messages::Pending::Node)
    /// until then. Only the node of an agent can be interrupted.
    #[must_use]
    pub fn interrupted(mut self) -> Self {
        self.is_interrupted = true;
        self
    }
}
