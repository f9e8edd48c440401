//! Parts of a value that most values of its kind have not.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Parts that are empty most of the time, and take the room of a pointer then. Reading them reads empty ones; changing them makes room
/// for them, so code that may have nothing to change uses [`Rare::get_mut`]. They are stored as the parts are.
#[derive(Clone)]
pub(crate) struct Rare<T>(Option<Box<T>>);

/// Parts that may be empty.
pub(crate) trait Parts: Default + Sized + 'static {
    /// Parts that are all empty.
    fn empty() -> &'static Self;

    /// Whether all parts are empty.
    fn is_empty(&self) -> bool;
}

impl<K: 'static, V: 'static> Parts for BTreeMap<K, V> {
    fn empty() -> &'static Self {
        const { &Self::new() }
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<T: 'static> Parts for VecDeque<T> {
    fn empty() -> &'static Self {
        const { &Self::new() }
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Parts> Rare<T> {
    /// These parts, without room for empty ones.
    pub(crate) fn of(parts: T) -> Self {
        Self((!parts.is_empty()).then(|| Box::new(parts)))
    }

    /// A copy of these parts, without room for empty ones.
    pub(crate) fn copied(parts: &T) -> Self
    where
        T: Clone,
    {
        Self((!parts.is_empty()).then(|| Box::new(parts.clone())))
    }

    /// The parts for a change; `None` if they are empty and take no room.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: Parts + PartialEq> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Parts + Eq> Eq for Rare<T> {}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Parts> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(parts) => parts,
            None => T::empty(),
        }
    }
}

impl<T: Parts> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T: Parts + fmt::Debug> fmt::Debug for Rare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Parts + Serialize> Serialize for Rare<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: Parts + Deserialize<'de>> Deserialize<'de> for Rare<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Notes {
        texts: Vec<String>,
        is_read: bool,
    }

    impl Parts for Notes {
        fn empty() -> &'static Self {
            static EMPTY: Notes = Notes { texts: Vec::new(), is_read: false };
            &EMPTY
        }

        fn is_empty(&self) -> bool {
            *self == Self::default()
        }
    }

    #[test]
    fn empty_parts_take_no_room_and_look_like_others() {
        let mut rare = Rare::<Notes>::default();
        assert_eq!((size_of_val(&rare), rare.texts.len()), (size_of::<usize>(), 0));
        assert!(rare.get_mut().is_none() && rare.0.is_none(), "reading makes no room");
        assert_eq!(format!("{rare:?}"), format!("{:?}", Notes::default()));
        let read: Rare<Notes> = serde_json::from_str(&serde_json::to_string(&rare).unwrap()).unwrap();
        assert!(read.0.is_none());
        rare.texts.push("a".to_owned());
        assert_eq!(rare.get_mut().map(|notes| notes.texts.len()), Some(1));
        let read: Rare<Notes> = serde_json::from_str(&serde_json::to_string(&rare).unwrap()).unwrap();
        assert_eq!(*read, *rare);
    }
}
