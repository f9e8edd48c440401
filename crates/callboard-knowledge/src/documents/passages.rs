//! From sections to passages that are not longer than the limit, with their lines and entities.

use std::ops::Range;

use super::cuts;
use super::document::{Mention, Passage, ReadLimits};
use super::entities;
use super::left_out::LeftOut;
use super::lines::Lines;

/// A part of the text that has a title.
#[derive(Debug)]
pub(super) struct Section {
    /// Its place in the text. Sections follow each other in the order of the text.
    pub(super) place: Range<usize>,
    pub(super) title: String,
    pub(super) anchor: String,
    pub(super) other_anchors: Vec<String>,
    /// What its heading defines.
    pub(super) defines: Vec<Mention>,
}

/// The passages of a document, in the making.
#[derive(Debug)]
pub(super) struct Passages<'t> {
    text: &'t str,
    limits: &'t ReadLimits,
    lines: Lines<'t>,
    passages: Vec<Passage>,
    /// Where each passage is in the text.
    places: Vec<Range<usize>>,
    left_out: Option<LeftOut>,
}

impl<'t> Passages<'t> {
    pub(super) fn new(text: &'t str, limits: &'t ReadLimits) -> Self {
        Self { text, limits, lines: Lines::new(text), passages: Vec::new(), places: Vec::new(), left_out: None }
    }

    /// Whether there are as many passages as there may be.
    pub(super) fn is_full(&self) -> bool {
        self.left_out.is_some()
    }

    /// Adds a section as one or more passages. Blank lines at the beginning and white space at the end of a passage are not part of it.
    /// Returns the places of those that were added.
    pub(super) fn push(&mut self, section: Section) -> Range<usize> {
        let first = self.passages.len();
        let mut defines = section.defines;
        let whole = trimmed(self.text, section.place);
        let mut start = whole.start;
        for end in cuts::ends(&self.text[whole.clone()], self.limits.passage_chars) {
            let place = trimmed(self.text, std::mem::replace(&mut start, whole.start + end)..whole.start + end);
            if place.is_empty() {
                continue;
            }
            if self.is_full() {
                break;
            }
            if self.passages.len() >= self.limits.passages {
                let from_line = self.lines.line(place.start);
                self.left_out = Some(LeftOut::TooManyPassages { from_line, limit: self.limits.passages });
                break;
            }
            let text = &self.text[place.clone()];
            let mut entities = std::mem::take(&mut defines);
            entities.extend(entities::of_words(text));
            self.passages.push(Passage {
                ordinal: u32::try_from(self.passages.len()).unwrap_or(u32::MAX),
                title: section.title.clone(),
                anchor: section.anchor.clone(),
                other_anchors: if self.passages.len() == first { section.other_anchors.clone() } else { Vec::new() },
                text: text.to_owned(),
                lines: self.lines.line(place.start)..=self.lines.line(place.end),
                entities,
            });
            self.places.push(place);
        }
        first..self.passages.len()
    }

    /// The ordinal of the passage that contains a place of the text.
    pub(super) fn at(&self, place: usize) -> Option<u32> {
        let after = self.places.partition_point(|passage| passage.start <= place);
        let index = after.checked_sub(1)?;
        (place < self.places[index].end).then(|| u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Adds entities to the passage that contains a place of the text, if any does.
    pub(super) fn add_entities(&mut self, place: usize, entities: impl IntoIterator<Item = Mention>) {
        if let Some(ordinal) = self.at(place) {
            self.passages[ordinal as usize].entities.extend(entities);
        }
    }

    /// The passages, to be completed.
    pub(super) fn passages_mut(&mut self) -> &mut [Passage] {
        &mut self.passages
    }

    /// Adds the names between single backticks, for texts that no parser of Markdown has read.
    pub(super) fn add_code_spans(&mut self) {
        for passage in &mut self.passages {
            passage.entities.extend(entities::of_spans(&passage.text));
        }
    }

    /// Returns the passages, each with each entity once, and what was left out.
    pub(super) fn finish(mut self) -> (Vec<Passage>, Option<LeftOut>) {
        for passage in &mut self.passages {
            // `Defines` is before `Mentions` in the order, so it is the one that stays.
            passage.entities.sort();
            passage.entities.dedup_by(|one, before| one.kind == before.kind && one.entity == before.entity);
            passage.entities.shrink_to_fit();
        }
        (self.passages, self.left_out)
    }
}

/// The place without blank lines at its beginning and without white space at its end.
fn trimmed(text: &str, place: Range<usize>) -> Range<usize> {
    let within = &text[place.clone()];
    let end = place.start + within.trim_end().len();
    let first = within.len() - within.trim_start().len();
    let line = within[..first].rfind('\n').map_or(0, |feed| feed + 1);
    (place.start + line).min(end)..end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(place: Range<usize>) -> Section {
        Section { place, title: "t".into(), anchor: "a".into(), other_anchors: vec!["b".into()], defines: Vec::new() }
    }

    #[test]
    fn blank_lines_around_a_passage_are_not_of_it_but_its_indentation_is() {
        assert_eq!(trimmed("\n \n  a\n b \n\n", 0..12), 3..9);
        assert_eq!(trimmed("a", 0..1), 0..1);
        assert!(trimmed(" \n ", 0..3).is_empty());
    }

    #[test]
    fn passages_know_their_lines() {
        let text = "\nfirst\nsecond\n\nthird\n";
        let limits = ReadLimits::default();
        let mut passages = Passages::new(text, &limits);
        passages.push(section(0..14));
        passages.push(section(14..text.len()));
        let lines: Vec<_> = passages.finish().0.into_iter().map(|passage| passage.lines).collect();
        assert_eq!(lines, [2..=3, 5..=5]);
    }

    #[test]
    fn only_the_first_passage_of_a_section_has_the_other_anchors() {
        let text = "word ".repeat(100);
        let limits = ReadLimits { passage_chars: 200, ..ReadLimits::default() };
        let mut passages = Passages::new(&text, &limits);
        assert_eq!(passages.push(section(0..text.len())), 0..3);
        let anchors: Vec<_> = passages.finish().0.into_iter().map(|passage| passage.other_anchors.len()).collect();
        assert_eq!(anchors, [1, 0, 0]);
    }

    #[test]
    fn what_is_over_the_limit_is_left_out_from_a_line_on() {
        let text = "a\nb\nc\nd\n";
        let limits = ReadLimits { passages: 2, ..ReadLimits::default() };
        let mut passages = Passages::new(text, &limits);
        for start in [0, 2, 4, 6] {
            passages.push(section(start..start + 2));
        }
        let (passages, left_out) = passages.finish();
        assert_eq!(passages.len(), 2);
        assert_eq!(left_out, Some(LeftOut::TooManyPassages { from_line: 3, limit: 2 }));
    }
}
