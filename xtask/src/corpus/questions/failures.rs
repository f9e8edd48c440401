//! Questions that are the text of a failure, as a log has it: with values in its places. The answer is the documentation of the error, or
//! of the function that fails.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use super::candidate::Candidate;
use super::conditions::is_of_failures;
use super::places::{Place, Places};
use super::record::QuestionKind;
use super::wording::{chance, has_words, is_bare, with_pronouns};
use super::words::content;
use crate::corpus::CrateText;
use crate::corpus::text::{Message, Origin};

/// The fewest words with content that a message needs.
const FEWEST: usize = 3;

/// How many of its words the documentation has to have: less says that it does not describe the failure.
const SHARED: usize = 2;

/// The candidates of all messages.
pub(crate) fn candidates(places: &Places, crates: &[CrateText]) -> Vec<Candidate> {
    let mut of_items: HashMap<(usize, &str), Vec<usize>> = HashMap::new();
    for (id, place) in places.places.iter().enumerate() {
        if let Some(item) = place.item() {
            of_items.entry((place.of, item)).or_default().push(id);
        }
    }
    // Some functions fail with the same words, but for their names: the documentation of each is right.
    let mut by_words: BTreeMap<String, Candidate> = BTreeMap::new();
    for (of, one) in crates.iter().enumerate() {
        for message in &one.extracted.messages {
            let sections = of_items.get(&(of, message.item.as_str())).map_or(&[][..], Vec::as_slice);
            let Some(candidate) = of_message(places, message, sections) else { continue };
            match by_words.entry(candidate.kept.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(candidate)),
                Entry::Occupied(entry) => {
                    let accepted = &mut entry.into_mut().accepted;
                    accepted.extend(candidate.accepted);
                    accepted.sort_unstable();
                    accepted.dedup();
                }
            }
        }
    }
    by_words.into_values().filter(|one| places.is_free_of_titles(&one.question, &one.accepted)).collect()
}

fn of_message(places: &Places, message: &Message, sections: &[usize]) -> Option<Candidate> {
    let question = filled(&message.text)?;
    let content = content(&without_fields(&message.text));
    if content.len() < FEWEST || !has_words(&question, 4..=30) {
        return None;
    }
    let place = |id: usize| &places.places[id];
    // Types of one name in several modules: that of the module with the message, or the only one.
    let is_beside = |id: &&usize| place(**id).document == message.document;
    let is_only = sections.iter().all(|id| place(*id).document == place(sections[0]).document);
    let sections: Vec<usize> = match (sections.iter().any(|id| is_beside(&id)), message.origin) {
        (true, _) => sections.iter().filter(is_beside).copied().collect(),
        (false, Origin::Display) if is_only => sections.to_vec(),
        (false, Origin::Display | Origin::Function) => return None,
    };
    let is_right = |id: &&usize| match message.origin {
        Origin::Display => is_of_error(place(**id)),
        Origin::Function => is_of_failures(place(**id)),
    };
    let shared = |id: usize| content.intersection(&place(id).content).count();
    let best = sections.iter().filter(is_right).copied().max_by_key(|id| (shared(*id), std::cmp::Reverse(*id)))?;
    if shared(best) < SHARED {
        return None;
    }
    // All sections that describe the failure as well.
    let mut accepted: Vec<usize> =
        sections.iter().filter(is_right).copied().filter(|id| shared(*id) == shared(best)).collect();
    for sentence in place(best).blocks.iter().flat_map(|block| &block.sentences) {
        let is_about = content.iter().filter(|word| super::words::content(sentence).contains(*word)).count() >= SHARED;
        accepted.extend(places.saying(sentence).iter().filter(|_| is_about));
    }
    accepted.sort_unstable();
    accepted.dedup();
    let question = without_titles(places, &question, &accepted)?;
    let is_cut = question.split(' ').count() < filled(&message.text)?.split(' ').count();
    let is_left = super::words::content(&question).intersection(&content).count() >= FEWEST + usize::from(is_cut);
    if !is_left || !has_words(&question, 4..=30) {
        return None;
    }
    let kept = without_titles(places, &without_fields(&message.text), &accepted).unwrap_or_else(|| question.clone());
    Some(Candidate { kind: QuestionKind::Error, place: best, accepted, kept, question })
}

/// The message with pronouns for words of the titles; if that is not possible, without one of its words.
fn without_titles(places: &Places, message: &str, accepted: &[usize]) -> Option<String> {
    let is_of_title = |word: &str| !places.is_free_of_titles(word, accepted);
    let kept = with_pronouns(message, is_of_title).or_else(|| without_one(message, is_of_title))?;
    // `failed to read in`
    let is_open = kept.rsplit(' ').next().is_some_and(|last| OPEN.contains(&last));
    (!is_open && places.is_free_of_titles(&kept, accepted)).then_some(kept)
}

/// The message without the one of its words that is of the title, if nothing before it asks for it.
fn without_one(message: &str, is_of_title: impl Fn(&str) -> bool) -> Option<String> {
    let words: Vec<&str> = message.split(' ').collect();
    let mut of_title = words.iter().enumerate().filter(|(_, word)| is_of_title(word));
    let (at, _) = of_title.next().filter(|_| of_title.next().is_none())?;
    let is_open = at.checked_sub(1).is_some_and(|before| OPEN.contains(&words[before].to_lowercase().as_str()));
    let is_last = at + 1 == words.len() || !is_bare(words[at]);
    (!is_open && !is_last).then(|| [&words[..at], &words[at + 1..]].concat().join(" "))
}

