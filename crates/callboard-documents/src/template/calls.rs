//! Checks the calls in a template: filters, tests, functions and methods. minijinja looks them up when it renders, perhaps hours
//! into a run; here an unknown one is an error of the document.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use callboard_text::{did_you_mean, nearest, quoted};
use minijinja::{Expression, context};

use super::environment::ENVIRONMENT;
use super::fault::Fault;
use super::names::{is_name, is_word};

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Filter,
    Test,
    Function,
    Method,
    /// A repeated list: one repetition is cheap, but nested repetitions grow without limit.
    Repetition,
}

/// The names of the language, for suggestions about misspelt ones.
pub(super) const FILTERS: &str = "abs attr batch bool capitalize chain count default dictsort first float format groupby indent int items join \
                       last length lines list lower map max min pprint reject rejectattr replace reverse round select \
                       selectattr slice sort split string sum title tojson trim unique upper zip";
pub(super) const TESTS: &str = "boolean defined divisibleby endingwith even false float in integer iterable lower mapping none number \
                     odd sequence startingwith string true undefined upper";
pub(super) const FUNCTIONS: &str = "range dict namespace debug";

static IS_FILTER: LazyLock<Option<Expression<'static, 'static>>> =
    LazyLock::new(|| ENVIRONMENT.compile_expression("name is filter").ok());
static IS_TEST: LazyLock<Option<Expression<'static, 'static>>> =
    LazyLock::new(|| ENVIRONMENT.compile_expression("name is test").ok());

impl Kind {
    fn has(self, name: &str) -> bool {
        let holds = |asked: &Option<Expression<'_, '_>>| {
            // Calls that cannot be checked here are checked when they are rendered.
            asked.as_ref().is_none_or(|asked| asked.eval(context! { name }).is_ok_and(|is_there| is_there.is_true()))
        };
        match self {
            Self::Filter => holds(&IS_FILTER),
            Self::Test => holds(&IS_TEST),
            Self::Function => ENVIRONMENT.globals().any(|(global, _)| global == name),
            Self::Method | Self::Repetition => false,
        }
    }

    fn fault(self, name: &str) -> Fault {
        let hint = |known: &'static str| did_you_mean(nearest(name, known.split_whitespace()).as_deref());
        match self {
            Self::Filter => Fault::new(format!("there is no filter {}{}", quoted(name), hint(FILTERS))),
            Self::Test => Fault::new(format!("there is no test {}{}", quoted(name), hint(TESTS))),
            Self::Function => Fault::new(format!("there is no function {}{}", quoted(name), hint(FUNCTIONS))),
            Self::Method => Fault::new(format!("values have no method {}", quoted(name)))
                .advise("use a filter, as in `value | items`"),
            Self::Repetition => Fault::new("a list cannot be repeated with `*`"),
        }
    }
}

/// Checks all calls of an expression.
///
/// # Errors
/// The first that there is none of.
pub(super) fn check_expression(source: &str) -> Result<(), Fault> {
    check(&calls(source), &[])
}

/// Checks all calls in the tags of a text.
///
/// # Errors
/// The first that there is none of.
pub(super) fn check_text(text: &str) -> Result<(), Fault> {
    let (mut found, mut macros) = (Vec::new(), Vec::new());
    for (tag, range) in tags(text) {
        let code = text[range].trim_matches(['-', '+']).trim();
        match (tag, code.split_whitespace().next()) {
            ("%", Some("macro")) => macros.extend(code["macro".len()..].trim().split('(').next()),
            ("%", Some("filter")) => {
                let code = code["filter".len()..].trim();
                let name = code.split(|c: char| !is_part(c)).next().unwrap_or_default();
                found.push((Kind::Filter, name));
                found.extend(calls(&code[name.len()..]));
            }
            _ => found.extend(calls(code)),
        }
    }
    check(&found, &macros)
}

/// An expression that reads the same names and has no slices: minijinja does not report what `x[1:]` reads.
pub(super) fn unsliced_expression(source: &str) -> Cow<'_, str> {
    if has_slices(source) { unsliced(source).into() } else { source.into() }
}

/// The same for a text with tags.
pub(super) fn unsliced_text(text: &str) -> Cow<'_, str> {
    if !has_slices(text) {
        return text.into();
    }
    let (mut whole, mut done) = (String::new(), 0);
    for (_, range) in tags(text) {
        whole += &text[done..range.start];
        whole += &unsliced(&text[range.clone()]);
        done = range.end;
    }
    (whole + &text[done..]).into()
}

fn has_slices(source: &str) -> bool {
    source.contains('[') && source.contains(':')
}

