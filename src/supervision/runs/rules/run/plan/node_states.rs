//! The states of the nodes of a run's plan, for observers: the last state of each node, also in blocks that have ended. Pure.

use std::collections::BTreeMap;

use crate::messages::state::StateRules;
use crate::messages::{Block, RunEvent, Work};
use crate::supervision::runs::rules::history::{ReplayError, from_submission};
use crate::supervision::runs::rules::run::branch::{Branch, Forked, Now, Origin};
use crate::supervision::runs::rules::run::fold::Run;
use crate::supervision::runs::rules::run::turn::Phase;
use crate::workflow::graph::{Graph, Station, Task};
use crate::workflow::progress::Stage;
use crate::workflow::{Count, NodeState, NodeStates, path_of_node};

use super::scope::NodePath;

impl Run {
    /// How the nodes of a run stood at the end of this history, or stand: of each node the last state, also within blocks that
    /// have ended. Of a run without a plan there are none.
    ///
    /// ```
    /// use callboard::messages::StateRules;
    /// use callboard::prelude::*;
    /// use callboard::supervision::runs::Run;
    /// use callboard::workflow::{Drawing, NodeState, Workflow};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let workflow = Workflow::from_line("", "draft -> if(\"draft.output == 1\") { publish }")?;
    /// let board = Callboard::builder()
    ///     .agent("draft", |_: Turn| async { Ok(Command::output(0)) })
    ///     .agent("publish", |_: Turn| async { Ok(Command::new()) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(workflow.task(0)).await?;
    /// run.result().await?;
    /// let states = Run::node_states_of(run.history().await?, &StateRules::default())?;
    /// assert_eq!(states["publish"].state, NodeState::Skipped);
    /// assert!(Drawing::of(&workflow).with(states).to_svg().contains("skipped"));
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`ReplayError`].
    ///
    /// # Panics
    /// When a custom reducer or a predicate does.
    pub fn node_states_of(
        history: Vec<RunEvent>,
        rules: &StateRules,
    ) -> Result<BTreeMap<String, NodeStates>, ReplayError> {
        let (submission, events) = from_submission(history)?;
        let (mut run, _) = Self::begin_watched(submission, rules.clone(), Some(Box::default()));
        for event in events {
            run.step(&event);
        }
        Ok(run.node_states())
    }

    /// How the nodes of its plan stand now, by the path to them: as [`Run::node_of`] has it, without iterations and items. Of
    /// nodes in blocks that have ended nothing is known any more, nor what was taken back, and nothing at all of a run that has
    /// ended: see [`Run::node_states_of`].
    #[must_use]
    pub fn node_states(&self) -> BTreeMap<String, NodeStates> {
        let mut states = self.plan.states().map(|kept| kept.ends.clone()).unwrap_or_default();
        for (id, _) in self.branches.iter() {
            self.read_states(id, true, &mut states);
        }
        let mut items: BTreeMap<String, Vec<(usize, NodeStates)>> = BTreeMap::new();
        for ((of, path), states) in states {
            items.entry(path).or_default().push((of.len(), states));
        }
        let mut states: BTreeMap<String, NodeStates> =
            items.into_iter().filter_map(|(path, items)| Some((path, in_all(&items)?))).collect();
        for path in self.plan.states().into_iter().flat_map(|kept| &kept.undone) {
            states.entry(path.clone()).and_modify(|own| {
                if own.state == NodeState::Finished {
                    own.state = NodeState::Undone;
                }
            });
        }
        if let Some(plan) = &self.submission.task.plan {
            let not_begun = NotBegun { is_all_known: self.plan.states().is_some() };
            not_begun.add_states(&plan.body, "", None, None, &mut states);
        }
        states
    }

    /// Records the states of the nodes in a branch that is about to end, and in the branches below it.
    pub(in crate::supervision::runs) fn note_end_of(&mut self, branch: u32) {
        let Some(mut kept) = self.plan.take_states() else { return };
        let mut next = vec![branch];
        while let Some(id) = next.pop() {
            self.read_states(id, false, &mut kept.ends);
            match self.branches.get(id).map(|branch| &branch.now) {
                Some(Now::Plan(scope)) => next.extend(scope.children.values()),
                Some(Now::Forked(forked)) => next.extend(&forked.children),
                Some(Now::Turn(_) | Now::Awaiting | Now::Parked(_)) | None => {}
            }
        }
        self.plan.keep_states(kept);
    }

    /// Records that the node that a branch compensates was compensated.
    pub(in crate::supervision::runs) fn note_undone(&mut self, branch: u32) {
        let (Some(graph), Some(mut kept)) = (self.plan.shared_graph(), self.plan.take_states()) else { return };
        kept.undone.extend(self.compensated_node(branch).map(|(block, node)| path_to(&graph, block, node)));
        self.plan.keep_states(kept);
    }

    /// Removes the recorded states within a branch that begins again.
    pub(in crate::supervision::runs) fn forget_within(&mut self, branch: u32) {
        let (Some(graph), Some(mut kept)) = (self.plan.shared_graph(), self.plan.take_states()) else { return };
        let (items, path) = self.path_of(&graph, branch);
        let inner = path + "/";
        let near = kept.ends.range((items.clone(), String::new())..).map(|(place, _)| place);
        let near = near.take_while(|(of, _)| of.starts_with(&items));
        let within: Vec<NodePath> = near.filter(|(_, noted)| noted.starts_with(&inner)).cloned().collect();
        for place in within {
            kept.ends.remove(&place);
        }
        kept.undone.retain(|path| !path.starts_with(&inner));
        self.plan.keep_states(kept);
    }

    /// Reads the states of the nodes in the block of a branch. Nodes that are open when the block ends are dropped.
    fn read_states(&self, id: u32, is_live: bool, states: &mut BTreeMap<NodePath, NodeStates>) {
        let (Some(graph), Some(branch)) = (self.plan.graph(), self.branches.get(id)) else { return };
        if let Some(count) = self.count_of(graph, branch) {
            // The state of this node is read with the enclosing block.
            states.entry(self.path_of(graph, id)).or_insert_with(|| NodeState::Running.into()).count = Some(count);
        }
        let Now::Plan(scope) = &branch.now else { return };
        let (items, path) = self.path_of(graph, id);
        let repeated = self.repeated_by(graph, branch);
        for (node, station) in (0..).zip(&scope.level(graph).nodes) {
            let state = match scope.stage(node) {
                Stage::Waiting | Stage::Ready if is_live => NodeState::Waiting,
                Stage::Running if is_live && self.is_interrupted(scope.children.get(&node)) => NodeState::Interrupted,
                Stage::Running if is_live => NodeState::Running,
                Stage::Waiting | Stage::Ready | Stage::Running | Stage::Dropped => NodeState::Dropped,
                Stage::Finished => NodeState::Finished,
                Stage::Failed => NodeState::Failed,
                Stage::Skipped => NodeState::Skipped,
            };
            let place = (items.clone(), path_of_node(&path, &station.name, repeated));
            states.entry(place).or_insert_with(|| state.into()).state = state;
        }
    }

    /// The indices of the map items around a branch, and the path to its node.
    fn path_of(&self, graph: &Graph, branch: u32) -> NodePath {
        let (mut names, mut items, mut next) = (Vec::new(), Vec::new(), Some(branch));
        while let Some(branch) = next.and_then(|id| self.branches.get(id)) {
            if let Origin::Fork { index, .. } = branch.origin {
                items.push(index);
            }
            names.extend(self.station(graph, branch).map(|(_, _, station)| &*station.name));
            next = branch.origin.parent();
        }
        names.reverse();
        items.reverse();
        (items, names.join("/"))
    }

    /// The name of the loop or map whose body a branch works on.
    fn repeated_by<'g>(&self, graph: &'g Graph, branch: &Branch) -> Option<&'g str> {
        let own = match branch.origin {
            Origin::Fork { parent, .. } => self.branches.get(parent)?,
            Origin::Root | Origin::Node { .. } | Origin::Compensation { .. } | Origin::Delegation { .. } => branch,
        };
        self.station(graph, own).and_then(|(_, _, station)| repeated(station))
    }

    /// The progress of the loop or map whose work the branch is.
    fn count_of(&self, graph: &Graph, branch: &Branch) -> Option<Count> {
        let (_, _, station) = self.station(graph, branch)?;
        let is_loop = matches!(station.task, Task::Loop { .. });
        match &branch.now {
            Now::Plan(scope) => is_loop.then(|| Count::Iteration(scope.iteration())),
            Now::Forked(forked) => {
                let Forked { children, open, .. } = &**forked;
                let number = |items: usize| u32::try_from(items).unwrap_or(u32::MAX);
                Some(Count::Items { done: number(children.len() - open), of: number(children.len()) })
            }
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) => None,
        }
    }

    fn is_interrupted(&self, branch: Option<&u32>) -> bool {
        let turn = branch.and_then(|id| match &self.branches.get(*id)?.now {
            Now::Turn(turn) => self.turns.get(*turn),
            Now::Awaiting | Now::Parked(_) | Now::Forked(_) | Now::Plan(_) => None,
        });
        turn.is_some_and(|turn| *turn.phase() == Phase::Interrupted)
    }
}

