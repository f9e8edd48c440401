//! Reads a task: a node with its edges.

use callboard_documents::toml::{
    DeValue, Field, Fields, Item, count, duration, list, misfit, mismatch, placed_json, string, text, word,
};
use callboard_documents::{Defect, Found, Placed};

use crate::messages::{Condition, JoinPolicy, On};
use crate::workflow::draft::{EdgeDraft, GotoDraft, Node, RepeatDraft, WorkDraft};

/// The deepest nesting of tasks; those of the workflow are at level 1.
pub(super) const MAX_TASK_LEVELS: usize = 32;

const EXAMPLE_WORK: &str =
    "add agent = \"…\"; or workflow = \"…\", or tasks of its own, or kind = \"join\" to wait alone";
const EXAMPLE_NAME: &str = "add name = \"…\": others depend on it, and use its output, by its name";
const EXAMPLE_EDGE: &str = "write { task = \"name\" }, with `when` or `on` if needed";
const EXAMPLE_GOTO: &str = "write { to = \"name\" }, with `max` if it goes back";
const EXAMPLE_JOIN: &str = "write { at_least = 2 }";
const EXAMPLE_LOOP: &str = "write { until = \"an expression\", max = 5 }, or { max = 5 }";
const EXAMPLE_MAP: &str = "write { over = \"an expression\" }";

/// The tasks of a workflow, or of a task.
pub(super) fn tasks(field: Field<'_>, level: usize, found: &mut Found) -> Vec<Node> {
    let (_, item) = field;
    let items = list(field, "write its header with two pairs of brackets, as [[workflow.tasks]]", found);
    if items.is_empty() && item.get_ref().is_array() {
        let defect = Defect::new(&Some(item.span()), "there are no tasks here");
        found.add(defect.advise("write at least one, as { name = \"…\", agent = \"…\" }"));
    }
    if level > MAX_TASK_LEVELS {
        let problem = format!("tasks stand in tasks more than {MAX_TASK_LEVELS} levels deep here");
        found.add(Defect::new(&Some(item.span()), problem).advise("make a workflow of its own of them"));
        return Vec::new();
    }
    items.iter().filter_map(|item| task(item, level, found)).collect()
}

fn task(item: &Item<'_>, level: usize, found: &mut Found) -> Option<Node> {
    let mut fields = Fields::of("a task", item, "write { name = \"…\", agent = \"…\" }", found)?;
    let name = fields.required("name", EXAMPLE_NAME, found);
    if let Some((_, item)) = name {
        fields.place = item.span();
    }
    let name = name.and_then(|field| text(field, found));
    let work = work(&mut fields, level, found);
    let input = fields.get("input").and_then(|item| placed_json(item, found));
    let after = fields.field("depends_on").map(|field| edges(field, found)).unwrap_or_default();
    let join = fields.field("join").and_then(|field| join(field, found)).unwrap_or_default();
    let when = fields.field("when").and_then(|field| condition(field, found));
    let goto = fields.field("goto").map(|field| gotos(field, found)).unwrap_or_default();
    let repeat = repeat(&mut fields, found);
    let attempts = fields.field("attempts").and_then(|field| count(field, found));
    let timeout = fields.field("timeout").and_then(|field| duration(field, found));
    let compensation = fields.text("compensate", found);
    let saves = fields.text("save", found);
    let interrupt = fields.field("interrupt").and_then(|field| word(field, &[("before", ())], found));
    fields.close(found);
    Some(Node {
        after,
        join,
        when,
        input,
        goto,
        repeat,
        attempts,
        timeout,
        compensation,
        saves,
        is_interrupted: interrupt.is_some(),
        ..Node::new(name?, work?)
    })
}

fn work(fields: &mut Fields<'_>, level: usize, found: &mut Found) -> Option<WorkDraft> {
    let kinds = ["agent", "workflow", "tasks", "kind"].map(|key| fields.field(key));
    only_one("a task", &kinds, "keep one of them", found);
    let result = fields.field("result");
    let output = result.and_then(|(_, item)| placed_json(item, found));
    if let ([.., None, _], Some((_, item))) = (&kinds, result) {
        let defect = Defect::new(&Some(item.span()), "`result` is for a task that has `tasks`");
        found.add(defect.advise("remove it; the output of other tasks is what their agent answers"));
    }
    match kinds {
        [Some(agent), ..] => text(agent, found).map(WorkDraft::Agent),
        [_, Some(workflow), ..] => text(workflow, found).map(WorkDraft::Workflow),
        [.., Some(nodes), _] => Some(WorkDraft::Nodes { nodes: tasks(nodes, level + 1, found), output }),
        [.., Some(kind)] => word(kind, &[("join", WorkDraft::Join)], found),
        [None, None, None, None] => {
            let defect = Defect::new(&Some(fields.place.clone()), "this task has nothing to do");
            found.add(defect.advise(EXAMPLE_WORK));
            None
        }
    }
}

