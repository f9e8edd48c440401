//! The state of a run's plan.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::supervision::runs::rules::rare::Rare;
use crate::workflow::graph::Graph;

use super::scope::{EndStates, Todo};

/// The compiled plan of a run, and the agenda of its blocks. The blocks themselves are branches.
#[derive(Clone, Debug, Default)]
pub(in crate::supervision::runs) struct PlanProgress {
    /// `None` for a run without a plan.
    graph: Option<Arc<Graph>>,
    /// Pending work in blocks; empty between events.
    agenda: Rare<VecDeque<Todo>>,
    /// The states of nodes at the end of their blocks, if they were requested.
    states: Option<Box<EndStates>>,
}

impl PlanProgress {
    /// The progress of a new run; with `states`, the states of nodes are kept when their blocks end.
    pub(in crate::supervision::runs) fn watched(states: Option<Box<EndStates>>) -> Self {
        Self { states, ..Self::default() }
    }

    pub(in crate::supervision::runs) fn set_graph(&mut self, graph: Option<Arc<Graph>>) {
        self.graph = graph;
    }

    pub(in crate::supervision::runs) fn graph(&self) -> Option<&Graph> {
        self.graph.as_deref()
    }

    /// The graph for code that changes the run while it reads the graph.
    pub(super) fn shared_graph(&self) -> Option<Arc<Graph>> {
        self.graph.clone()
    }

    pub(super) fn push(&mut self, todo: Todo) {
        self.agenda.push_back(todo);
    }

    pub(super) fn extend(&mut self, todos: impl Iterator<Item = Todo>) {
        todos.for_each(|todo| self.push(todo));
    }

    pub(super) fn pop(&mut self) -> Option<Todo> {
        self.agenda.get_mut()?.pop_front()
    }

    /// Whether nothing in blocks is pending, and no states are kept.
    pub(super) fn is_idle(&self) -> bool {
        self.agenda.is_empty() && self.states.is_none()
    }

    pub(super) fn states(&self) -> Option<&EndStates> {
        self.states.as_deref()
    }

    pub(super) fn take_states(&mut self) -> Option<Box<EndStates>> {
        self.states.take()
    }

    pub(super) fn keep_states(&mut self, states: Box<EndStates>) {
        self.states = Some(states);
    }
}
