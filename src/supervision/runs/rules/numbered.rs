//! A map from numbers that are given in order, for the open branches and turns of a run.

use std::fmt;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::small_map::{FEW, SmallMap};

/// One place in so many has a value at least. Places without one are kept for a while, because numbers are found at once where none is missing.
const SPARSE: usize = 8;

/// Values by their numbers. A few are in a [`SmallMap`]. Many are in a list in which a number is found at once if none is missing
/// between it and the first or the last one: its place is its distance from that. It is stored as a [`BTreeMap`](std::collections::BTreeMap) is.
#[derive(Clone)]
pub(crate) struct Numbered<V>(Entries<V>);

#[derive(Clone)]
enum Entries<V> {
    Few(SmallMap<u32, V>),
    Many(Box<Many<V>>),
}

#[derive(Clone)]
struct Many<V> {
    /// Sorted by number; `None` in the place of a value that was removed. There is at least one place.
    places: Vec<(u32, Option<V>)>,
    /// How many places have a value.
    len: usize,
}

impl<V> Many<V> {
    /// The place of a number if none is missing between it and the last one, which is so for most. Every look-up comes here first.
    #[inline]
    fn usual_place(&self, number: u32) -> Option<usize> {
        let before_last = self.places.last()?.0.checked_sub(number)?;
        let place = (self.places.len() - 1).checked_sub(before_last as usize)?;
        (self.places[place].0 == number).then_some(place)
    }

    /// The place of a number, or where it would be.
    #[inline]
    fn place_of(&self, number: u32) -> Result<usize, usize> {
        self.usual_place(number).map_or_else(|| self.search(number), Ok)
    }

    #[cold]
    fn search(&self, number: u32) -> Result<usize, usize> {
        let (Some((first, _)), Some((last, _))) = (self.places.first(), self.places.last()) else { return Err(0) };
        let end = self.places.len() - 1;
        let (Some(after_first), Some(before_last)) = (number.checked_sub(*first), last.checked_sub(number)) else {
            return Err(if number < *first { 0 } else { end + 1 });
        };
        // Numbers differ, so in the list none is further from another one than it is by its number; as far, if none between them is missing.
        let (most, least) = (end.min(after_first as usize), end.saturating_sub(before_last as usize));
        for place in [most, least] {
            if self.places[place].0 == number {
                return Ok(place);
            }
        }
        let found = self.places[least..most].binary_search_by_key(&number, |(number, _)| *number);
        found.map(|place| least + place).map_err(|place| least + place)
    }

    #[inline]
    fn get(&self, number: u32) -> Option<&V> {
        self.places[self.place_of(number).ok()?].1.as_ref()
    }

    #[inline]
    fn get_mut(&mut self, number: u32) -> Option<&mut V> {
        let place = self.place_of(number).ok()?;
        self.places[place].1.as_mut()
    }

    fn insert(&mut self, number: u32, value: V) -> Option<V> {
        let before = match self.place_of(number) {
            Ok(place) => self.places[place].1.replace(value),
            Err(place) => {
                self.places.insert(place, (number, Some(value)));
                None
            }
        };
        self.len += usize::from(before.is_none());
        before
    }

    fn remove(&mut self, number: u32) -> Option<V> {
        let place = self.place_of(number).ok()?;
        let removed = self.places[place].1.take()?;
        self.len -= 1;
        Some(removed)
    }

    fn iter(&self) -> impl Iterator<Item = (&u32, &V)> {
        self.places.iter().filter_map(|(number, value)| Some((number, value.as_ref()?)))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (&u32, &mut V)> {
        self.places.iter_mut().filter_map(|(number, value)| Some((&*number, value.as_mut()?)))
    }
}

impl<V> Numbered<V> {
    pub(crate) const fn new() -> Self {
        Self(Entries::Few(SmallMap::new()))
    }

