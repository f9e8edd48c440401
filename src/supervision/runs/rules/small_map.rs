//! An ordered map and set for what runs have one or a few of, and seldom thousands.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Index, RangeBounds};

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most entries of a sorted list; more of them are in a tree.
pub(super) const FEW: usize = 16;

/// A [`BTreeMap`] that is small while it has few entries: one entry is in the map itself, a few are in a sorted list. It is stored as
/// a `BTreeMap` is.
#[derive(Clone)]
pub(crate) struct SmallMap<K, V>(Entries<K, V>);

#[derive(Clone)]
enum Entries<K, V> {
    One([(K, V); 1]),
    /// Sorted by their keys; also none.
    Few(Vec<(K, V)>),
    #[allow(clippy::box_collection, reason = "the map is no larger than its list")]
    Many(Box<BTreeMap<K, V>>),
}

/// The entries of the list, and the tree if they are there.
type Parts<'a, K, V> = (&'a [(K, V)], Option<&'a BTreeMap<K, V>>);
type PartsMut<'a, K, V> = (&'a mut [(K, V)], Option<&'a mut BTreeMap<K, V>>);

impl<K, V> SmallMap<K, V> {
    /// A map without entries.
    pub(crate) const fn new() -> Self {
        Self(Entries::Few(Vec::new()))
    }

    /// The entries, which are in the list or in the tree.
    fn parts(&self) -> Parts<'_, K, V> {
        match &self.0 {
            Entries::One(one) => (one, None),
            Entries::Few(list) => (list, None),
            Entries::Many(tree) => (&[], Some(tree)),
        }
    }

    fn parts_mut(&mut self) -> PartsMut<'_, K, V> {
        match &mut self.0 {
            Entries::One(one) => (one, None),
            Entries::Few(list) => (list, None),
            Entries::Many(tree) => (&mut [], Some(tree)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        let (list, tree) = self.parts();
        list.len() + tree.map_or(0, BTreeMap::len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In the order of the keys.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        let (list, tree) = self.parts();
        list.iter().map(|(key, value)| (key, value)).chain(tree.into_iter().flatten())
    }

    /// In the order of the keys.
    pub(crate) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&K, &mut V)> {
        let (list, tree) = self.parts_mut();
        list.iter_mut().map(|(key, value)| (&*key, value)).chain(tree.into_iter().flatten())
    }

    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self.parts() {
            (_, Some(tree)) => tree.get(key),
            (list, None) => Some(&list[place_of(list, key).ok()?].1),
        }
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self.parts_mut() {
            (_, Some(tree)) => tree.get_mut(key),
            (list, None) => Some(&mut list[place_of(list, key).ok()?].1),
        }
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Adds an entry; returns the value that the key had.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (list, tree) = self.parts_mut();
        if let Some(tree) = tree {
            return tree.insert(key, value);
        }
        match place_of(list, &key) {
            Ok(at) => Some(std::mem::replace(&mut list[at].1, value)),
            Err(at) => {
                self.insert_at(at, (key, value));
                None
            }
        }
    }

    /// Adds an entry with a new key at its place in the list.
    fn insert_at(&mut self, at: usize, entry: (K, V)) {
        self.0 = match std::mem::take(self).0 {
            Entries::Few(list) if list.capacity() == 0 => Entries::One([entry]),
            Entries::One([one]) => {
                let mut list = Vec::with_capacity(4);
                list.push(one);
                list.insert(at, entry);
                Entries::Few(list)
            }
            Entries::Few(mut list) if list.len() < FEW => {
                list.insert(at, entry);
                Entries::Few(list)
            }
            Entries::Few(list) => Entries::Many(Box::new(list.into_iter().chain([entry]).collect())),
            Entries::Many(mut tree) => {
                tree.insert(entry.0, entry.1);
                Entries::Many(tree)
            }
        };
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let removed = match &mut self.0 {
            Entries::One([(own, _)]) if own == key => match std::mem::take(self).0 {
                Entries::One([(_, value)]) => return Some(value),
                Entries::Few(_) | Entries::Many(_) => None,
            },
            Entries::One(_) => None,
            Entries::Few(list) => place_of(list, key).ok().map(|at| list.remove(at).1),
            Entries::Many(tree) => tree.remove(key),
        };
        self.free_if_empty();
        removed
    }

    /// Removes the entries in a range that are wanted, and returns them in the order of the keys.
    pub(crate) fn extract(
        &mut self,
        range: impl RangeBounds<K>,
        mut is_wanted: impl FnMut(&K, &V) -> bool,
    ) -> Vec<(K, V)> {
        if self.is_empty() {
            return Vec::new();
        }
        let extracted = match &mut self.0 {
            Entries::One([(key, value)]) if range.contains(key) && is_wanted(key, value) => {
                match std::mem::take(self).0 {
                    Entries::One(one) => one.into(),
                    Entries::Few(_) | Entries::Many(_) => Vec::new(),
                }
            }
            Entries::One(_) => Vec::new(),
            Entries::Few(list) => {
                list.extract_if(.., |(key, value)| range.contains(key) && is_wanted(key, value)).collect()
            }
            Entries::Many(tree) => tree.extract_if(range, |key, value| is_wanted(key, value)).collect(),
        };
        self.free_if_empty();
        extracted
    }

    /// The values, in the order of the keys.
    pub(crate) fn into_values(mut self) -> impl Iterator<Item = V> {
        self.extract(.., |_, _| true).into_iter().map(|(_, value)| value)
    }

    /// Keeps the entries that are wanted.
    pub(crate) fn retain(&mut self, mut is_wanted: impl FnMut(&K, &V) -> bool) {
        self.extract(.., |key, value| !is_wanted(key, value));
    }

    fn free_if_empty(&mut self) {
        if self.is_empty() {
            *self = Self::new();
        }
    }
}

