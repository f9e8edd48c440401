//! Source code: items with the comments above them, and the names that they define. No language is parsed.

mod chunks;
mod definitions;

use std::ops::Range;

use self::chunks::chunks;
use self::definitions::{Definition, Kind, definition};
use super::document::{Mention, Passage};
use super::entities;
use super::formats::Language;
use super::passages::{Passages, Section};

/// A comment of fewer bytes that stands alone belongs to the item below it.
const SHORT: usize = 200;

/// Reads a source file. An item is a section; what defines nothing, such as imports, is joined.
pub(super) fn read(passages: &mut Passages<'_>, text: &str, name: &str, language: Language) {
    // What defines nothing, until an item follows.
    let mut pending: Option<Range<usize>> = None;
    for chunk in chunks(text, language) {
        if passages.is_full() {
            return;
        }
        let start = pending.as_ref().map_or(chunk.start, |pending| pending.start);
        let Some(first) = outermost(&text[chunk.clone()], language) else {
            pending = Some(start..chunk.end);
            continue;
        };
        let item = match pending.take() {
            Some(comment) if comment.start > 0 && comment.len() < SHORT => comment.start..chunk.end,
            Some(pending) => {
                passages.push(section(pending, name));
                chunk
            }
            None => chunk,
        };
        push_item(passages, item, name, first, language);
    }
    if let Some(pending) = pending {
        passages.push(section(pending, name));
    }
}

fn section(place: Range<usize>, title: &str) -> Section {
    Section { place, title: title.to_owned(), anchor: String::new(), other_anchors: Vec::new(), defines: Vec::new() }
}

/// The first definition of an item.
fn outermost(item: &str, language: Language) -> Option<Definition<'_>> {
    item.lines().find_map(|line| definition(line, language, None))
}

/// How many names are in a title.
const NAMED: usize = 3;

/// Adds an item. Each of its passages defines the names whose definitions it contains, and its title has the first of them. The title of a
/// passage that ends in a doc comment and defines nothing has the name that is defined below the comment.
fn push_item(passages: &mut Passages<'_>, place: Range<usize>, name: &str, item: Definition<'_>, language: Language) {
    let title = entities::title(&format!("{name} > {}", item.name));
    let added = passages.push(section(place, &title));
    let mut container = None;
    let added = &mut passages.passages_mut()[added];
    let mut names: Vec<Vec<String>> =
        added.iter_mut().map(|passage| defined(passage, language, &mut container)).collect();
    for at in (1..names.len()).rev() {
        if names[at - 1].is_empty() && chunks::ends_in_head(&added[at - 1].text, language) {
            names[at - 1] = names[at].first().cloned().into_iter().collect();
        }
    }
    for (passage, names) in added.iter_mut().zip(names) {
        if names.first().is_some_and(|first| *first != item.name) {
            let more = if names.len() > NAMED { ", …" } else { "" };
            let names = names[..names.len().min(NAMED)].join(", ");
            passage.title = entities::title(&format!("{title} > {names}{more}"));
        }
    }
}

/// Adds the definitions in a passage to its entities, and returns their names. `container` is the type whose members follow, if any: it
/// continues from the passage before.
fn defined(passage: &mut Passage, language: Language, container: &mut Option<String>) -> Vec<String> {
    let mut names = Vec::new();
    let mut mentions: Vec<Mention> = Vec::new();
    for line in passage.text.lines() {
        if ends_container(line) {
            *container = None;
        }
        let Some(found) = definition(line, language, container.as_deref()) else { continue };
        let is_member = line.starts_with([' ', '\t']);
        let of = found.of.or(container.as_deref().filter(|_| is_member));
        let separator = match language {
            Language::Rust | Language::C => "::",
            Language::Python | Language::Script | Language::Go | Language::Java => ".",
        };
        match found.kind {
            Kind::Item | Kind::Container | Kind::Value => {
                mentions.extend(entities::defined(found.name));
                mentions.extend(of.and_then(|of| entities::defined(&format!("{of}{separator}{}", found.name))));
                names.push(found.name.to_owned());
            }
            Kind::Extension => mentions.extend(entities::of_code(found.name)),
        }
        match found.kind {
            Kind::Container | Kind::Extension => *container = Some(found.name.to_owned()),
            Kind::Item | Kind::Value => {}
        }
    }
    passage.entities.extend(mentions);
    names
}

/// Whether a line is outside of the type that is before it: it is not indented, and neither a comment nor a rest of the type's head.
fn ends_container(line: &str) -> bool {
    !line.is_empty()
        && !line.starts_with(|c: char| c.is_whitespace() || matches!(c, '{' | ')' | '#' | '/' | '*'))
        && !line.starts_with("where")
}
