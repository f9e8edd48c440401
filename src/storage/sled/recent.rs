//! A cache with a bound: what was not used for a whole generation is forgotten.

use foldhash::HashMap;
use std::hash::Hash;

/// Keeps at least the last `bound` entries used and at most about twice as many.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    bound: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(super) fn new(bound: usize) -> Self {
        Self { bound, young: HashMap::default(), old: HashMap::default() }
    }

    /// The value of a key, loaded if it is not here.
    pub(super) fn get_or_load<E>(&mut self, key: &K, load: impl FnOnce() -> Result<V, E>) -> Result<&mut V, E> {
        if !self.young.contains_key(key) {
            let value = match self.old.remove(key) {
                Some(value) => value,
                None => load()?,
            };
            self.young.insert(key.clone(), value);
        }
        Ok(self.young.get_mut(key).expect("it is there or was put there"))
    }

    /// Forgets old entries if there are too many. What was changed since the last turn stays.
    pub(super) fn turn(&mut self) {
        if self.young.len() > self.bound {
            self.old = std::mem::take(&mut self.young);
        }
    }
}
