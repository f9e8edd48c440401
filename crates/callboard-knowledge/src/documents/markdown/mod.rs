//! Markdown: sections by headings, links, and names in code spans.

mod anchors;
mod nesting;
mod outline;

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

use self::anchors::Anchors;
pub(super) use self::nesting::{MAX_DEPTH, too_deep};
use self::outline::{Heading, sections};
use super::document::{Link, MAX_TITLE, ReadLimits};
use super::entities;
use super::left_out::LeftOut;
use super::passages::Passages;
use super::plain;
use super::targets::{Target, target, wiki_target};

/// The longest code span in bytes that may be a name.
const MAX_CODE: usize = 200;

/// What Markdown has besides its passages.
#[derive(Debug)]
pub(super) struct Markup {
    pub(super) title: String,
    pub(super) links: Vec<Link>,
    pub(super) leaves_out: Vec<LeftOut>,
}

impl Markup {
    pub(super) fn without_links(title: String) -> Self {
        Self { title, links: Vec::new(), leaves_out: Vec::new() }
    }
}

/// Reads Markdown. What is nested too deep is read as plain text.
pub(super) fn read(passages: &mut Passages<'_>, path: &str, text: &str, name: &str, limits: &ReadLimits) -> Markup {
    if let Some(line) = too_deep(text) {
        plain::read(passages, text, name);
        let leaves_out = vec![LeftOut::NestedTooDeep { line, limit: MAX_DEPTH }];
        return Markup { leaves_out, ..Markup::without_links(name.to_owned()) };
    }
    let mut reader = Reader::new(text, path, limits);
    for (event, place) in Parser::new_ext(text, options()).into_offset_iter() {
        reader.read(event, place);
    }
    let title = reader.title(name);
    for section in sections(text, &reader.headings, reader.metadata_end, &title) {
        if passages.is_full() {
            break;
        }
        passages.push(section);
    }
    for place in &reader.code {
        let code = text[place.clone()].trim_matches('`');
        passages.add_entities(place.start, entities::of_code(code));
    }
    for heading in reader.headings.iter().filter(|heading| !heading.is_outermost) {
        passages.add_entities(heading.place.start, entities::of_heading(&heading.title, heading.is_code));
    }
    let links =
        reader.links.into_iter().filter_map(|(place, link)| Some(Link { passage: passages.at(place)?, ..link }));
    let links = links.collect();
    let mut leaves_out = Vec::new();
    if reader.links_outside > 0 {
        leaves_out.push(LeftOut::LinksOutside { count: reader.links_outside });
    }
    if reader.links_over > 0 {
        leaves_out.push(LeftOut::TooManyLinks { count: reader.links_over, limit: limits.links });
    }
    Markup { title, links, leaves_out }
}

pub(super) fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_HEADING_ATTRIBUTES
        | Options::ENABLE_WIKILINKS
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS
}

