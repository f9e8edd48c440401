//! A checked workflow, and the builder that describes one in Rust.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use callboard_documents::{Defect, Defects, Place, Placed};
use callboard_text::{did_you_mean, quoted};
use serde_json::Value;

use crate::messages::state::StateRules;
use crate::messages::{Json, Plan, Reducer, Schema, Task};

use super::draft::{ChannelDraft, Draft, Node};
use super::graph::{Flaw, Graph, Predicated};
use super::lower::{Lowered, lower};

/// A checked workflow: a plan for runs, compiled.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::workflow::{Node, Workflow};
/// use serde_json::json;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let workflow = Workflow::builder("code-review")
///     .node(Node::agent("analyze", "code-analyzer").input("{{ source_code }}"))
///     .node(Node::agent("review", "code-reviewer").after("analyze").input("Look at this: {{ analyze.output }}"))
///     .build()?;
/// let board = Callboard::builder()
///     .agent("code-analyzer", |turn: Turn| async move { Ok(Command::output(turn.input::<String>()?.len())) })
///     .agent("code-reviewer", |turn: Turn| async move { Ok(Command::output(turn.input::<String>()?)) })
///     .start()
///     .await?;
/// let run = board.submit(workflow.task(json!({ "source_code": "fn main() {}" }))).await?;
/// assert_eq!(run.result().await?.output, "Look at this: 12");
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Workflow {
    plan: Arc<Plan>,
    graph: Arc<Graph>,
    description: Option<String>,
}

impl Workflow {
    /// Returns a builder that describes a workflow of this name in Rust.
    #[must_use]
    pub fn builder(name: &str) -> WorkflowBuilder {
        let draft = Draft { name: Placed::made(name.to_owned()), ..Draft::default() };
        WorkflowBuilder { draft, library: BTreeMap::new() }
    }

    /// Checks a draft. `text` is its source and the source's name.
    pub(super) fn of(
        mut draft: Draft,
        text: Option<(&str, &str)>,
        library: &BTreeMap<String, Workflow>,
    ) -> Result<Self, Defects> {
        let (name, description) = (draft.name.value.clone(), draft.description.clone());
        let channels = std::mem::take(&mut draft.channels);
        let Lowered { body, mut places, mut defects, named, is_too_large } = lower(draft, library);
        let schema = Arc::new(schema_of(&channels, &named, &mut defects));
        let mut plan = Plan::new(&name, schema, body);
        for (channel, check) in named.iter().flat_map(|(_, workflow)| &workflow.plan.checks) {
            plan = plan.check(channel, check.clone());
        }
        for ChannelDraft { name, schema, .. } in channels {
            if let Some(schema) = schema {
                places.note_channel(&name.value, schema.place);
                plan = plan.check(&name.value, Json::from(schema.value));
            }
        }
        let plan = Arc::new(plan);
        let graph = match defects.is_empty() {
            true => Graph::of(&plan),
            false if is_too_large => Err(Vec::new()),
            false => Err(Graph::flaws_of(&plan)),
        };
        match graph {
            Ok(graph) => Ok(Self { plan, graph, description }),
            Err(flaws) => {
                defects.extend(flaws.iter().map(|flaw| places.defect(flaw)));
                let origin = text.map_or_else(|| called(&name), |(origin, _)| origin.to_owned());
                Err(Defects::of(origin, text.map(|(_, text)| text), defects))
            }
        }
    }

    /// A workflow that was checked before, perhaps by another version.
    pub(crate) fn of_plan(plan: Arc<Plan>, description: Option<String>) -> Result<Self, Defects> {
        let graph = compiled(&plan)?;
        Ok(Self { plan, graph, description })
    }

    /// Returns the name of the workflow, by which nodes of other workflows run it and
    /// [`Workflows::save`](crate::runtime::Workflows::save) stores it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Returns what the workflow is for, in its author's words; `None` if the author wrote no description.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns the plan that each run of the workflow carries and follows until it ends.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The fields that its input must have: what its templates name and no node produces.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.graph.inputs()
    }

    /// A task that runs it on this input: an object with a field for each of [`Workflow::inputs`].
    #[must_use]
    pub fn task(&self, input: impl Into<Json>) -> Task {
        Task::new(&self.plan.name).input(input).plan(Arc::clone(&self.plan))
    }
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// The declared channels, and those of the named workflows: they share the state.
fn schema_of(channels: &[ChannelDraft], named: &[(Place, Workflow)], defects: &mut Vec<Defect>) -> Schema {
    let mut schema = Schema::strict();
    for channel in channels {
        if let Err(error) = Schema::open().reducer(&channel.name.value) {
            defects.push(Defect::new(&channel.name.place, error.to_string()));
        } else if schema.declares(&channel.name.value) {
            let problem = format!("the channel {} is declared twice", quoted(&channel.name.value));
            defects.push(Defect::new(&channel.name.place, problem).advise("remove one of them"));
        }
        schema = schema.channel(&channel.name.value, channel.reducer.clone());
    }
    for (place, workflow) in named {
        let theirs = &workflow.plan.schema;
        for channel in theirs.declared() {
            let Ok(reducer) = theirs.reducer(channel) else { continue };
            match schema.reducer(channel) {
                Ok(ours) if ours != reducer => {
                    let (name, channel) = (quoted(workflow.name()), quoted(channel));
                    let problem = format!("the workflow {name} declares the channel {channel} with another reducer");
                    defects.push(Defect::new(place, problem).advise("declare it alike, or under another name"));
                }
                Ok(_) => {}
                Err(_) => schema = schema.channel(channel, reducer.clone()),
            }
        }
    }
    schema
}

