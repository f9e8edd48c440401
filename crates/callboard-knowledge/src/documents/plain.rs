//! Plain text: paragraphs, as many to a passage as it holds.

use super::passages::{Passages, Section};

/// Reads the text as one section without heading.
pub(super) fn read(passages: &mut Passages<'_>, text: &str, title: &str) {
    passages.push(Section {
        place: 0..text.len(),
        title: title.to_owned(),
        anchor: String::new(),
        other_anchors: Vec::new(),
        defines: Vec::new(),
    });
}