/// A defect at the second of the fields, if there is more than one.
fn only_one(what: &str, fields: &[Option<Field<'_>>], advice: &str, found: &mut Found) {
    let mut given: Vec<_> = fields.iter().flatten().collect();
    given.sort_by_key(|(_, item)| item.span().start);
    if let [(first, _), (second, item), ..] = given[..] {
        let problem = format!("{what} cannot have both `{first}` and `{second}`");
        found.add(Defect::new(&Some(item.span()), problem).advise(advice));
    }
}

fn edges(field: Field<'_>, found: &mut Found) -> Vec<EdgeDraft> {
    let items = list(field, "put it in brackets: depends_on = [\"name\"]", found);
    items.iter().filter_map(|item| edge(item, found)).collect()
}

fn edge(item: &Item<'_>, found: &mut Found) -> Option<EdgeDraft> {
    const WHAT: &str = "an entry of `depends_on`";
    if !item.get_ref().is_table() {
        let from = string(WHAT, "the name of a task, or a table", item, found)?;
        return Some(EdgeDraft { from: Placed::at(from.to_owned(), item.span()), on: On::Success, when: None });
    }
    let mut fields = Fields::of(WHAT, item, EXAMPLE_EDGE, found)?;
    let from = fields.required("task", EXAMPLE_EDGE, found).and_then(|field| text(field, found));
    let on =
        fields.field("on").and_then(|field| word(field, &[("success", On::Success), ("failure", On::Failure)], found));
    let when = fields.field("when").and_then(|field| condition(field, found));
    fields.close(found);
    Some(EdgeDraft { from: from?, on: on.unwrap_or_default(), when })
}

fn join(field: Field<'_>, found: &mut Found) -> Option<Placed<JoinPolicy>> {
    let (_, item) = field;
    let policy = match item.get_ref() {
        DeValue::Table(_) => {
            let mut fields = Fields::of("a join", item, EXAMPLE_JOIN, found)?;
            let least = fields.required("at_least", EXAMPLE_JOIN, found).and_then(|field| count(field, found));
            fields.close(found);
            JoinPolicy::AtLeast(least?.value)
        }
        DeValue::String(_) => {
            let words = [("all", JoinPolicy::All), ("any", JoinPolicy::AtLeast(1)), ("settled", JoinPolicy::Settled)];
            word(field, &words, found)?
        }
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) => {
            found.add(mismatch("`join`", "\"all\", \"any\", \"settled\" or { at_least = 2 }", item));
            return None;
        }
    };
    Some(Placed::at(policy, item.span()))
}

fn gotos(field: Field<'_>, found: &mut Found) -> Vec<GotoDraft> {
    let items = list(field, "put it in brackets: goto = [\"name\"]", found);
    items.iter().filter_map(|item| goto(item, found)).collect()
}

fn goto(item: &Item<'_>, found: &mut Found) -> Option<GotoDraft> {
    const WHAT: &str = "an entry of `goto`";
    if !item.get_ref().is_table() {
        let to = string(WHAT, "the name of a task, or a table", item, found)?;
        return Some(GotoDraft { to: Placed::at(to.to_owned(), item.span()), max: None });
    }
    let mut fields = Fields::of(WHAT, item, EXAMPLE_GOTO, found)?;
    let to = fields.required("to", EXAMPLE_GOTO, found).and_then(|field| text(field, found));
    let max = fields.field("max").and_then(|field| count(field, found));
    fields.close(found);
    Some(GotoDraft { to: to?, max })
}

fn repeat(fields: &mut Fields<'_>, found: &mut Found) -> Option<RepeatDraft> {
    let repeats = ["loop", "map"].map(|key| fields.field(key));
    let advice = "give one of them to a task that has the other in its `tasks`";
    only_one("a task", &repeats, advice, found);
    let [repeated, mapped] = repeats.map(|field| field.map(|(_, item)| item));
    let repeated = repeated.and_then(|item| repeated_until(item, found));
    let mapped = mapped.and_then(|item| mapped_over(item, found));
    repeated.or(mapped)
}

fn repeated_until(item: &Item<'_>, found: &mut Found) -> Option<RepeatDraft> {
    let mut fields = Fields::of("`loop`", item, EXAMPLE_LOOP, found)?;
    let until = fields.field("until");
    let condition = until.and_then(|field| condition(field, found));
    let max = fields.required("max", EXAMPLE_LOOP, found).and_then(|field| count(field, found));
    let at_max = fields.field("at_max");
    let ends_at_max = at_max.and_then(|field| word(field, &[("refuse", false), ("stop", true)], found));
    if let (None, Some(false), Some((_, item))) = (until, ends_at_max, at_max) {
        let problem = "a loop without `until` ends at its `max`: nothing could be refused there";
        found.add(Defect::new(&Some(item.span()), problem).advise("remove `at_max`, or add `until`"));
    }
    fields.close(found);
    Some(RepeatDraft::Loop { until: condition, max: max?, ends_at_max: ends_at_max.unwrap_or(until.is_none()) })
}

fn mapped_over(item: &Item<'_>, found: &mut Found) -> Option<RepeatDraft> {
    let mut fields = Fields::of("`map`", item, EXAMPLE_MAP, found)?;
    let over = fields.required("over", EXAMPLE_MAP, found).and_then(|field| text(field, found));
    let max = fields.field("max").and_then(|field| count(field, found));
    fields.close(found);
    Some(RepeatDraft::Map { over: over?, max })
}

/// An expression, or a predicate by name.
fn condition((key, item): Field<'_>, found: &mut Found) -> Option<Placed<Condition>> {
    let condition = match item.get_ref() {
        DeValue::String(expression) => Condition::Expression(expression.as_ref().into()),
        DeValue::Table(_) => {
            const EXAMPLE: &str = "write { predicate = \"name\" }";
            let mut fields = Fields::of("a condition", item, EXAMPLE, found)?;
            let name = fields.required("predicate", EXAMPLE, found).and_then(|field| text(field, found));
            fields.close(found);
            Condition::Predicate(name?.value.into())
        }
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) => {
            found.add(misfit(key, "an expression in a string, or { predicate = \"name\" }", item));
            return None;
        }
    };
    Some(Placed::at(condition, item.span()))
}
