//! How the nodes of a run stand.

/// How a node of a workflow stands in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NodeState {
    /// What it comes after has not ended.
    Waiting,
    /// It is worked on.
    Running,
    /// It starts when a person says so.
    Interrupted,
    /// It has finished.
    Finished,
    /// It has finished, and what it has done was taken back.
    Undone,
    /// It has failed, or could not start after a failure.
    Failed,
    /// It was not needed: its condition did not hold, or no edge to it was taken.
    Skipped,
    /// What needed it has ended without it.
    Dropped,
    /// It has begun and has not ended, and no process works on its run: in pictures of runs that were left, in place of
    /// [`NodeState::Running`].
    Open,
}

/// How a node stands, and how far it is if it is done several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStates {
    /// How it stands; of a node that is done for several items, the state that says most about what is to come.
    pub state: NodeState,
    /// How far it is.
    pub count: Option<Count>,
}

/// How far a node is that is done several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Count {
    /// The iteration of a loop, from 1: the one under way, or the last.
    Iteration(u32),
    /// The items of a map.
    Items {
        /// For how many it has ended; of a node within a map, has finished.
        done: u32,
        /// How many there are.
        of: u32,
    },
}

impl NodeState {
    /// Those that nodes may have, in the order in which they are explained. `is_left`: no process works on the run.
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

    /// How a node stands that stood so, if no process works on its run.
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

    /// As it is called in pictures.
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

    /// Of several items that stand differently, the state that says most about what is to come is the greatest.
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

/// How a node is named among the nodes of a run: the names on the way to it. The one node of a repeated body goes by the
/// name of what is repeated, if it has the same; `repeated` is that name, and `path` the way to it.
pub(crate) fn way_to_node(path: &str, name: &str, repeated: Option<&str>) -> String {
    match repeated {
        Some(repeated) if repeated == name => path.to_owned(),
        Some(_) | None if path.is_empty() => name.to_owned(),
        Some(_) | None => format!("{path}/{name}"),
    }
}