fn place_of<K: Ord, V>(list: &[(K, V)], key: &K) -> Result<usize, usize> {
    list.binary_search_by(|(own, _)| own.cmp(key))
}

impl<K: Ord, V> Index<&K> for SmallMap<K, V> {
    type Output = V;

    /// Panics if the key has no value.
    fn index(&self, key: &K) -> &V {
        let Some(value) = self.get(key) else { panic!("the key has no value") };
        value
    }
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SmallMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SmallMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord, V> Extend<(K, V)> for SmallMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Serialize, V: Serialize> Serialize for SmallMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        self.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.end()
    }
}

impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for SmallMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(|tree| tree.into_iter().collect())
    }
}

/// A [`BTreeSet`](std::collections::BTreeSet) that is as small as a [`SmallMap`], and is stored as a `BTreeSet` is.
#[derive(Clone, PartialEq)]
pub(crate) struct SmallSet<T>(SmallMap<T, ()>);

impl<T> SmallSet<T> {
    /// A set without elements.
    pub(crate) const fn new() -> Self {
        Self(SmallMap::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// In their order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.keys()
    }
}

impl<T: Ord> SmallSet<T> {
    pub(crate) fn contains(&self, element: &T) -> bool {
        self.0.contains_key(element)
    }

    /// Adds an element; `false` if it is there already.
    pub(crate) fn insert(&mut self, element: T) -> bool {
        self.0.insert(element, ()).is_none()
    }

    /// Removes an element; `false` if it was not there.
    pub(crate) fn remove(&mut self, element: &T) -> bool {
        self.0.remove(element).is_some()
    }

    /// Removes the elements in a range.
    pub(crate) fn remove_range(&mut self, range: impl RangeBounds<T>) {
        self.0.extract(range, |_, ()| true);
    }
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for SmallSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<T: Ord> Extend<T> for SmallSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        self.0.extend(elements.into_iter().map(|element| (element, ())));
    }
}

impl<T: Ord> FromIterator<T> for SmallSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self(elements.into_iter().map(|element| (element, ())).collect())
    }
}

impl<T: Serialize> Serialize for SmallSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut elements = serializer.serialize_seq(Some(self.len()))?;
        self.iter().try_for_each(|element| elements.serialize_element(element))?;
        elements.end()
    }
}

