//! The sentences of Markdown.

use pulldown_cmark::{BrokenLink, CowStr, Event, Options, Parser, Tag, TagEnd};

/// Stands in a sentence for what is no prose: code that is more than a name, HTML, an image.
const ODD: char = '\u{1}';

/// A paragraph or an item of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// Whether it is the text of an item of a list.
    pub(crate) is_listed: bool,
    /// Its sentences that are prose.
    pub(crate) sentences: Vec<String>,
}

/// The blocks of a text.
pub(crate) fn blocks(markdown: &str) -> Vec<Block> {
    // Links whose target is in another section.
    let resolve = |_: BrokenLink<'_>| Some((CowStr::from(""), CowStr::from("")));
    let parser = Parser::new_with_broken_link_callback(markdown, Options::ENABLE_TABLES, Some(resolve));
    let mut blocks = Vec::new();
    let (mut text, mut lists, mut skipped) = (String::new(), 0_usize, 0_usize);
    for event in parser {
        match event {
            Event::Start(
                Tag::CodeBlock(_) | Tag::Table(_) | Tag::Heading { .. } | Tag::HtmlBlock | Tag::BlockQuote(_),
            ) => {
                flush(&mut text, lists, &mut blocks);
                skipped += 1;
            }
            Event::End(
                TagEnd::CodeBlock | TagEnd::Table | TagEnd::Heading(_) | TagEnd::HtmlBlock | TagEnd::BlockQuote(_),
            ) => {
                text.clear();
                skipped = skipped.saturating_sub(1);
            }
            Event::Start(Tag::List(_)) => {
                flush(&mut text, lists, &mut blocks);
                lists += 1;
            }
            Event::End(TagEnd::List(_)) => {
                flush(&mut text, lists, &mut blocks);
                lists = lists.saturating_sub(1);
            }
            Event::Start(Tag::Image { .. }) => text.push(ODD),
            Event::End(TagEnd::Paragraph | TagEnd::Item) => flush(&mut text, lists, &mut blocks),
            Event::Text(part) if skipped == 0 => text += &part,
            Event::Code(code) if skipped == 0 => text += &name(&code).unwrap_or_else(|| ODD.to_string()),
            Event::InlineHtml(_) => text.push(ODD),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            _ => {}
        }
    }
    flush(&mut text, lists, &mut blocks);
    blocks
}

fn flush(text: &mut String, lists: usize, blocks: &mut Vec<Block>) {
    let sentences = sentences(text);
    if !text.trim().is_empty() {
        blocks.push(Block { is_listed: lists > 0, sentences });
    }
    text.clear();
}

/// Code that is a name, without the signs of a call, a reference and generics.
fn name(code: &str) -> Option<String> {
    let code = code.trim().trim_end_matches("()").trim_start_matches('&').trim_end_matches('!');
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_:.-".contains(c);
    (!code.is_empty() && code.chars().all(is_name)).then(|| code.to_owned())
}

/// Abbreviations whose stop ends no sentence.
const ABBREVIATIONS: [&str; 7] = ["e.g.", "i.e.", "etc.", "vs.", "cf.", "resp.", "approx."];

/// The sentences of a paragraph that are prose, with single blanks and without their stop.
fn sentences(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mut found, mut begin) = (Vec::new(), 0);
    for (place, word) in words.iter().enumerate() {
        let is_stop = word.trim_end_matches([')', '"', '\'']).ends_with(['.', '?', '!']);
        let is_abbreviation = ABBREVIATIONS.contains(&word.trim_start_matches('(').to_lowercase().as_str());
        let begins_after = words.get(place + 1).is_none_or(|next| !next.starts_with(|c: char| c.is_lowercase()));
        if (is_stop && !is_abbreviation && begins_after) || place + 1 == words.len() {
            let sentence = words[begin..=place].join(" ");
            begin = place + 1;
            // What follows a colon is not in the sentence.
            if !sentence.contains(ODD) && !sentence.ends_with(':') {
                found.push(sentence.trim_end_matches(['.', '!', ' ']).to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(markdown: &str) -> Vec<String> {
        blocks(markdown).into_iter().flat_map(|block| block.sentences).collect()
    }

    #[test]
    fn sentences_end_at_stops_and_not_at_abbreviations() {
        assert_eq!(
            all("It is one, e.g. this. Is it\ntwo? See `a.b` (three).\n\nFour"),
            ["It is one, e.g. this", "Is it two?", "See a.b (three)", "Four"]
        );
    }

    #[test]
    fn sentences_with_more_code_than_a_name_are_left_out() {
        assert_eq!(all("Takes `Vec<u8>` here. Takes [`Bytes::new()`][x] here. Follows:"), ["Takes Bytes::new here"]);
    }

    #[test]
    fn headings_code_and_tables_are_no_prose() {
        assert_eq!(all("# No\n\nYes.\n\n```\nNo.\n```\n\n| No |\n|---|\n| No |\n\n> No.\n"), ["Yes"]);
    }

    #[test]
    fn items_of_lists_are_blocks_of_their_own() {
        let found = blocks("One.\n\n- two\n- three\n  - four\n\nFive.");
        let found: Vec<(bool, &str)> =
            found.iter().map(|block| (block.is_listed, block.sentences[0].as_str())).collect();
        assert_eq!(found, [(false, "One"), (true, "two"), (true, "three"), (true, "four"), (false, "Five")]);
    }
}
