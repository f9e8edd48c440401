//! Export and import of a base: JSON lines that do not depend on the layout of the file.
//!
//! The first line has the version. Entities follow, then documents with their passages, facts, contradictions and predicates, and a
//! last line with counts and the SHA-256 of all lines before it, so that a truncated or changed export is refused whole. The results
//! of changes that were asked for with keys are not exported.

mod export;
mod import;
mod lines;
mod whole;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use import::is_empty;
pub use whole::WholeExport;

/// How many records were exported or imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transferred {
    /// Entities of the graph.
    pub entities: u64,
    /// Documents, with those that have ended.
    pub documents: u64,
    /// Passages, with those that have ended.
    pub passages: u64,
    /// Facts.
    pub facts: u64,
    /// Contradictions between facts.
    pub contradictions: u64,
    /// Declarations of predicates.
    pub predicates: u64,
}
