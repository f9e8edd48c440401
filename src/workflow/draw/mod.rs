//! Workflows as pictures: Mermaid text, or SVG made without outside programs; with the states of the nodes of a run, if they
//! are given.

mod layers;
mod mermaid;
mod node_state;
mod picture;
mod svg;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::messages::Plan;

use super::Workflow;
use picture::Picture;

pub(crate) use node_state::path_of_node;
pub use node_state::{Count, NodeState, NodeStates};

/// A picture of a workflow. The same workflow gives the same bytes.
///
/// ```
/// use callboard::workflow::{Drawing, Workflow};
/// let workflow = Workflow::from_line("", "draft -> (check | research) -> publish")?;
/// let drawing = Drawing::of(&workflow);
/// assert!(drawing.to_mermaid().contains("n0 --> n1"));
/// assert!(drawing.to_svg().starts_with("<svg "));
/// # Ok::<(), callboard::workflow::Defects>(())
/// ```
#[derive(Clone, Debug)]
pub struct Drawing {
    plan: Arc<Plan>,
    states: Option<BTreeMap<String, NodeStates>>,
}

impl Drawing {
    /// Creates a picture of a workflow without states; [`Drawing::with`] adds those of a run.
    #[must_use]
    pub fn of(workflow: &Workflow) -> Self {
        Self::of_plan(Arc::clone(workflow.plan()))
    }

    /// As [`Drawing::of`], for the plan of a run.
    pub(crate) fn of_plan(plan: Arc<Plan>) -> Self {
        Self { plan, states: None }
    }

    /// Shows the states of nodes. Each is named by its path, as [`Run::node_of`] writes it without iterations and items:
    /// `group/review`. Nodes that are not named have no state.
    ///
    /// [`Run::node_of`]: crate::supervision::runs::Run::node_of
    #[must_use]
    pub fn with(mut self, states: BTreeMap<String, NodeStates>) -> Self {
        self.states = Some(states);
        self
    }

    /// Returns the picture as the text of a Mermaid flowchart.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        mermaid::write(&self.plan.name, &self.picture())
    }

    /// As an SVG file that stands alone: no scripts, nothing fetched from elsewhere, light and dark.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let states = self.states.as_ref();
        let legend = states.map(|states| NodeState::all(states.values().any(|node| node.state == NodeState::Open)));
        svg::write(&self.plan.name, &self.picture(), legend.as_ref().map_or(&[], |legend| legend))
    }

    fn picture(&self) -> Picture {
        Picture::of(&self.plan.body, self.states.as_ref())
    }
}