/// Code with a list of the bounds instead of each slice, as `x[[1,0]]` for `x[1:]`.
fn unsliced(code: &str) -> String {
    let (mut whole, mut last) = (String::new(), "");
    // The open brackets, and whether each is an index of a value.
    let mut open: Vec<bool> = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let (token, after) = rest.split_at(length_of_token(rest, first));
        let is_bound_missing = ["[", ":"].contains(&last);
        match token {
            "[" => {
                let is_value = |c: char| is_part(c) || ['"', '\'', ')', ']', '}'].contains(&c);
                open.push(last.ends_with(is_value) && !is_word(last) && !is_word_before_bracket(last));
                whole += if open.last() == Some(&true) { "[[" } else { "[" };
            }
            "(" | "{" => {
                open.push(false);
                whole += token;
            }
            "]" | ")" | "}" => {
                let is_taken = open.pop() == Some(true);
                whole += if is_taken && last == ":" { "0" } else { "" };
                whole += if is_taken { "]]" } else { token };
            }
            ":" if open.last() == Some(&true) => whole += if is_bound_missing { "0," } else { "," },
            _ => whole += token,
        }
        if !token.trim().is_empty() {
            last = token;
        }
        rest = after;
    }
    whole
}

/// The tags of a text that contain code, by their second character, with the position of the code.
pub(super) fn tags(text: &str) -> Vec<(&str, Range<usize>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(next) = text[at..].find('{') {
        at += next + 1;
        let tag = text.get(at..at + 1).unwrap_or_default();
        let end = match tag {
            "{" => "}}",
            "%" => "%}",
            "#" => "#}",
            _ => continue,
        };
        let inside = &text[at + 1..];
        let length = if tag == "#" { inside.find(end) } else { end_of_tag(inside, end) };
        let Some(length) = length else { break };
        let range = at + 1..at + 1 + length;
        at = range.end + end.len();
        let code = text[range.clone()].trim_matches(['-', '+']).trim();
        if tag == "%" && code.split_whitespace().next() == Some("raw") {
            at = text[at..].find("endraw").map_or(text.len(), |end| at + end);
        } else if tag != "#" {
            found.push((tag, range));
        }
    }
    found
}

