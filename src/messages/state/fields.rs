//! The map of channels, and of the fields of a channel: persistent, and cheap to change while it is small.

use std::fmt;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

/// The most entries that lie in one list. A change of a shared list copies it, which up to here costs less than the path in a tree.
const MOST_LISTED: usize = 8;

/// A name and its value.
type Entry<T> = (Arc<str>, T);

/// Values by name, in the order of the names. A clone is a pointer, and entries are never removed.
#[derive(Clone)]
pub(super) enum Fields<T> {
    /// Sorted. `None` is the empty map, which has no allocation.
    Listed(Option<Arc<[Entry<T>]>>),
    /// More than [`MOST_LISTED`].
    Tree(RedBlackTreeMapSync<Arc<str>, T>),
}

impl<T> Fields<T> {
    fn listed(&self) -> &[Entry<T>] {
        match self {
            Self::Listed(list) => list.as_deref().unwrap_or_default(),
            Self::Tree(_) => &[],
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Listed(_) => self.listed().len(),
            Self::Tree(tree) => tree.size(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&T> {
        match self {
            Self::Listed(_) => self.listed().iter().find(|(listed, _)| **listed == *name).map(|(_, value)| value),
            Self::Tree(tree) => tree.get(name),
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// In the order of the names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        match self {
            Self::Listed(_) => Entries::Listed(self.listed().iter().map(|(name, value)| (name, value))),
            Self::Tree(tree) => Entries::Tree(tree.iter()),
        }
    }

    /// In order.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(name, _)| name)
    }
}

impl<T: Clone> Fields<T> {
    /// What is under a name, to be changed in place; copied before if others share it.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        match self {
            Self::Listed(list) => {
                let list = list.as_mut()?;
                let at = list.iter().position(|(listed, _)| **listed == *name)?;
                Some(&mut Arc::make_mut(list)[at].1)
            }
            Self::Tree(tree) => tree.get_mut(name),
        }
    }

    /// Puts a value under a name, in place of an earlier one.
    pub(super) fn insert(&mut self, name: Arc<str>, value: T) {
        if let Some(there) = self.get_mut(&name) {
            *there = value;
            return;
        }
        match self {
            Self::Tree(tree) => tree.insert_mut(name, value),
            Self::Listed(_) if self.len() == MOST_LISTED => {
                let mut tree: RedBlackTreeMapSync<_, _> = self.listed().iter().cloned().collect();
                tree.insert_mut(name, value);
                *self = Self::Tree(tree);
            }
            Self::Listed(list) => {
                let listed = list.as_deref().unwrap_or_default();
                let (before, after) = listed.split_at(listed.partition_point(|(listed, _)| *listed < name));
                // Each part knows its length, so the list is one allocation.
                let new = [(name, value)];
                *list = Some(before.iter().cloned().chain(new).chain(after.iter().cloned()).collect());
            }
        }
    }
}

/// The entries of one form or the other. Their number is known before the last one, which binary formats need.
enum Entries<L, T> {
    Listed(L),
    Tree(T),
}

impl<L: Iterator, T: Iterator<Item = L::Item>> Iterator for Entries<L, T> {
    type Item = L::Item;

    fn next(&mut self) -> Option<L::Item> {
        match self {
            Self::Listed(entries) => entries.next(),
            Self::Tree(entries) => entries.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Listed(entries) => entries.size_hint(),
            Self::Tree(entries) => entries.size_hint(),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Fields<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<T> Default for Fields<T> {
    fn default() -> Self {
        Self::Listed(None)
    }
}

impl<T: PartialEq> PartialEq for Fields<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// Takes entries in any order; of those with one name, the last one counts.
impl<T: Clone> FromIterator<(Arc<str>, T)> for Fields<T> {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, T)>>(entries: I) -> Self {
        let mut listed: Vec<(Arc<str>, T)> = entries.into_iter().collect();
        if !listed.is_sorted_by(|(one, _), (next, _)| one < next) {
            // Stable, so that the last of equal names is the first of the reversed ones.
            listed.reverse();
            listed.sort_by(|(one, _), (other, _)| one.cmp(other));
            listed.dedup_by(|(later, _), (kept, _)| later == kept);
        }
        match listed.len() {
            0 => Self::default(),
            1..=MOST_LISTED => Self::Listed(Some(listed.into())),
            _ => Self::Tree(listed.into_iter().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<(Arc<str>, u32)>> {
        prop::collection::vec((0_u32..12, any::<u32>()), 0..24)
            .prop_map(|entries| entries.into_iter().map(|(name, value)| (name.to_string().into(), value)).collect())
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_a_change_leaves_its_clones_as_they_were(entries in entries(), seen in any::<prop::sample::Index>()) {
            let (mut fields, mut model) = (Fields::default(), BTreeMap::new());
            let mut kept = None;
            for (position, (name, value)) in entries.iter().enumerate() {
                if position == seen.index(entries.len()) {
                    kept = Some((fields.clone(), model.clone()));
                }
                fields.insert(Arc::clone(name), *value);
                model.insert(Arc::clone(name), *value);
                prop_assert_eq!(fields.get(name), Some(value));
            }
            for (fields, model) in kept.iter().chain([&(fields.clone(), model.clone())]) {
                prop_assert!(fields.iter().eq(model.iter()), "{:?} {:?}", fields, model);
                prop_assert!(fields.names().eq(model.keys()));
                prop_assert_eq!(fields.len(), model.len());
                prop_assert_eq!(fields.iter().size_hint(), (model.len(), Some(model.len())));
                prop_assert_eq!(matches!(fields, Fields::Tree(_)), model.len() > MOST_LISTED);
                prop_assert!((0..12).all(|name| fields.get(&name.to_string()) == model.get(&*name.to_string())));
            }
            prop_assert_eq!(&entries.into_iter().collect::<Fields<u32>>(), &fields);
            if let Some((before, _)) = kept {
                prop_assert_eq!(before == fields, before.iter().eq(fields.iter()));
            }
        }
    }
}
