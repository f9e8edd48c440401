//! What an agent returns from a turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentName, Json, NameError};

/// What an agent returns from a turn: its output, updates of the run's state, and where control goes (SEMANTICS 5).
///
/// ```
/// use callboard::messages::Command;
/// use serde_json::json;
/// let command = Command::update("artifacts", json!({ "notes": "…" })).goto("writer");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// The turn's result; the branch's result if it ends here.
    pub output: Option<Json>,
    /// Writes to the state's channels, applied in order.
    pub update: Update,
    /// Where control goes after the turn; by default the plan decides ([`Goto::Next`]).
    pub goto: Goto,
    /// The plan that the command applies to; [`Command::to_parent`] sets [`Scope::Parent`].
    pub scope: Scope,
    /// In a workflow: what comes after the node comes after it too.
    pub keeps_edges: bool,
    /// Why a value that it was given has no JSON form. Never stored: such a command fails its attempt.
    #[serde(skip)]
    pub unserializable: Option<Arc<str>>,
}

impl Command {
    /// A command that changes nothing and lets the plan decide; in a swarm its branch ends.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A command with this output: any value that serde can write as JSON.
    ///
    /// A value that has no JSON form, such as a map whose keys are not strings, or that nests deeper than
    /// [`Json::MAX_DEPTH`](super::Json::MAX_DEPTH), makes the command invalid: the attempt fails, and the error names the
    /// reason (SEMANTICS 5). That holds for each method that takes a value.
    ///
    /// ```
    /// use callboard::messages::Command;
    ///
    /// #[derive(serde::Serialize)]
    /// struct Report { title: String, pages: u32 }
    ///
    /// let command = Command::output(Report { title: "Tides".into(), pages: 3 });
    /// assert_eq!(command.output.unwrap()["pages"], 3);
    /// ```
    #[must_use]
    pub fn output(output: impl Serialize) -> Self {
        Self::default().with_output(output)
    }

    /// A command with this write; [`Command::with`] adds more.
    #[must_use]
    pub fn update(channel: &str, value: impl Serialize) -> Self {
        Self::default().with(channel, value)
    }

    /// Adds a write to `channel` through its reducer.
    #[must_use]
    pub fn with(mut self, channel: &str, value: impl Serialize) -> Self {
        let value = self.json_of(value);
        self.update.push(channel, value, false);
        self
    }

    /// Adds a write that replaces what `channel` holds, past its reducer.
    #[must_use]
    pub fn overwrite(mut self, channel: &str, value: impl Serialize) -> Self {
        let value = self.json_of(value);
        self.update.push(channel, value, true);
        self
    }

    /// Sets the output, in place of an earlier one.
    #[must_use]
    pub fn with_output(mut self, output: impl Serialize) -> Self {
        self.output = Some(self.json_of(output));
        self
    }

    /// The value as JSON; null if it has no such form, which is noted.
    fn json_of(&mut self, value: impl Serialize) -> Json {
        Json::of(value).unwrap_or_else(|error| {
            self.unserializable.get_or_insert_with(|| error.to_string().into());
            Json::null()
        })
    }

    /// Whether its output, a write or a send nests deeper than can be stored.
    #[must_use]
    pub fn is_too_deep(&self) -> bool {
        let sends = match &self.goto {
            Goto::Many(sends) => sends.as_slice(),
            Goto::Next | Goto::Agent(_) | Goto::End => &[],
        };
        let writes = self.update.writes().iter().map(|write| &write.value);
        self.output.iter().chain(writes).chain(sends.iter().map(|send| &send.input)).any(Json::is_too_deep)
    }

    /// The size of its output, update and sends, in bytes of their text.
    #[must_use]
    pub fn size(&self) -> usize {
        let sends = match &self.goto {
            Goto::Many(sends) => sends.iter().map(|send| send.input.size()).sum(),
            Goto::Next | Goto::Agent(_) | Goto::End => 0,
        };
        let writes: usize = self.update.writes().iter().map(|write| write.channel.len() + write.value.size()).sum();
        self.output.as_ref().map_or(0, Json::size) + writes + sends
    }

    /// Hands control to an agent, with this turn's output as its input (the task's input if there is none).
    #[must_use]
    pub fn goto(mut self, agent: &str) -> Self {
        self.goto = Goto::Agent(agent.into());
        self
    }

    /// Hands control to several agents at once. Each works in a branch of its own until it ends; then their writes are joined, and the
    /// run's output is the array of theirs. To continue with their answers, delegate to them instead.
    ///
    /// ```
    /// use callboard::messages::Command;
    /// let command = Command::new().goto_many([("editor", "chapter 1"), ("proofreader", "chapter 2")]);
    /// ```
    #[must_use]
    pub fn goto_many(mut self, sends: impl IntoIterator<Item = impl Into<SendTo>>) -> Self {
        self.goto = Goto::Many(sends.into_iter().map(Into::into).collect());
        self
    }

