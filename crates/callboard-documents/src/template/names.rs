//! Names in templates: the rule for names, their resolution, and the lookup of values.

use std::sync::Arc;

use serde_json::Value;

use super::fault::Fault;

/// What a template may name; `V` is how whoever has the values calls them.
pub trait Names<V> {
    /// Returns which value a path begins with, and how many of its parts name that value; the others are fields in it.
    ///
    /// # Errors
    /// No value has this name; the fault says what is likely meant.
    fn resolve(&self, path: &[&str]) -> Result<(V, usize), Fault>;
}

/// Supplies the values that templates and expressions read when they are evaluated.
pub trait Lookup<V> {
    /// Returns the value; null if nothing has been produced.
    ///
    /// # Errors
    /// There is no such value.
    fn lookup(&self, var: &V) -> Result<Arc<Value>, String>;
}

/// Whether the name is a keyword of the language.
pub(super) fn is_word(name: &str) -> bool {
    ["true", "false", "none", "True", "False", "None", "not", "and", "or", "in", "is", "if", "else"].contains(&name)
}

/// Returns whether a template can name it: it has ASCII letters, digits and `_`, and does not begin with a digit.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.chars().next().is_some_and(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

/// Returns whether a node may be named so: a template can name it, and it means nothing else there.
#[must_use]
pub fn is_free_name(name: &str) -> bool {
    const TAKEN: [&str; 12] = [
        "state",
        "input",
        "item",
        "index",
        "iteration",
        "previous",
        "loop",
        "self",
        "range",
        "dict",
        "debug",
        "namespace",
    ];
    is_name(name) && !is_word(name) && !TAKEN.contains(&name)
}
