//! What is different about two plans, for people.

use std::collections::BTreeMap;

use callboard_text::cut;

use crate::messages::{Block, Plan, PlanNode, Work};

/// What is different, node by node; empty if the plans are equal.
pub(crate) fn difference(before: &Plan, after: &Plan) -> Vec<String> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    enter(&before.body, "", &mut old);
    enter(&after.body, "", &mut new);
    let mut told = Vec::new();
    if (&before.schema, &before.checks) != (&after.schema, &after.checks) {
        told.push("the channels were changed".to_owned());
    }
    if before.body.output != after.body.output {
        told.push("the output was changed".to_owned());
    }
    for (path, (node, around)) in &old {
        match new.get(path) {
            None => told.push(format!("{path} was removed")),
            Some((other, other_around)) => {
                let parts = changed_parts(node, around, other, other_around);
                if !parts.is_empty() {
                    told.push(format!("{path}: {}", parts.join(", ")));
                }
            }
        }
    }
    let added = new.keys().filter(|path| !old.contains_key(*path));
    told.extend(added.map(|path| format!("{path} was added")));
    if told.is_empty() && before != after {
        told.push("the order of the nodes, or the name, was changed".to_owned());
    }
    told
}

type Nodes<'a> = BTreeMap<String, (&'a PlanNode, &'a Block)>;

fn enter<'a>(block: &'a Block, around: &str, nodes: &mut Nodes<'a>) {
    for node in &block.nodes {
        let path = if around.is_empty() { node.name.to_string() } else { format!("{around}/{}", node.name) };
        if let Some(body) = node.work.body() {
            enter(body, &path, nodes);
        }
        nodes.insert(path, (node, block));
    }
}

fn changed_parts(before: &PlanNode, around: &Block, after: &PlanNode, other_around: &Block) -> Vec<String> {
    let mut parts = Vec::new();
    match (&before.work, &after.work) {
        (Work::Agent(old), Work::Agent(new)) if old != new => {
            parts.push(format!("the agent {} became {}", cut(old), cut(new)));
        }
        (old, new) if shell(old) != shell(new) => parts.push("what is done there was changed".to_owned()),
        (_, _) => {}
    }
    let edges = |node: &PlanNode, around: &Block| {
        let edge = |edge: &crate::messages::Edge| {
            let from = around.nodes.get(edge.from as usize).map(|from| from.name.to_string());
            (from, edge.on, edge.when.clone())
        };
        node.after.iter().map(edge).collect::<Vec<_>>()
    };
    let aspects = [
        ("what it comes after", edges(before, around) != edges(after, other_around)),
        ("its join", before.join != after.join),
        ("its condition", before.when != after.when),
        ("its input", before.input != after.input),
        ("where it is saved", before.saves != after.saves),
        ("where its command may go", (before.may_repeat, &before.exits) != (after.may_repeat, &after.exits)),
        ("its attempts", before.attempts != after.attempts),
        ("its timeout", before.timeout != after.timeout),
        ("its compensation", before.compensation != after.compensation),
        ("its interrupt", before.is_interrupted != after.is_interrupted),
    ];
    let changed = aspects.into_iter().filter(|(_, is_changed)| *is_changed);
    parts.extend(changed.map(|(aspect, _)| format!("{aspect} was changed")));
    parts
}

/// The work without the nodes in it: these are told by themselves.
fn shell(work: &Work) -> Work {
    let empty = Block::default;
    match work {
        Work::Agent(_) => Work::Agent("".into()),
        Work::Join => Work::Join,
        Work::Block { is_closed, body } => {
            Work::Block { body: Block { output: body.output.clone(), ..empty() }, is_closed: *is_closed }
        }
        Work::Loop { body, until, max, ends_at_max } => {
            let (until, output) = (until.clone(), body.output.clone());
            Work::Loop { body: Block { output, ..empty() }, until, max: *max, ends_at_max: *ends_at_max }
        }
        Work::Map { body, over, max } => {
            Work::Map { body: Block { output: body.output.clone(), ..empty() }, over: over.clone(), max: *max }
        }
    }
}
