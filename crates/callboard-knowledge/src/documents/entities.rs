//! Names in texts: identifiers, options, files and headings. Pure.

use super::document::{EntityKind, MAX_TITLE, Mention, Relation};
use crate::words;

/// The longest name in bytes; a longer one is no entity.
const MAX_NAME: usize = 100;

/// Separators between the parts of a qualified name.
const SEPARATORS: [&str; 2] = ["::", "."];

/// Endings of names without folders by which they are names of files.
const FILE_ENDINGS: [&str; 25] = [
    "c", "cpp", "css", "csv", "go", "h", "hpp", "html", "ini", "java", "js", "json", "jsonl", "jsx", "md", "py", "rs",
    "sh", "sql", "toml", "ts", "tsx", "txt", "xml", "yaml",
];

/// The identifiers among the words of a text.
pub(super) fn of_words(text: &str) -> impl Iterator<Item = Mention> {
    // Most words are plain, and that is seen from their bytes.
    text.split_ascii_whitespace()
        .filter(|part| may_have_identifier(part))
        .flat_map(words::words)
        .filter(|word| words::is_identifier(word) && word.len() <= MAX_NAME)
        .map(|word| mention(EntityKind::Identifier, word, Relation::Mentions))
}

fn may_have_identifier(part: &str) -> bool {
    let bytes = part.as_bytes();
    let changes_case = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    bytes.contains(&b'_') || bytes.windows(2).any(changes_case) || !part.is_ascii()
}

/// The entity that a code span names, if it names one, and the parts of a qualified name: a span that has more than a name, such as a
/// command line, names none.
pub(super) fn of_code(code: &str) -> Vec<Mention> {
    Name::of(code).map_or_else(Vec::new, |name| name.mentions(Relation::Mentions))
}

/// The entities that code spans of a text name, where each is between two backticks in one line.
pub(super) fn of_spans(text: &str) -> impl Iterator<Item = Mention> {
    let spans = text.lines().flat_map(|line| {
        // The last part has no backtick after it.
        let spans = line.matches('`').count() / 2;
        line.split('`').skip(1).step_by(2).take(spans)
    });
    spans.filter(|code| code.len() <= 2 * MAX_NAME).flat_map(of_code)
}

/// The entities that a heading defines: its text, and the identifier if it is one.
pub(super) fn of_heading(title: &str, is_code: bool) -> Vec<Mention> {
    let mut entities = Vec::new();
    if title.chars().any(char::is_alphanumeric) {
        entities.push(mention(EntityKind::Heading, title, Relation::Defines));
    }
    if let Some(name) = Name::of(title)
        && (is_code || title.ends_with(')') || name.text.contains("::") || words::is_identifier(name.text))
    {
        entities.extend(name.mentions(Relation::Defines));
    }
    entities
}

/// An identifier that a passage defines.
pub(super) fn defined(identifier: &str) -> Option<Mention> {
    (identifier.len() <= MAX_NAME).then(|| mention(EntityKind::Identifier, identifier, Relation::Defines))
}

/// Cuts a text to one line of at most [`MAX_TITLE`] characters.
pub(super) fn title(text: &str) -> String {
    let mut title = String::new();
    let mut chars = 0;
    for word in text.split_whitespace() {
        if !title.is_empty() {
            title.push(' ');
            chars += 1;
        }
        for c in word.chars() {
            if chars + 1 >= MAX_TITLE {
                title.truncate(title.trim_end().len());
                title.push('…');
                return title;
            }
            title.push(c);
            chars += 1;
        }
    }
    title
}

fn mention(kind: EntityKind, entity: &str, relation: Relation) -> Mention {
    Mention { kind, entity: entity.to_owned(), relation }
}

/// A name that a code span consists of.
struct Name<'c> {
    /// The name without references before it and without arguments after it.
    text: &'c str,
    has_arguments: bool,
}

