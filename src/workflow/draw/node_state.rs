//! The states of the nodes of a run.

/// The state of a node of a workflow in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NodeState {
    /// The node has not begun, and may begin once the nodes before it allow it.
    Waiting,
    /// Its work has begun and has not ended.
    Running,
    /// The node begins when a person resumes it; the run lists it as a
    /// [`Pending::Node`](crate::messages::Pending::Node).
    Interrupted,
    /// The work of the node has ended with success.
    Finished,
    /// It has finished, and what it has done was taken back.
    Undone,
    /// It has failed, or could not start after a failure.
    Failed,
    /// It was not needed: its condition did not hold, or no edge to it was taken.
    Skipped,
    /// The block or join that needed the node has ended without it: the node was cancelled, or never began.
    Dropped,
    /// It has begun and has not ended, and no process works on its run: in pictures of such runs, in place of
    /// [`NodeState::Running`].
    Open,
}

/// The state of a node, and its progress if it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStates {
    /// Its state; of a node that runs for several items, their most urgent one: interrupted before running before failed.
    pub state: NodeState,
    /// The progress of a node that is repeated, or that a map runs for several items; `None` for any other.
    pub count: Option<Count>,
}

/// How far a node that is repeated has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Count {
    /// The iteration of a loop, from 1: the one under way, or the last.
    Iteration(u32),
    /// The items of a map, which run concurrently.
    Items {
        /// The number of items for which it has ended; for a node within a map, for which it has finished.
        done: u32,
        /// The number of items; for a node within a map, of those for which it has a state.
        of: u32,
    },
}

impl NodeState {
    /// The states in the order of the legend. `is_left`: no process works on the run.
    pub(super) fn all(is_left: bool) -> [Self; 8] {
        [
            Self::Waiting,
            if is_left { Self::Open } else { Self::Running },
            Self::Interrupted,
            Self::Finished,
            Self::Undone,
            Self::Failed,
            Self::Skipped,
            Self::Dropped,
        ]
    }

    /// The state to show when no process works on the run: running nodes are open.
    #[must_use]
    pub fn when_left(self) -> Self {
        match self {
            Self::Running => Self::Open,
            Self::Waiting
            | Self::Interrupted
            | Self::Finished
            | Self::Undone
            | Self::Failed
            | Self::Skipped
            | Self::Dropped
            | Self::Open => self,
        }
    }

    /// Returns the word for the state in pictures: the name of the variant in small letters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Finished => "finished",
            Self::Undone => "undone",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Dropped => "dropped",
            Self::Open => "open",
        }
    }

    /// The rank of a state: of several items in different states, the highest is shown.
    pub(crate) fn urgency(self) -> u32 {
        match self {
            Self::Interrupted => 7,
            Self::Running | Self::Open => 6,
            Self::Failed => 5,
            Self::Waiting => 4,
            Self::Undone => 3,
            Self::Finished => 2,
            Self::Skipped => 1,
            Self::Dropped => 0,
        }
    }
}

impl From<NodeState> for NodeStates {
    fn from(state: NodeState) -> Self {
        Self { state, count: None }
    }
}

/// The path of a node in a run: the names that lead to it. The only node of a repeated body has the path of the loop or map, if
/// both have one name; `repeated` is that name, and `path` its path.
pub(crate) fn path_of_node(path: &str, name: &str, repeated: Option<&str>) -> String {
    match repeated {
        Some(repeated) if repeated == name => path.to_owned(),
        Some(_) | None if path.is_empty() => name.to_owned(),
        Some(_) | None => format!("{path}/{name}"),
    }
}
