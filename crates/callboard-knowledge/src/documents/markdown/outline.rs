//! From headings to sections. Pure.

use std::ops::Range;

use super::super::document::Mention;
use super::super::entities;
use super::super::passages::Section;

/// A heading of a document.
#[derive(Clone, Debug, Default)]
pub(super) struct Heading {
    /// From 1, the outermost.
    pub(super) level: u8,
    pub(super) place: Range<usize>,
    pub(super) title: String,
    pub(super) anchor: String,
    /// Whether it consists of one code span.
    pub(super) is_code: bool,
    /// Whether it is in no quotation and in no list. Only such a heading begins a section.
    pub(super) is_outermost: bool,
}

/// The sections of a document, each from its heading to the next. A heading that has no text of its own before a heading below it begins the
/// section of that one, and so does the block of metadata that ends at `metadata`, if only white space is between it and the first heading.
pub(super) fn sections(
    text: &str,
    headings: &[Heading],
    metadata: usize,
    title: &str,
) -> impl Iterator<Item = Section> {
    let headings: Vec<&Heading> = headings.iter().filter(|heading| heading.is_outermost).collect();
    let first = headings.first().map_or(text.len(), |heading| heading.place.start);
    let begin = if !headings.is_empty() && is_blank(text, metadata..first) { 0 } else { first };
    let before = Section {
        place: 0..begin,
        title: title.to_owned(),
        anchor: String::new(),
        other_anchors: Vec::new(),
        defines: Vec::new(),
    };
    let mut above: Vec<&Heading> = Vec::new();
    let mut empty: Vec<&Heading> = Vec::new();
    let followed = (0..headings.len()).filter_map(move |index| {
        let heading = headings[index];
        above.truncate(above.iter().rposition(|above| above.level < heading.level).map_or(0, |last| last + 1));
        above.push(heading);
        let next = headings.get(index + 1);
        if let Some(next) = next
            && next.level > heading.level
            && is_blank(text, heading.place.end..next.place.start)
        {
            empty.push(heading);
            return None;
        }
        let start = empty.first().unwrap_or(&heading).place.start;
        let start = if start == first { begin } else { start };
        let end = next.map_or(text.len(), |next| next.place.start);
        let empty = std::mem::take(&mut empty);
        let defines: Vec<Mention> = empty
            .iter()
            .chain([&heading])
            .flat_map(|heading| entities::of_heading(&heading.title, heading.is_code))
            .collect();
        Some(Section {
            place: start..end,
            title: above
                .iter()
                .map(|heading| heading.title.as_str())
                .filter(|title| !title.is_empty())
                .collect::<Vec<_>>()
                .join(" > "),
            anchor: heading.anchor.clone(),
            other_anchors: empty.iter().map(|heading| heading.anchor.clone()).collect(),
            defines,
        })
    });
    std::iter::once(before).chain(followed)
}

fn is_blank(text: &str, place: Range<usize>) -> bool {
    text.get(place).is_none_or(|between| between.trim().is_empty())
}
