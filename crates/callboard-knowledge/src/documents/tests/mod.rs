//! Tests of whole documents.

mod folder;
mod golden;
mod hostile;
mod markdown;
mod other_formats;
mod properties;

use std::collections::HashSet;

use super::*;
use crate::words::words;

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

/// Checks what every document promises, whatever it was read from.
fn check(document: &Document, limits: &ReadLimits) {
    assert!(!document.passages.is_empty() && document.passages.len() <= limits.passages);
    assert!(document.links.len() <= limits.links);
    assert!(is_title(&document.title), "{:?}", document.title);
    let mut last = 1;
    for (ordinal, passage) in document.passages.iter().enumerate() {
        assert_eq!(passage.ordinal as usize, ordinal);
        assert!(passage.text.chars().count() <= limits.passage_chars.max(200));
        assert!(!passage.text.trim().is_empty());
        assert!(passage.title.split(" > ").count() <= 1_000 && passage.title.chars().count() <= 7 * MAX_TITLE);
        assert!(*passage.lines.start() >= last && passage.lines.end() >= passage.lines.start(), "{:?}", passage.lines);
        assert_eq!(passage.text.matches('\n').count() as u32, passage.lines.end() - passage.lines.start());
        last = *passage.lines.end();
        let names: Vec<_> = passage.entities.iter().map(|mention| (mention.kind, &mention.entity)).collect();
        assert!(names.is_sorted_by(|one, next| one < next), "an entity twice: {names:?}");
        assert!(names.iter().all(|(_, name)| !name.is_empty() && name.len() <= MAX_TITLE * 4));
    }
    for link in &document.links {
        assert!((link.passage as usize) < document.passages.len());
        let is_page = ["http:", "https:"].iter().any(|scheme| link.to.to_lowercase().starts_with(scheme));
        assert!(is_page || link.to.split('/').all(|part| !["", ".", ".."].contains(&part)), "{}", link.to);
        assert!(is_title(&link.text) || link.text.is_empty());
    }
}

fn is_title(title: &str) -> bool {
    !title.is_empty() && title.chars().count() <= MAX_TITLE && !title.contains('\n')
}

/// The words of a text that are in no passage of its document.
fn lost<'t>(document: &Document, text: &'t str) -> Vec<&'t str> {
    let kept: HashSet<&str> = document.passages.iter().flat_map(|passage| words(&passage.text)).collect();
    words(text).filter(|word| !kept.contains(word)).collect()
}

/// What is in a document, in bytes.
fn size(document: &Document) -> usize {
    let passages = document.passages.iter().map(|passage| {
        let anchors: usize = passage.other_anchors.iter().map(String::len).sum();
        let entities: usize = passage.entities.iter().map(|mention| mention.entity.len()).sum();
        passage.title.len() + passage.anchor.len() + anchors + passage.text.len() + entities
    });
    let links =
        document.links.iter().map(|link| link.to.len() + link.anchor.as_ref().map_or(0, String::len) + link.text.len());
    passages.sum::<usize>() + links.sum::<usize>()
}
