//! Tests of whole documents.

mod markdown;

use super::*;

/// Reads a text that is not left out.
fn read(path: &str, text: &str) -> Document {
    read_document(path, text.as_bytes(), &ReadLimits::default()).unwrap()
}

fn titles(document: &Document) -> Vec<&str> {
    document.passages.iter().map(|passage| passage.title.as_str()).collect()
}

fn targets(document: &Document) -> Vec<(u32, &str, Option<&str>)> {
    document.links.iter().map(|link| (link.passage, link.to.as_str(), link.anchor.as_deref())).collect()
}

/// The names that a passage has with a relation.
fn names(passage: &Passage, relation: Relation) -> Vec<&str> {
    let entities = passage.entities.iter().filter(|mention| mention.relation == relation);
    entities.map(|mention| mention.entity.as_str()).collect()
}