impl<'de, T: Ord + Deserialize<'de>> Deserialize<'de> for SmallSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from_iter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bincode::Options;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        Insert(u8, u32),
        Remove(u8),
        Replace(u8, u32),
        /// Those of a range whose keys are even.
        Extract(u8, u8),
        Retain(u8),
    }

    /// Keys from so few that entries are replaced and removed, and enough that a tree is made of them.
    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let key = || 0..3 * FEW as u8;
        let change = prop_oneof![
            6 => (key(), any::<u32>()).prop_map(|(key, value)| Change::Insert(key, value)),
            3 => key().prop_map(Change::Remove),
            1 => (key(), any::<u32>()).prop_map(|(key, value)| Change::Replace(key, value)),
            1 => (key(), key()).prop_map(|(from, to)| Change::Extract(from.min(to), from.max(to))),
            1 => key().prop_map(Change::Retain),
        ];
        prop::collection::vec(change, 0..120)
    }

    /// Makes a change of both; what they answer.
    fn make(change: &Change, small: &mut SmallMap<u8, u32>, tree: &mut BTreeMap<u8, u32>) -> [Vec<(u8, u32)>; 2] {
        let answer = |key, value: Option<u32>| Vec::from_iter(value.map(|value| (key, value)));
        match *change {
            Change::Insert(key, value) => {
                [small.insert(key, value), tree.insert(key, value)].map(|value| answer(key, value))
            }
            Change::Remove(key) => [small.remove(&key), tree.remove(&key)].map(|value| answer(key, value)),
            Change::Replace(key, new) => [small.get_mut(&key), tree.get_mut(&key)]
                .map(|value| answer(key, value.map(|value| std::mem::replace(value, new)))),
            Change::Extract(from, to) => [
                small.extract(from..=to, |key, _| key % 2 == 0),
                tree.extract_if(from..=to, |key, _| key % 2 == 0).collect(),
            ],
            Change::Retain(least) => {
                small.retain(|key, _| *key >= least);
                tree.retain(|key, _| *key >= least);
                [Vec::new(), Vec::new()]
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_a_tree_in_all_but_its_size(changes in changes()) {
            let (mut small, mut tree) = (SmallMap::new(), BTreeMap::new());
            for change in &changes {
                let [of_small, of_tree] = make(change, &mut small, &mut tree);
                prop_assert_eq!(of_small, of_tree, "{:?}", change);
                prop_assert!(small.iter().eq(&tree) && small.iter().rev().eq(tree.iter().rev()), "{:?}", small);
                prop_assert!(small.iter_mut().map(|(key, value)| (*key, *value)).eq(tree.clone()));
                prop_assert_eq!((small.len(), small.is_empty()), (tree.len(), tree.is_empty()));
                prop_assert!((0..=u8::MAX).all(|key| small.get(&key) == tree.get(&key)));
            }
            let copy: SmallMap<u8, u32> = tree.clone().into_iter().rev().collect();
            prop_assert_eq!(&copy, &small);
            let codec = bincode::DefaultOptions::new();
            let stored = codec.serialize(&small).unwrap();
            prop_assert_eq!(&stored, &codec.serialize(&tree).unwrap());
            prop_assert_eq!(codec.deserialize::<SmallMap<u8, u32>>(&stored).unwrap(), small);
        }

        #[test]
        fn a_set_is_a_set_of_a_tree(inserted in prop::collection::vec(0..3 * FEW as u8, 0..60), range in (0..24_u8, 0..24_u8)) {
            let (mut small, mut tree) = (SmallSet::default(), BTreeSet::new());
            for element in &inserted {
                prop_assert_eq!(small.insert(*element), tree.insert(*element));
            }
            let codec = bincode::DefaultOptions::new();
            let stored = codec.serialize(&small).unwrap();
            prop_assert_eq!(&stored, &codec.serialize(&tree).unwrap());
            prop_assert_eq!(&codec.deserialize::<SmallSet<u8>>(&stored).unwrap(), &small);
            let range = range.0.min(range.1)..=range.1;
            small.remove_range(range.clone());
            tree.retain(|element| !range.contains(element));
            prop_assert!(small.iter().eq(&tree) && small.len() == tree.len());
            prop_assert!((0..u8::MAX).all(|element| small.contains(&element) == tree.contains(&element)));
            prop_assert!(inserted.iter().all(|element| small.remove(element) == tree.remove(element)));
        }
    }

    #[test]
    fn one_entry_and_none_are_in_the_map_itself() {
        let mut map = SmallMap::<u32, Box<u64>>::new();
        assert_eq!(size_of_val(&map), size_of::<Vec<()>>());
        map.insert(1, Box::new(1));
        assert!(matches!(map.0, Entries::One(_)));
        map.extend((2..=FEW as u32 + 1).map(|key| (key, Box::new(0))));
        assert!(matches!(map.0, Entries::Many(_)));
        map.retain(|key, _| *key > FEW as u32 + 1);
        assert!(matches!(&map.0, Entries::Few(list) if list.capacity() == 0), "what it had is freed");
    }
}
