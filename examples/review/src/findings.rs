//! What a review finds: one [`Finding`] per observation, with a fingerprint that survives edits elsewhere in the file.

use std::collections::HashMap;
use std::num::ParseIntError;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The rule that produced a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    SwallowedError,
    BareExcept,
    Panic,
    DeepNesting,
    LongFunction,
    RepeatedBlock,
    Mark,
    Undocumented,
}

impl Kind {
    /// Every kind, in the order in which reports show them.
    pub(crate) const ALL: [Self; 8] = [
        Self::SwallowedError,
        Self::BareExcept,
        Self::Panic,
        Self::DeepNesting,
        Self::LongFunction,
        Self::RepeatedBlock,
        Self::Mark,
        Self::Undocumented,
    ];

    /// The name that people read.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::SwallowedError => "Swallowed error",
            Self::BareExcept => "Bare except",
            Self::Panic => "Possible panic",
            Self::DeepNesting => "Deep nesting",
            Self::LongFunction => "Long function",
            Self::RepeatedBlock => "Repeated block",
            Self::Mark => "Open mark",
            Self::Undocumented => "Undocumented public item",
        }
    }

    /// What to do about one.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::SwallowedError => "Catch the narrowest type; handle it, log it, or write down why it may be dropped.",
            Self::BareExcept => "Name the exceptions that are expected, so that interrupts and mistakes get through.",
            Self::Panic => "Return the error, or state in `expect` why it cannot happen.",
            Self::DeepNesting => "Return early, or move the inner levels into a named function.",
            Self::LongFunction => "Split it where its steps already have names in comments or blank lines.",
            Self::RepeatedBlock => "Lift the common part into one function and let the places call it.",
            Self::Mark => "Do it, turn it into a tracked issue, or delete it.",
            Self::Undocumented => "Say what it does, its units and its errors; or make it private.",
        }
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    High,
    Medium,
    Low,
}

/// Identity of a finding across reviews; sixteen hexadecimal digits in JSON, whose readers may round large numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Fingerprint(u64);

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        format!("{:016x}", fingerprint.0)
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = ParseIntError;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&digits, 16).map(Self)
    }
}

/// Lines `first..=last` of a file, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// One thing worth a maintainer's attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    pub(crate) severity: Severity,
    pub(crate) file: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// The function, type or mark that it is about; empty at file level.
    pub(crate) subject: String,
    /// What was seen, without the file and the line. Untrusted text: escape it where it is shown.
    pub(crate) message: String,
    /// How far over the limit, in the unit of the kind: code lines, levels or repeated lines; 1 where nothing is counted.
    pub(crate) size: usize,
    /// Every place of a repeated block, the first one included; empty for other kinds.
    pub(crate) places: Vec<Place>,
    pub(crate) fingerprint: Fingerprint,
}

/// A finding before it belongs to a file.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) kind: Kind,
    pub(crate) severity: Severity,
    pub(crate) line: usize,
    pub(crate) subject: String,
    pub(crate) message: String,
    pub(crate) size: usize,
    /// The code that identifies it, normalised; empty when kind and subject are enough.
    pub(crate) snippet: String,
    pub(crate) places: Vec<Place>,
}

/// Turns the observations in `file` into findings in line order.
///
/// A fingerprint is made of kind, file, subject and snippet, never of the line; equal ones are distinguished by their order in
/// the file.
pub(crate) fn seal(file: &str, mut observations: Vec<Observation>) -> Vec<Finding> {
    observations.sort_by(|a, b| (a.line, a.kind, &a.subject).cmp(&(b.line, b.kind, &b.subject)));
    let mut seen: HashMap<u64, u64> = HashMap::new();
    observations
        .into_iter()
        .map(|observation| {
            let Observation { kind, severity, line, subject, message, size, snippet, places } = observation;
            let identity = xxh3_64(format!("{kind:?}\0{file}\0{subject}\0{snippet}").as_bytes());
            let ordinal = seen.entry(identity).or_default();
            let fingerprint = Fingerprint(xxh3_64(&[identity.to_le_bytes(), ordinal.to_le_bytes()].concat()));
            *ordinal += 1;
            Finding { kind, severity, file: file.to_owned(), line, subject, message, size, places, fingerprint }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(line: usize, subject: &str) -> Observation {
        Observation {
            kind: Kind::Panic,
            severity: Severity::Medium,
            line,
            subject: subject.to_owned(),
            message: "`.unwrap()`".to_owned(),
            size: 1,
            snippet: "x . unwrap ( )".to_owned(),
            places: Vec::new(),
        }
    }

    #[test]
    fn a_fingerprint_ignores_the_line() {
        let before = seal("a.rs", vec![observation(3, "parse")]);
        let after = seal("a.rs", vec![observation(30, "parse")]);
        assert_eq!(before[0].fingerprint, after[0].fingerprint);
    }

    #[test]
    fn file_and_subject_are_part_of_the_fingerprint() {
        let here = seal("a.rs", vec![observation(3, "parse"), observation(4, "read")]);
        let there = seal("b.rs", vec![observation(3, "parse")]);
        assert_ne!(here[0].fingerprint, here[1].fingerprint);
        assert_ne!(here[0].fingerprint, there[0].fingerprint);
    }

    #[test]
    fn equal_findings_are_distinguished_by_their_order() {
        let both = seal("a.rs", vec![observation(9, "parse"), observation(3, "parse")]);
        assert_eq!(both[0].line, 3);
        assert_ne!(both[0].fingerprint, both[1].fingerprint);
        let first = seal("a.rs", vec![observation(3, "parse")]);
        assert_eq!(first[0].fingerprint, both[0].fingerprint);
    }

    #[test]
    fn a_finding_travels_as_json() {
        let finding = seal("a.rs", vec![observation(3, "parse")]).remove(0);
        let json = serde_json::to_string(&finding).unwrap();
        assert_eq!(serde_json::from_str::<Finding>(&json).unwrap(), finding);
    }
}
