//! What planned faults have not shown, over all seeds of a test.

use std::collections::BTreeMap;
use std::fmt;

/// The planned faults, in words, that hit no work in flight; whether they struck at all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uncovered(BTreeMap<String, bool>);

impl Uncovered {
    /// What neither has shown. A fault that another seed does not plan was shown, or left to chance, there.
    pub(super) fn and(self, other: Self) -> Self {
        let Self(other) = other;
        let both = self.0.into_iter().filter_map(|(fault, struck)| Some((struck | other.get(&fault)?, fault)));
        Self(both.map(|(struck, fault)| (fault, struck)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, bool)> for Uncovered {
    fn from_iter<I: IntoIterator<Item = (String, bool)>>(faults: I) -> Self {
        Self(faults.into_iter().collect())
    }
}

impl fmt::Display for Uncovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |wanted: bool| {
            let faults = self.0.iter().filter(|(_, struck)| **struck == wanted).map(|(fault, _)| fault.as_str());
            faults.collect::<Vec<_>>().join("; ")
        };
        let (unreached, at_rest) = (of(false), of(true));
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
        let of =
            |faults: &[(&str, bool)]| faults.iter().map(|(fault, struck)| ((*fault).to_owned(), *struck)).collect();
        let both: Uncovered = of(&[("a", false), ("b", false), ("c", true)]);
        let both = both.and(of(&[("a", false), ("b", true), ("d", false)]));
        assert_eq!(both, of(&[("a", false), ("b", true)]));
        let text = both.to_string();
        assert!(text.starts_with("was it reached: a; and in none did it hit work in flight"), "{text}");
        assert!(text.ends_with(": b"), "{text}");
    }
}