/// The path to a node of a block, without iterations and items.
fn path_to(graph: &Graph, block: u32, node: u32) -> String {
    let level = graph.level(block);
    let name = &*level.nodes[node as usize].name;
    let Some(around) = level.within else { return name.to_owned() };
    let (mut names, mut next) = (Vec::new(), Some(around));
    while let Some((block, node)) = next {
        let level = graph.level(block);
        names.push(&*level.nodes[node as usize].name);
        next = level.within;
    }
    names.reverse();
    let (block, node) = around;
    path_of_node(&names.join("/"), name, repeated(&graph.level(block).nodes[node as usize]))
}

/// The name of a loop or map.
fn repeated(station: &Station) -> Option<&str> {
    match station.task {
        Task::Loop { .. } | Task::Map { .. } => Some(&station.name),
        Task::Agent(_) | Task::Join | Task::Block(_) => None,
    }
}

/// The combined state of a node that was begun several times. Outer states come first: an inner node with the same name is the
/// body of what is repeated, and is more precise only while it runs.
fn in_all(items: &[(usize, NodeStates)]) -> Option<NodeStates> {
    let (depth, first) = *items.first()?;
    let most_urgent = |items: &mut dyn Iterator<Item = &(usize, NodeStates)>| {
        items.map(|(_, states)| states.state).max_by_key(|state| state.urgency())
    };
    let outer = || items.iter().filter(|(of, _)| *of == depth);
    let mut state = most_urgent(&mut outer())?;
    if state == NodeState::Running {
        state = most_urgent(&mut items.iter())?;
    }
    let number = |items: usize| u32::try_from(items).unwrap_or(u32::MAX);
    let count = match outer().count() {
        1 => first.count,
        of => {
            let done = outer().filter(|(_, states)| states.state == NodeState::Finished).count();
            Some(Count::Items { done: number(done), of: number(of) })
        }
    };
    Some(NodeStates { state, count })
}

