//! The shape of a Rust file.

use std::collections::HashSet;
use std::ops::Range;

use super::brackets::Brackets;
use super::functions::Functions;
use super::shape::{Item, Module, Outline};
use crate::lexing::Lexed;

pub(super) fn outline(path: &str, lexed: &Lexed<'_>) -> Outline {
    let brackets = Brackets::new(&lexed.tokens);
    let is_program = path.ends_with("main.rs") || path.split('/').any(|folder| folder == "bin");
    let mut reader = Reader {
        lexed,
        brackets,
        functions: Functions::default(),
        out: Outline::default(),
        rooms: Vec::new(),
        bodies: HashSet::new(),
        is_program,
    };
    for at in 0..lexed.tokens.len() {
        reader.read(at);
    }
    Outline { functions: reader.functions.finish(), ..reader.out }
}

/// A region with a name, or one whose items nobody outside can reach.
struct Room {
    end: usize,
    /// Prefix of the names inside; empty for modules.
    name: String,
    is_private: bool,
}

/// What stands before an item's keyword.
struct Prefix {
    start: usize,
    is_public: bool,
    is_documented: bool,
}

struct Reader<'a> {
    lexed: &'a Lexed<'a>,
    brackets: Brackets,
    functions: Functions,
    out: Outline,
    rooms: Vec<Room>,
    /// Braces ahead that open the block of a control structure.
    bodies: HashSet<usize>,
    is_program: bool,
}

