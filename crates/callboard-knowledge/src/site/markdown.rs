//! Markdown as HTML that cannot run anything. Pure.
//!
//! HTML within Markdown is text like any other. Images are links, because a site contains no files of documents and loads none from
//! elsewhere. Elements are closed in the order in which they are opened, whatever the source does.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{
    Alignment, BlockQuoteKind, BrokenLink, CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag,
    TextMergeStream,
};

use super::links::{self, Link};
use super::names;
use super::outline::Outline;
use super::texts;

/// The deepest nesting that is kept. What is deeper is shown without its elements.
const MAX_DEPTH: usize = 24;
/// The most source of a section that is read as Markdown, in bytes. A longer one is shown as it is written.
const MAX_MARKDOWN: usize = 256 * 1024;
/// The most text of a section that is shown, in bytes.
const MAX_SHOWN: usize = 2 * 1024 * 1024;
/// The most plain text that is kept of a section for results of a search, in characters.
const MAX_EXCERPT: usize = 220;
/// The most bytes of it before it is cut to that.
const MAX_PLAIN: usize = 4 * MAX_EXCERPT;

/// Definitions of links (`[name]: target`), which count in all sections of a document.
pub(super) type Definitions = BTreeMap<String, String>;

/// A section as HTML.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) html: Markup,
    /// The heading that the source begins with, and its level, if it is the section's title. It is not in the HTML then.
    pub(super) heading: Option<(u8, Markup)>,
    /// The beginning of the text, without marks of Markdown.
    pub(super) excerpt: String,
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
        heading: None,
        excerpt: texts::excerpt(shown, MAX_EXCERPT),
    }
}

/// Renders the source of a section. `title` is the title under which the section is shown.
pub(super) fn render(context: Context<'_>, title: &str, text: &str) -> Rendered {
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
    let mut renderer = Renderer::new(context);
    let mut heading = None;
    if let Some(Event::Start(Tag::Heading { level, .. })) = events.peek() {
        let level = *level as u8;
        let first: Vec<Event<'_>> = std::iter::from_fn(|| events.next_if(|event| !is_end_of_heading(event))).collect();
        let own: String = first.iter().map(text_of).collect();
        if is_same_title(&own, title) {
            events.next();
            let mut of_heading = Renderer::new(context);
            first.into_iter().skip(1).for_each(|event| of_heading.take(event));
            heading = Some((level, of_heading.finish()));
        } else {
            first.into_iter().for_each(|event| renderer.take(event));
        }
    }
    events.for_each(|event| renderer.take(event));
    let excerpt = texts::excerpt(&renderer.plain, MAX_EXCERPT);
    Rendered { html: renderer.finish(), heading, excerpt }
}

fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
}

/// Whether a heading and a title have the same letters; a title may be given with marks of Markdown.
fn is_same_title(heading: &str, title: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    !letters(title).is_empty() && letters(heading) == letters(title)
}

fn is_end_of_heading(event: &Event<'_>) -> bool {
    matches!(event, Event::End(pulldown_cmark::TagEnd::Heading(_)))
}

fn text_of<'a>(event: &'a Event<'_>) -> &'a str {
    match event {
        Event::Text(text) | Event::Code(text) | Event::InlineHtml(text) => text,
        Event::SoftBreak | Event::HardBreak => " ",
        _ => "",
    }
}

/// An element that is open.
enum Open {
    Paragraph,
    Heading(u8),
    Quote(Option<BlockQuoteKind>),
    Code,
    List(Option<u64>),
    Item,
    /// The number, and whether it is the first of its name.
    Footnote(usize, bool),
    Table,
    Head,
    Row,
    Cell {
        is_head: bool,
        alignment: Alignment,
    },
    Emphasis,
    Strong,
    Struck,
    Link(Link),
    /// An image, and what its text leads to.
    Image(Link),
    /// Without an element of its own.
    Nothing,
}

/// What is written of the elements that are open, the innermost last. An element is written when it is closed, around its contents.
struct Renderer<'a> {
    context: Context<'a>,
    open: Vec<(Open, String)>,
    /// Elements below the deepest that is kept.
    below: usize,
    html: String,
    plain: String,
    footnotes: BTreeMap<String, usize>,
    defined: BTreeSet<usize>,
    columns: Vec<Alignment>,
    column: usize,
    is_head: bool,
}

