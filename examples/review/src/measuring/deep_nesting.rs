//! Functions whose control structures and closures stand too deep inside each other.

use super::source::Source;
use crate::findings::{Kind, Observation, Severity};

/// Levels a function may have. Arms of a `match` or `switch` stand on the level of their body.
const LIMIT: usize = 4;

pub(super) fn measure(source: &Source<'_>, out: &mut Vec<Observation>) {
    for function in source.outline.functions.iter().filter(|function| function.depth > LIMIT) {
        let severity = match function.depth {
            _ if function.is_test => Severity::Low,
            depth if depth > LIMIT + 2 => Severity::High,
            _ => Severity::Medium,
        };
        out.push(Observation {
            kind: Kind::DeepNesting,
            severity,
            line: function.deepest_line,
            subject: function.name.clone(),
            message: format!("nests {} levels deep (limit {LIMIT})", function.depth),
            size: function.depth,
            snippet: String::new(),
            places: Vec::new(),
        });
    }
}
