//! What is read from a file: a document, its passages, links and entities, and the limits of reading.

use std::ops::RangeInclusive;

pub use crate::entities::{EntityKind, Relation};

use super::left_out::LeftOut;

/// A file as it is indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The path below the folder that is indexed, with `/` between its parts. It identifies the document.
    pub path: String,
    /// The title that the document gives itself, else the name of its file. It is one line of at most [`MAX_TITLE`] characters.
    pub title: String,
    /// SHA-256 of the bytes of the file.
    pub hash: [u8; 32],
    /// The passages in the order of the file. Their lines do not overlap, except where a line longer than a passage is split.
    pub passages: Vec<Passage>,
    /// The links in the order of the file.
    pub links: Vec<Link>,
    /// What of the file is in none of the fields above, and why.
    pub leaves_out: Vec<LeftOut>,
}

/// A part of a document that is found and cited as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The position among the passages of its document, from 0.
    pub ordinal: u32,
    /// The titles of the sections that it is in, from the outermost, joined with ` > `; the document's title if it is in none.
    pub title: String,
    /// The anchor of its section, as links of Markdown write it; empty if there is none. All passages of a section have the same anchor.
    pub anchor: String,
    /// Anchors of headings at its beginning that have no text of their own: the next heading below them follows at once.
    pub other_anchors: Vec<String>,
    /// The text as it is in the file, with line feeds as ends of lines. Untrusted: whoever shows it makes hidden characters visible.
    pub text: String,
    /// The first and the last line of the text in the file, from 1.
    pub lines: RangeInclusive<u32>,
    /// The entities, each once, in order of kind and name.
    pub entities: Vec<Mention>,
}

/// A link from a passage to a document or to an address on the web.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The ordinal of the passage that contains it.
    pub passage: u32,
    /// A path like [`Document::path`], which need not exist and may be that of a folder, or an `http` or `https` URL without fragment.
    pub to: String,
    /// The fragment, decoded.
    pub anchor: Option<String>,
    /// What the link is written over, one line of at most [`MAX_TITLE`] characters.
    pub text: String,
}

/// An entity that a passage names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mention {
    /// What kind of name it is.
    pub kind: EntityKind,
    /// The name as it is written, without what calls or instantiates it: `Board::submit` for `` `Board::submit(task)` ``. Case counts.
    pub entity: String,
    /// Whether the passage is where the name is defined.
    pub relation: Relation,
}

/// The most characters of a title, of a heading in a passage's title, and of the text of a link; the rest is cut.
pub const MAX_TITLE: usize = 200;

/// Bounds for one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// The most bytes of a file; a larger one is left out.
    pub bytes: u64,
    /// The most characters of a passage. Values below 200 count as 200.
    pub passage_chars: usize,
    /// The most passages of a document; what follows them is left out.
    pub passages: usize,
    /// The most links of a document; those that follow are left out.
    pub links: usize,
}

impl Default for ReadLimits {
    /// 4 MiB, passages of 1,500 characters, 10,000 passages and 10,000 links.
    fn default() -> Self {
        Self { bytes: 4 << 20, passage_chars: 1_500, passages: 10_000, links: 10_000 }
    }
}
