//! Questions whose answer is the section of a version in a changelog.

use super::candidate::Candidate;
use super::places::{Place, Places};
use super::record::QuestionKind;
use super::wording::{first_that, has_words, lowered, points_elsewhere, reworded, shortened};
use super::words::content;
use crate::corpus::text::Kind;

/// The fewest words with content that an entry needs.
const FEWEST: usize = 4;

/// Verbs with which entries begin, and what a release did.
const VERBS: [(&str, &str); 44] = [
    ("add", "brings"),
    ("added", "brings"),
    ("adds", "brings"),
    ("allow", "allows"),
    ("allowed", "allows"),
    ("avoid", "avoids"),
    ("change", "alters"),
    ("changed", "alters"),
    ("clarify", "explains better"),
    ("correct", "corrects"),
    ("deprecate", "advises against"),
    ("deprecated", "advises against"),
    ("disable", "turns off"),
    ("document", "documents"),
    ("drop", "gives up"),
    ("enable", "turns on"),
    ("ensure", "ensures"),
    ("expose", "exposes"),
    ("fix", "repairs"),
    ("fixed", "repairs"),
    ("fixes", "repairs"),
    ("handle", "handles"),
    ("implement", "implements"),
    ("implemented", "implements"),
    ("improve", "improves"),
    ("improved", "improves"),
    ("increase", "raises"),
    ("introduce", "introduces"),
    ("make", "makes"),
    ("optimize", "speeds up"),
    ("prevent", "prevents"),
    ("provide", "provides"),
    ("reduce", "lowers"),
    ("remove", "drops"),
    ("removed", "drops"),
    ("rename", "renames"),
    ("renamed", "renames"),
    ("replace", "swaps out"),
    ("require", "asks for"),
    ("stabilize", "stabilizes"),
    ("support", "supports"),
    ("update", "moves to a newer"),
    ("upgrade", "moves to a newer"),
    ("use", "begins to use"),
];

/// What stands before entries and is no part of a crate.
const KINDS: [&str; 15] = [
    "added",
    "change",
    "breaking",
    "changed",
    "chore",
    "deprecated",
    "docs",
    "feat",
    "feature",
    "fix",
    "fixed",
    "new",
    "note",
    "perf",
    "removed",
];

/// The candidates of all changelogs.
pub(crate) fn candidates(places: &Places) -> Vec<Candidate> {
    let all = places.places.iter().enumerate();
    all.filter(|(_, place)| place.kind == Kind::Changelog && is_of_version(place))
        .flat_map(|(id, place)| of_version(places, id, place))
        .collect()
}

/// Whether one of the headings has a version in it.
fn is_of_version(place: &Place) -> bool {
    let is_version = |word: &str| {
        let mut parts = word.trim_start_matches(['v', '[', '(']).trim_end_matches([']', ')', ':']).split('.');
        let is_number =
            |part: Option<&str>| part.is_some_and(|part| part.chars().all(|c| c.is_ascii_digit()) && !part.is_empty());
        is_number(parts.next()) && is_number(parts.next())
    };
    place.headings.iter().skip(1).any(|heading| heading.split(' ').any(is_version))
}

fn of_version(places: &Places, id: usize, place: &Place) -> Vec<Candidate> {
    let entries = place.blocks.iter().filter(|block| block.is_listed).filter_map(|block| block.sentences.first());
    let candidate = |sentence: &String| {
        let entry = without_references(sentence);
        // Dotted numbers are versions of other packages.
        let has_version =
            entry.split(' ').any(|word| word.contains('.') && word.contains(|c: char| c.is_ascii_digit()));
        if has_version || entry.contains("http") || points_elsewhere(&entry) {
            return None;
        }
        let accepted = places.saying(sentence).to_vec();
        let entry = shortened(&entry, FEWEST).to_owned();
        let phrases: Vec<String> = phrases(&entry)?.iter().map(|phrase| reworded(phrase)).collect();
        let question = first_that(&phrases, |phrase| places.is_free_of_titles(phrase, &accepted))?;
        let is_asked = has_words(&question, 7..=28) && content(&entry).len() >= FEWEST;
        is_asked.then_some(Candidate { kind: QuestionKind::Changelog, place: id, accepted, kept: entry, question })
    };
    entries.filter_map(candidate).collect()
}