impl<'a> Renderer<'a> {
    fn new(context: Context<'a>) -> Self {
        Self {
            context,
            open: Vec::new(),
            below: 0,
            html: String::new(),
            plain: String::new(),
            footnotes: BTreeMap::new(),
            defined: BTreeSet::new(),
            columns: Vec::new(),
            column: 0,
            is_head: false,
        }
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(_) => self.end(),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.keep_plain(&text);
                self.write(&html! { (texts::lines(&text)) });
            }
            Event::Code(text) => {
                self.keep_plain(&text);
                self.write(&html! { code { (texts::visible(&text)) } });
            }
            // The options do not ask for mathematics; its source would be text.
            Event::InlineMath(text) | Event::DisplayMath(text) => self.write(&html! { (texts::lines(&text)) }),
            Event::FootnoteReference(name) => {
                let number = self.footnote(&name);
                let target = names::fragment(&self.footnote_id(number));
                // A link within a link is not possible.
                if self.is_in_link() {
                    self.write(&html! { sup { (number) } });
                } else {
                    self.write(&html! { sup { a href=(target) aria-label={ "Footnote " (number) } { (number) } } });
                }
            }
            Event::SoftBreak => {
                self.keep_plain(" ");
                self.write(&PreEscaped("\n".to_owned()));
            }
            Event::HardBreak => {
                self.keep_plain(" ");
                self.write(&html! { br; });
            }
            Event::Rule => self.write(&html! { hr; }),
            Event::TaskListMarker(is_done) => {
                let (mark, state) = if is_done { ("☑", "done") } else { ("☐", "open") };
                self.write(&html! { span.task role="img" aria-label=(state) { (mark) } " " });
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        if self.below > 0 || self.open.len() >= MAX_DEPTH {
            self.below += 1;
            return;
        }
        let open = match tag {
            Tag::Paragraph => Open::Paragraph,
            Tag::Heading { level, .. } => Open::Heading(level as u8),
            Tag::BlockQuote(kind) => Open::Quote(kind),
            Tag::CodeBlock(CodeBlockKind::Indented | CodeBlockKind::Fenced(_))
            | Tag::HtmlBlock
            | Tag::MetadataBlock(_) => Open::Code,
            Tag::List(first) => Open::List(first),
            Tag::Item => Open::Item,
            Tag::FootnoteDefinition(name) => {
                let number = self.footnote(&name);
                Open::Footnote(number, self.defined.insert(number))
            }
            Tag::Table(columns) => {
                self.columns = columns;
                Open::Table
            }
            Tag::TableHead => {
                (self.column, self.is_head) = (0, true);
                Open::Head
            }
            Tag::TableRow => {
                (self.column, self.is_head) = (0, false);
                Open::Row
            }
            Tag::TableCell => {
                let alignment = self.columns.get(self.column).copied().unwrap_or(Alignment::None);
                self.column += 1;
                Open::Cell { is_head: self.is_head, alignment }
            }
            Tag::Emphasis => Open::Emphasis,
            Tag::Strong => Open::Strong,
            Tag::Strikethrough => Open::Struck,
            // A link within a link is not possible; an image within one is text of it.
            Tag::Link { .. } | Tag::Image { .. } if self.is_in_link() => Open::Nothing,
            Tag::Link { link_type: LinkType::Email, dest_url, .. } => {
                Open::Link(self.resolve(&format!("mailto:{dest_url}")))
            }
            Tag::Link { dest_url, .. } => Open::Link(self.resolve(&dest_url)),
            Tag::Image { dest_url, .. } => Open::Image(self.resolve(&dest_url)),
            // The options do not ask for these.
            Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript => Open::Nothing,
        };
        self.open.push((open, String::new()));
    }

    fn end(&mut self) {
        if self.below > 0 {
            self.below -= 1;
            return;
        }
        let Some((open, contents)) = self.open.pop() else { return };
        let contents = PreEscaped(contents);
        let is_block = matches!(open, Open::Paragraph | Open::Heading(_) | Open::Code | Open::Item | Open::Cell { .. });
        if is_block {
            self.keep_plain(" ");
        }
        let element = self.element(&open, &contents);
        self.write(&element);
    }

