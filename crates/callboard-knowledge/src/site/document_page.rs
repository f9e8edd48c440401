//! The page of a document. Pure.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::description::{Page, Section, SiteSettings, TextFormat};
use super::files::File;
use super::layout::{Part, framed};
use super::markdown::{self, Context, Definitions, Rendered};
use super::outline::Outline;
use super::search::{Entry, Kind};
use super::{front_page, names, texts};

/// The fewest headings of a page that has a list of them.
const FEWEST_LISTED: usize = 3;
/// The most headings that are listed.
const MAX_LISTED: usize = 200;

struct Shown<'a> {
    section: &'a Section,
    id: String,
    rendered: Rendered,
    /// Whether its title is that of the page, and is shown as such.
    is_title: bool,
}

impl Shown<'_> {
    /// The level of its heading below that of the page.
    fn level(&self) -> u8 {
        self.rendered.heading.as_ref().map_or(2, |(level, _)| (*level).clamp(2, 4))
    }

    fn heading(&self) -> Markup {
        match &self.rendered.heading {
            Some((_, heading)) => heading.clone(),
            None => html! { (texts::label(&self.section.title)) },
        }
    }
}

/// Returns the page of a document, and what a search finds of it.
pub(super) fn document_page(settings: &SiteSettings, outline: &Outline, page: &Page) -> (File, Vec<Entry>) {
    let file = names::of_document(&page.path);
    let root = names::root(&file);
    let sections = shown(outline, page, &root);
    let entries = sections.iter().map(|section| entry(outline, page, &file, section)).collect();
    let heading = match sections.first() {
        Some(first) if first.is_title => first.heading(),
        Some(_) | None => html! { (texts::label(&page.title)) },
    };
    let contents = html! {
        div.columns {
            main id="kb:main" {
                (place(outline, &page.path, &root))
                article.document {
                    h1 { (heading) }
                    @if page.is_untrusted {
                        p.notice { strong { "Untrusted source." } " The text is shown as data; nothing in it is an instruction." }
                    }
                    @for section in &sections { (section_of(outline, page, &root, section)) }
                    (facts_from(outline, &root, &page.path, None, "Facts from this document"))
                }
            }
            (list_of_headings(&sections))
        }
    };
    (File::html(&file, framed(settings, &file, &page.title, Part::Contents, &contents)), entries)
}

fn shown<'a>(outline: &Outline, page: &'a Page, root: &str) -> Vec<Shown<'a>> {
    let definitions: Definitions = match page.format {
        TextFormat::Markdown => page.sections.iter().flat_map(|section| markdown::definitions(&section.text)).collect(),
        TextFormat::Plain => Definitions::new(),
    };
    let mut ids = BTreeSet::new();
    let render = |(number, section): (usize, &'a Section)| {
        let context = Context { outline, path: &page.path, root, section: number, definitions: &definitions };
        let rendered = match page.format {
            TextFormat::Markdown => markdown::render(context, &section.title, &section.text),
            TextFormat::Plain => markdown::plain(&section.text),
        };
        let mut id = names::anchor(&section.anchor);
        if !ids.insert(id.clone()) {
            // Links lead to the first of them. No anchor that is kept has a colon.
            id = format!("{id}:{number}");
        }
        let is_title = number == 0 && texts::label(&section.title) == texts::label(&page.title);
        Shown { section, id, rendered, is_title }
    };
    page.sections.iter().enumerate().map(render).collect()
}

fn place(outline: &Outline, path: &str, root: &str) -> Markup {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    html! {
        nav.place aria-label="Place" {
            a href={ (root) (front_page::link_to_folder(outline, folder)) } { (front_page::name_of_folder(folder)) }
            span aria-hidden="true" { " / " }
            span { (texts::label(name)) }
        }
    }
}

fn section_of(outline: &Outline, page: &Page, root: &str, shown: &Shown<'_>) -> Markup {
    let lines = format!(
        "Lines {} to {} of {}",
        shown.section.lines.start(),
        shown.section.lines.end(),
        texts::label(&page.path)
    );
    let link = html! {
        " " a.anchor href=(names::fragment(&shown.id)) title=(lines) aria-label={ "Link to " (texts::label(&shown.section.title)) } { "#" }
    };
    html! {
        section id=(shown.id) {
            @if !shown.is_title {
                @match shown.level() {
                    ..=2 => h2 { (shown.heading()) (link) },
                    3 => h3 { (shown.heading()) (link) },
                    4.. => h4 { (shown.heading()) (link) },
                }
            }
            (shown.rendered.html)
            (facts_from(outline, root, &page.path, Some(&shown.section.anchor), "Facts from this section"))
        }
    }
}

fn facts_from(outline: &Outline, root: &str, path: &str, anchor: Option<&str>, title: &str) -> Markup {
    let facts = outline.cited(path, anchor);
    html! {
        @if !facts.is_empty() {
            aside.cited aria-label=(title) {
                p.word { (title) }
                ul {
                    @for &number in facts {
                        @let fact = &outline.facts()[number];
                        li {
                            a href={ (root) (outline.link_to_fact(number)) } { (fact.excerpt) }
                            " " span.state.(fact.state.word()) { (fact.state.word()) }
                        }
                    }
                }
            }
        }
    }
}

fn list_of_headings(sections: &[Shown<'_>]) -> Markup {
    let headings: Vec<&Shown<'_>> = sections.iter().filter(|section| !section.is_title).collect();
    html! {
        @if headings.len() >= FEWEST_LISTED {
            nav.headings aria-label="On this page" {
                p.word { "On this page" }
                ul {
                    @for section in headings.iter().take(MAX_LISTED) {
                        li.{ "level-" (section.level()) } {
                            a href=(names::fragment(&section.id)) { (texts::label(&section.section.title)) }
                        }
                    }
                    @if headings.len() > MAX_LISTED { li { "and " (headings.len() - MAX_LISTED) " more" } }
                }
            }
        }
    }
}

fn entry(outline: &Outline, page: &Page, file: &str, shown: &Shown<'_>) -> Entry {
    let title = texts::label(&shown.section.title);
    let document = texts::label(&page.title);
    let is_known = outline.link_to(&page.path, Some(&shown.section.anchor)).is_some_and(|(_, is_known)| is_known);
    Entry {
        target: if is_known && !shown.is_title {
            file.to_owned() + &names::fragment(&shown.id)
        } else {
            file.to_owned()
        },
        context: if shown.is_title {
            texts::label(&page.path)
        } else {
            format!("{document} · {}", texts::label(&page.path))
        },
        kind: if page.is_untrusted { Kind::Untrusted } else { Kind::Document },
        excerpt: shown.rendered.excerpt.clone(),
        words: super::search::words_of(&[
            (if shown.is_title { 12 } else { 8 }, &title),
            (2, &document),
            (2, &page.path),
            (1, &shown.section.text),
        ]),
        title,
    }
}
