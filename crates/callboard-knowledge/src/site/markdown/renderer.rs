//! Events of Markdown as HTML. Elements are closed in the order in which they are opened, whatever the source does.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Alignment, BlockQuoteKind, CodeBlockKind, Event, LinkType, Tag};

use super::Context;
use crate::site::links::{self, Link};
use crate::site::{names, texts};

/// The most code within a line that is not broken, in bytes: browsers would break it at its hyphens.
const MAX_UNBROKEN: usize = 24;
/// The deepest nesting that is kept. What is deeper is shown without its elements.
const MAX_DEPTH: usize = 24;
/// The most plain text that is kept, in bytes.
const MAX_PLAIN: usize = 1_000;

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
pub(super) struct Renderer<'a> {
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
    pub(super) fn new(context: Context<'a>) -> Self {
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

    pub(super) fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(_) => self.end(),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.keep_plain(&text);
                self.write(&html! { (texts::lines(&text)) });
            }
            Event::Code(text) => {
                self.keep_plain(&text);
                let is_short = text.len() <= MAX_UNBROKEN;
                self.write(&html! { code.short[is_short] { (texts::visible(&text)) } });
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
                ..=2 => html! { h2 { (contents) } "\n" },
                3 => html! { h3 { (contents) } "\n" },
                4 => html! { h4 { (contents) } "\n" },
                5 => html! { h5 { (contents) } "\n" },
                6.. => html! { h6 { (contents) } "\n" },
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

    /// Closes what the source left open. Returns the HTML, and the beginning of the text without marks of Markdown.
    pub(super) fn finish(mut self) -> (Markup, String) {
        self.below = 0;
        while !self.open.is_empty() {
            self.end();
        }
        (PreEscaped(self.html), self.plain)
    }
}
