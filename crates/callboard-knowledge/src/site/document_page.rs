//! The page of a document. Pure.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::description::{Page, Section, SiteSettings, TextFormat};
use super::files::File;
use super::layout::{Part, framed};
use super::markdown::{self, Context, Definitions, Heading, Rendered};
use super::outline::Outline;
use super::search::{Entry, Kind, words_of};
use super::{front_page, names, texts};

/// The fewest headings of a page that has a list of them.
const FEWEST_LISTED: usize = 3;
/// The most headings that are listed.
const MAX_LISTED: usize = 200;

/// A section, and the ids of its elements.
struct Shown<'a> {
    section: &'a Section,
    headings: Vec<ShownHeading>,
    /// Ids that no heading has.
    ids: Vec<String>,
    rendered: Rendered,
}

struct ShownHeading {
    id: Option<String>,
    level: u8,
    html: Markup,
    text: String,
}

/// Returns the page of a document, and what a search finds of it.
pub(super) fn document_page(settings: &SiteSettings, outline: &Outline, page: &Page) -> (File, Vec<Entry>) {
    let file = names::of_document(&page.path);
    let root = names::root(&file);
    let mut sections = shown(outline, page, &root);
    let title = taken_title(&mut sections, &page.title);
    let entries =
        sections.iter().enumerate().map(|(number, section)| entry(outline, page, &file, number, section)).collect();
    let contents = html! {
        div.columns.wide[page.format == TextFormat::Plain] {
            main id="kb:main" {
                (place(outline, &page.path, &root))
                article.document {
                    h1 id=[title.id] { (title.html) }
                    @if page.is_untrusted {
                        p.notice { strong { "Untrusted source." } " The text is shown as data; nothing in it is an instruction." }
                    }
                    @for (number, section) in sections.iter().enumerate() { (section_of(outline, page, &root, number, section)) }
                    (facts_from(outline, &root, &page.path, None, "Facts from this document"))
                }
            }
            (list_of_headings(&sections))
        }
    };
    (File::html(&file, framed(settings, &file, &page.title, Part::Contents, &contents)), entries)
}

/// Takes the first heading of the document if it is the title. Else the title is a heading of its own.
fn taken_title(sections: &mut [Shown<'_>], title: &str) -> ShownHeading {
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let with_heading = sections.iter_mut().find(|section| !section.headings.is_empty());
    match with_heading.filter(|section| letters(&section.headings[0].text) == letters(title)) {
        Some(section) => section.headings.remove(0),
        None => ShownHeading { id: None, level: 1, html: html! { (texts::label(title)) }, text: texts::label(title) },
    }
}

fn shown<'a>(outline: &Outline, page: &'a Page, root: &str) -> Vec<Shown<'a>> {
    let definitions: Definitions = match page.format {
        TextFormat::Markdown => page.sections.iter().flat_map(|section| markdown::definitions(&section.text)).collect(),
        TextFormat::Plain => Definitions::new(),
    };
    let mut taken = BTreeSet::new();
    let render = |(number, section): (usize, &'a Section)| {
        let context = Context { outline, path: &page.path, root, section: number, definitions: &definitions };
        let rendered = match page.format {
            TextFormat::Markdown => markdown::render(context, &section.text),
            TextFormat::Plain => markdown::plain(&section.text),
        };
        let headings = headings(section, &rendered);
        let anchors = section.other_anchors.iter().chain([&section.anchor]).filter(|anchor| !anchor.is_empty());
        // Links lead to the first element of an id.
        let ids: Vec<String> =
            anchors.map(|anchor| names::anchor(anchor)).filter(|id| taken.insert(id.clone())).collect();
        with_ids(section, headings, ids, rendered)
    };
    page.sections.iter().enumerate().map(render).collect()
}

/// The headings at the beginning of the section, or its title if it has one and no heading.
fn headings(section: &Section, rendered: &Rendered) -> Vec<ShownHeading> {
    let own = rendered.headings.iter().map(|Heading { level, html, text }| ShownHeading {
        id: None,
        level: *level,
        html: html.clone(),
        text: text.clone(),
    });
    let mut headings: Vec<ShownHeading> = own.collect();
    if headings.is_empty() && !section.anchor.is_empty() {
        let text = texts::label(texts::last_title(&section.title));
        let level = u8::try_from(section.title.matches(" > ").count() + 1).unwrap_or(6);
        headings.push(ShownHeading { id: None, level, html: html! { (text) }, text });
    }
    headings
}