/// The state of nodes in blocks that have not begun: that of the block.
struct NotBegun {
    /// All nodes in ended blocks have recorded states, so a failed block without any never began.
    is_all_known: bool,
}

impl NotBegun {
    fn add_states(
        &self,
        block: &Block,
        path: &str,
        repeated: Option<&str>,
        around: Option<NodeState>,
        states: &mut BTreeMap<String, NodeStates>,
    ) {
        for node in &block.nodes {
            let key = path_of_node(path, &node.name, repeated);
            if let Some(around) = around {
                states.entry(key.clone()).or_insert_with(|| around.into());
            }
            let within = states.get(&key).and_then(|own| match own.state {
                NodeState::Waiting | NodeState::Skipped | NodeState::Dropped => Some(own.state),
                NodeState::Failed => self.is_all_known.then_some(NodeState::Dropped),
                NodeState::Running
                | NodeState::Open
                | NodeState::Interrupted
                | NodeState::Finished
                | NodeState::Undone => None,
            });
            let repeats = match node.work {
                Work::Loop { .. } | Work::Map { .. } => Some(&*node.name),
                Work::Agent(_) | Work::Join | Work::Block { .. } => None,
            };
            if let Some(body) = node.work.body() {
                self.add_states(body, &path_of_node(path, &node.name, None), repeats, within, states);
            }
        }
    }
}
