//! What happened in a simulation, line by line, and a hash over all of it.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

/// How much a line matters to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// Shown when a seed fails.
    Shown,
    /// Hashed, and shown only when everything is.
    Fine,
}

#[derive(Default)]
pub(super) struct Trace {
    lines: Vec<(Duration, Weight, String)>,
    hash: Xxh3,
}

/// Two runs of one seed that are not the same.
pub(super) struct Difference {
    at: usize,
    first: String,
    second: String,
}

impl Trace {
    pub(super) fn note(&mut self, at: Duration, weight: Weight, text: String) {
        self.hash.update(&at.as_nanos().to_le_bytes());
        self.hash.update(text.as_bytes());
        self.lines.push((at, weight, text));
    }

    /// How much has been noted.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.digest()
    }

    pub(super) fn difference(&self, other: &Self) -> Option<Difference> {
        if self.hash() == other.hash() {
            return None;
        }
        let (mine, others) = (&self.lines, &other.lines);
        let at = mine.iter().zip(others).position(|(mine, other)| mine != other);
        let at = at.unwrap_or_else(|| mine.len().min(others.len()));
        let line = |lines: &[(Duration, Weight, String)]| {
            lines.get(at).map_or_else(|| "nothing".to_owned(), |(at, _, text)| line(*at, text))
        };
        let (first, second) = (line(mine), line(others));
        let from = first.chars().zip(second.chars()).take_while(|(first, second)| first == second).count();
        Some(Difference { at, first: context_of(&first, from), second: context_of(&second, from) })
    }

    /// An error, and the last lines; all of them, fine ones included and not cut, if `shows_all`. Ids are replaced by short
    /// names.
    pub(super) fn render(&self, error: &str, shows_all: bool) -> (String, String) {
        const LAST: usize = 60;
        let shown: Vec<_> = self.lines.iter().filter(|(_, weight, _)| shows_all || *weight == Weight::Shown).collect();
        let skipped = if shows_all { 0 } else { shown.len().saturating_sub(LAST) };
        let mut text = String::new();
        if skipped > 0 {
            let _ = writeln!(text, "  … {skipped} earlier lines");
        }
        let mut names = Names::default();
        for (number, (at, _, what)) in shown.into_iter().enumerate() {
            let named = names.shorten(&line(*at, what));
            if number >= skipped {
                let _ = writeln!(text, "  {}", if shows_all { &*named } else { beginning(&named) });
            }
        }
        (names.shorten(error), text)
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at, first, second } = self;
        write!(f, "event {at} was first\n  {first}\nand then\n  {second}")
    }
}

/// What a line shows at most, in bytes.
const WIDTH: usize = 180;

fn beginning(line: &str) -> &str {
    &line[..line.floor_char_boundary(WIDTH)]
}

/// A part of a line, so that the character `at` is seen.
fn context_of(line: &str, at: usize) -> String {
    let skipped = at.saturating_sub(WIDTH / 2);
    let part: String = line.chars().skip(skipped).take(WIDTH).collect();
    if skipped == 0 { part } else { format!("… {part}") }
}

fn line(at: Duration, text: &str) -> String {
    format!("{:>10.3} s  {text}", at.as_secs_f64())
}

/// Short names for ids, in the order in which they appear.
#[derive(Default)]
struct Names(HashMap<uuid::Uuid, usize>);

impl Names {
    fn shorten(&mut self, text: &str) -> String {
        let mut short = String::new();
        let mut rest = text;
        while let Some((before, id, after)) = split_at_id(rest) {
            let next = self.0.len() + 1;
            let number = *self.0.entry(id).or_insert(next);
            let _ = write!(short, "{before}id-{number}");
            rest = after;
        }
        short + rest
    }
}

/// The text before the first UUID, the UUID, and the rest.
fn split_at_id(text: &str) -> Option<(&str, uuid::Uuid, &str)> {
    let is_id = |character: char| character.is_ascii_hexdigit() || character == '-';
    let mut start = 0;
    loop {
        start += text[start..].find(is_id)?;
        let length = text[start..].find(|character| !is_id(character)).unwrap_or(text.len() - start);
        let word = &text[start..start + length];
        if matches!(length, 32 | 36)
            && let Ok(id) = uuid::Uuid::try_parse(word)
        {
            return Some((&text[..start], id, &text[start + length..]));
        }
        start += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_get_short_names_in_the_order_of_their_appearance() {
        let (a, b) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
        let mut names = Names::default();
        assert_eq!(names.shorten(&format!("run {b} of {a}, {b}")), "run id-1 of id-2, id-1");
        assert_eq!(names.shorten(&format!("ä {} 1-", a.as_simple())), "ä id-2 1-");
    }

    #[test]
    fn traces_differ_in_texts_and_times_and_show_where() {
        let of = |at: u64, text: &str| {
            let mut trace = Trace::default();
            trace.note(Duration::from_millis(at), Weight::Shown, text.to_owned());
            trace
        };
        assert!(of(1, "a").difference(&of(1, "a")).is_none());
        assert!(of(1, "a").difference(&of(2, "a")).is_some());
        let long = |end: &str| of(1, &format!("{}{end}", "x".repeat(600)));
        let shown =
            long("left").difference(&long("right")).map(|difference| difference.to_string()).unwrap_or_default();
        assert!(shown.contains("xleft\nand then\n  …") && shown.ends_with("xright"), "{shown}");
    }
}
