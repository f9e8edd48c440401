//! The pages of entities, and the lists of them. Pure.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::description::{Entity, Place, SiteSettings};
use super::fact_pages::linked;
use super::files::File;
use super::layout::{Part, counted, framed, grouped, pager};
use super::outline::Outline;
use super::search::{Entry, Kind};
use super::{names, texts};

/// The entities of a list.
const OF_LIST: usize = 400;
/// The most that an entity's page lists of one kind.
const MAX_LISTED: usize = 1_000;

/// Returns the page of an entity, and what a search finds of it.
pub(super) fn entity_page(settings: &SiteSettings, outline: &Outline, entity: &Entity) -> (File, Entry) {
    let file = names::of_entity(&entity.name);
    let root = names::root(&file);
    let name = texts::label(&entity.name);
    let contents = html! {
        main.list id="kb:main" {
            nav.place aria-label="Place" {
                a href={ (root) "entities/index.html" } { "Entities" }
                span aria-hidden="true" { " / " }
                span { (texts::label(&entity.kind)) }
            }
            h1 { bdi { (name) } }
            (places("Defined in", outline, &root, &entity.defined))
            (listed("Facts", &entity.facts, |id| linked(outline, &root, id)))
            (listed("Related", &entity.related, |(relation, other)| html! {
                span.predicate { (texts::label(relation)) } " "
                @match outline.link_to_entity(other) {
                    Some(target) => a href={ (root) (target) } { bdi { (texts::label(other)) } },
                    None => bdi { (texts::label(other)) },
                }
            }))
            (places("Mentioned in", outline, &root, &entity.mentioned))
            @if entity.defined.is_empty() && entity.facts.is_empty() && entity.related.is_empty() && entity.mentioned.is_empty() {
                p.lead { "The base has nothing about it but its name." }
            }
        }
    };
    let entry = Entry {
        target: file.clone(),
        context: texts::label(&entity.kind),
        kind: Kind::Entity,
        excerpt: String::new(),
        words: super::search::words_of(&[(14, &entity.name), (1, &entity.kind)]),
        title: name,
    };
    (File::html(&file, framed(settings, &file, &entity.name, Part::Entities, &contents)), entry)
}

fn listed<T>(title: &str, all: &[T], show: impl Fn(&T) -> Markup) -> Markup {
    html! {
        @if !all.is_empty() {
            section {
                h2 { (title) " " span.count { (grouped(all.len())) } }
                ul.plain {
                    @for one in all.iter().take(MAX_LISTED) { li { (show(one)) } }
                    @if all.len() > MAX_LISTED { li { "and " (grouped(all.len() - MAX_LISTED)) " more" } }
                }
            }
        }
    }
}

/// Sections by their documents, both in the order in which they are given.
fn places(title: &str, outline: &Outline, root: &str, places: &[Place]) -> Markup {
    let mut documents: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for place in places.iter().take(MAX_LISTED) {
        let at = *known.entry(&place.page).or_insert(documents.len());
        if at == documents.len() {
            documents.push((&place.page, Vec::new()));
        }
        documents[at].1.extend(place.anchor.as_deref());
    }
    html! {
        @if !places.is_empty() {
            section {
                h2 { (title) " " span.count { (grouped(places.len())) } }
                ul.plain.places {
                    @for (path, anchors) in &documents { li { (document(outline, root, path, anchors)) } }
                    @if places.len() > MAX_LISTED { li { "and " (grouped(places.len() - MAX_LISTED)) " more" } }
                }
            }
        }
    }
}

fn document(outline: &Outline, root: &str, path: &str, anchors: &[&str]) -> Markup {
    let label = texts::label(path);
    let link = |anchor| outline.link_to(path, anchor).map(|(file, _)| format!("{root}{file}"));
    html! {
        @match outline.pages().get(path) {
            Some(page) => {
                a href=[link(None)] { bdi { (page.title) } } " " span.where { (label) }
                @if !anchors.is_empty() {
                    ul.sections {
                        @for anchor in anchors {
                            li {
                                a href=[link(Some(*anchor))] {
                                    bdi { (outline.section_title(path, anchor).map_or_else(|| texts::label(anchor), str::to_owned)) }
                                }
                            }
                        }
                    }
                }
            },
            None => span.broken title="The site has no such document" { (label) },
        }
    }
}

/// Returns the lists of all entities, one at least.
pub(super) fn lists(settings: &SiteSettings, outline: &Outline) -> Vec<File> {
    let mut entities: Vec<(String, &String, &String)> =
        outline.entities().iter().map(|(name, kind)| (name.to_lowercase(), name, kind)).collect();
    entities.sort();
    let count = entities.len().div_ceil(OF_LIST).max(1);
    let list = |number: usize| {
        let file = list_file(number);
        let shown = entities.iter().skip(number * OF_LIST).take(OF_LIST);
        let contents = html! {
            main.list id="kb:main" {
                h1 { "Entities" }
                p.lead {
                    @if entities.is_empty() { "The base has no entities yet." } @else { (counted(entities.len(), "entity", "entities")) "." }
                }
                ul.entities {
                    @for (_, name, kind) in shown {
                        li {
                            a href={ "../" (names::of_entity(name)) } { bdi { (texts::label(name)) } }
                            " " span.where { (texts::label(kind)) }
                        }
                    }
                }
                (pager(number, count, |page| format!("../{}", list_file(page))))
            }
        };
        let title = if number == 0 { "Entities".to_owned() } else { format!("Entities, page {}", number + 1) };
        File::html(&file, framed(settings, &file, &title, Part::Entities, &contents))
    };
    (0..count).map(list).collect()
}

fn list_file(number: usize) -> String {
    if number == 0 { "entities/index.html".to_owned() } else { format!("entities/{}.html", number + 1) }
}
