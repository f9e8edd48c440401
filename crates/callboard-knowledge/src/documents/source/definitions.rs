//! Which name a line of a source file defines, by its first words. Pure.
//!
//! No language is parsed: lines of comments and strings may look like definitions, and what no pattern covers is found as a mention only.

use super::super::formats::Language;

/// The longest name in bytes.
const MAX_NAME: usize = 100;

/// The most words before a name.
const MAX_WORDS: usize = 8;

/// What a line defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Definition<'l> {
    pub(super) name: &'l str,
    pub(super) kind: Kind,
    /// The type that a method is of, where its line names it.
    pub(super) of: Option<&'l str>,
}

/// Kinds of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A function or a type without members that are found.
    Item,
    /// A type whose members follow, indented.
    Container,
    /// A block of members of a type that is defined elsewhere.
    Extension,
    /// A constant, variable or alias, which counts where it is not within a function.
    Value,
}

/// What a line defines. `container` is the type within which it is, if any.
pub(super) fn definition<'l>(line: &'l str, language: Language, container: Option<&str>) -> Option<Definition<'l>> {
    let is_indented = line.starts_with([' ', '\t']);
    let line = line.trim();
    let found = by_keyword(line, language).or_else(|| match language {
        Language::Rust | Language::Go => None,
        Language::Python => constant(line),
        Language::Script => container.and_then(|_| method(line)),
        Language::Java => java_method(line),
        Language::C => {
            if is_indented {
                None
            } else {
                c_definition(line)
            }
        }
    })?;
    let counts = match found.kind {
        Kind::Value => !is_indented || container.is_some(),
        Kind::Item | Kind::Container | Kind::Extension => true,
    };
    (counts && found.name.len() <= MAX_NAME).then_some(found)
}

enum Word {
    /// What may be before a keyword.
    Modifier,
    Defines(Kind),
}

fn word_of(word: &str, language: Language) -> Option<Word> {
    use Kind::{Container, Extension, Item, Value};
    use Word::{Defines, Modifier};
    Some(match language {
        Language::Rust => match word {
            "pub" | "async" | "unsafe" | "extern" | "default" => Modifier,
            "fn" | "struct" | "enum" | "union" | "macro_rules" => Defines(Item),
            "trait" => Defines(Container),
            "impl" => Defines(Extension),
            "const" | "static" | "type" | "mod" => Defines(Value),
            _ => return None,
        },
        Language::Python => match word {
            "async" => Modifier,
            "def" => Defines(Item),
            "class" => Defines(Container),
            _ => return None,
        },
        Language::Script => match word {
            "export" | "default" | "async" | "abstract" | "declare" => Modifier,
            "function" => Defines(Item),
            "class" | "interface" | "enum" | "namespace" => Defines(Container),
            "const" | "let" | "var" | "type" => Defines(Value),
            _ => return None,
        },
        Language::Go => match word {
            "func" => Defines(Item),
            "type" | "const" | "var" => Defines(Value),
            _ => return None,
        },
        Language::Java => match word {
            "public" | "private" | "protected" | "static" | "final" | "abstract" | "sealed" | "strictfp" => Modifier,
            "class" | "interface" | "enum" | "record" => Defines(Container),
            _ => return None,
        },
        Language::C => match word {
            "typedef" | "static" | "extern" | "const" | "inline" => Modifier,
            "struct" | "union" | "enum" | "class" | "namespace" => Defines(Container),
            _ => return None,
        },
    })
}

fn by_keyword(line: &str, language: Language) -> Option<Definition<'_>> {
    let mut rest = line;
    for _ in 0..MAX_WORDS {
        let (word, after) = word(rest)?;
        let next = after.trim_start();
        match word_of(word, language)? {
            Word::Modifier => rest = without_argument(next),
            Word::Defines(Kind::Extension) => return extended(next),
            Word::Defines(kind) => {
                // `const fn`, `const enum` and `enum class`: the last keyword decides.
                if let Some((again, _)) = self::word(next)
                    && (matches!(word_of(again, language), Some(Word::Defines(_)))
                        || ["unsafe", "async", "extern"].contains(&again))
                    && matches!(word, "const" | "enum")
                {
                    rest = next;
                    continue;
                }
                return named(word, next, kind, language);
            }
        }
    }
    None
}

