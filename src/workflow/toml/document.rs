//! Reads the whole text: `[workflow]` and its channels.

use std::borrow::Cow;

use callboard_documents::toml::{DeTable, DeValue, Field, Fields, Item, Spanned, mismatch, placed_json, text, word};
use callboard_documents::{Defect, Found, Placed};
use callboard_text::{did_you_mean, nearest, quoted};

use super::task::tasks;
use crate::messages::Reducer;
use crate::workflow::draft::{ChannelDraft, Draft};

const EXAMPLE_NAME: &str = "write name = \"…\" under [workflow]";
const EXAMPLE_CHANNEL: &str = "write notes = \"append\", or notes = { reducer = \"append\", schema = { … } }";

pub(super) fn read(document: &DeTable<'_>, found: &mut Found) -> Draft {
    for key in document.keys().filter(|key| key.get_ref() != "workflow") {
        let likely = nearest(key.get_ref(), ["workflow"]);
        let problem = format!("{} is not part of a workflow{}", quoted(key.get_ref()), did_you_mean(likely.as_deref()));
        let advice = "everything stands under `workflow`: write [workflow], [workflow.channels] and [[workflow.tasks]]";
        found.add(Defect::new(&Some(key.span()), problem).advise(advice));
    }
    match document.get("workflow") {
        Some(item) => workflow(item, found).unwrap_or_default(),
        None => {
            // The unknown key is also a defect, and more precise.
            if document.is_empty() {
                let advice = "begin with [workflow] and name = \"…\", then write [[workflow.tasks]] for each task";
                found.add(Defect::new(&Some(0..0), "there is no workflow in this text").advise(advice));
            }
            Draft::default()
        }
    }
}

fn workflow(item: &Item<'_>, found: &mut Found) -> Option<Draft> {
    let mut fields = Fields::of("a workflow", item, "write [workflow], with one pair of brackets", found)?;
    let name = fields.required("name", EXAMPLE_NAME, found).and_then(|field| text(field, found));
    let description = fields.text("description", found).map(|text| text.value);
    let channels = fields.get("channels").map(|item| channels(item, found)).unwrap_or_default();
    let nodes =
        fields.required("tasks", "write [[workflow.tasks]], and below it name = \"…\" and agent = \"…\"", found);
    let nodes = nodes.map(|field| tasks(field, 1, found)).unwrap_or_default();
    let output = fields.get("output").and_then(|item| placed_json(item, found));
    fields.close(found);
    Some(Draft { name: name.unwrap_or_default(), description, channels, nodes, output })
}

fn channels(item: &Item<'_>, found: &mut Found) -> Vec<ChannelDraft> {
    let DeValue::Table(table) = item.get_ref() else {
        found.add(mismatch("`channels`", "a table", item).advise(EXAMPLE_CHANNEL));
        return Vec::new();
    };
    let mut channels: Vec<_> = table.iter().filter_map(|(name, item)| channel(name, item, found)).collect();
    // The tree is sorted by name; positions give the author's order.
    channels.sort_by_key(|channel| channel.name.place.as_ref().map(|place| place.start));
    channels
}

fn channel(name: &Spanned<Cow<'_, str>>, item: &Item<'_>, found: &mut Found) -> Option<ChannelDraft> {
    let name = Placed::at(name.get_ref().clone().into_owned(), name.span());
    match item.get_ref() {
        DeValue::String(_) => Some(ChannelDraft { name, reducer: reducer(("reducer", item), found)?, schema: None }),
        DeValue::Table(_) => {
            let mut fields = Fields::of("a channel", item, EXAMPLE_CHANNEL, found)?;
            let given = fields.field("reducer").map(|field| reducer(field, found));
            let schema = fields.get("schema").and_then(|item| schema(item, found));
            fields.close(found);
            Some(ChannelDraft { name, reducer: given.unwrap_or_else(|| Some(Reducer::default()))?, schema })
        }
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) => {
            found.add(mismatch("a channel", "the name of a reducer, or a table", item).advise(EXAMPLE_CHANNEL));
            None
        }
    }
}

fn reducer((key, item): Field<'_>, found: &mut Found) -> Option<Reducer> {
    // The last one represents the keys that are recognised by their prefix.
    let words = [
        ("last_value", Some(Reducer::LastValue)),
        ("append", Some(Reducer::Append)),
        ("merge", Some(Reducer::merge())),
        ("sum", Some(Reducer::Sum)),
        ("custom:NAME", None),
    ];
    match item.get_ref().as_str().and_then(|text| text.strip_prefix("custom:")) {
        Some("") => {
            let advice = "write custom:NAME, with the name that the board knows it by";
            found.add(Defect::new(&Some(item.span()), "a custom reducer needs a name").advise(advice));
            None
        }
        Some(name) => Some(Reducer::Custom(name.into())),
        None => word((key, item), &words, found)?,
    }
}

fn schema(item: &Item<'_>, found: &mut Found) -> Option<Placed<serde_json::Value>> {
    if !item.get_ref().is_table() {
        found.add(mismatch("`schema`", "a table with a JSON Schema", item));
        return None;
    }
    placed_json(item, found)
}
