//! The pages of facts. Pure.

use maud::{Markup, html};

use super::description::{FactCard, SiteSettings, SourceRef};
use super::files::File;
use super::layout::{Part, counted, framed, grouped, pager};
use super::outline::{Outline, facts_file};
use super::search::{Entry, Kind};
use super::{names, texts};
use crate::facts::FactState;

/// The longest statement that is shown, in bytes.
const MAX_STATEMENT: usize = 20_000;
/// The most sources, and the most contradicting facts, that are listed with a fact.
const MAX_LISTED: usize = 100;

/// Returns the page with these facts, counted from zero.
pub(super) fn facts_page(settings: &SiteSettings, outline: &Outline, number: usize, cards: &[Markup]) -> File {
    let file = facts_file(number);
    let root = names::root(&file);
    let count = outline.facts().len();
    let contents = html! {
        main.list id="kb:main" {
            h1 { "Facts" }
            p.lead {
                @if count == 0 {
                    "The base has no facts yet."
                } @else {
                    (counted(count, "fact", "facts")) ": " (states(outline)) "."
                }
            }
            @for card in cards { (card) }
            (pager(number, outline.fact_pages(), |page| format!("{root}{}", facts_file(page))))
        }
    };
    let title = if number == 0 { "Facts".to_owned() } else { format!("Facts, page {}", number + 1) };
    File::html(&file, framed(settings, &file, &title, Part::Facts, &contents))
}

/// How many facts have which state.
fn states(outline: &Outline) -> Markup {
    let counts = FactState::ALL.map(|state| (state, outline.facts().iter().filter(|fact| fact.state == state).count()));
    html! {
        @for (place, (state, count)) in counts.into_iter().filter(|(_, count)| *count > 0).enumerate() {
            @if place > 0 { ", " }
            (grouped(count)) " " span.state.(state.name()) { (state.name()) }
        }
    }
}

/// Returns a fact as it stands on its page, and what a search finds of it.
pub(super) fn fact_card(outline: &Outline, number: usize, fact: &FactCard) -> (Markup, Entry) {
    // All pages of facts are one folder below the site.
    let root = "../";
    let id = names::anchor(&fact.id);
    let (statement, cut) = texts::beginning(&fact.statement, MAX_STATEMENT);
    let card = html! {
        article.fact id=(id) {
            p.meta {
                span.state.(fact.state.name()) { (fact.state.name()) }
                span { "since " (time(&fact.since)) }
                a.id href=(names::fragment(&id)) title="Link to this fact" { (texts::label(&fact.id)) }
            }
            p.statement { (texts::lines(statement)) @if cut > 0 { " … (" (grouped(cut)) " bytes more)" } }
            (triple(outline, root, fact))
            (contradictions(outline, root, fact))
            @if fact.sources.is_empty() {
                p.sources { "No source." }
            } @else {
                ul.sources aria-label="Sources" {
                    @for source in fact.sources.iter().take(MAX_LISTED) { li { (source_of(outline, root, source)) } }
                    @if fact.sources.len() > MAX_LISTED { li { "and " (fact.sources.len() - MAX_LISTED) " more" } }
                }
            }
        }
    };
    let source = fact.sources.first().map_or_else(String::new, |source| texts::label(&source.label));
    let parts = [&fact.subject, &fact.predicate, &fact.value].map(|part| part.as_deref().unwrap_or_default());
    let entry = Entry {
        target: outline.link_to_fact(number),
        title: texts::excerpt(&fact.statement, 120),
        context: source,
        kind: Kind::Fact(fact.state),
        excerpt: String::new(),
        words: super::search::words_of(&[
            (4, statement),
            (3, parts[0]),
            (2, parts[1]),
            (3, parts[2]),
            (2, fact.state.name()),
        ]),
    };
    (card, entry)
}

fn time(since: &str) -> Markup {
    let is_time = since.len() >= 10 && since.is_ascii() && since.as_bytes()[4] == b'-' && since.as_bytes()[7] == b'-';
    let day = if is_time { since[..10].to_owned() } else { texts::label(since) };
    html! { @if is_time { time datetime=(since) title=(since) { (day) } } @else { (day) } }
}

fn triple(outline: &Outline, root: &str, fact: &FactCard) -> Markup {
    html! {
        @if fact.subject.is_some() || fact.predicate.is_some() || fact.value.is_some() {
            p.triple {
                @if let Some(subject) = &fact.subject { (named(outline, root, subject)) }
                @if let Some(predicate) = &fact.predicate { " " span.predicate { (texts::label(predicate)) } }
                @if let Some(value) = &fact.value { " " (named(outline, root, value)) }
            }
        }
    }
}

fn named(outline: &Outline, root: &str, name: &str) -> Markup {
    html! {
        @match outline.link_to_entity(name) {
            Some(file) => a href={ (root) (file) } { bdi { (texts::label(name)) } },
            None => bdi { (texts::label(name)) },
        }
    }
}

fn contradictions(outline: &Outline, root: &str, fact: &FactCard) -> Markup {
    html! {
        @if !fact.contradicts.is_empty() {
            p.contradicts { "Contradicted by" }
            ul.contradicts {
                @for id in fact.contradicts.iter().take(MAX_LISTED) { li { (linked(outline, root, id)) } }
                @if fact.contradicts.len() > MAX_LISTED { li { "and " (fact.contradicts.len() - MAX_LISTED) " more" } }
            }
        }
    }
}

/// A link to a fact, with its state.
pub(super) fn linked(outline: &Outline, root: &str, id: &str) -> Markup {
    html! {
        @match outline.number(id) {
            Some(number) => {
                @let fact = &outline.facts()[number];
                a href={ (root) (outline.link_to_fact(number)) } { (fact.excerpt) }
                " " span.state.(fact.state.name()) { (fact.state.name()) }
            },
            None => span.broken title="The site has no such fact" { (texts::label(id)) },
        }
    }
}

fn source_of(outline: &Outline, root: &str, source: &SourceRef) -> Markup {
    let label = texts::label(&source.label);
    html! {
        @match outline.link_to_source(source) {
            Some(file) => a href={ (root) (file) } { bdi { (label) } },
            None => bdi { (label) },
        }
        @if !source.place.is_empty() { " " span.where { (texts::label(&source.place)) } }
    }
}
