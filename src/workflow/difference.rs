//! The differences between two plans, for people.

use std::collections::BTreeMap;

use callboard_text::cut;

use crate::messages::{Block, Plan, PlanNode, Work};

/// The differences, node by node; empty if the plans are equal.
pub(crate) fn difference(before: &Plan, after: &Plan) -> Vec<String> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    enter(&before.body, "", &mut old);
    enter(&after.body, "", &mut new);
    let mut differences = Vec::new();
    if (&before.schema, &before.checks) != (&after.schema, &after.checks) {
        differences.push("the channels were changed".to_owned());
    }
    if before.body.output != after.body.output {
        differences.push("the output was changed".to_owned());
    }
    for (path, (node, block)) in &old {
        match new.get(path) {
            None => differences.push(format!("{path} was removed")),
            Some((other, other_block)) => {
                let parts = changed_parts(node, block, other, other_block);
                if !parts.is_empty() {
                    differences.push(format!("{path}: {}", parts.join(", ")));
                }
            }
        }
    }
    let added = new.keys().filter(|path| !old.contains_key(*path));
    differences.extend(added.map(|path| format!("{path} was added")));
    if differences.is_empty() && before != after {
        differences.push("the order of the nodes, or the name, was changed".to_owned());
    }
    differences
}

type Nodes<'a> = BTreeMap<String, (&'a PlanNode, &'a Block)>;

fn enter<'a>(block: &'a Block, path_of_block: &str, nodes: &mut Nodes<'a>) {
    for node in &block.nodes {
        let path =
            if path_of_block.is_empty() { node.name.to_string() } else { format!("{path_of_block}/{}", node.name) };
        if let Some(body) = node.work.body() {
            enter(body, &path, nodes);
        }
        nodes.insert(path, (node, block));
    }
}

fn changed_parts(before: &PlanNode, block: &Block, after: &PlanNode, other_block: &Block) -> Vec<String> {
    let mut parts = Vec::new();
    match (&before.work, &after.work) {
        (Work::Agent(old), Work::Agent(new)) if old != new => {
            parts.push(format!("the agent {} became {}", cut(old), cut(new)));
        }
        (old, new) if shell(old) != shell(new) => parts.push("what is done there was changed".to_owned()),
        (_, _) => {}
    }
    let edges = |node: &PlanNode, block: &Block| {
        let edge = |edge: &crate::messages::Edge| {
            let from = block.nodes.get(edge.from as usize).map(|from| from.name.to_string());
            (from, edge.on, edge.when.clone())
        };
        node.after.iter().map(edge).collect::<Vec<_>>()
    };
    let aspects = [
        ("what it comes after", edges(before, block) != edges(after, other_block)),
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

/// The work without the nodes in it, which are compared one by one.
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