impl<'c> Name<'c> {
    fn of(code: &'c str) -> Option<Self> {
        let code = code.trim().trim_start_matches(['&', '*', '@', '$']);
        let ends = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':' | '.' | '-' | '/'));
        let (name, rest) = code.split_at(code.find(ends).unwrap_or(code.len()));
        let text = name.trim_end_matches([':', '.', '-', '/']).trim_start_matches([':', '.', '/']);
        let is_name = (1..=MAX_NAME).contains(&text.len())
            && text.chars().any(char::is_alphabetic)
            && (rest.is_empty() || rest.starts_with(['(', '<', '[', '{', '!', '?']));
        is_name.then_some(Self { text, has_arguments: !rest.is_empty() })
    }

    fn is_file(&self) -> bool {
        let ending = self.text.rsplit_once('.').map_or("", |(_, ending)| ending);
        !self.has_arguments && !self.text.contains("::") && (self.text.contains('/') || FILE_ENDINGS.contains(&ending))
    }

    /// The name and the parts of a qualified name, of which the last one has the relation of the whole.
    fn mentions(&self, relation: Relation) -> Vec<Mention> {
        if self.is_file() {
            return vec![mention(EntityKind::File, self.text, relation)];
        }
        let mut entities = vec![mention(EntityKind::Identifier, self.text, relation)];
        if let Some(separator) = SEPARATORS.into_iter().find(|&separator| self.text.contains(separator)) {
            let last = self.text.rsplit(separator).next();
            let parts = self.text.split(separator).filter(|part| part.chars().any(char::is_alphabetic));
            entities.extend(parts.map(|part| {
                let relation = if Some(part) == last { relation } else { Relation::Mentions };
                mention(EntityKind::Identifier, part, relation)
            }));
        }
        entities
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(mentions: &[Mention]) -> Vec<&str> {
        mentions.iter().map(|mention| mention.entity.as_str()).collect()
    }

    #[test]
    fn a_code_span_that_is_a_name_is_an_entity_without_its_arguments() {
        for (code, expected) in [
            ("submit", &["submit"][..]),
            ("&mut", &["mut"]),
            ("Vec<String>", &["Vec"]),
            ("vec![1, 2]", &["vec"]),
            ("Board::submit(task)", &["Board::submit", "Board", "submit"]),
            ("os.path.join", &["os.path.join", "os", "path", "join"]),
            ("--dry-run", &["--dry-run"]),
            ("::std", &["std"]),
            ("response.json()", &["response.json", "response", "json"]),
        ] {
            assert_eq!(names(&of_code(code)), expected, "{code}");
        }
    }

    #[test]
    fn a_code_span_of_several_words_or_without_letters_is_no_entity() {
        for code in ["git commit -m", "a = b", "1.5", "::", "", "{}", &"x".repeat(101)] {
            assert_eq!(of_code(code), [], "{code}");
        }
    }

    #[test]
    fn identifiers_are_found_among_the_words_of_a_text() {
        let mentions: Vec<_> = of_words("Open the gate_key, openGate() of Größe or größeÄndern.").collect();
        assert_eq!(names(&mentions), ["gate_key", "openGate", "größeÄndern"]);
    }

    #[test]
    fn code_spans_of_a_text_are_between_two_backticks_of_a_line() {
        let mentions: Vec<_> = of_spans("`one` two `three`\nfour ` five\n` `six").collect();
        assert_eq!(names(&mentions), ["one", "three"]);
    }

    #[test]
    fn names_of_files_are_files() {
        for code in ["Cargo.toml", "src/main.rs", "docs/a/b"] {
            assert_eq!(of_code(code), [mention(EntityKind::File, code, Relation::Mentions)], "{code}");
        }
    }

    #[test]
    fn a_heading_that_is_an_identifier_defines_it() {
        assert_eq!(names(&of_heading("Retries", false)), ["Retries"]);
        assert_eq!(names(&of_heading("Retries", true)), ["Retries", "Retries"]);
        assert_eq!(names(&of_heading("read_facts", false)), ["read_facts", "read_facts"]);
        let qualified = of_heading("Board::submit", false);
        assert_eq!(names(&qualified), ["Board::submit", "Board::submit", "Board", "submit"]);
        let relations: Vec<_> = qualified.iter().map(|mention| mention.relation).collect();
        assert_eq!(relations, [Relation::Defines, Relation::Defines, Relation::Mentions, Relation::Defines]);
    }

    #[test]
    fn a_title_is_one_line_and_bounded() {
        assert_eq!(title("  one\n two\t"), "one two");
        assert_eq!(title(&"é".repeat(MAX_TITLE + 1)).chars().count(), MAX_TITLE);
        assert!(title(&"é ".repeat(1_000)).ends_with("é…"));
    }
}
