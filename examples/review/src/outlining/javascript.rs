//! The shape of a JavaScript or TypeScript file.

use std::collections::HashSet;

use super::brackets::Brackets;
use super::functions::Functions;
use super::shape::{Item, Outline};
use crate::lexing::Lexed;

/// How a function without a name is called in reports.
const ANONYMOUS: &str = "(anonymous)";

pub(super) fn outline(lexed: &Lexed<'_>) -> Outline {
    let brackets = Brackets::new(&lexed.tokens);
    let exported = exported_names(lexed, &brackets);
    let mut reader = Reader {
        lexed,
        brackets,
        functions: Functions::default(),
        items: Vec::new(),
        classes: Vec::new(),
        braces: Vec::new(),
    };
    let mut top_level_from = 0;
    for at in 0..lexed.tokens.len() {
        reader.functions.close_until(at);
        reader.classes.retain(|class| class.end > at);
        if lexed.is(at, "}") && reader.braces.last() == Some(&reader.brackets.partner(at)) {
            reader.braces.pop();
        }
        if at >= top_level_from {
            reader.read_item(at, &exported);
        }
        if lexed.is(at, "class") {
            reader.read_class(at);
        }
        if lexed.is(at, "{") {
            reader.read_brace(at);
            reader.braces.push(at);
            top_level_from = top_level_from.max(reader.brackets.after(at));
        }
    }
    Outline { functions: reader.functions.finish(), items: reader.items, ..Outline::default() }
}

struct Class {
    body: usize,
    end: usize,
    name: String,
}

struct Reader<'a> {
    lexed: &'a Lexed<'a>,
    brackets: Brackets,
    functions: Functions,
    items: Vec<Item>,
    classes: Vec<Class>,
    /// Braces that are open.
    braces: Vec<usize>,
}

/// What a brace opens.
enum Opened {
    Function { start: usize, name: Option<String> },
    Control,
}

