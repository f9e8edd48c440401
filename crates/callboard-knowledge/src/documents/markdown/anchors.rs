//! Anchors of headings, as pages that are made of Markdown have them. Pure.

use std::collections::HashMap;

/// The anchors of a document that are taken.
#[derive(Debug, Default)]
pub(super) struct Anchors {
    /// How many headings have had each anchor before a number was added to it.
    taken: HashMap<String, u32>,
    /// How many anchors were tried.
    #[cfg(test)]
    tried: usize,
}

impl Anchors {
    /// The anchor of a heading: lower case, hyphens instead of spaces, without punctuation; a number follows if it is taken.
    pub(super) fn of(&mut self, heading: &str) -> String {
        self.unique(slug(heading))
    }

    /// An anchor that the document gives to a heading itself.
    pub(super) fn given(&mut self, anchor: &str) -> String {
        self.unique(anchor.to_owned())
    }

    fn unique(&mut self, base: String) -> String {
        let mut anchor = base.clone();
        // Each round makes the counter larger, so that the rounds of a document are as many as its anchors, and not their square.
        while self.taken.contains_key(&anchor) {
            let count = self.taken.entry(base.clone()).or_default();
            *count += 1;
            anchor = format!("{base}-{count}");
            #[cfg(test)]
            {
                self.tried += 1;
            }
        }
        self.taken.insert(anchor.clone(), 0);
        anchor
    }
}

fn slug(heading: &str) -> String {
    let is_kept = |c: &char| {
        c.is_alphanumeric() || matches!(c, ' ' | '-' | '_') || unicode_normalization::char::is_combining_mark(*c)
    };
    heading.trim().to_lowercase().chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_pages() {
        let mut anchors = Anchors::default();
        for (heading, expected) in [
            ("The gate", "the-gate"),
            ("The gate", "the-gate-1"),
            ("What's `new`? (2.0)", "whats-new-20"),
            ("Größe & co", "größe--co"),
            ("The gate-1", "the-gate-1-1"),
            ("The gate", "the-gate-2"),
            ("!", ""),
            ("?", "-1"),
        ] {
            assert_eq!(anchors.of(heading), expected, "{heading}");
        }
    }

    #[test]
    fn the_anchors_that_are_tried_are_not_many_more_than_headings() {
        for heading in [
            |_| "a".to_owned(),
            |number| format!("a-{number}"),
            |number| if number % 2 == 0 { "a".to_owned() } else { format!("a {number}") },
        ] {
            let mut anchors = Anchors::default();
            (0..2_000).for_each(|number: usize| drop(anchors.of(&heading(number))));
            (0..2_000).for_each(|_| drop(anchors.of("a")));
            assert!(anchors.tried <= 3 * 4_000, "{}", anchors.tried);
        }
    }
}