fn named<'l>(keyword: &str, rest: &'l str, kind: Kind, language: Language) -> Option<Definition<'l>> {
    let (of, rest) = match language {
        Language::Go if keyword == "func" && rest.starts_with('(') => {
            let (receiver, rest) = rest[1..].split_once(')')?;
            let of = receiver.split(['[', ' ']).filter(|part| !part.is_empty()).nth(1).or(Some(receiver));
            (of.map(|of| of.trim_start_matches('*')), rest.trim_start())
        }
        Language::C if keyword != "namespace" => {
            // Elsewhere a type is written with its keyword too.
            let (_, after) = word(rest)?;
            let after = after.trim_start();
            if !(after.is_empty() || after.starts_with(['{', ':'])) {
                return None;
            }
            (None, rest)
        }
        Language::Rust | Language::Python | Language::Script | Language::Go | Language::Java | Language::C => {
            (None, rest.trim_start_matches(['!', '*', ' ']))
        }
    };
    let (name, after) = word(rest)?;
    let is_name =
        !matches!(name, "_" | "mut") && name.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '$'));
    (is_name && continues(keyword, language, after.trim_start())).then_some(Definition { name, kind, of })
}

/// Whether what follows a name fits its keyword: in comments and strings of several lines, lines may begin with a keyword as a word.
fn continues(keyword: &str, language: Language, after: &str) -> bool {
    match language {
        Language::Rust if keyword == "fn" => after.starts_with(['(', '<']),
        Language::Python => after.starts_with(['(', ':', '[']),
        Language::Script if keyword == "function" => after.starts_with(['(', '<']),
        Language::Go if keyword == "func" => after.starts_with(['(', '[']),
        Language::Java | Language::Script => {
            !after.starts_with(|c: char| is_of_name(c))
                || ["extends", "implements", "permits"].iter().any(|word| after.starts_with(word))
        }
        Language::Rust | Language::Go | Language::C => true,
    }
}

/// The type that `impl … for Type` extends.
fn extended(rest: &str) -> Option<Definition<'_>> {
    let mut depth = 0_usize;
    let generics = rest.char_indices().find(|&(_, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    let rest = match generics {
        Some((end, '>')) => &rest[end + 1..],
        _ => rest,
    };
    let of = rest.split_once(" for ").map_or(rest, |(_, of)| of);
    let of = of.trim_start_matches(['&', ' ']).trim_start_matches("dyn ");
    let path = of.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':'))).next()?;
    let name = path.trim_end_matches(':').rsplit("::").next().filter(|name| !name.is_empty())?;
    Some(Definition { name, kind: Kind::Extension, of: None })
}

/// `NAME = …`, where only names in upper case are constants.
fn constant(line: &str) -> Option<Definition<'_>> {
    let (name, after) = word(line)?;
    let after = after.trim_start();
    let is_constant = name.contains(char::is_uppercase) && !name.contains(char::is_lowercase);
    let is_set = (after.starts_with('=') && !after.starts_with("==")) || after.starts_with(':');
    (is_constant && is_set).then_some(Definition { name, kind: Kind::Value, of: None })
}

const CONTROL: [&str; 12] =
    ["if", "for", "while", "switch", "return", "else", "do", "case", "catch", "new", "throw", "synchronized"];

/// `name(…) {` in a class.
fn method(line: &str) -> Option<Definition<'_>> {
    let (mut name, mut after) = word(line)?;
    while matches!(name, "async" | "static" | "get" | "set" | "public" | "private" | "protected" | "readonly")
        && !after.starts_with('(')
    {
        (name, after) = word(after.trim_start())?;
    }
    let is_method = line.ends_with('{') && after.starts_with(['(', '<']) && !CONTROL.contains(&name);
    is_method.then_some(Definition { name, kind: Kind::Item, of: None })
}

fn java_method(line: &str) -> Option<Definition<'_>> {
    let (first, _) = word(line)?;
    if !matches!(word_of(first, Language::Java), Some(Word::Modifier)) {
        return None;
    }
    before_parenthesis(line).map(|name| Definition { name, kind: Kind::Item, of: None })
}

fn c_definition(line: &str) -> Option<Definition<'_>> {
    let item = |name| Some(Definition { name, kind: Kind::Item, of: None });
    if let Some(directive) = line.strip_prefix('#') {
        let (name, _) = word(directive.trim_start().strip_prefix("define")?.trim_start())?;
        return item(name);
    }
    if let Some(rest) = line.strip_prefix("typedef ").or_else(|| line.strip_prefix('}'))
        && let Some(rest) = rest.strip_suffix(';')
        && !rest.contains('(')
    {
        return last_word(rest).and_then(item);
    }
    let (first, _) = word(line)?;
    let is_function = line.ends_with(['{', ',', ')']) && !CONTROL.contains(&first);
    if is_function { before_parenthesis(line).and_then(item) } else { None }
}

/// The name before the first parenthesis of a line that assigns nothing before it.
fn before_parenthesis(line: &str) -> Option<&str> {
    let (before, _) = line.split_once('(')?;
    if before.contains(['=', '"', '.']) { None } else { last_word(before).filter(|name| !CONTROL.contains(name)) }
}

fn last_word(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let start = text.char_indices().rev().take_while(|&(_, c)| is_of_name(c)).last()?.0;
    Some(&text[start..])
}