/// A fold over the events of the parser. It keeps places instead of texts where a document may have many.
#[derive(Debug)]
struct Reader<'t> {
    text: &'t str,
    path: &'t str,
    limits: &'t ReadLimits,
    anchors: Anchors,
    headings: Vec<Heading>,
    /// The heading that is open.
    heading: Option<Heading>,
    /// Code spans that may be names.
    code: Vec<Range<usize>>,
    links: Vec<(usize, Link)>,
    /// The link that is open, and its place.
    link: Option<(usize, Link)>,
    links_outside: usize,
    links_over: usize,
    /// How many quotations and lists are open.
    depth: usize,
    is_in_metadata: bool,
    metadata_end: usize,
    metadata_title: Option<String>,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str, path: &'t str, limits: &'t ReadLimits) -> Self {
        Self {
            text,
            path,
            limits,
            anchors: Anchors::default(),
            headings: Vec::new(),
            heading: None,
            code: Vec::new(),
            links: Vec::new(),
            link: None,
            links_outside: 0,
            links_over: 0,
            depth: 0,
            is_in_metadata: false,
            metadata_end: 0,
            metadata_title: None,
        }
    }

    fn read(&mut self, event: Event<'_>, place: Range<usize>) {
        match event {
            Event::Start(Tag::Heading { level, id, .. }) => {
                let anchor = id.map_or_else(String::new, |id| entities::title(&id));
                let is_outermost = self.depth == 0;
                let title = String::new();
                self.heading = Some(Heading { level: level as u8, place, title, anchor, is_code: false, is_outermost });
            }
            Event::End(TagEnd::Heading(_)) => self.end_heading(),
            Event::Start(Tag::BlockQuote(_) | Tag::List(_)) => self.depth += 1,
            Event::End(TagEnd::BlockQuote(_) | TagEnd::List(_)) => self.depth = self.depth.saturating_sub(1),
            Event::Start(Tag::MetadataBlock(_)) if place.start == 0 => {
                self.is_in_metadata = true;
                self.metadata_end = place.end;
            }
            Event::End(TagEnd::MetadataBlock(_)) => self.is_in_metadata = false,
            Event::Start(Tag::Link { link_type, dest_url, .. }) => self.start_link(link_type, &dest_url, place),
            Event::End(TagEnd::Link) => self.end_link(),
            Event::Text(text) if self.is_in_metadata => {
                self.metadata_title = self.metadata_title.take().or_else(|| metadata_title(&text));
            }
            Event::Text(text) => self.append(&text),
            Event::Code(code) => {
                if let Some(heading) = &mut self.heading {
                    heading.is_code = heading.title.is_empty();
                }
                self.append(&code);
                if place.len() <= MAX_CODE {
                    self.code.push(place);
                }
            }
            Event::SoftBreak | Event::HardBreak => self.append(" "),
            _ => {}
        }
    }

    /// Adds a text to the heading and the link that are open, as far as it can be a part of their titles.
    fn append(&mut self, text: &str) {
        let titles = [
            self.heading.as_mut().map(|heading| &mut heading.title),
            self.link.as_mut().map(|(_, link)| &mut link.text),
        ];
        for title in titles.into_iter().flatten().filter(|title| title.len() < MAX_TITLE * 4) {
            title.extend(text.chars().take(MAX_TITLE));
        }
    }

    fn end_heading(&mut self) {
        let Some(mut heading) = self.heading.take() else { return };
        heading.title = entities::title(&heading.title);
        heading.anchor = if heading.anchor.is_empty() {
            self.anchors.of(&heading.title)
        } else {
            self.anchors.given(&heading.anchor)
        };
        // One more than passages, so that the limit of passages is noticed.
        if self.headings.len() <= self.limits.passages {
            self.headings.push(heading);
        }
    }

    fn start_link(&mut self, kind: LinkType, to: &str, place: Range<usize>) {
        let target = match kind {
            LinkType::Email => Target::Other,
            LinkType::WikiLink { .. } => match self.written_after(place.end) {
                Some(inline) => target(self.path, inline),
                None => wiki_target(self.path, to),
            },
            LinkType::Inline
            | LinkType::Reference
            | LinkType::ReferenceUnknown
            | LinkType::Collapsed
            | LinkType::CollapsedUnknown
            | LinkType::Shortcut
            | LinkType::ShortcutUnknown
            | LinkType::Autolink => target(self.path, to),
        };
        match target {
            Target::To { .. } if self.links.len() >= self.limits.links => self.links_over += 1,
            Target::To { to, anchor } => {
                self.link = Some((place.start, Link { passage: 0, to, anchor, text: String::new() }));
            }
            Target::Outside => self.links_outside += 1,
            Target::Other => {}
        }
    }

    /// The target of `[[1]](target)`, a link whose text has brackets, which the parser reads as a link of a wiki and a text.
    fn written_after(&self, place: usize) -> Option<&'t str> {
        let rest = self.text[place..].strip_prefix('(')?;
        let end = rest.bytes().take(MAX_CODE).position(|byte| matches!(byte, b')' | b'\n'))?;
        let written = rest[..end].split_whitespace().next()?;
        rest[end..].starts_with(')').then_some(written)
    }

    fn end_link(&mut self) {
        if let Some((place, mut link)) = self.link.take() {
            link.text = entities::title(&link.text);
            self.links.push((place, link));
        }
    }

    /// The title of the metadata, else of the first heading of level 1, else of the first heading, else the name of the file.
    fn title(&self, name: &str) -> String {
        let first = |is_title: fn(&Heading) -> bool| {
            self.headings.iter().find(|heading| heading.is_outermost && !heading.title.is_empty() && is_title(heading))
        };
        let heading =
            first(|heading| heading.level == 1).or_else(|| first(|_| true)).map(|heading| heading.title.clone());
        self.metadata_title.clone().or(heading).unwrap_or_else(|| name.to_owned())
    }
}

/// The title in a block of metadata: `title: …` in YAML, `title = …` in TOML.
fn metadata_title(metadata: &str) -> Option<String> {
    let value = metadata.lines().find_map(|line| {
        let rest = line.strip_prefix("title")?.trim_start();
        rest.strip_prefix(':').or_else(|| rest.strip_prefix('='))
    })?;
    let title = entities::title(value.trim().trim_matches(['"', '\'']));
    (!title.is_empty()).then_some(title)
}