    /// In a workflow: goes to this node and to what comes after the turn's node as well. For a swarm it is [`Command::goto`].
    #[must_use]
    pub fn also_goto(mut self, node: &str) -> Self {
        self.keeps_edges = true;
        self.goto(node)
    }

    /// Ends the run, cancelling its other branches; inside a delegation, ends only that.
    #[must_use]
    pub fn end(mut self) -> Self {
        self.goto = Goto::End;
        self
    }

    /// Speaks to the parent's plan: a turn in a workflow within a workflow ends that, drops what was written in it, and
    /// has its own output, update and `goto` count for the enclosing node. Without such a parent it changes nothing.
    #[must_use]
    pub fn to_parent(mut self) -> Self {
        self.scope = Scope::Parent;
        self
    }
}

/// Where control goes after a turn. Names are as the agent wrote them; the guard resolves them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Goto {
    /// The plan decides which turns start next; in a swarm the branch ends.
    #[default]
    Next,
    /// Control passes to this agent; in a workflow, to the node with this name.
    Agent(Arc<str>),
    /// Control passes to all of these, each in a branch of its own.
    Many(Vec<SendTo>),
    /// The run ends and its other branches are cancelled; inside a delegation or a sub-workflow, only that ends.
    End,
}

/// One target of [`Goto::Many`]. [`Command::goto_many`] takes pairs of a name and an input as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendTo {
    /// The agent that control passes to; in a workflow, the node.
    pub to: Arc<str>,
    /// The input of the turn that this target starts.
    pub input: Json,
}

impl SendTo {
    /// Creates a target from the name of an agent or a node and its input.
    #[must_use]
    pub fn new(to: &str, input: impl Into<Json>) -> Self {
        Self { to: to.into(), input: input.into() }
    }
}

/// Takes a pair of a name and an input, as [`SendTo::new`] does.
impl<T: Into<Json>> From<(&str, T)> for SendTo {
    fn from((to, input): (&str, T)) -> Self {
        Self::new(to, input)
    }
}

/// The plan that a command applies to; `Parent` without a parent means `Current`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The plan that the turn belongs to.
    #[default]
    Current,
    /// The plan of the enclosing workflow, if the turn's workflow runs within another one.
    Parent,
}

/// Writes to channels, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Update(Vec<Write>);

/// One write to a channel of the run's state, made by [`Command::with`] or [`Command::overwrite`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// The name of the channel. A strict schema refuses a channel that it does not declare.
    pub channel: Arc<str>,
    /// The value that the reducer combines with what the channel holds.
    pub value: Json,
    /// Whether the value replaces what the channel holds, past the reducer.
    pub overwrite: bool,
}

impl Update {
    /// Adds a write to `channel` after the other writes; see [`Write::overwrite`].
    pub fn push(&mut self, channel: &str, value: Json, overwrite: bool) {
        if self.0.is_empty() {
            // Most commands write once.
            self.0.reserve_exact(1);
        }
        self.0.push(Write { channel: channel.into(), value, overwrite });
    }

    /// As [`Update::push`].
    pub(crate) fn push_write(&mut self, write: Write) {
        self.0.push(write);
    }

    /// Adds the writes of another one after these.
    pub(crate) fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// What is left of it beside the channels that another one writes.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let is_left = |write: &&Write| other.0.iter().all(|taken| taken.channel != write.channel);
        Self(self.0.iter().filter(is_left).cloned().collect())
    }

    /// Returns the writes in the order in which they are applied.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.0
    }

    /// Returns whether there are no writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The targets of a command, as they were written.
impl Goto {
    /// A name that control would go to more than once.
    pub(crate) fn target_named_twice(&self) -> Option<&str> {
        let mut seen = std::collections::BTreeSet::new();
        self.targets().map(|target| &**target).find(|target| !seen.insert(*target))
    }

    /// Returns the agents or nodes that control would go to; none for [`Goto::Next`] and [`Goto::End`].
    pub fn targets(&self) -> impl Iterator<Item = &Arc<str>> {
        let (one, many) = match self {
            Self::Agent(name) => (Some(name), [].as_slice()),
            Self::Many(sends) => (None, sends.as_slice()),
            Self::Next | Self::End => (None, [].as_slice()),
        };
        one.into_iter().chain(many.iter().map(|send| &send.to))
    }
}

/// Takes a target as an agent's exact name, checked as by [`AgentName::new`].
impl TryFrom<&Arc<str>> for AgentName {
    type Error = NameError;

    fn try_from(name: &Arc<str>) -> Result<Self, NameError> {
        Self::new(name)
    }
}