/// The entry without the numbers of issues and the names of authors.
fn without_references(entry: &str) -> String {
    let (mut kept, mut rest) = (String::new(), entry);
    while let Some((before, after)) = rest.split_once('(') {
        let (within, behind) = after.split_once(')').unwrap_or((after, ""));
        let is_reference =
            ["#", "@", "http"].iter().any(|sign| within.contains(sign)) || !within.contains(char::is_alphabetic);
        kept += before;
        if !is_reference {
            kept += &format!("({within})");
        }
        rest = behind;
    }
    kept += rest;
    let is_word = |word: &&str| !word.contains(['#', '@', '[', ']']);
    let kept = kept.split_whitespace().filter(is_word).collect::<Vec<_>>().join(" ");
    let end = [" by", " in", " see", " via", " from", ",", ".", ";", " -", ":"];
    let mut kept = kept.as_str();
    while let Some(shorter) = end.iter().find_map(|end| kept.strip_suffix(end)) {
        kept = shorter.trim_end();
    }
    kept.to_owned()
}

/// The phrases that ask for the version with the entry.
fn phrases(entry: &str) -> Option<Vec<String>> {
    let (scope, entry) = match entry.split_once(": ") {
        // `net: add ...`: the part of the crate.
        Some((scope, rest)) if !scope.contains(' ') && !rest.contains(": ") => (Some(scope.to_lowercase()), rest),
        Some(_) => return None,
        None => (None, entry),
    };
    let (verb, rest) = entry.split_once(' ')?;
    let verb = verb.to_lowercase();
    if ["or ", "and "].iter().any(|word| rest.starts_with(word)) {
        return None;
    }
    let about = VERBS.iter().find(|(known, _)| *known == verb).map(|(_, does)| format!("{does} {}", lowered(rest)));
    let whole = lowered(entry);
    let phrases: Vec<String> = match about {
        Some(about) => ["which release ", "which version "].iter().map(|ask| format!("{ask}{about}")).collect(),
        None if entry.contains(" now ") || entry.contains(" no longer ") => {
            let whole = whole.replacen(" now ", " ", 1);
            ["since which release is it that ", "since when is it so that "]
                .iter()
                .map(|ask| format!("{ask}{whole}"))
                .collect()
        }
        None => return None,
    };
    let mut all: Vec<String> = Vec::new();
    // `added: Add a gate` has no part of the crate before the colon.
    let scope = scope.filter(|scope| !KINDS.contains(&scope.as_str()));
    match scope {
        Some(scope) => all.extend(phrases.iter().map(|phrase| format!("{phrase}, in {scope}"))),
        None => all.extend(phrases),
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::super::tests::corpus_of;
    use super::*;

    #[test]
    fn references_are_no_part_of_an_entry() {
        for (entry, expected) in [
            ("Add a gate (#12)", "Add a gate"),
            ("Add a gate by @somebody in #12", "Add a gate"),
            ("Add a gate ([#12], [#13]) that opens", "Add a gate that opens"),
            ("Add a gate (red) [#1]", "Add a gate (red)"),
            ("#12: Add", "Add"),
            ("a (", "a"),
        ] {
            assert_eq!(without_references(entry), expected);
        }
    }

    #[test]
    fn entries_below_a_version_are_asked_without_their_verbs() {
        let text = "# yard changelog\n\n## 1.2.0 (May 3)\n\n### New\n\n- net: Add a watcher for the outer door (#3)\n- Fixed a panic with watchers in version 0.3.2 of others\n\n## Unreleased\n\n- Add a moat around the whole castle wall";
        let places = Places::of(&[corpus_of(&[("a/CHANGELOG.md", text)])]);
        let candidates = candidates(&places);
        let questions: Vec<&str> = candidates.iter().map(|candidate| candidate.question.as_str()).collect();
        assert_eq!(questions.len(), 1, "{questions:?}");
        assert!(questions[0].contains("brings a watcher for the outer door"), "{questions:?}");
    }
}