impl Reader<'_> {
    fn read(&mut self, at: usize) {
        self.functions.close_until(at);
        self.rooms.retain(|room| room.end > at);
        let token = &self.lexed.tokens[at];
        if token.is("#") && self.lexed.reads(at + 1, &["!", "["]) && self.is_test_attribute(at + 2) {
            let end = self.rooms.last().map_or(self.lexed.tokens.len(), |room| room.end);
            self.out.tests.push(at..end);
        }
        if token.is("#") && self.lexed.is(at + 1, "[") && self.is_test_attribute(at + 1) {
            self.out.tests.push(at..self.annotated_end(self.brackets.after(at + 1)));
        }
        if token.is("{") && (self.bodies.remove(&at) || at > 0 && self.lexed.is(at - 1, "|")) {
            self.functions.open_level(self.brackets.after(at), token.line);
        }
        if !token.is_word() {
            return;
        }
        match token.text {
            "fn" => self.read_function(at),
            "struct" => self.read_item(at, "struct"),
            "enum" => self.read_item(at, "enum"),
            "trait" => self.read_item(at, "trait"),
            "mod" => self.read_item(at, "mod"),
            "impl" => self.read_impl(at),
            "use" if self.prefix(at).is_public => self.note_reexport(at),
            "if" | "while" | "for" | "match" | "loop" | "else" | "async" | "select" => self.read_control(at),
            _ => {}
        }
    }

    fn read_function(&mut self, at: usize) {
        let Some(name) = self.lexed.word(at + 1) else { return };
        self.note_item(at, "fn", name);
        let Some(body) = self.body_after(at + 2) else { return };
        let name = self.qualified(name);
        let line = self.lexed.tokens[at].line;
        self.functions.open_function(name, at..self.brackets.after(body), line);
    }

    fn read_item(&mut self, at: usize, what: &'static str) {
        let Some(name) = self.lexed.word(at + 1) else { return };
        if !self.is_item_start(self.prefix(at).start) {
            return;
        }
        self.note_item(at, what, name);
        let Some(body) = self.body_after(at + 2) else { return };
        let is_private = what == "mod" && !self.prefix(at).is_public;
        let name = if what == "mod" { String::new() } else { name.to_owned() };
        self.rooms.push(Room { end: self.brackets.after(body), name, is_private });
    }

    fn read_impl(&mut self, at: usize) {
        if !self.is_item_start(self.prefix(at).start) {
            return;
        }
        let Some(body) = self.body_after(at + 1) else { return };
        let name = self.implemented_type(at + 1..body);
        self.rooms.push(Room { end: self.brackets.after(body), name, is_private: false });
    }

    /// `impl<T> Trait<T> for path::Type<T> where …` is about `Type`.
    fn implemented_type(&self, header: Range<usize>) -> String {
        let mut name = "";
        let (mut angles, mut in_where) = (0_usize, false);
        for at in header {
            let token = &self.lexed.tokens[at];
            match token.text {
                "<" => angles += 1,
                ">" if !self.lexed.is(at - 1, "-") => angles = angles.saturating_sub(1),
                "where" => in_where = true,
                "for" if angles == 0 => name = "",
                _ if token.is_word() && angles == 0 && !in_where && !token.text.starts_with('\'') => name = token.text,
                _ => {}
            }
        }
        name.to_owned()
    }

    fn read_control(&mut self, at: usize) {
        let lexed = self.lexed;
        let body = match lexed.tokens[at].text {
            "loop" | "else" => lexed.is(at + 1, "{").then_some(at + 1),
            "async" if lexed.is(at + 1, "{") => Some(at + 1),
            "async" => lexed.reads(at + 1, &["move", "{"]).then_some(at + 2),
            "select" => lexed.reads(at + 1, &["!", "{"]).then_some(at + 2),
            "for" if lexed.is(at + 1, "<") || self.is_impl_header(at) => None,
            _ => self.block_after(at),
        };
        self.bodies.extend(body);
    }

    /// The block of a control structure: the first brace that does not belong to a pattern.
    fn block_after(&self, keyword: usize) -> Option<usize> {
        let is_for = self.lexed.is(keyword, "for");
        let mut in_pattern = is_for;
        for at in self.brackets.siblings(keyword + 1) {
            let token = &self.lexed.tokens[at];
            if token.is("let") {
                in_pattern = true;
            } else if token.is("in") || token.is("=") && !is_for && !self.lexed.is(at - 1, ".") {
                in_pattern = false;
            } else if token.is("{") && !in_pattern {
                return Some(at);
            } else if self.ends_statement(at) {
                return None;
            }
            if self.lexed.reads(at, &["=", ">"]) {
                return None;
            }
        }
        None
    }

    /// The brace that opens the body of an item, or `None` when a semicolon ends it first.
    fn body_after(&self, start: usize) -> Option<usize> {
        let mut ahead = self.brackets.siblings(start);
        ahead.find(|at| self.lexed.is(*at, "{") || self.ends_statement(*at)).filter(|at| self.lexed.is(*at, "{"))
    }

    /// Whether a statement ends here: with a semicolon or with the group that it is in.
    fn ends_statement(&self, at: usize) -> bool {
        [";", ")", "]", "}"].iter().any(|sign| self.lexed.is(at, sign))
    }

    /// `for` between a trait and a type instead of a loop: no loop starts after a word or `>`.
    fn is_impl_header(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| &self.lexed.tokens[before]);
        before.is_some_and(|token| token.is(">") && !self.lexed.is(at.saturating_sub(2), "=") || token.is_word())
    }

    fn is_item_start(&self, start: usize) -> bool {
        start == 0 || ["}", ";", "{", "]", ")"].iter().any(|sign| self.lexed.is(start - 1, sign))
    }

    /// Reads visibility, modifiers and attributes backwards from an item's keyword.
    fn prefix(&self, keyword: usize) -> Prefix {
        let mut prefix = Prefix { start: keyword, is_public: false, is_documented: false };
        while let Some(last) = prefix.start.checked_sub(1) {
            let token = &self.lexed.tokens[last];
            let first = self.brackets.partner(last);
            if matches!(token.text, "const" | "async" | "unsafe" | "extern" | "default" | "auto") || token.is_literal()
            {
                prefix.start = last;
            } else if token.is("pub") {
                prefix.is_public = true;
                prefix.start = last;
            } else if token.is(")") && first > 0 && self.lexed.is(first - 1, "pub") {
                prefix.start = first - 1;
            } else if token.is("]") && first > 0 && self.lexed.is(first - 1, "#") {
                prefix.is_documented |= self.lexed.is(first + 1, "doc");
                prefix.start = first - 1;
            } else {
                break;
            }
        }
        let documents = |text: &str| {
            (text.starts_with("///") && !text.starts_with("////"))
                || (text.starts_with("/**") && !text.starts_with("/***") && text != "/**/")
        };
        let mut comments = (prefix.start..=keyword).flat_map(|at| self.lexed.comments_before(at));
        prefix.is_documented |= comments.any(|comment| documents(comment.text));
        prefix
    }

    /// Whether the attribute in the brackets at `open` marks code for tests or for documentation alone: `test`,
    /// `tokio::test`, `cfg(all(test, …))`, `cfg(doc)`.
    fn is_test_attribute(&self, open: usize) -> bool {
        let tokens = &self.lexed.tokens[open..self.brackets.partner(open).min(self.lexed.tokens.len())];
        let has = |word: &str| tokens.iter().any(|token| token.is(word));
        let path_end = tokens.iter().position(|token| token.is("(")).unwrap_or(tokens.len());
        let is_cfg = tokens.get(1).is_some_and(|token| token.is("cfg"));
        let names_test = |word: &str| matches!(word, "test" | "bench" | "rstest" | "test_case");
        let is_test = tokens[..path_end].last().is_some_and(|token| token.is_word() && names_test(token.text));
        is_test || (is_cfg && (has("test") || has("doc")) && !has("not") && !has("any"))
    }

    /// One past the item, statement, field or arm that follows an attribute.
    fn annotated_end(&self, start: usize) -> usize {
        let mut is_item = false;
        for at in self.brackets.siblings(start) {
            let token = &self.lexed.tokens[at];
            is_item |= matches!(token.text, "fn" | "impl" | "struct" | "enum" | "trait" | "type");
            if token.is("{") {
                return self.brackets.after(at);
            }
            if self.ends_statement(at) || token.is(",") && !is_item {
                return at + 1;
            }
        }
        start
    }

    /// Every word of `pub use a::{B, c::*};`, and `c::*`.
    fn note_reexport(&mut self, keyword: usize) {
        let end = self.brackets.siblings(keyword).find(|at| self.ends_statement(*at)).unwrap_or(keyword);
        for at in keyword + 1..end {
            let name = if self.lexed.is(at, "*") { self.lexed.word(at.saturating_sub(3)) } else { self.lexed.word(at) };
            let ending = if self.lexed.is(at, "*") { "::*" } else { "" };
            self.out.reexports.extend(name.map(|name| format!("{name}{ending}")));
        }
    }

    fn note_item(&mut self, at: usize, what: &'static str, name: &str) {
        let prefix = self.prefix(at);
        let is_test = self.out.tests.iter().any(|test| test.contains(&at));
        if what == "mod" && self.lexed.is(at + 2, ";") {
            self.out.modules.push(Module { name: name.to_owned(), is_public: prefix.is_public, is_test });
        }
        let is_reachable = prefix.is_public && !self.is_program && !self.functions.is_inside();
        if is_reachable && what != "mod" && !is_test && !self.rooms.iter().any(|room| room.is_private) {
            let line = self.lexed.tokens[at].line;
            let name = self.qualified(name);
            self.out.items.push(Item { what, name, line, is_documented: prefix.is_documented });
        }
    }

    fn qualified(&self, name: &str) -> String {
        match self.rooms.iter().rev().find(|room| !room.name.is_empty()) {
            Some(room) => format!("{}::{name}", room.name),
            None => name.to_owned(),
        }
    }
}
