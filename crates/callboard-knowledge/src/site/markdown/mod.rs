//! Markdown as HTML that cannot run anything. Pure.
//!
//! HTML within Markdown is text like any other. Images are links, because a site contains no files of documents and loads none from
//! elsewhere. Elements are closed in the order in which they are opened, whatever the source does.

mod renderer;

use std::collections::BTreeMap;

use maud::{Markup, html};
use pulldown_cmark::{BrokenLink, CowStr, Event, Options, Parser, Tag, TagEnd, TextMergeStream};

use super::outline::Outline;
use super::texts;
use renderer::Renderer;

/// The most headings that are taken from the beginning of a source.
const MAX_HEADINGS: usize = 100;
/// The most source of a section that is read as Markdown, in bytes. A longer one is shown as it is written.
const MAX_MARKDOWN: usize = 256 * 1024;
/// The most text of a section that is shown, in bytes.
const MAX_SHOWN: usize = 2 * 1024 * 1024;
/// The most plain text that is kept of a section for results of a search, in characters.
const MAX_EXCERPT: usize = 220;

/// Definitions of links (`[name]: target`), which count in all sections of a document.
pub(super) type Definitions = BTreeMap<String, String>;

/// A section as HTML.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) html: Markup,
    /// The headings that the source begins with. They are not in the HTML.
    pub(super) headings: Vec<Heading>,
    /// The beginning of the text, without marks of Markdown.
    pub(super) excerpt: String,
}

/// A heading.
#[derive(Clone, Debug)]
pub(super) struct Heading {
    pub(super) level: u8,
    pub(super) html: Markup,
    /// Its text, without marks of Markdown.
    pub(super) text: String,
}

/// Where a text is, for what depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) outline: &'a Outline,
    /// The path of the document.
    pub(super) path: &'a str,
    /// What leads from the page to the folder of the site.
    pub(super) root: &'a str,
    /// The number of the section, for ids of footnotes.
    pub(super) section: usize,
    pub(super) definitions: &'a Definitions,
}

/// Returns the definitions of links in a text.
pub(super) fn definitions(text: &str) -> Definitions {
    if text.len() > MAX_MARKDOWN || !text.contains("]:") {
        return Definitions::new();
    }
    let parser = Parser::new_ext(text, options());
    let defined = parser.reference_definitions().iter();
    defined.map(|(name, definition)| (name.to_lowercase(), definition.dest.to_string())).collect()
}

/// Shows a text as it is written.
pub(super) fn plain(text: &str) -> Rendered {
    let (shown, cut) = texts::beginning(text, MAX_SHOWN);
    Rendered {
        html: html! {
            pre.source { code { (texts::lines(shown)) } }
            @if cut > 0 { p.note { "The document continues for " (super::layout::grouped(cut)) " bytes that are not shown." } }
        },
        headings: Vec::new(),
        excerpt: texts::excerpt(shown, MAX_EXCERPT),
    }
}

/// Renders the source of a section.
pub(super) fn render(context: Context<'_>, text: &str) -> Rendered {
    if text.len() > MAX_MARKDOWN {
        return plain(text);
    }
    let text = text.replace("\r\n", "\n");
    let of_other_sections = |link: BrokenLink<'_>| {
        let target = context.definitions.get(&link.reference.to_lowercase())?;
        Some((CowStr::from(target.clone()), CowStr::Borrowed("")))
    };
    let parser = Parser::new_with_broken_link_callback(&text, options(), Some(of_other_sections));
    let mut events = TextMergeStream::new(parser).peekable();
    let mut headings = Vec::new();
    while headings.len() < MAX_HEADINGS
        && let Some(Event::Start(Tag::Heading { level, .. })) =
            events.next_if(|event| matches!(event, Event::Start(Tag::Heading { .. })))
    {
        let mut heading = Renderer::new(context);
        events
            .by_ref()
            .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))))
            .for_each(|event| heading.take(event));
        let (html, text) = heading.finish();
        headings.push(Heading { level: level as u8, html, text: texts::label(&text) });
    }
    let mut renderer = Renderer::new(context);
    events.for_each(|event| renderer.take(event));
    let (html, text) = renderer.finish();
    Rendered { html, headings, excerpt: texts::excerpt(&text, MAX_EXCERPT) }
}

fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
}