/// Words after which a message does not end.
const OPEN: [&str; 26] = [
    "a", "an", "and", "any", "at", "be", "by", "cannot", "could", "each", "every", "for", "from", "in", "into", "is",
    "its", "must", "no", "not", "of", "or", "that", "the", "to", "with",
];

/// Which headings below an error describe it.
const PARTS: [&str; 4] = ["Variants", "Fields", "Errors", "Causes"];

/// Parts of the names of types that are errors.
const ERRORS: [&str; 6] = ["Err", "Elapsed", "Warning", "Invalid", "Exceeded", "Failure"];

/// Whether the section is of a type that is an error, and not of its methods.
fn is_of_error(place: &Place) -> bool {
    let is_of_error = match place.headings.get(2) {
        Some(heading) => PARTS.contains(&heading.as_str()),
        None => true,
    };
    let is_named = place.item().is_some_and(|item| ERRORS.iter().any(|part| item.contains(part)));
    let is_described = ["error", "failure"].iter().any(|word| place.content.contains(&super::words::stem(word)));
    is_of_error && (is_named || is_described)
}

/// The text of the format without what stands in braces.
fn without_fields(format: &str) -> String {
    let text: String = pieces(format).into_iter().map(|piece| piece.unwrap_or_else(|_| " ".to_owned())).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text with plausible values in its places; `None` if it is no text of a failure.
fn filled(format: &str) -> Option<String> {
    let letters = format.chars().filter(|c| c.is_alphabetic()).count();
    let is_text = letters * 2 > format.chars().count() && format.contains(' ') && !format.contains("://");
    // A letter before a field is a part of a word.
    let is_joined = format.match_indices('{').any(|(at, _)| format[..at].ends_with(char::is_alphanumeric));
    let is_internal = ["internal error", "BUG", "bug", "impossible"].iter().any(|word| format.contains(word));
    if !is_text || is_joined || is_internal {
        return None;
    }
    let pieces = pieces(format).into_iter().map(|piece| piece.unwrap_or_else(|field| value(&field, format)));
    let text: String = pieces.collect();
    Some(text.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches([':', ' ', '.']).to_owned())
}

/// A format in pieces: text, and as an error what stands between braces.
fn pieces(format: &str) -> Vec<Result<String, String>> {
    let (mut pieces, mut rest) = (Vec::new(), format);
    while let Some(at) = rest.find(['{', '}']) {
        pieces.push(Ok(rest[..at].to_owned()));
        let sign = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(sign) {
            pieces.push(Ok(sign.to_owned()));
            rest = after;
        } else if let Some((field, after)) = rest.split_once('}') {
            pieces.push(Err(field.to_owned()));
            rest = after;
        }
    }
    pieces.push(Ok(rest.to_owned()));
    pieces
}

/// A value for a field of a format.
fn value(field: &str, format: &str) -> String {
    let name = field.split(':').next().unwrap_or_default().to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let numbers = ["3", "7", "12", "40", "128", "4096"];
    let others = ["17", "foo", "2", "bar", "9"];
    let by_chance = chance(&format!("{format} {field}")) as usize;
    if has(&["path", "file", "dir"]) {
        "/srv/app.toml".to_owned()
    } else if has(&["err", "source", "cause"]) {
        "connection reset by peer".to_owned()
    } else if has(&["name", "key", "field", "ident", "arg", "str", "text", "flag", "unit"]) {
        "foo".to_owned()
    } else if has(&[
        "len", "size", "count", "num", "max", "min", "limit", "cap", "index", "pos", "line", "col", "at", "day", "year",
    ]) {
        numbers[by_chance % numbers.len()].to_owned()
    } else {
        others[by_chance % others.len()].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::corpus_of;
    use super::*;

    #[test]
    fn formats_are_filled_with_values() {
        for (format, expected) in [
            ("no such file {path}: {error}", Some("no such file /srv/app.toml: connection reset by peer")),
            ("the brace {{ is open", Some("the brace { is open")),
            ("the field {name:?} is missing.", Some("the field foo is missing")),
            ("{}{}{}", None),
            ("see https://a.b for more of it", None),
            ("open { brace", Some("open brace")),
        ] {
            assert_eq!(filled(format).as_deref(), expected, "{format}");
        }
    }

    #[test]
    fn a_message_is_answered_by_the_documentation_that_describes_it() {
        let text = "# a\n\n## DoorError\n\nenum\n\nWhat a gate reports.\n\n### Variants\n\n- `Stuck`: The hinge is rusty and does not turn.\n\n## Other\n\nenum\n\nOf a hinge that is rusty.";
        let mut corpus = corpus_of(&[("a/gate.md", text)]);
        let message = |text: &str| Message {
            document: "a/gate.md".to_owned(),
            item: "DoorError".to_owned(),
            text: text.to_owned(),
            origin: Origin::Display,
        };
        corpus.extracted.messages =
            vec![message("rusty hinge cannot turn around"), message("something of another kind entirely")];
        let corpus = [corpus];
        let places = Places::of(&corpus);
        let found = candidates(&places, &corpus);
        assert_eq!(found.len(), 1);
        assert_eq!(places.places[found[0].place].title, "a > DoorError > Variants");
        assert_eq!(found[0].question, "rusty hinge cannot turn around");
    }
}