/// The word at the beginning of a text, and what follows it.
fn word(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

/// The text without `(crate)` after `pub`, and without the ABI after `extern`.
fn without_argument(text: &str) -> &str {
    let (open, close) = match text.chars().next() {
        Some('(') => ('(', ')'),
        Some('"') => ('"', '"'),
        _ => return text,
    };
    text[1..].split_once(close).map_or(text.trim_start_matches(open), |(_, rest)| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str, language: Language) -> Option<&str> {
        definition(line, language, Some("Within")).map(|definition| definition.name)
    }

    #[test]
    fn the_names_that_lines_define_are_found() {
        for (language, lines) in [
            (
                Language::Rust,
                &[
                    ("pub(crate) async fn read_it<T>(", "read_it"),
                    ("    const fn limit() -> u32 {", "limit"),
                    ("pub const unsafe fn raw()", "raw"),
                    ("pub unsafe extern \"C\" fn call()", "call"),
                    ("struct Gate;", "Gate"),
                    ("pub enum Kind {", "Kind"),
                    ("macro_rules! many {", "many"),
                    ("pub static LIMIT: u32 = 1;", "LIMIT"),
                    ("impl<T: Into<String>> fmt::Display for crate::a::Gate<T> {", "Gate"),
                    ("impl Gate {", "Gate"),
                    ("unsafe impl Send for Gate {}", "Gate"),
                ][..],
            ),
            (
                Language::Python,
                &[("async def read_it(a):", "read_it"), ("class Gate(Base):", "Gate"), ("LIMIT: int = 3", "LIMIT")],
            ),
            (
                Language::Script,
                &[
                    ("export default async function readIt(a) {", "readIt"),
                    ("export function* all() {", "all"),
                    ("export const limit = 3;", "limit"),
                    ("export abstract class Gate extends Base {", "Gate"),
                    ("  static async open(key) {", "open"),
                    ("export const enum Kind {", "Kind"),
                    ("type Key = string;", "Key"),
                ],
            ),
            (
                Language::Go,
                &[
                    ("func ReadIt(a int) error {", "ReadIt"),
                    ("func (g *Gate) Open() {", "Open"),
                    ("type Gate struct {", "Gate"),
                ],
            ),
            (
                Language::Java,
                &[
                    ("public final class Gate {", "Gate"),
                    ("    public static void open(Key key) {", "open"),
                    ("record Key(int number) {}", "Key"),
                ],
            ),
            (
                Language::C,
                &[
                    ("#define LIMIT 3", "LIMIT"),
                    ("# define MAX(a, b)", "MAX"),
                    ("static int read_it(struct gate *g)", "read_it"),
                    ("struct gate {", "gate"),
                    ("typedef unsigned long key_t;", "key_t"),
                    ("} gate_t;", "gate_t"),
                    ("enum class Kind : int {", "Kind"),
                    ("main (int argc,", "main"),
                ],
            ),
        ] {
            for (line, expected) in lines {
                assert_eq!(name(line, language), Some(*expected), "{line}");
            }
        }
    }

    #[test]
    fn lines_that_use_names_define_none() {
        for (language, lines) in [
            (
                Language::Rust,
                &[
                    "let gate = open();",
                    "/// fn in words",
                    "// struct of",
                    "use a::fn_name;",
                    "fn",
                    "impl",
                    "pub(",
                    "const _: () =",
                ][..],
            ),
            (
                Language::Python,
                &["class of things", "def of", "limit = 3", "LIMIT == 3", "return x", "define()", "'def x'"],
            ),
            (
                Language::Script,
                &["class of things", "function of x", "if (a) {", "return open(", "switch (a) {", "open();"],
            ),
            (Language::Go, &["return func() {", "var (", "func ("]),
            (Language::Java, &["return open();", "private int a = open();", "if (a) {", "open();"]),
            (Language::C, &["#include <a.h>", "struct gate *make(void);", "if (a) {", "x = call(a)", "int a;", "}"]),
        ] {
            for line in lines {
                assert_eq!(name(line, language), None, "{line}");
            }
        }
    }

    #[test]
    fn values_within_functions_are_no_definitions() {
        assert_eq!(definition("    const LIMIT: u32 = 3;", Language::Rust, None), None);
        assert!(definition("    const LIMIT: u32 = 3;", Language::Rust, Some("Gate")).is_some());
        assert!(definition("const LIMIT: u32 = 3;", Language::Rust, None).is_some());
    }

    #[test]
    fn a_method_in_go_names_its_type() {
        let of = |line| definition(line, Language::Go, None).and_then(|definition| definition.of);
        assert_eq!(of("func (g *Gate) Open() {"), Some("Gate"));
        assert_eq!(of("func (Gate) Open() {"), Some("Gate"));
        assert_eq!(of("func (g *Gate[K]) Open() {"), Some("Gate"));
        assert_eq!(of("func Open() {"), None);
    }
}
