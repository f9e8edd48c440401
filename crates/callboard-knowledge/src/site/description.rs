//! What a site is written from.

use std::ops::RangeInclusive;

use crate::documents::Passage;
use crate::facts::FactState;

/// What a whole site is called, and what its first page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSettings {
    /// The name of the base, at the top of every page.
    pub title: String,
    /// A sentence about the base, on the first page.
    pub about: Option<String>,
    /// The time as of which the base was read, in ISO 8601; on the first page. `None` for a site whose bytes depend on the
    /// contents alone.
    pub as_of: Option<String>,
}

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The path within the base, with `/` between folders: `docs/auth.md`. Links between documents are resolved by it.
    pub path: String,
    /// The title of the document.
    pub title: String,
    /// How the texts of the sections are written.
    pub format: TextFormat,
    /// The sections, in the order of the document.
    pub sections: Vec<Section>,
    /// Whether the document comes from a source that is not trusted; the page says so.
    pub is_untrusted: bool,
}

/// How the text of a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// Markdown. HTML within it is shown as text.
    Markdown,
    /// Plain text or the source of a program, shown as it is.
    Plain,
}

/// A part of a document that can be linked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The fragment by which links name the section; empty if there is none. Of two sections of a page that have the same, links lead to the
    /// first.
    pub anchor: String,
    /// Anchors of headings at the beginning of the text that come before its own.
    pub other_anchors: Vec<String>,
    /// The titles of the sections that it is in and its own, joined with ` > `. The last of them is shown if the text does not begin with a
    /// heading.
    pub title: String,
    /// The source of the section.
    pub text: String,
    /// The lines of the document that the section has, counted from one.
    pub lines: RangeInclusive<u32>,
}

impl Section {
    /// Puts sections together that a document was cut into to be searched: those that follow each other and have the same anchor. The texts
    /// are joined as the lines are.
    ///
    /// ```
    /// use callboard_knowledge::documents::{ReadLimits, read_document};
    /// use callboard_knowledge::site::Section;
    /// let text = "# Gate\n\nOpens at nine.\n\n".to_owned() + &"A long rule of the gate.\n\n".repeat(100);
    /// let document = read_document("gate.md", text.as_bytes(), &ReadLimits::default())?;
    /// assert_eq!(document.passages.len(), 2);
    /// let sections = Section::joined(document.passages.iter().map(Section::from));
    /// assert_eq!(sections.len(), 1);
    /// assert_eq!(sections[0].text, text.trim_end());
    /// # Ok::<(), callboard_knowledge::documents::LeftOut>(())
    /// ```
    #[must_use]
    pub fn joined(parts: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut joined: Vec<Self> = Vec::new();
        for part in parts {
            match joined.last_mut().filter(|last| last.anchor == part.anchor && part.other_anchors.is_empty()) {
                None => joined.push(part),
                Some(last) => {
                    let lines = part.lines.start().saturating_sub(*last.lines.end());
                    // More lines than this have no meaning, and the numbers may be wrong.
                    last.text.push_str(if lines == 0 { " " } else { &"\n\n\n\n"[..lines.min(4) as usize] });
                    last.text.push_str(&part.text);
                    last.lines = *last.lines.start()..=*part.lines.end();
                }
            }
        }
        joined
    }
}

impl From<&Passage> for Section {
    fn from(passage: &Passage) -> Self {
        Self {
            anchor: passage.anchor.clone(),
            other_anchors: passage.other_anchors.clone(),
            title: passage.title.clone(),
            text: passage.text.clone(),
            lines: passage.lines.clone(),
        }
    }
}

/// A fact as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactCard {
    /// The id, unique in the base.
    pub id: String,
    /// The statement, plain text.
    pub statement: String,
    /// Whether it holds.
    pub state: FactState,
    /// Where it is from.
    pub sources: Vec<SourceRef>,
    /// Since when it is known, in ISO 8601.
    pub since: String,
    /// What the statement is about. A link if it is the name of an entity; so is `value`.
    pub subject: Option<String>,
    /// What is stated about the subject.
    pub predicate: Option<String>,
    /// The value that is stated.
    pub value: Option<String>,
    /// The ids of facts that contradict it.
    pub contradicts: Vec<String>,
}

/// A source of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRef {
    /// What the source is called.
    pub label: String,
    /// The path of the document, if it is known. Else it is taken from `place`.
    pub page: Option<String>,
    /// The section of the document, if it is known. Else it is taken from the line in `place`.
    pub anchor: Option<String>,
    /// Where exactly: `docs/auth.md:12-20`, `docs/auth.md#tokens`, or anything else, which is shown as it is; possibly empty.
    pub place: String,
}

/// Something that has a name, and where the base speaks of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// The name, unique in the base.
    pub name: String,
    /// What kind of thing it is: `function`, `service`, `term`.
    pub kind: String,
    /// The sections that define it.
    pub defined: Vec<Place>,
    /// The sections that mention it.
    pub mentioned: Vec<Place>,
    /// The ids of the facts about it.
    pub facts: Vec<String>,
    /// Relations to other entities: the relation, and the other's name.
    pub related: Vec<(String, String)>,
}

/// A document, or a section of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of the document.
    pub page: String,
    /// The anchor of the section.
    pub anchor: Option<String>,
}
