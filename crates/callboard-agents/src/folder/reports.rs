//! The reports about the files of a folder.

use std::fmt;

use callboard::messages::AgentName;
use callboard_text::{visible, visible_lines};

/// What loading or reloading a folder did with one of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The file's name in the folder; the path of a catalog.
    pub file: String,
    /// What changed since the file was read last, or why the file was refused.
    pub change: FileChange,
}

/// What became of a file since it was read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// The file is as it was, is refused again for the same reason, or defines an agent that is left to others.
    Unchanged,
    /// The file had no agent before; the agent that it defines now takes tasks.
    Added {
        /// The agent that it defines.
        agent: AgentName,
    },
    /// Its agent goes by what it says from its next turn on; turns under way end as they began.
    Changed {
        /// The agent that it defines now.
        agent: AgentName,
        /// The agent that it defined before, if that had another name: it was stopped.
        before: Option<AgentName>,
    },
    /// It is gone. Turns of its agent that are under way end; new tasks for it are refused.
    Removed {
        /// The agent that it defined.
        agent: AgentName,
    },
    /// The models of the catalog are others now. Turns under way end with those that they began with.
    Models,
    /// Something is wrong with the catalog, or an agent has no model in it. The models stay as they were.
    ModelsRefused {
        /// What is wrong, with file, line and column where the defect has them. It may have several lines.
        why: String,
    },
    /// Something is wrong with it, and nothing of it was taken.
    Refused {
        /// What is wrong, with file, line and column where the defect has them. It may have several lines.
        why: String,
        /// The agent that keeps its earlier definition; `None` if the file had no agent.
        stays: Option<AgentName>,
    },
}

impl FileReport {
    /// Returns what is wrong with the file, if it was not taken.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match &self.change {
            FileChange::Refused { why, .. } | FileChange::ModelsRefused { why } => Some(why),
            FileChange::Unchanged
            | FileChange::Added { .. }
            | FileChange::Changed { .. }
            | FileChange::Models
            | FileChange::Removed { .. } => None,
        }
    }
}

/// One line, and the defects of a file that was not accepted.
impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", visible(&self.file))?;
        match &self.change {
            FileChange::Unchanged => f.write_str("unchanged"),
            FileChange::Added { agent } => write!(f, "added: {agent} takes tasks"),
            FileChange::Changed { agent, before: None } => write!(f, "changed: later turns of {agent} use it"),
            FileChange::Changed { agent, before: Some(before) } => {
                write!(f, "changed: {agent} takes tasks in place of {before}")
            }
            FileChange::Removed { agent } => write!(f, "removed: {agent} takes no new tasks"),
            FileChange::Models => f.write_str("changed: later turns use it"),
            FileChange::ModelsRefused { why } => {
                write!(f, "refused, and the models stay as they were:\n{}", visible_lines(why))
            }
            FileChange::Refused { why, stays } => {
                match stays {
                    Some(agent) => write!(f, "refused, and {agent} keeps its earlier definition:")?,
                    None => f.write_str("refused:")?,
                }
                write!(f, "\n{}", visible_lines(why))
            }
        }
    }
}
