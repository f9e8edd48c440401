//! Code outside tests that panics instead of returning an error (Rust).
//!
//! Not counted: `assert!` and `unreachable!`, which state a belief; the unwrapping of a lock, which passes on a panic that
//! already happened; and `expect` methods of other types, recognized by an argument that is not a text.

use super::source::Source;
use crate::findings::{Kind, Observation, Severity};
use crate::languages::Language;
use crate::lexing::Lexed;

pub(super) fn measure(source: &Source<'_>, out: &mut Vec<Observation>) {
    if source.language != Language::Rust {
        return;
    }
    for at in 0..source.lexed.tokens.len() {
        if let Some((severity, message)) = panic_at(&source.lexed, at).filter(|_| !source.outline.is_test(at)) {
            out.push(Observation {
                kind: Kind::Panic,
                severity,
                line: source.lexed.tokens[at].line,
                subject: source.outline.owner(at).to_owned(),
                message: message.to_owned(),
                size: 1,
                snippet: source.lexed.snippet(at),
                places: Vec::new(),
            });
        }
    }
}

fn panic_at(lexed: &Lexed<'_>, at: usize) -> Option<(Severity, &'static str)> {
    let is_call = at > 0 && lexed.is(at - 1, ".");
    let is_macro = || lexed.is(at + 1, "!") && ["(", "[", "{"].iter().any(|open| lexed.is(at + 2, open));
    match lexed.word(at)? {
        "unwrap" if is_call && lexed.reads(at + 1, &["(", ")"]) && !is_lock(lexed, at - 1) => {
            Some((Severity::Medium, "unwrap()"))
        }
        "expect" if is_call && takes_text(lexed, at + 1) && !is_lock(lexed, at - 1) => {
            Some((Severity::Low, "expect(…)"))
        }
        "panic" if is_macro() => Some((Severity::Medium, "panic!")),
        "todo" if is_macro() => Some((Severity::High, "unfinished, todo!")),
        "unimplemented" if is_macro() => Some((Severity::High, "unfinished, unimplemented!")),
        _ => None,
    }
}

/// Whether `lock()`, `read()` or `write()` stands before the dot at `dot`.
fn is_lock(lexed: &Lexed<'_>, dot: usize) -> bool {
    dot >= 3
        && lexed.reads(dot - 2, &["(", ")"])
        && ["lock", "read", "write", "into_inner", "get_mut"].iter().any(|name| lexed.is(dot - 3, name))
}

fn takes_text(lexed: &Lexed<'_>, open: usize) -> bool {
    let argument = open + 1 + usize::from(lexed.is(open + 1, "&"));
    let is_text =
        lexed.tokens.get(argument).is_some_and(|token| token.is_literal() && token.text.ends_with(['"', '#']));
    lexed.is(open, "(")
        && (is_text || lexed.reads(argument, &["format", "!"]) || lexed.reads(argument, &["concat", "!"]))
}