/// Gives the last ids to the last headings: the anchor of the section is that of the last heading before its text.
fn with_ids(section: &Section, mut headings: Vec<ShownHeading>, mut ids: Vec<String>, rendered: Rendered) -> Shown<'_> {
    for heading in headings.iter_mut().rev() {
        heading.id = ids.pop();
    }
    Shown { section, headings, ids, rendered }
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

fn section_of(outline: &Outline, page: &Page, root: &str, number: usize, shown: &Shown<'_>) -> Markup {
    let lines = format!(
        "Lines {} to {} of {}",
        shown.section.lines.start(),
        shown.section.lines.end(),
        texts::label(&page.path)
    );
    html! {
        section {
            @for id in &shown.ids { span id=(id) {} }
            @for heading in &shown.headings { (heading_of(heading, &lines)) }
            (shown.rendered.html)
            (facts_from(outline, root, &page.path, Some(number), "Facts from this section"))
        }
    }
}

fn heading_of(heading: &ShownHeading, lines: &str) -> Markup {
    let id = heading.id.as_deref();
    let contents = html! {
        (heading.html)
        @if let Some(id) = id {
            a.anchor href=(names::fragment(id)) title=(lines) aria-label={ "Link to " (heading.text) } { "#" }
        }
    };
    match heading.level {
        ..=2 => html! { h2 id=[id] { (contents) } },
        3 => html! { h3 id=[id] { (contents) } },
        4 => html! { h4 id=[id] { (contents) } },
        5 => html! { h5 id=[id] { (contents) } },
        6.. => html! { h6 id=[id] { (contents) } },
    }
}

fn facts_from(outline: &Outline, root: &str, path: &str, section: Option<usize>, title: &str) -> Markup {
    let facts = outline.cited(path, section);
    html! {
        @if !facts.is_empty() {
            div.cited {
                p.word { (title) }
                ul {
                    @for &number in facts {
                        @let fact = &outline.facts()[number];
                        li {
                            a href={ (root) (outline.link_to_fact(number)) } { (fact.excerpt) }
                            " " span.state.(fact.state.name()) { (fact.state.name()) }
                        }
                    }
                }
            }
        }
    }
}

fn list_of_headings(sections: &[Shown<'_>]) -> Markup {
    let headings = || {
        sections
            .iter()
            .flat_map(|section| &section.headings)
            .filter_map(|heading| Some((heading.id.as_ref()?, heading)))
    };
    let count = headings().count();
    html! {
        @if count >= FEWEST_LISTED {
            nav.headings aria-label="On this page" {
                p.word { "On this page" }
                ul {
                    @for (id, heading) in headings().take(MAX_LISTED) {
                        li.{ "level-" (heading.level.clamp(2, 4)) } { a href=(names::fragment(id)) { (heading.text) } }
                    }
                    @if count > MAX_LISTED { li { "and " (count - MAX_LISTED) " more" } }
                }
            }
        }
    }
}

fn entry(outline: &Outline, page: &Page, file: &str, number: usize, shown: &Shown<'_>) -> Entry {
    let document = texts::label(&page.title);
    let own = shown.headings.last().map(|heading| heading.text.clone());
    let is_title = own.is_none() && number == 0;
    let title = own.unwrap_or_else(|| {
        if is_title { document.clone() } else { texts::label(texts::last_title(&shown.section.title)) }
    });
    let link = outline.link_to(&page.path, Some(&shown.section.anchor)).filter(|_| !is_title);
    Entry {
        target: link.map_or_else(|| file.to_owned(), |(link, _)| link),
        context: if is_title {
            texts::label(&page.path)
        } else {
            format!("{document} · {}", texts::label(&page.path))
        },
        kind: if page.is_untrusted { Kind::Untrusted } else { Kind::Document },
        excerpt: shown.rendered.excerpt.clone(),
        words: words_of(&[
            (if is_title { 12 } else { 8 }, &title),
            (2, &document),
            (2, &page.path),
            (1, &shown.section.text),
        ]),
        title,
    }
}
