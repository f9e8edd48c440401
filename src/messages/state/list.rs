//! The lists of a state: persistent, and cheap to append to.

use std::fmt;
use std::sync::Arc;

use rpds::VectorSync;

use crate::messages::Json;

/// How many items lie together.
const CHUNK: usize = 32;

/// A list that grows at its end. A clone is a pointer, and an append to a shared list copies at most the items after the last whole
/// chunk, however long the list is.
#[derive(Clone, Default)]
pub(super) struct List(Arc<Parts>);

#[derive(Clone, Default)]
struct Parts {
    /// Of [`CHUNK`] items each; `None` for a short list, because an empty vector is an allocation.
    chunks: Option<VectorSync<Arc<[Json]>>>,
    /// Fewer than [`CHUNK`].
    rest: Vec<Json>,
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.0.chunks.as_ref().map_or(0, |chunks| chunks.len()) * CHUNK + self.0.rest.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Json> {
        self.0.chunks.iter().flatten().flat_map(|chunk| chunk.iter()).chain(&self.0.rest)
    }

    /// The items from this one on.
    pub(super) fn iter_from(&self, first: usize) -> impl Iterator<Item = &Json> {
        let Parts { chunks, rest } = &*self.0;
        let count = chunks.as_ref().map_or(0, |chunks| chunks.len());
        let whole = (first / CHUNK).min(count);
        let later = (whole..count).filter_map(move |chunk| chunks.as_ref()?.get(chunk));
        later.flat_map(|chunk| chunk.iter()).chain(rest).skip(first - whole * CHUNK)
    }

    pub(super) fn push(&mut self, item: Json) {
        if Arc::get_mut(&mut self.0).is_none() {
            // With room for the item, which a clone would have not.
            let mut rest = Vec::with_capacity(self.0.rest.len() + 1);
            rest.extend_from_slice(&self.0.rest);
            self.0 = Arc::new(Parts { chunks: self.0.chunks.clone(), rest });
        }
        let Parts { chunks, rest } = Arc::make_mut(&mut self.0);
        rest.push(item);
        if rest.len() == CHUNK {
            chunks.get_or_insert_default().push_back_mut(std::mem::take(rest).into());
        }
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.len() == other.len() && self.iter().eq(other.iter()))
    }
}

impl FromIterator<Json> for List {
    fn from_iter<I: IntoIterator<Item = Json>>(items: I) -> Self {
        let mut list = Self::default();
        items.into_iter().for_each(|item| list.push(item));
        list
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_list_and_an_append_leaves_its_clones_as_they_were(length in 0..150_usize, seen in 0..150_usize) {
            let seen = seen.min(length);
            let (mut list, mut kept) = (List::default(), List::default());
            for item in 0..length {
                if item == seen {
                    kept = list.clone();
                }
                list.push(Json::from(item));
            }
            let items: Vec<Json> = (0..length).map(Json::from).collect();
            prop_assert!(list.iter().eq(&items) && list.len() == length, "{:?}", list);
            if seen < length {
                prop_assert!(kept.iter().eq(&items[..seen]) && kept.len() == seen, "{:?}", kept);
                prop_assert!(kept != list && list.iter_from(seen).eq(&items[seen..]));
            }
            prop_assert!(list.iter_from(length).next().is_none());
            prop_assert_eq!(items.into_iter().collect::<List>(), list);
        }
    }
}
