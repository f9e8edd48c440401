//! Agents that come with the library, for work that other agents need done by a model.
//!
//! Each is declared as any other is, in a text that is compiled in. None has a tool, and none has an effect. They are not on a
//! board unless they are added to it; a definition of the user's with the same name takes the place of one.

mod definitions;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An agent that comes with the library.
///
/// ```
/// use callboard::prelude::*;
/// use callboard_agents::testing::ScriptedModel;
/// use callboard_agents::{BuiltIn, LlmAgent, Tools};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let model = ScriptedModel::new().says("Leaves fall.");
/// let summarizer = LlmAgent::new(&BuiltIn::Summarizer.definition(), std::sync::Arc::new(model), &Tools::new(), &[])?;
/// let board = Callboard::builder().with(summarizer.spec()).start().await?;
/// let run = board.submit(Task::new("It was autumn, and one leaf after the other fell.").to("summarizer")).await?;
/// assert_eq!(run.result().await?.output, "Leaves fall.");
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuiltIn {
    /// Sums up a text or a conversation.
    Summarizer,
    /// Makes the older part of a long conversation short, so that its agent can go on.
    Compactor,
    /// Adds to a task what whoever does it has to know, and open questions.
    Enricher,
    /// Says which tools and agents are missing for a task. Its output is a [`CapabilityGap`].
    CapabilityGap,
    /// Says how much a task needs. Its output is a [`Complexity`](callboard::messages::Complexity).
    Complexity,
}

/// What is missing for a task, as [`BuiltIn::CapabilityGap`] sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapabilityGap {
    /// Tools without which it cannot be done, each with what it has to do.
    pub missing_tools: Vec<String>,
    /// Agents whose knowledge or role nobody here has, each with what it has to do.
    pub missing_agents: Vec<String>,
    /// Why, in a sentence or two.
    pub why: String,
}

impl CapabilityGap {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.missing_tools.is_empty() && self.missing_agents.is_empty()
    }
}

impl BuiltIn {
    /// All built-in agents, in the order of their variants.
    pub const ALL: [Self; 5] =
        [Self::Summarizer, Self::Compactor, Self::Enricher, Self::CapabilityGap, Self::Complexity];

    /// The name under which boards know it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Summarizer => "summarizer",
            Self::Compactor => "compactor",
            Self::Enricher => "enricher",
            Self::CapabilityGap => "capability_gap",
            Self::Complexity => "complexity",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }
}

/// Its name.
impl fmt::Display for BuiltIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
