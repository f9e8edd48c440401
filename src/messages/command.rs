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
    /// Where control goes.
    pub goto: Goto,
    /// Whose plan `goto` speaks to.
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

    /// Sets the output.
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
    /// The plan decides; a swarm's branch ends.
    #[default]
    Next,
    /// To this agent.
    Agent(Arc<str>),
    /// To all of these, each in a branch of its own.
    Many(Vec<SendTo>),
    /// The run ends.
    End,
}

/// One target of [`Goto::Many`]. [`Command::goto_many`] takes pairs of a name and an input as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendTo {
    /// The agent.
    pub to: Arc<str>,
    /// Its input.
    pub input: Json,
}

impl SendTo {
    /// A send.
    #[must_use]
    pub fn new(to: &str, input: impl Into<Json>) -> Self {
        Self { to: to.into(), input: input.into() }
    }
}

/// An agent and its input.
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
    /// The plan that started it.
    Parent,
}

/// Writes to channels, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Update(Vec<Write>);

/// One write to one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// The channel.
    pub channel: Arc<str>,
    /// What the reducer combines with what is there.
    pub value: Json,
    /// Replace instead of combining.
    pub overwrite: bool,
}

impl Update {
    /// Adds a write.
    pub fn push(&mut self, channel: &str, value: Json, overwrite: bool) {
        self.0.push(Write { channel: channel.into(), value, overwrite });
    }

    /// What is left of it beside the channels that another one writes.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let is_left = |write: &&Write| other.0.iter().all(|taken| taken.channel != write.channel);
        Self(self.0.iter().filter(is_left).cloned().collect())
    }

    /// The writes.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.0
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a command's targets resolve to, for the guard and for the journal.
impl Goto {
    /// A name that control would go to more than once.
    pub(crate) fn target_named_twice(&self) -> Option<&str> {
        let mut seen = std::collections::BTreeSet::new();
        self.targets().map(|target| &**target).find(|target| !seen.insert(*target))
    }

    /// The names that control would go to.
    pub fn targets(&self) -> impl Iterator<Item = &Arc<str>> {
        let (one, many) = match self {
            Self::Agent(name) => (Some(name), [].as_slice()),
            Self::Many(sends) => (None, sends.as_slice()),
            Self::Next | Self::End => (None, [].as_slice()),
        };
        one.into_iter().chain(many.iter().map(|send| &send.to))
    }
}

/// A target that is an agent's exact name.
impl TryFrom<&Arc<str>> for AgentName {
    type Error = NameError;

    fn try_from(name: &Arc<str>) -> Result<Self, NameError> {
        Self::new(name)
    }
}
