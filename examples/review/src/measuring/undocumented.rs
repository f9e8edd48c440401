//! Public items that nobody described.

use super::source::Source;
use crate::findings::{Kind, Observation, Severity};

pub(super) fn measure(source: &Source<'_>, out: &mut Vec<Observation>) {
    for item in source.outline.items.iter().filter(|item| !item.is_documented) {
        out.push(Observation {
            kind: Kind::Undocumented,
            severity: Severity::Low,
            line: item.line,
            subject: item.name.clone(),
            message: format!("public {}", item.what),
            size: 1,
            snippet: String::new(),
            places: Vec::new(),
        });
    }
}
