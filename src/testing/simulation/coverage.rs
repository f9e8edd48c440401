//! What planned faults have not shown, over all seeds of a test.

use std::collections::BTreeMap;
use std::fmt;

use super::faults::{Passed, Planned};

/// The planned faults, in words, that hit no work in flight.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uncovered(BTreeMap<String, Shown>);

/// What a fault has shown.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    /// Whether it struck at all.
    has_struck: bool,
    /// Why it may not have.
    why_not: String,
    /// Its point was never passed, and is none of the runtime's.
    is_unknown: bool,
}

impl Uncovered {
    /// What neither has shown. A fault that another seed does not plan was shown, or left to chance, there.
    pub(super) fn and(self, other: Self) -> Self {
        let Self(mut other) = other;
        let both = self.0.into_iter().filter_map(|(fault, shown)| {
            let also = other.remove(&fault)?;
            let has_struck = shown.has_struck || also.has_struck;
            let is_unknown = shown.is_unknown && also.is_unknown;
            let why_not = if also.why_not.len() > shown.why_not.len() { also.why_not } else { shown.why_not };
            Some((fault, Shown { has_struck, why_not, is_unknown }))
        });
        Self(both.collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The faults that no other choice of seeds would reach.
    pub(super) fn unknown(self) -> Self {
        Self(self.0.into_iter().filter(|(_, shown)| shown.is_unknown).collect())
    }

    /// The faults that have not struck at all, and why; empty if there are none.
    pub(super) fn unreached(&self) -> String {
        let unreached = self.0.iter().filter(|(_, shown)| !shown.has_struck);
        unreached.map(|(fault, shown)| format!("{fault}{}", shown.why_not)).collect::<Vec<_>>().join("; ")
    }
}

impl<'a> FromIterator<(&'a Planned, &'a Passed)> for Uncovered {
    fn from_iter<I: IntoIterator<Item = (&'a Planned, &'a Passed)>>(faults: I) -> Self {
        let shown = |(fault, passed): (&Planned, &Passed)| {
            let why_not = fault.why_unreached(passed);
            let shown = Shown { has_struck: fault.struck > 0, why_not, is_unknown: fault.is_unknown(passed) };
            (fault.to_string(), shown)
        };
        Self(faults.into_iter().map(shown).collect())
    }
}

impl fmt::Display for Uncovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unreached = self.unreached();
        let struck = self.0.iter().filter(|(_, shown)| shown.has_struck);
        let at_rest = struck.map(|(fault, _)| fault.as_str()).collect::<Vec<_>>().join("; ");
        if !unreached.is_empty() {
            write!(f, "was it reached: {unreached}")?;
        }
        if !at_rest.is_empty() {
            let and = if unreached.is_empty() { "" } else { "; and in none " };
            write!(f, "{and}did it hit work in flight (if it is not to, say `.at_rest()`): {at_rest}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_seed_has_shown_is_shown_and_what_struck_in_one_has_struck() {
        let of = |faults: &[(&str, bool)]| {
            let shown = |has_struck| Shown { has_struck, why_not: "; why".to_owned(), is_unknown: false };
            Uncovered(faults.iter().map(|(fault, struck)| ((*fault).to_owned(), shown(*struck))).collect())
        };
        let both = of(&[("a", false), ("b", false), ("c", true)]);
        let both = both.and(of(&[("a", false), ("b", true), ("d", false)]));
        assert_eq!(both, of(&[("a", false), ("b", true)]));
        let text = both.to_string();
        assert!(text.starts_with("was it reached: a; why; and in none did it hit work in flight"), "{text}");
        assert!(text.ends_with(": b"), "{text}");
        assert_eq!(both.unreached(), "a; why");
    }
}