/// Describes a workflow node by node; [`WorkflowBuilder::build`] checks it.
#[derive(Clone, Debug)]
pub struct WorkflowBuilder {
    draft: Draft,
    library: BTreeMap<String, Workflow>,
}

impl WorkflowBuilder {
    /// Sets what it is for, in a sentence for people.
    #[must_use]
    pub fn description(mut self, description: &str) -> Self {
        self.draft.description = Some(description.to_owned());
        self
    }

    /// Adds a node. A node starts with the workflow, unless [`Node::after`] or the like puts it after others.
    #[must_use]
    pub fn node(mut self, node: Node) -> Self {
        self.draft.nodes.push(node);
        self
    }

    /// Declares a channel of the state. What is not declared cannot be written.
    #[must_use]
    pub fn channel(mut self, name: &str, reducer: Reducer) -> Self {
        self.draft.channels.push(ChannelDraft { name: Placed::made(name.to_owned()), reducer, schema: None });
        self
    }

    /// Declares a channel, and a JSON Schema that what it holds must meet after each write of a node. A command that breaks it
    /// fails its attempt.
    #[must_use]
    pub fn checked_channel(mut self, name: &str, reducer: Reducer, schema: impl Into<Value>) -> Self {
        let schema = Some(Placed::made(schema.into()));
        self.draft.channels.push(ChannelDraft { name: Placed::made(name.to_owned()), reducer, schema });
        self
    }

    /// Sets its result, in place of the output of its last nodes: JSON in which strings are templates.
    #[must_use]
    pub fn output(mut self, template: impl Into<Value>) -> Self {
        self.draft.output = Some(Placed::made(template.into()));
        self
    }

    /// Adds a workflow that nodes may run by its name ([`Node::workflow`]).
    #[must_use]
    pub fn with(mut self, workflow: &Workflow) -> Self {
        self.library.insert(workflow.name().to_owned(), workflow.clone());
        self
    }

    /// Checks it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn build(self) -> Result<Workflow, Defects> {
        Workflow::of(self.draft, None, &self.library)
    }
}

/// Checks whether a plan can run with this input and these reducers and predicates: only what could not be checked when it was
/// written.
pub(crate) fn check_task(plan: &Arc<Plan>, rules: &StateRules, input: Option<&Json>) -> Result<(), Defects> {
    let graph = compiled(plan)?;
    let mut defects = Vec::new();
    for Predicated { node, name } in graph.predicates() {
        if rules.predicates.get(name).is_none() {
            let hint = did_you_mean(rules.predicates.nearest(name).as_deref());
            let problem = format!("node {node} asks the predicate {name:?}, which is not registered{hint}");
            defects.push(
                Defect::new(&None, problem).advise("add it with `Builder::predicate`; the command line has none"),
            );
        }
    }
    for channel in plan.schema.declared() {
        if let Ok(Reducer::Custom(name)) = plan.schema.reducer(channel)
            && rules.reducers.get(name).is_none()
        {
            let hint = did_you_mean(rules.reducers.nearest(name).as_deref());
            let channel = quoted(channel);
            let problem = format!("channel {channel} has the reducer {name:?}, which is not registered{hint}");
            defects
                .push(Defect::new(&None, problem).advise("add it with `Builder::reducer`; the command line has none"));
        }
    }
    let has = |field: &str| input.is_some_and(|input| input.value().get(field).is_some());
    let missing: Vec<&str> = graph.inputs().filter(|field| !has(field)).collect();
    if !missing.is_empty() {
        let problem = format!("the input lacks {}", missing.join(", "));
        let advice = "give an object that has a field for each name that templates read and no node produces";
        defects.push(Defect::new(&None, problem).advise(advice));
    }
    if defects.is_empty() { Ok(()) } else { Err(Defects::of(called(&plan.name), None, defects)) }
}

/// The graph of a plan, or the plan's defects.
fn compiled(plan: &Plan) -> Result<Arc<Graph>, Defects> {
    Graph::of(plan).map_err(|flaws| {
        let defect = |flaw: Flaw| Defect { problem: flaw.fault.problem, advice: flaw.fault.advice, place: None };
        Defects::of(called(&plan.name), None, flaws.into_iter().map(defect).collect())
    })
}

/// The origin of a workflow without a text, in errors.
pub(super) fn called(name: &str) -> String {
    format!("workflow {}", quoted(name))
}