impl Reader<'_> {
    fn read_class(&mut self, at: usize) {
        let is_property = at > 0 && self.lexed.is(at - 1, ".") || self.lexed.is(at + 1, ":");
        let body = self.class_body(at + 1);
        if let (false, Some(body)) = (is_property, body) {
            let name = self.lexed.word(at + 1).filter(|name| *name != "extends").unwrap_or_default().to_owned();
            self.classes.push(Class { body, end: self.brackets.after(body), name });
        }
    }

    fn read_brace(&mut self, at: usize) {
        let end = self.brackets.after(at);
        let line = self.lexed.tokens[at].line;
        match self.opened(at) {
            Some(Opened::Control) => self.functions.open_level(end, line),
            Some(Opened::Function { start, name: Some(name) }) => {
                let class = self.classes.last().filter(|class| !class.name.is_empty());
                let name = class.map_or(name.clone(), |class| format!("{}.{name}", class.name));
                self.functions.open_function(name, start..end, self.lexed.tokens[start].line);
            }
            Some(Opened::Function { start, name: None }) if !self.functions.is_inside() => {
                self.functions.open_function(ANONYMOUS.to_owned(), start..end, self.lexed.tokens[start].line);
            }
            Some(Opened::Function { .. }) => self.functions.open_level(end, line),
            None => {}
        }
    }

    fn opened(&self, brace: usize) -> Option<Opened> {
        let before = brace.checked_sub(1)?;
        let token = &self.lexed.tokens[before];
        if matches!(token.text, "else" | "do" | "try" | "finally" | "catch") && token.is_word() {
            return Some(Opened::Control);
        }
        if token.is(">") && before > 0 && self.lexed.is(before - 1, "=") {
            let start = self.brackets.before(before).unwrap_or(before);
            return Some(Opened::Function { start, name: self.assigned_name(before - 1) });
        }
        let parameters = if token.is(")") { self.brackets.partner(before) } else { self.typed_parameters(brace)? };
        self.opened_after_parentheses(parameters)
    }

    /// The opening parenthesis of a header with a return type, such as `name(a: A): Promise<B> {`.
    fn typed_parameters(&self, brace: usize) -> Option<usize> {
        let mut at = brace.checked_sub(1)?;
        for _ in 0..24 {
            let token = &self.lexed.tokens[at];
            if token.is(":") && at > 0 && self.lexed.is(at - 1, ")") {
                let open = self.brackets.partner(at - 1);
                let is_method = self.classes.last().map(|class| class.body) == self.braces.last().copied();
                let is_function = open > 0
                    && (self.lexed.is(open - 1, "function") || open > 1 && self.lexed.is(open - 2, "function"));
                return (is_method || is_function).then_some(open);
            }
            if token.is(";") || token.is("=") || token.is("{") || token.is("(") || token.is(",") {
                return None;
            }
            at = self.brackets.before(at)?;
        }
        None
    }

    fn opened_after_parentheses(&self, open: usize) -> Option<Opened> {
        let before = open.checked_sub(1)?;
        let word = self.lexed.word(before);
        let earlier = before.checked_sub(1);
        let is_function = |at: Option<usize>| {
            at.is_some_and(|at| {
                self.lexed.is(at, "function") || self.lexed.is(at, "*") && at > 0 && self.lexed.is(at - 1, "function")
            })
        };
        match word {
            Some("if" | "for" | "while" | "switch" | "catch" | "with" | "await") => Some(Opened::Control),
            Some("function") => Some(Opened::Function { start: before, name: self.assigned_name(before) }),
            Some(name) => {
                let start = if is_function(earlier) { earlier.unwrap_or(before) } else { before };
                Some(Opened::Function { start, name: Some(name.to_owned()) })
            }
            None if is_function(Some(before)) => {
                Some(Opened::Function { start: before, name: self.assigned_name(before) })
            }
            None if self.lexed.is(before, "]") => {
                let name = self.lexed.word(before - 1).map(|name| format!("[{name}]"));
                Some(Opened::Function { start: before, name })
            }
            None if self.lexed.tokens[before].is_literal() => Some(Opened::Function { start: before, name: None }),
            None => None,
        }
    }

    /// The name that a function expression is given: `a.b = (…) =>`, `const b: T = async (…) =>`, `b: function`.
    /// `at` is the arrow or the keyword.
    fn assigned_name(&self, at: usize) -> Option<String> {
        let mut back = self.brackets.before(at)?;
        for _ in 0..24 {
            let token = &self.lexed.tokens[back];
            if token.is("=") && !self.lexed.is(back + 1, ">") {
                return self.name_before(back);
            }
            if token.is(":") && self.lexed.is(at, "function") {
                return self.name_before(back);
            }
            if [";", ",", "{", "(", "[", "}", "?", "&", "|"].iter().any(|sign| token.is(sign)) || token.is("return") {
                return None;
            }
            back = self.brackets.before(back)?;
        }
        None
    }

    /// The name that ends before `at`; a type annotation in between is passed over.
    fn name_before(&self, at: usize) -> Option<String> {
        let last = at.checked_sub(1)?;
        let name = if last > 1 && self.lexed.is(last - 1, ":") { last - 2 } else { last };
        self.lexed.word(name).map(str::to_owned)
    }

    /// The brace that opens the body of a class.
    fn class_body(&self, header: usize) -> Option<usize> {
        let ends = |at: usize| [";", "=", ")", "}"].iter().any(|sign| self.lexed.is(at, sign));
        let mut ahead = self.brackets.siblings(header);
        ahead.find(|at| self.lexed.is(*at, "{") || ends(*at)).filter(|at| self.lexed.is(*at, "{"))
    }

    /// An exported function or class at the top level that starts at `at`.
    fn read_item(&mut self, at: usize, exported: &HashSet<&str>) {
        let lexed = self.lexed;
        let (mut next, is_export) = if lexed.is(at, "export") {
            (at + 1 + usize::from(lexed.is(at + 1, "default")), true)
        } else if let Some(value) = self.exported_value(at) {
            (value, true)
        } else {
            let starts_statement = at == 0
                || [";", "}", ")"].iter().any(|sign| lexed.is(at - 1, sign))
                || lexed.tokens[at - 1].line != lexed.tokens[at].line;
            (at, !starts_statement)
        };
        let is_explicit = next > at;
        if !is_explicit && is_export {
            return;
        }
        next += ["abstract", "async"].iter().filter(|modifier| lexed.is(next, modifier)).count();
        let (what, name) = match lexed.word(next) {
            Some("function") => ("function", lexed.word(next + 1 + usize::from(lexed.is(next + 1, "*")))),
            Some("class") => ("class", lexed.word(next + 1).filter(|name| *name != "extends")),
            _ => return,
        };
        if !is_explicit && !name.is_some_and(|name| exported.contains(name)) {
            return;
        }
        let is_documented = self.has_doc(at);
        let line = lexed.tokens[at].line;
        self.items.push(Item { what, name: name.unwrap_or("default").to_owned(), line, is_documented });
    }

    /// The value of `exports.name =`, `module.exports.name =` or `module.exports =`.
    fn exported_value(&self, at: usize) -> Option<usize> {
        let lexed = self.lexed;
        let after = if lexed.reads(at, &["module", ".", "exports"]) {
            at + 3
        } else if lexed.is(at, "exports") && (at == 0 || !lexed.is(at - 1, ".")) {
            at + 1
        } else {
            return None;
        };
        let after = if lexed.is(after, ".") { after + 2 } else { after };
        (lexed.is(after, "=") && !lexed.is(after + 1, "=")).then_some(after + 1)
    }

    /// Whether the last comment before the statement, or before its decorators, is a JSDoc block.
    fn has_doc(&self, at: usize) -> bool {
        let is_doc = |at: usize| self.lexed.comments_before(at).iter().any(|comment| comment.text.starts_with("/**"));
        let decorated = at.checked_sub(1).and_then(|last| self.brackets.before(last)).filter(|name| *name > 0);
        is_doc(at) || decorated.is_some_and(|name| self.lexed.is(name - 1, "@") && is_doc(name - 1))
    }
}

/// Names in `module.exports = name`, `module.exports = { a, b: c }` and `export { a, b as c }`.
fn exported_names<'a>(lexed: &Lexed<'a>, brackets: &Brackets) -> HashSet<&'a str> {
    let mut names = HashSet::new();
    for at in 0..lexed.tokens.len() {
        let value = if lexed.reads(at, &["module", ".", "exports", "="]) {
            at + 4
        } else if lexed.reads(at, &["export", "{"]) {
            at + 1
        } else {
            continue;
        };
        let end = brackets.after(value).min(lexed.tokens.len());
        names.extend(lexed.tokens[value..end].iter().filter(|token| token.is_word()).map(|token| token.text));
    }
    names
}
