//! The turns of an agent that are ready, or have begun and not ended, by their ids.

use foldhash::HashMap;

use crate::messages::TurnId;

/// A map by the ids of turns. Most agents have one turn at a time, which needs no table.
pub(super) struct KnownTurns<T> {
    /// A turn that was added when there was no other one.
    one: Option<(TurnId, T)>,
    #[allow(clippy::box_collection, reason = "most agents have none")]
    others: Option<Box<HashMap<TurnId, T>>>,
}

impl<T> KnownTurns<T> {
    pub(super) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.others.as_ref().map_or(0, |others| others.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, id: &TurnId) -> Option<&T> {
        match &self.one {
            Some((one, turn)) if one == id => Some(turn),
            Some(_) | None => self.others.as_ref()?.get(id),
        }
    }

    pub(super) fn get_mut(&mut self, id: &TurnId) -> Option<&mut T> {
        match &mut self.one {
            Some((one, turn)) if one == id => Some(turn),
            Some(_) | None => self.others.as_mut()?.get_mut(id),
        }
    }

    pub(super) fn contains_key(&self, id: &TurnId) -> bool {
        self.get(id).is_some()
    }

    /// Adds a turn; returns the one that the id had.
    pub(super) fn insert(&mut self, id: TurnId, turn: T) -> Option<T> {
        match &mut self.one {
            Some((one, known)) if *one == id => return Some(std::mem::replace(known, turn)),
            None if self.others.as_ref().is_none_or(|others| others.is_empty()) => {
                self.one = Some((id, turn));
                return None;
            }
            Some(_) | None => {}
        }
        self.others.get_or_insert_default().insert(id, turn)
    }

    pub(super) fn remove(&mut self, id: &TurnId) -> Option<T> {
        match self.one.take_if(|(one, _)| one == id) {
            Some((_, turn)) => Some(turn),
            None => self.others.as_mut()?.remove(id),
        }
    }

    /// In no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&TurnId, &T)> {
        let one = self.one.iter().map(|(id, turn)| (id, turn));
        one.chain(self.others.iter().flat_map(|others| others.iter()))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &TurnId> {
        self.iter().map(|(id, _)| id)
    }
}

impl<T> Default for KnownTurns<T> {
    fn default() -> Self {
        Self { one: None, others: None }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::messages::RunId;

    proptest! {
        #[test]
        fn they_are_a_map(changes in prop::collection::vec((0..4_u32, 0..5_u8), 0..60)) {
            let (mut known, mut expected) = (KnownTurns::default(), BTreeMap::new());
            for (at, (number, change)) in changes.into_iter().enumerate() {
                let id = TurnId { run: RunId(Uuid::nil()), number };
                match change {
                    0 | 1 => prop_assert_eq!(known.insert(id, at), expected.insert(id, at)),
                    2 | 3 => prop_assert_eq!(known.remove(&id), expected.remove(&id)),
                    _ => {
                        known.get_mut(&id).into_iter().for_each(|turn| *turn += 100);
                        expected.get_mut(&id).into_iter().for_each(|turn| *turn += 100);
                    }
                }
                prop_assert_eq!(known.get(&id), expected.get(&id));
                prop_assert_eq!(known.contains_key(&id), expected.contains_key(&id));
                prop_assert_eq!((known.len(), known.is_empty()), (expected.len(), expected.is_empty()));
                prop_assert_eq!(known.iter().map(|(id, turn)| (*id, *turn)).collect::<BTreeMap<_, _>>(), expected.clone());
                prop_assert!(known.keys().all(|id| expected.contains_key(id)));
            }
        }
    }
}
