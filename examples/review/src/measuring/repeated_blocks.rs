//! Blocks of code that occur more than once in a tree.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_64;

use super::measurement::{Measurement, SignificantLine};
use crate::findings::{Finding, Kind, Observation, Place, Severity, seal};
use crate::lexing::{Lexed, Token, normalised};
use crate::outlining::Outline;

/// The shortest block that counts, in significant lines.
const SHORTEST: usize = 8;

/// Different lines that such a block must have at least, so that tables and lists do not count.
const VARIETY: usize = 6;

/// Earlier occurrences that a block is compared with.
const CANDIDATES: usize = 64;

/// A construct that may span lines and cannot be lifted into a function.
#[derive(Clone, Copy, PartialEq)]
enum Frame {
    /// Or the alias of a type.
    Import,
    Attribute,
    Header,
}

impl Frame {
    fn opened_by(tokens: &[Token<'_>]) -> Option<Self> {
        let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
        let modifiers = ["pub", "async", "unsafe", "const", "export", "default", "static"];
        let first = tokens.iter().take_while(|token| modifiers.iter().any(|modifier| token.is(modifier))).count();
        let first = if is(first, "(") { first + 3 } else { first };
        if ["use", "import", "from"].iter().any(|word| is(first, word)) || is(first, "type") && is(first + 2, "=") {
            Some(Self::Import)
        } else if is(0, "#") || is(0, "@") {
            Some(Self::Attribute)
        } else if ["fn", "def", "function", "impl", "class"].iter().any(|word| is(first, word)) {
            Some(Self::Header)
        } else {
            None
        }
    }

    /// Whether it ends on this line, when `depth` brackets are open behind the line.
    fn ends(self, tokens: &[Token<'_>], depth: usize) -> bool {
        let last = tokens[tokens.len() - 1];
        match self {
            Self::Import | Self::Attribute => depth == 0,
            Self::Header => tokens.iter().any(|token| token.is("{")) || last.is(";") || (depth == 0 && last.is(":")),
        }
    }
}

/// The significant lines of a file.
pub(super) fn significant_lines(lexed: &Lexed<'_>, outline: &Outline) -> Vec<SignificantLine> {
    let mut lines = Vec::new();
    let mut open: Option<(Frame, usize)> = None;
    for (first, tokens) in lexed.code_lines() {
        let frame = open.take().or_else(|| Frame::opened_by(tokens).map(|frame| (frame, 0)));
        if let Some((frame, depth)) = frame {
            let depth = tokens.iter().fold(depth, |depth, token| match token.text {
                "(" | "[" | "{" => depth + 1,
                ")" | "]" | "}" => depth.saturating_sub(1),
                _ => depth,
            });
            open = (!frame.ends(tokens, depth)).then_some((frame, depth));
        } else if tokens.iter().any(carries_meaning) {
            let hash = xxh3_64(normalised(tokens).as_bytes());
            lines.push(SignificantLine { line: tokens[0].line, hash, is_test: outline.is_test(first) });
        }
    }
    lines
}

fn carries_meaning(token: &Token<'_>) -> bool {
    let is_keyword = matches!(token.text, "else" | "try" | "finally" | "pass" | "break" | "return");
    token.is_word() && !is_keyword && token.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Finds the blocks that occur more than once, each one as long as it can be.
///
/// Files are taken in order of their names. A block is found at its first place; blocks inside a longer one that has
/// the same places are not found again.
pub(crate) fn repeated_blocks(measurements: &[Measurement]) -> Vec<Finding> {
    let mut files: Vec<&Measurement> = measurements.iter().collect();
    files.sort_by(|a, b| a.file.cmp(&b.file));
    let blocks = Blocks::find(&files);
    let mut by_file: HashMap<&str, Vec<Observation>> = HashMap::new();
    for (places, length) in &blocks.found {
        let (file, observation) = blocks.observe(places, *length);
        by_file.entry(file).or_default().push(observation);
    }
    let mut findings: Vec<_> = by_file.into_iter().flat_map(|(file, seen)| seal(file, seen)).collect();
    findings.sort_by(|a, b| (&a.file, a.line, a.fingerprint).cmp(&(&b.file, b.line, b.fingerprint)));
    findings
}

/// A significant line: which file, which line of it.
type Position = (usize, usize);

struct Blocks<'a> {
    files: &'a [&'a Measurement],
    windows: HashMap<u64, Vec<Position>>,
    covered: Vec<Vec<bool>>,
    found: Vec<(Vec<Position>, usize)>,
}

impl<'a> Blocks<'a> {
    fn find(files: &'a [&'a Measurement]) -> Self {
        let covered = files.iter().map(|file| vec![false; file.significant.len()]).collect();
        let mut blocks = Self { files, windows: HashMap::new(), covered, found: Vec::new() };
        for (file, measurement) in files.iter().enumerate() {
            for (at, window) in measurement.significant.windows(SHORTEST).enumerate() {
                if let Some(hash) = hash_of(window) {
                    blocks.windows.entry(hash).or_default().push((file, at));
                }
            }
        }
        for (file, measurement) in files.iter().enumerate() {
            let mut at = 0;
            while at + SHORTEST <= measurement.significant.len() {
                at += blocks.take_block((file, at)).max(1);
            }
        }
        blocks
    }