    fn element(&self, open: &Open, contents: &Markup) -> Markup {
        match open {
            Open::Paragraph => html! { p { (contents) } "\n" },
            Open::Heading(level) => match level {
                ..=2 => html! { h3 { (contents) } "\n" },
                3 => html! { h4 { (contents) } "\n" },
                4 => html! { h5 { (contents) } "\n" },
                5.. => html! { h6 { (contents) } "\n" },
            },
            Open::Quote(None) => html! { blockquote { (contents) } "\n" },
            Open::Quote(Some(kind)) => {
                let (class, word) = match kind {
                    BlockQuoteKind::Note => ("note", "Note"),
                    BlockQuoteKind::Tip => ("tip", "Tip"),
                    BlockQuoteKind::Important => ("important", "Important"),
                    BlockQuoteKind::Warning => ("warning", "Warning"),
                    BlockQuoteKind::Caution => ("caution", "Caution"),
                };
                html! { blockquote.alert.(class) { p.word { (word) } (contents) } "\n" }
            }
            Open::Code => html! { pre { code { (contents) } } "\n" },
            Open::List(None) => html! { ul { (contents) } "\n" },
            Open::List(Some(first)) => html! { ol start=[(*first != 1).then_some(first)] { (contents) } "\n" },
            Open::Item => html! { li { (contents) } },
            Open::Footnote(number, is_first) => {
                html! { aside.footnote id=[is_first.then(|| self.footnote_id(*number))] { span.number { (number) } div { (contents) } } "\n" }
            }
            Open::Table => html! { div.table { table { (contents) } } "\n" },
            Open::Head => html! { thead { tr { (contents) } } },
            Open::Row => html! { tr { (contents) } },
            Open::Cell { is_head, alignment } => {
                let class = match alignment {
                    Alignment::None | Alignment::Left => None,
                    Alignment::Center => Some("center"),
                    Alignment::Right => Some("right"),
                };
                if *is_head {
                    html! { th scope="col" class=[class] { (contents) } }
                } else {
                    html! { td class=[class] { (contents) } }
                }
            }
            Open::Emphasis => html! { em { (contents) } },
            Open::Strong => html! { strong { (contents) } },
            Open::Struck => html! { del { (contents) } },
            Open::Link(link) => self.link(link, contents),
            Open::Image(link) => {
                let text = html! { span.image { "Image: " @if contents.0.is_empty() { "no description" } @else { (contents) } } };
                self.link(link, &text)
            }
            Open::Nothing => contents.clone(),
        }
    }

    fn link(&self, link: &Link, contents: &Markup) -> Markup {
        match link {
            Link::Inside { file, remark } => {
                html! { a href={ (self.context.root) (file) } title=[remark.as_deref()] { (contents) } }
            }
            Link::Outside { url } => {
                html! { a.outside href=(url) rel="noopener noreferrer" title=(url) { (contents) } }
            }
            Link::Broken { reason } => html! { span.broken title=(reason) { (contents) } },
        }
    }

    fn resolve(&self, destination: &str) -> Link {
        links::resolve(self.context.outline, self.context.path, destination)
    }

    fn is_in_link(&self) -> bool {
        self.open.iter().any(|(open, _)| matches!(open, Open::Link(_) | Open::Image(_)))
    }

    fn footnote(&mut self, name: &str) -> usize {
        let next = self.footnotes.len() + 1;
        *self.footnotes.entry(name.to_owned()).or_insert(next)
    }

    fn footnote_id(&self, number: usize) -> String {
        format!("kb:note-{}-{number}", self.context.section + 1)
    }

    fn write(&mut self, markup: &Markup) {
        let target = self.open.last_mut().map_or(&mut self.html, |(_, contents)| contents);
        target.push_str(&markup.0);
    }

    fn keep_plain(&mut self, text: &str) {
        if self.plain.len() < MAX_PLAIN {
            self.plain.push_str(texts::beginning(text, MAX_PLAIN).0);
        }
    }

    /// Closes what the source left open.
    fn finish(mut self) -> Markup {
        self.below = 0;
        while !self.open.is_empty() {
            self.end();
        }
        PreEscaped(self.html)
    }
}
