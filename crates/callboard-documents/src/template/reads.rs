//! The values that a template reads.

use std::collections::BTreeMap;

use minijinja::value::{Serde, Value as Read};

use super::environment::ENVIRONMENT;
use super::fault::Fault;
use super::names::{Lookup, Names};

/// The values that are read, with their names in the source.
pub(super) type Reads<V> = Vec<(Vec<String>, V)>;

pub(super) fn reads<V>(names_read: impl IntoIterator<Item = String>, names: &dyn Names<V>) -> Result<Reads<V>, Fault> {
    let mut paths: Vec<String> = names_read.into_iter().collect();
    // The order of the hash set is random.
    paths.sort_unstable();
    let mut reads = Reads::<V>::new();
    for path in paths {
        let parts: Vec<&str> = path.split('.').collect();
        if ENVIRONMENT.globals().any(|(name, _)| name == parts[0]) {
            continue;
        }
        let (var, used) = names.resolve(&parts)?;
        let read: Vec<String> = parts[..used].iter().map(|part| (*part).to_owned()).collect();
        // A whole value comes before its parts.
        if !reads.iter().any(|(earlier, _)| read.starts_with(earlier)) {
            reads.push((read, var));
        }
    }
    Ok(reads)
}

pub(super) fn context<V>(reads: &Reads<V>, lookup: &dyn Lookup<V>) -> Result<Read, String> {
    let mut top: BTreeMap<&str, Read> = BTreeMap::new();
    let mut inner: BTreeMap<&str, BTreeMap<&str, Read>> = BTreeMap::new();
    for (path, var) in reads {
        let value = Read::from(Serde(&*lookup.lookup(var)?));
        match path.as_slice() {
            [name] => drop(top.insert(name, value)),
            [name, field, ..] => drop(inner.entry(name).or_default().insert(field, value)),
            [] => {}
        }
    }
    for (name, fields) in inner {
        top.insert(name, Read::from_pairs(fields));
    }
    Ok(Read::from_pairs(top))
}