    /// Takes the longest block that starts here and occurs again; returns its length, zero if there is none.
    fn take_block(&mut self, here: Position) -> usize {
        let (file, at) = here;
        if self.covered[file][at] {
            return 0;
        }
        let Some(hash) = hash_of(&self.files[file].significant[at..at + SHORTEST]) else { return 0 };
        let others: Vec<Position> = self.windows[&hash].iter().copied().filter(|other| *other != here).collect();
        let others = &others[..others.len().min(CANDIDATES)];
        let length = others.iter().map(|other| self.common_length(here, *other)).max().unwrap_or(0);
        if length < SHORTEST {
            return 0;
        }
        let mut places = vec![here];
        for &other in others {
            let is_apart = places.iter().all(|place| place.0 != other.0 || place.1.abs_diff(other.1) >= length);
            if is_apart && self.common_length(here, other) >= length {
                places.push(other);
            }
        }
        for (file, at) in &places {
            self.covered[*file][*at..at + length].fill(true);
        }
        places.sort_unstable();
        self.found.push((places, length));
        length
    }

    /// How many lines two places share, without overlapping each other.
    fn common_length(&self, one: Position, other: Position) -> usize {
        let lines = |(file, at): Position| &self.files[file].significant[at..];
        let limit = if one.0 == other.0 { one.1.abs_diff(other.1) } else { usize::MAX };
        lines(one).iter().zip(lines(other)).take(limit).take_while(|(a, b)| a.hash == b.hash).count()
    }

    fn is_test(&self, (file, at): Position) -> bool {
        self.files[file].is_test || self.files[file].significant[at].is_test
    }

    fn observe(&self, places: &[Position], length: usize) -> (&'a str, Observation) {
        let shown: Vec<Place> = places
            .iter()
            .map(|(file, at)| {
                let lines = &self.files[*file].significant[*at..at + length];
                Place { file: self.files[*file].file.clone(), first: lines[0].line, last: lines[length - 1].line }
            })
            .collect();
        let (file, at) = places[0];
        let start: String =
            self.files[file].significant[at..at + SHORTEST].iter().map(|line| format!("{:016x}", line.hash)).collect();
        let severity = match length {
            _ if places.iter().all(|place| self.is_test(*place)) => Severity::Low,
            length if length >= 4 * SHORTEST => Severity::High,
            _ => Severity::Medium,
        };
        let observation = Observation {
            kind: Kind::RepeatedBlock,
            severity,
            line: shown[0].first,
            subject: String::new(),
            message: format!("{length} significant lines occur {} times", places.len()),
            size: length,
            snippet: start,
            places: shown,
        };
        (&self.files[file].file, observation)
    }
}

