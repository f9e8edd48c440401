//! The values that templates and conditions of a workflow read.

use std::sync::Arc;

use callboard_documents::template::Lookup;
use serde_json::Value;

use crate::messages::state::METRICS;
use crate::messages::{Json, Outcome, State};
use crate::supervision::runs::rules::run::fold::Run;
use crate::workflow::graph::vars::{Part, Var};
use crate::workflow::graph::{Graph, Station, Test};

use super::scope::Scope;

/// The values that templates of a block read.
pub(super) struct Seen<'a> {
    pub(super) run: &'a Run,
    pub(super) graph: &'a Graph,
    /// The branch of the block.
    pub(super) branch: u32,
    pub(super) view: &'a State,
}

impl Seen<'_> {
    /// The block this many levels up.
    fn scope(&self, up: u32) -> Option<&Scope> {
        let mut branch = self.branch;
        for _ in 0..up {
            branch = self.run.branches.get(branch)?.origin.parent()?;
            // A map's branch is between the branch of an item and that of the block around the map.
            if self.run.scope(branch).is_none() {
                branch = self.run.branches.get(branch)?.origin.parent()?;
            }
        }
        self.run.scope(branch)
    }

    /// The channels, including those of the runtime that the schema shows.
    fn state(&self) -> State {
        let is_shown = self.run.rules.schema.shows_metrics();
        self.view.with_runtime(None, is_shown.then(|| self.run.figures()).as_ref())
    }

    pub(super) fn holds(&self, test: &Test, subject: &Json) -> Result<bool, String> {
        match test {
            Test::Expression(expression) => expression.holds(self),
            Test::Predicate(name, wanted) => {
                let predicate = self.run.rules.predicates.get(name);
                let predicate = predicate.ok_or_else(|| format!("no predicate is named {name:?}"))?;
                Ok(predicate(self.view, subject) == *wanted)
            }
        }
    }

    /// The input of a node after the nodes `taken`, which are in plan order; `None` if it is skipped.
    pub(super) fn input_of(&self, node: u32, taken: &[u32], station: &Station) -> Result<Option<Json>, String> {
        let usual = self.usual_input(node, taken);
        if let Some(test) = &station.when
            && !self.holds(test, &usual)?
        {
            return Ok(None);
        }
        let input = match &station.input {
            Some(template) => Json::from_shared(template.render(self)?),
            None => usual,
        };
        if input.is_too_deep() {
            return Err(format!("its input nests deeper than {} levels", crate::messages::MAX_JSON_DEPTH));
        }
        Ok(Some(input))
    }

    fn usual_input(&self, node: u32, taken: &[u32]) -> Json {
        let Some(scope) = self.scope(0) else { return Json::null() };
        // The order in which nodes ended does not matter: the first in plan order counts.
        let sent = taken.iter().filter_map(|from| scope.gotos.get(from)).flat_map(|chosen| &chosen.to);
        if let Some(input) = sent.filter(|(to, _)| *to == node).find_map(|(_, input)| input.clone()) {
            return input;
        }
        match taken {
            [] if scope.round.iteration > 1 => scope.round.previous.clone(),
            [] => scope.input.clone(),
            nodes => self.outputs_of(scope, nodes),
        }
    }

    /// The output of one node, or an object of several, in the order of `nodes`.
    fn outputs_of(&self, scope: &Scope, nodes: &[u32]) -> Json {
        let output = |node: u32| scope.end(node).map(|end| end.output.clone()).unwrap_or_default();
        match nodes {
            [only] => output(*only),
            nodes => {
                let stations = &self.graph.level(scope.block).nodes;
                let name = |node: u32| stations[node as usize].name.to_string();
                let fields = nodes.iter().map(|node| (name(*node), output(*node).value().clone()));
                Json::from(Value::Object(fields.collect()))
            }
        }
    }

    pub(super) fn output_of(&self, last: &[u32]) -> Result<Json, String> {
        let Some(scope) = self.scope(0) else { return Ok(Json::null()) };
        match &self.graph.level(scope.block).output {
            Some(template) => template.render(self).map(Json::from_shared),
            None if last.is_empty() => Ok(Json::null()),
            None => Ok(self.outputs_of(scope, last)),
        }
    }

    fn value_of(&self, var: &Var) -> Result<Json, String> {
        let scope = |up: u32| self.scope(up).ok_or_else(|| "it is read outside of its workflow".to_owned());
        Ok(match var {
            Var::Input { up } => scope(*up)?.input.clone(),
            Var::Field { up, name } => {
                let value = scope(*up)?.input.value().get(&**name);
                value.cloned().map(Json::from).ok_or_else(|| format!("the input has no field `{name}`"))?
            }
            Var::State => self.state().to_json(),
            Var::Channel(channel) if **channel == *METRICS => self.state().get(channel).unwrap_or_default(),
            Var::Channel(channel) => self.view.get(channel).unwrap_or_default(),
            Var::Item { up } => scope(*up)?.round.item.as_ref().map(|(_, item)| item.clone()).unwrap_or_default(),
            Var::Index { up } => Json::from(scope(*up)?.round.item.as_ref().map_or(0, |(index, _)| *index)),
            Var::Iteration { up } => Json::from(scope(*up)?.round.iteration),
            Var::Previous { up } => scope(*up)?.round.previous.clone(),
            Var::Node { up, node, inside, part } => {
                let end = scope(*up)?.end(*node);
                match inside.split_first() {
                    None => part_of(end.map(|end| (&end.outcome, &end.output)), *part),
                    Some((first, rest)) => {
                        let first = end.and_then(|end| end.inside.get(first));
                        let found = rest.iter().try_fold(first, |at, node| at.map(|at| at.inside.get(node)));
                        let found = found.flatten();
                        part_of(found.map(|inside| (&inside.outcome, &inside.output)), *part)
                    }
                }
            }
        })
    }
}

impl Lookup<Var> for Seen<'_> {
    fn lookup(&self, var: &Var) -> Result<Arc<Value>, String> {
        self.value_of(var).map(Json::into_shared)
    }
}

/// The part of a node's end that is read; null if the node was skipped.
fn part_of(end: Option<(&Outcome, &Json)>, part: Part) -> Json {
    let Some((outcome, output)) = end else { return Json::null() };
    let error = || if outcome.is_finished() { Json::null() } else { Json::from(outcome.to_string()) };
    match part {
        Part::Output => output.clone(),
        Part::Outcome => Json::from(outcome.name()),
        Part::Error => error(),
        Part::All => {
            let (output, error) = (output.value().clone(), error());
            Json::from(serde_json::json!({ "output": output, "outcome": outcome.name(), "error": error.value() }))
        }
    }
}
