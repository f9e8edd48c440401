//! A cache with a bound: what was not used for a whole generation is forgotten.

use foldhash::HashMap;
use std::hash::Hash;

/// Keeps at least the last `bound` entries used and at most about twice as many.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    bound: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(crate) fn new(bound: usize) -> Self {
        Self { bound, young: HashMap::default(), old: HashMap::default() }
    }

    /// The value of a key, if it is here.
    pub(crate) fn get(&mut self, key: &K) -> Option<&mut V> {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.young.insert(key, value);
        }
        self.young.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    /// Forgets a key, and returns the value that it had here.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (young, old) = (self.young.remove(key), self.old.remove(key));
        young.or(old)
    }

    /// Forgets old entries if there are too many. What was changed since the last turn stays.
    pub(crate) fn turn(&mut self) {
        if self.young.len() > self.bound {
            self.old = std::mem::take(&mut self.young);
        }
    }
}