/// The hash of a window, if its lines vary enough.
fn hash_of(window: &[SignificantLine]) -> Option<u64> {
    let distinct: HashSet<u64> = window.iter().map(|line| line.hash).collect();
    let bytes: Vec<u8> = window.iter().flat_map(|line| line.hash.to_le_bytes()).collect();
    (distinct.len() >= VARIETY).then(|| xxh3_64(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::languages::Language;
    use crate::listing::SourceFile;
    use crate::measuring::measure;

    fn measured(path: &str, text: &str) -> Measurement {
        measure(&SourceFile { path: path.to_owned(), language: Language::Rust, bytes: text.len() as u64 }, text)
    }

    fn block(name: &str, lines: usize) -> String {
        (0..lines).map(|line| format!("    {name}.step_{line}();\n")).collect()
    }

    #[test]
    fn a_block_in_two_files_is_found_once_with_both_places() {
        let one = measured("a.rs", &format!("fn a() {{\n{}}}\n", block("x", 10)));
        let two = measured("b.rs", &format!("fn b() {{\n    let y = 1;\n    // why\n{}}}\n", block("x", 10)));
        let found = repeated_blocks(&[two, one]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].file.as_str(), found[0].size), ("a.rs", 10));
        let place = |file: &str, first, last| Place { file: file.to_owned(), first, last };
        assert_eq!(found[0].places, [place("a.rs", 2, 11), place("b.rs", 4, 13)]);
    }

    #[test]
    fn spacing_and_comments_do_not_hide_a_block() {
        let one = measured("a.rs", &block("x", 8));
        let two = measured("b.rs", &block("x", 8).replace("();", " ( ) ; // other\n\n"));
        assert_eq!(repeated_blocks(&[one, two]).len(), 1);
    }

    #[test]
    fn short_blocks_imports_headers_and_tables_do_not_count() {
        let short = [measured("a.rs", &block("x", 7)), measured("b.rs", &block("x", 7))];
        let imports: String = (0..20).map(|line| format!("use a::b{line};\n")).collect();
        let imports = [measured("c.rs", &imports), measured("d.rs", &imports)];
        let header = "#[cfg(any(\n a,\n b,\n c,\n d,\n e,\n))]\npub(crate) fn f(\n g: G,\n h: H,\n) -> I\nwhere J: K {\n l()\n}\n";
        let headers = [measured("f.rs", header), measured("g.rs", header)];
        let table = measured("e.rs", &"    entry(0),\n".repeat(200));
        assert!(repeated_blocks(&[&short[..], &imports[..], &headers[..], &[table]].concat()).is_empty());
    }

    #[test]
    fn a_longer_pair_and_a_shorter_third_place_are_distinguished() {
        let files = [("a.rs", 20), ("b.rs", 20), ("c.rs", 9)].map(|(path, lines)| measured(path, &block("x", lines)));
        let found = repeated_blocks(&files);
        let shapes: Vec<_> = found.iter().map(|finding| (finding.size, finding.places.len())).collect();
        assert_eq!(shapes, [(20, 2), (9, 3)]);
    }

    #[test]
    fn a_block_repeated_in_one_file_does_not_overlap_itself() {
        let found = repeated_blocks(&[measured("a.rs", &block("x", 8).repeat(3))]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].size, found[0].places.len()), (8, 3));
    }

    #[test]
    fn a_block_in_tests_alone_matters_little() {
        let severity = |first: &str| {
            let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", block("x", 8));
            repeated_blocks(&[measured(first, &block("x", 8)), measured("src/b.rs", &tests)])[0].severity
        };
        assert_eq!(severity("tests/a.rs"), Severity::Low);
        assert_eq!(severity("src/a.rs"), Severity::Medium);
    }

    #[test]
    fn the_fingerprint_stays_when_lines_are_inserted_above() {
        let two = measured("b.rs", &block("x", 8));
        let before = repeated_blocks(&[measured("a.rs", &block("x", 8)), two.clone()]);
        let after = repeated_blocks(&[measured("a.rs", &format!("fn new() {{}}\n{}", block("x", 8))), two]);
        assert_eq!(before[0].fingerprint, after[0].fingerprint);
        assert_ne!(before[0].line, after[0].line);
    }
}
