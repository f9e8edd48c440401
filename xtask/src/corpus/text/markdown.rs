//! The headings of Markdown: moved down by some levels, and the sections below them.

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The deepest level that Markdown has.
const DEEPEST: usize = 6;

/// What the headings of a section's title are joined with.
pub const JOINED: &str = " > ";

struct Heading {
    level: usize,
    /// Without emphasis, links and signs of code.
    text: String,
    place: Range<usize>,
}

/// The headings that stand in no list and no quotation.
fn headings(text: &str) -> Vec<Heading> {
    let (mut found, mut open) = (Vec::new(), None::<Heading>);
    let mut depth = 0_usize;
    for (event, place) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) if depth == 0 => {
                open = Some(Heading { level: level as usize, text: String::new(), place });
            }
            Event::Start(Tag::BlockQuote(_) | Tag::List(_)) => depth += 1,
            Event::End(TagEnd::BlockQuote(_) | TagEnd::List(_)) => depth = depth.saturating_sub(1),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut open {
                    heading.text += &text;
                }
            }
            Event::SoftBreak | Event::HardBreak => {
                if let Some(heading) = &mut open {
                    heading.text.push(' ');
                }
            }
            Event::End(TagEnd::Heading(_)) => found.extend(open.take()),
            _ => {}
        }
    }
    for heading in &mut found {
        heading.text = heading.text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    found
}

/// A heading of a level (from 1) as a line of Markdown whose plain text is `text`.
#[must_use]
pub fn heading(level: usize, text: &str) -> String {
    let mut line = "#".repeat(level.clamp(1, DEEPEST));
    line.push(' ');
    for c in text.chars() {
        if "\\`*[]<>&#".contains(c) || (c == '_' && is_at_end_of_word(&line)) {
            line.push('\\');
        }
        line.push(c);
    }
    line.push('\n');
    line
}

/// Within a word an underscore is no emphasis.
fn is_at_end_of_word(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric())
}

/// The text with each heading `by` levels deeper, all of the form `## Title`.
#[must_use]
pub fn demoted(text: &str, by: usize) -> String {
    let mut moved = String::with_capacity(text.len());
    let mut done = 0;
    for Heading { level, text: title, place } in headings(text) {
        moved += &text[done..place.start];
        if !moved.is_empty() && !moved.ends_with('\n') {
            moved.push('\n');
        }
        moved += &heading(level + by, &title);
        done = place.end;
    }
    moved += &text[done..];
    moved
}

/// The text from one heading to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The headings above it from the outermost, and its own.
    pub headings: Vec<String>,
    /// What is below the heading.
    pub text: String,
}

impl Section {
    /// Its headings, joined.
    #[must_use]
    pub fn title(&self) -> String {
        self.headings.join(JOINED)
    }
}

/// The sections of a document in their order, those without text left out.
#[must_use]
pub fn sections(text: &str) -> Vec<Section> {
    let headings = headings(text);
    let mut sections = Vec::with_capacity(headings.len() + 1);
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut begin = 0;
    let ends = headings.iter().map(|heading| heading.place.start).chain([text.len()]);
    let mut after = headings.iter();
    for end in ends {
        let body = text[begin..end].trim();
        if !body.is_empty() {
            let headings = above.iter().map(|(_, title)| title.clone()).collect();
            sections.push(Section { headings, text: body.to_owned() });
        }
        if let Some(heading) = after.next() {
            above.retain(|(level, _)| *level < heading.level);
            above.push((heading.level, heading.text.clone()));
            begin = heading.place.end;
        }
    }
    sections
}

/// The most characters of a passage.
const PASSAGE: usize = 1_500;

/// How many passages a document has: a section is one, and one of more than 1,500 characters is cut at ends of paragraphs.
#[must_use]
pub fn passages(text: &str) -> usize {
    sections(text).iter().map(|section| passages_of_section(&section.text)).sum()
}

fn passages_of_section(text: &str) -> usize {
    let (mut passages, mut length) = (0, 0);
    for paragraph in text.split("\n\n").map(|paragraph| paragraph.chars().count()) {
        if length > 0 && length + paragraph > PASSAGE {
            passages += 1;
            length = 0;
        }
        length += paragraph;
        // A paragraph that is too long is cut within.
        passages += length / (PASSAGE + 1);
        length -= length / (PASSAGE + 1) * PASSAGE;
    }
    passages + usize::from(length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_move_down_and_those_of_code_stay() {
        let text =
            "# One `two`\ntext\n\n```sh\n# no heading\n```\n\nUnder\n=====\n\n> # Quoted\n\n###### [Deep](x)\nend";
        let moved = demoted(text, 2);
        let expected = "### One two\ntext\n\n```sh\n# no heading\n```\n\n### Under\n\n> # Quoted\n\n###### Deep\nend";
        assert_eq!(moved, expected);
    }

    #[test]
    fn the_plain_text_of_a_heading_survives_its_form() {
        for text in ["Vec<T>", "a * b * c", "__init__", "poll_read", "[x](y)", "1 & `2` #", "a \\ b"] {
            assert_eq!(headings(&heading(2, text))[0].text, text);
        }
    }

    #[test]
    fn a_section_has_the_headings_above_it() {
        let text = "# A\n\none\n\n## B\n\n### C\n\ntwo\n\n## D\n\nthree";
        let found: Vec<(String, String)> =
            sections(text).into_iter().map(|section| (section.title(), section.text)).collect();
        let expected = [("A", "one"), ("A > B > C", "two"), ("A > D", "three")];
        assert_eq!(found, expected.map(|(title, text)| (title.to_owned(), text.to_owned())));
    }

    #[test]
    fn long_sections_are_several_passages() {
        let paragraph = "x".repeat(700);
        for (paragraphs, expected) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
            let text = format!("# A\n\n{}", vec![paragraph.as_str(); paragraphs].join("\n\n"));
            assert_eq!(passages(&text), expected, "{paragraphs}");
        }
        assert_eq!(passages(&"y".repeat(1_500)), 1);
        assert_eq!(passages(&"y".repeat(1_501)), 2);
        assert_eq!(passages(""), 0);
    }
}