    fn parts(&self) -> (Option<&SmallMap<u32, V>>, Option<&Many<V>>) {
        match &self.0 {
            Entries::Few(few) => (Some(few), None),
            Entries::Many(many) => (None, Some(many)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Entries::Few(few) => few.len(),
            Entries::Many(many) => many.len,
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&V> {
        match &self.0 {
            Entries::Few(few) => few.get(&number),
            Entries::Many(many) => many.get(number),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut V> {
        match &mut self.0 {
            Entries::Few(few) => few.get_mut(&number),
            Entries::Many(many) => many.get_mut(number),
        }
    }

    /// In the order of the numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&u32, &V)> {
        let (few, many) = self.parts();
        few.into_iter().flat_map(SmallMap::iter).chain(many.into_iter().flat_map(Many::iter))
    }

    /// In the order of the numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&u32, &mut V)> {
        let (few, many) = match &mut self.0 {
            Entries::Few(few) => (Some(few), None),
            Entries::Many(many) => (None, Some(&mut **many)),
        };
        few.into_iter().flat_map(SmallMap::iter_mut).chain(many.into_iter().flat_map(Many::iter_mut))
    }

    /// Adds a value; returns the one that the number had.
    pub(crate) fn insert(&mut self, number: u32, value: V) -> Option<V> {
        match &mut self.0 {
            Entries::Few(few) if few.len() < FEW || few.contains_key(&number) => few.insert(number, value),
            Entries::Few(few) => {
                let places: Vec<_> =
                    few.extract(.., |_, _| true).into_iter().map(|(number, value)| (number, Some(value))).collect();
                let mut many = Many { len: places.len(), places };
                many.insert(number, value);
                self.0 = Entries::Many(Box::new(many));
                None
            }
            Entries::Many(many) => many.insert(number, value),
        }
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<V> {
        let many = match &mut self.0 {
            Entries::Few(few) => return few.remove(&number),
            Entries::Many(many) => many,
        };
        let removed = many.remove(number);
        if many.len * SPARSE < many.places.len() {
            let values = std::mem::take(&mut many.places).into_iter().filter(|(_, value)| value.is_some());
            if many.len > FEW / 2 {
                many.places = values.collect();
                many.places.shrink_to(many.len * 2);
            } else {
                self.0 = Entries::Few(values.filter_map(|(number, value)| Some((number, value?))).collect());
            }
        }
        removed
    }
}

impl<V: fmt::Debug> fmt::Debug for Numbered<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<V> Default for Numbered<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> FromIterator<(u32, V)> for Numbered<V> {
    fn from_iter<I: IntoIterator<Item = (u32, V)>>(entries: I) -> Self {
        let mut numbered = Self::new();
        for (number, value) in entries {
            numbered.insert(number, value);
        }
        numbered
    }
}

impl<V: Serialize> Serialize for Numbered<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        self.iter().try_for_each(|(number, value)| map.serialize_entry(number, value))?;
        map.end()
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Numbered<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::collections::BTreeMap::deserialize(deserializer).map(|tree| tree.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bincode::Options;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        /// The numbers after all that were given, so many.
        Add(u8),
        /// One that may have been given.
        Insert(u32),
        /// Those that are there from this part of them on, so many.
        Remove(prop::sample::Index, u8),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let change = prop_oneof![
            3 => (1..60_u8).prop_map(Change::Add),
            1 => (0..80_u32).prop_map(Change::Insert),
            3 => (any::<prop::sample::Index>(), 1..60_u8).prop_map(|(at, count)| Change::Remove(at, count)),
        ];
        prop::collection::vec(change, 0..30)
    }

    proptest! {
        #[test]
        fn it_is_a_tree_however_numbers_come_and_go(changes in changes()) {
            let (mut numbered, mut tree, mut next) = (Numbered::new(), BTreeMap::new(), 0);
            for change in &changes {
                match change {
                    Change::Add(count) => {
                        let end = next + u32::from(*count);
                        for number in next..end {
                            prop_assert_eq!(numbered.insert(number, number), tree.insert(number, number));
                        }
                        next = end;
                    }
                    Change::Insert(number) => {
                        prop_assert_eq!(numbered.insert(*number, *number + 1), tree.insert(*number, *number + 1));
                        next = next.max(*number + 1);
                    }
                    Change::Remove(at, count) => {
                        let from = if tree.is_empty() { 0 } else { at.index(tree.len()) };
                        let gone: Vec<u32> = tree.keys().copied().skip(from).take((*count).into()).collect();
                        for number in gone {
                            prop_assert_eq!(numbered.remove(number), tree.remove(&number));
                            prop_assert_eq!(numbered.remove(number), None);
                        }
                    }
                }
                prop_assert!(numbered.iter().eq(&tree), "{:?}", numbered);
                prop_assert!(numbered.iter_mut().map(|(number, value)| (*number, *value)).eq(tree.clone()));
                prop_assert_eq!(numbered.len(), tree.len());
                for number in 0..next + 2 {
                    prop_assert_eq!(numbered.get(number), tree.get(&number));
                    prop_assert_eq!(numbered.get_mut(number), tree.get_mut(&number));
                }
                if let Entries::Many(many) = &numbered.0 {
                    prop_assert!(many.places.len() <= SPARSE * many.len, "{:?}", numbered);
                }
            }
            let codec = bincode::DefaultOptions::new();
            let stored = codec.serialize(&numbered).unwrap();
            prop_assert_eq!(&stored, &codec.serialize(&tree).unwrap());
            prop_assert!(codec.deserialize::<Numbered<u32>>(&stored).unwrap().iter().eq(&tree));
        }
    }

    #[test]
    fn it_is_no_larger_than_a_small_map() {
        assert_eq!(size_of::<Numbered<Box<u64>>>(), size_of::<SmallMap<u32, Box<u64>>>());
    }
}