fn check(found: &[(Kind, &str)], macros: &[&str]) -> Result<(), Fault> {
    // The methods of `loop`, and of blocks and callers of macros.
    const OFFERED: [&str; 4] = ["loop", "super", "self", "caller"];
    let is_known = |kind: Kind, name: &str| match kind {
        Kind::Function => OFFERED.contains(&name) || macros.contains(&name) || kind.has(name),
        Kind::Filter | Kind::Test | Kind::Method | Kind::Repetition => kind.has(name),
    };
    let can_be_known = |kind: Kind, name: &str| kind == Kind::Repetition || is_name(name);
    match found.iter().find(|(kind, name)| can_be_known(*kind, name) && !is_known(*kind, name)) {
        Some((kind, name)) => Err(kind.fault(name)),
        None => Ok(()),
    }
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The end of a tag, ignoring text in quotes.
fn end_of_tag(code: &str, end: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(next) = code.get(at..).filter(|rest| !rest.is_empty()) {
        if next.starts_with(end) {
            return Some(at);
        }
        at += length_of_text(next).unwrap_or_else(|| next.chars().next().map_or(1, char::len_utf8));
    }
    None
}

/// The length of the quoted text at the beginning, if there is one.
fn length_of_text(code: &str) -> Option<usize> {
    let quote = code.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let mut is_escaped = false;
    let end = code[1..].find(|c| {
        let is_end = c == quote && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    Some(end.map_or(code.len(), |end| end + 2))
}

/// The length of the quoted text, the name or the sign at the beginning.
pub(super) fn length_of_token(code: &str, first: char) -> usize {
    match length_of_text(code) {
        Some(length) => length,
        None if is_part(first) => code.find(|c| !is_part(c)).unwrap_or(code.len()),
        None => first.len_utf8(),
    }
}

/// The calls in code, in order.
fn calls(code: &str) -> Vec<(Kind, &str)> {
    let mut found = Vec::new();
    // The two tokens before this one.
    let (mut before, mut last) = ("", "");
    let mut brackets = Brackets::default();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = rest.split_at(length_of_token(rest, first));
        rest = after.trim_start();
        let is_called = rest.starts_with('(');
        let is_test = last == "is" || (before, last) == ("is", "not");
        match last {
            "|" => found.push((Kind::Filter, token)),
            _ if is_test && token != "not" => found.push((Kind::Test, token)),
            "." if is_called && !["loop", "self"].contains(&before) => found.push((Kind::Method, token)),
            "." => {}
            _ if is_called && !is_word_before_bracket(token) => found.push((Kind::Function, token)),
            _ => {}
        }
        if brackets.repeat_a_list(last, token, rest) {
            found.push((Kind::Repetition, token));
        }
        (before, last) = (last, token);
    }
    found
}

/// The open brackets at a token, and the content of the last closed one.
#[derive(Default)]
struct Brackets {
    open: Vec<Bracket>,
    closed: Option<Bracket>,
}

#[derive(Clone, Copy)]
struct Bracket {
    /// It contains a list, or is one.
    has_list: bool,
    follows_star: bool,
}

impl Brackets {
    /// Processes one token; returns whether a list is repeated there.
    fn repeat_a_list(&mut self, last: &str, token: &str, rest: &str) -> bool {
        let is_star = |sign: &str| sign == "*";
        match token {
            "[" | "(" => {
                let is_value = |c: char| is_part(c) || ['"', '\'', ']', ')'].contains(&c);
                let follows_value = last.ends_with(is_value) && !is_word_before_bracket(last);
                let has_list = token == "[" && !follows_value;
                self.open.push(Bracket { has_list, follows_star: is_star(last) });
                false
            }
            "]" | ")" => {
                self.closed = self.open.pop();
                let closed = self.closed.filter(|closed| closed.has_list);
                if let (Some(_), Some(around)) = (closed, self.open.last_mut()) {
                    around.has_list = true;
                }
                closed.is_some_and(|closed| closed.follows_star)
            }
            "*" => {
                let is_power = is_star(last) || rest.starts_with('*');
                [")", "]"].contains(&last) && !is_power && self.closed.is_some_and(|closed| closed.has_list)
            }
            _ => false,
        }
    }
}

/// Keywords after which a bracket does not begin a call.
fn is_word_before_bracket(word: &str) -> bool {
    ["and", "or", "not", "in", "is", "if", "else", "elif", "for", "set", "with", "do", "call", "recursive", "print"]
        .contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_meant_is_there() {
        for (kind, names) in [(Kind::Filter, FILTERS), (Kind::Test, TESTS), (Kind::Function, FUNCTIONS)] {
            for name in names.split_whitespace() {
                assert!(kind.has(name), "{kind:?} {name}");
            }
        }
        assert!(!Kind::Filter.has("lenght") && !Kind::Test.has("upper_case") && !Kind::Function.has("now"));
    }

    #[test]
    fn what_there_is_none_of_is_reported_with_what_may_be_meant() {
        let problem_of = |source: &str| check_expression(source).err().map(|fault| fault.problem);
        assert_eq!(
            problem_of("x | lenght").as_deref(),
            Some("there is no filter \"lenght\"; did you mean \"length\"?")
        );
        assert_eq!(problem_of("x is evn").as_deref(), Some("there is no test \"evn\"; did you mean \"even\"?"));
        assert_eq!(
            problem_of("x is not strin").as_deref(),
            Some("there is no test \"strin\"; did you mean \"string\"?")
        );
        assert_eq!(problem_of("now()").as_deref(), Some("there is no function \"now\""));
        for repeated in ["[[1] * 10000] * 10000 == x", "3 * [1]", "([x]) * 5", "x in [1] * 5", "5 * ([x] + [y])"] {
            assert_eq!(problem_of(repeated).as_deref(), Some("a list cannot be repeated with `*`"), "{repeated}");
        }
        assert_eq!(problem_of("x.keys() | list").as_deref(), Some("values have no method \"keys\""));
        for fine in [
            "x | length > 3 and (y or z)",
            "x is not none and not (y is defined)",
            "'a | lenght (' ~ \"now()\" ~ 'it\\'s | x'",
            "x | map(attribute='name') | join(', ') | upper",
            "range(3) | list",
            "(1) if (x) else (2)",
            "x in (1, 2) or x not in (3)",
            "x[0] * 2 + (x + 1) * y[1] ** 2 * (3 + z[0][1])",
            "[x * 2, 3 * y] | max * 2",
        ] {
            assert_eq!(problem_of(fine), None, "{fine}");
        }
        let problem_of = |text: &str| check_text(text).err().map(|fault| fault.problem);
        assert_eq!(
            problem_of("now() | x {{ '}}' ~ a | trm }}").as_deref(),
            Some("there is no filter \"trm\"; did you mean \"trim\"?")
        );
        assert_eq!(
            problem_of("{% filter uper %}x{% endfilter %}").as_deref(),
            Some("there is no filter \"uper\"; did you mean \"upper\"?")
        );
        for fine in [
            "{# x | lenght #}{% raw %}{{ x | lenght }}{% endraw %}{{ x | length }}",
            "{% macro greet(name) %}Hello {{ name }}{% endmacro %}{{ greet('you') }}",
            "{% for (a, b) in x | items %}{{ loop.cycle('a', 'b') }}{% endfor %}",
            "{%- if (x) -%} { now() } {%- endif -%}",
            "{% set y = (1, 2) %}{% filter upper | trim %}x{% endfilter %}",
        ] {
            assert_eq!(problem_of(fine), None, "{fine}");
        }
    }
}
