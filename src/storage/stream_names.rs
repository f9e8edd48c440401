//! The names of the streams that have records, in order for whoever lists them.

use std::collections::BTreeSet;

use foldhash::HashSet;

use super::Key;

/// Boards begin and delete streams all the time and list them when they start, so names are sorted when they are listed.
#[derive(Default)]
pub(super) struct StreamNames {
    /// Those that were added before the last list.
    sorted: BTreeSet<Key>,
    /// Those that were added since.
    added: HashSet<Key>,
}

impl StreamNames {
    /// Adds a name that it does not have.
    pub(super) fn insert(&mut self, name: Key) {
        self.added.insert(name);
    }

    pub(super) fn remove(&mut self, name: &Key) {
        if !self.added.remove(name) {
            self.sorted.remove(name);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sorted.len() + self.added.len()
    }

    /// All names in order.
    pub(super) fn sorted(&mut self) -> &BTreeSet<Key> {
        self.sorted.extend(self.added.drain());
        &self.sorted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_those_of_a_sorted_set(changes in prop::collection::vec((0..12_u8, 0..4_u8), 0..60)) {
            let (mut names, mut expected) = (StreamNames::default(), BTreeSet::new());
            for (number, change) in changes {
                let name = Key::new(["run", &number.to_string()]);
                match change {
                    0 => prop_assert_eq!(names.sorted(), &expected),
                    1 => {
                        names.remove(&name);
                        expected.remove(&name);
                    }
                    _ if expected.insert(name.clone()) => names.insert(name),
                    _ => {}
                }
                prop_assert_eq!(names.len(), expected.len());
            }
            prop_assert_eq!(names.sorted(), &expected);
        }
    }
}
