//! What planned faults have not shown, over all seeds of a test.

use std::collections::BTreeMap;
use std::fmt;

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
}

impl Uncovered {
    /// What neither has shown. A fault that another seed does not plan was shown, or left to chance, there.
    pub(super) fn and(self, other: Self) -> Self {
        let Self(mut other) = other;
        let both = self.0.into_iter().filter_map(|(fault, shown)| {
            let also = other.remove(&fault)?;
            let has_struck = shown.has_struck || also.has_struck;
            let why_not = if also.why_not.len() > shown.why_not.len() { also.why_not } else { shown.why_not };
            Some((fault, Shown { has_struck, why_not }))
        });
        Self(both.collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, bool, String)> for Uncovered {
    fn from_iter<I: IntoIterator<Item = (String, bool, String)>>(faults: I) -> Self {
        let shown = |(fault, has_struck, why_not)| (fault, Shown { has_struck, why_not });
        Self(faults.into_iter().map(shown).collect())
    }
}

impl fmt::Display for Uncovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |(fault, Shown { has_struck, why_not }): (&String, &Shown)| match has_struck {
            true => fault.clone(),
            false => format!("{fault}{why_not}"),
        };
        let (struck, not): (Vec<_>, Vec<_>) = self.0.iter().partition(|(_, shown)| shown.has_struck);
        let [unreached, at_rest] =
            [not, struck].map(|faults| faults.into_iter().map(of).collect::<Vec<_>>().join("; "));
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
            faults.iter().map(|(fault, struck)| ((*fault).to_owned(), *struck, "; why".to_owned())).collect()
        };
        let both: Uncovered = of(&[("a", false), ("b", false), ("c", true)]);
        let both = both.and(of(&[("a", false), ("b", true), ("d", false)]));
        assert_eq!(both, of(&[("a", false), ("b", true)]));
        let text = both.to_string();
        assert!(text.starts_with("was it reached: a; why; and in none did it hit work in flight"), "{text}");
        assert!(text.ends_with(": b"), "{text}");
    }
}
