//! Writes as they are synced: one after the other, in rows of some kilobytes, whatever they change. A group row costs the tree what any
//! row costs it, and holds what a hundred writes have changed.
//!
//! The rows that writes change are applied to the tree later, and only then are the groups removed. A store that was not closed is
//! opened by applying the groups, which makes no difference to what was applied before. A crash leaves a beginning of the
//! groups; of a write that is not whole nothing is applied.

use sled::{IVec, Tree};

use super::overlay::Rows;
use super::rows::{self, GROUP};

/// The longest piece that one row has. A page has up to 17 rows and is written again with every tenth change of it.
const PIECE: usize = 32 << 10;

/// A piece begins with the number of its bytes that belong to a write which an earlier piece has begun. The first ones are removed before
/// the last ones, so a crash may leave the end of a write that was applied.
const BEGUN_BEFORE: usize = 4;

/// Writes that are in no group row yet, in their order.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    bytes: Vec<u8>,
}

impl Unwritten {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds what one write changes.
    pub(super) fn add<'a>(&mut self, changed: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        for (row, sealed) in changed {
            push(&mut self.bytes, row);
            match sealed {
                Some(sealed) => {
                    self.bytes.push(SET);
                    push(&mut self.bytes, sealed);
                }
                None => self.bytes.push(REMOVED),
            }
        }
        let length = length_of(self.bytes.len() - at - 4);
        self.bytes[at..at + 4].copy_from_slice(&length);
    }
}

const SET: u8 = 1;
const REMOVED: u8 = 0;

fn length_of(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}

fn push(bytes: &mut Vec<u8>, piece: &[u8]) {
    bytes.extend_from_slice(&length_of(piece.len()));
    bytes.extend_from_slice(piece);
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (piece, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(piece)
}

/// The group rows of a tree.
#[derive(Debug)]
pub(super) struct Groups {
    /// The first one that is there, and the next one to be written.
    first: u64,
    next: u64,
}

impl Default for Groups {
    fn default() -> Self {
        Self { first: 1, next: 1 }
    }
}

impl Groups {
    /// Writes them to the tree.
    pub(super) fn write(&mut self, tree: &Tree, unwritten: &Unwritten) -> sled::Result<()> {
        // Where the next write begins, counted from the piece.
        let mut begins = 0;
        for (piece, at) in unwritten.bytes.chunks(PIECE).zip((0..).step_by(PIECE)) {
            let begun_before = begins.min(piece.len());
            let row = rows::group(self.next);
            let sealed = rows::seal(&row, &[&length_of(begun_before), piece]);
            tree.insert(row, sealed)?;
            self.next += 1;
            while begins < piece.len() {
                let mut rest = &unwritten.bytes[at + begins..];
                begins += 4 + take(&mut rest).map_or(0, <[u8]>::len);
            }
            begins -= piece.len();
        }
        Ok(())
    }

    /// The number of the next group: what was written before has been written by then.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Removes those before one, whose writes the tree has.
    pub(super) fn remove_before(&mut self, tree: &Tree, end: u64) -> sled::Result<()> {
        while self.first < end {
            tree.remove(rows::group(self.first))?;
            self.first += 1;
        }
        Ok(())
    }
}

/// Applies the groups in a tree to it, and removes them.
///
/// # Errors
/// A group is damaged: an acknowledged write is lost.
pub(super) fn apply_left(tree: &Tree) -> Result<(), String> {
    let (mut bytes, mut keys, mut expected) = (Vec::new(), Vec::new(), None);
    for group in tree.scan_prefix([GROUP]) {
        let (row, sealed) = group.map_err(|error| error.to_string())?;
        let number = rows::number_of(&row).ok_or("a group of writes has no number")?;
        if expected.is_some_and(|expected| expected != number) {
            return Err("a group of writes is missing".to_owned());
        }
        let sealed = rows::unseal(&row, &sealed).map_err(|error| format!("a group of writes: {error}"))?;
        let (begun_before, mut piece) =
            sealed.split_first_chunk::<BEGUN_BEFORE>().ok_or("a group of writes is short")?;
        if bytes.is_empty() {
            let begun_before = usize::try_from(u32::from_le_bytes(*begun_before)).unwrap_or(usize::MAX);
            piece = piece.get(begun_before..).ok_or("a group of writes is short")?;
        }
        bytes.extend_from_slice(piece);
        expected = Some(number + 1);
        keys.push(row);
    }
    for (row, sealed) in whole_writes(&bytes)? {
        let applied = match sealed {
            Some(sealed) => tree.insert(row, sealed),
            None => tree.remove(row),
        };
        applied.map_err(|error| error.to_string())?;
    }
    keys.into_iter().try_for_each(|row| tree.remove(row).map(drop)).map_err(|error| error.to_string())
}

/// What the writes that are whole have changed.
fn whole_writes(mut bytes: &[u8]) -> Result<Rows, String> {
    let mut changed = Rows::new();
    while let Some(mut write) = take(&mut bytes) {
        while !write.is_empty() {
            let (row, sealed) = change(&mut write).ok_or("a group of writes cannot be read")?;
            changed.insert(row.to_vec(), sealed.map(IVec::from));
        }
    }
    Ok(changed)
}

fn change<'a>(write: &mut &'a [u8]) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let row = take(write)?;
    let (kind, rest) = write.split_first()?;
    *write = rest;
    match *kind {
        SET => Some((row, Some(take(write)?))),
        REMOVED => Some((row, None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> sled::Db {
        sled::Config::new().temporary(true).open().unwrap()
    }

    fn groups_in(tree: &Tree) -> usize {
        tree.scan_prefix([GROUP]).count()
    }

    /// Writes of lengths that begin and end anywhere in the pieces.
    fn writes() -> Vec<(Vec<u8>, Vec<u8>)> {
        let lengths = [0, 1, 100, PIECE - 40, PIECE, PIECE + 1, 3 * PIECE, 7, PIECE / 2, 2 * PIECE - 3, 5];
        let writes = lengths.into_iter().cycle().take(40).enumerate();
        writes.map(|(number, length)| (format!("v{number:03}").into_bytes(), vec![number as u8; length])).collect()
    }

    fn written(tree: &Tree, writes: &[(Vec<u8>, Vec<u8>)]) -> Groups {
        let mut groups = Groups::default();
        for some in writes.chunks(7) {
            let mut unwritten = Unwritten::default();
            for (row, sealed) in some {
                unwritten.add([(&**row, Some(&**sealed)), (b"removed".as_slice(), None)].into_iter());
            }
            groups.write(tree, &unwritten).unwrap();
        }
        groups
    }

    #[test]
    fn whatever_a_crash_leaves_of_groups_a_beginning_of_the_writes_is_applied() {
        let writes = writes();
        let all = tree();
        written(&all, &writes);
        let groups: Vec<(IVec, IVec)> = all.scan_prefix([GROUP]).map(Result::unwrap).collect();
        for left in 0..=groups.len() {
            let tree = tree();
            tree.insert(b"removed", b"x").unwrap();
            for (row, sealed) in &groups[..left] {
                tree.insert(row, sealed).unwrap();
            }
            apply_left(&tree).unwrap();
            let applied = tree.scan_prefix(b"v").count();
            assert_eq!(groups_in(&tree), 0);
            assert_eq!(tree.contains_key(b"removed").unwrap(), applied == 0);
            for (row, sealed) in &writes[..applied] {
                assert_eq!(tree.get(row).unwrap().as_deref(), Some(&**sealed));
            }
            assert_eq!(applied == writes.len(), left == groups.len());
        }
    }

    #[test]
    fn the_end_of_a_write_whose_beginning_was_removed_is_left_out() {
        let writes = writes();
        for removed in 1.. {
            let tree = tree();
            let mut groups = written(&tree, &writes);
            groups.remove_before(&tree, removed).unwrap();
            let left = groups_in(&tree);
            apply_left(&tree).unwrap();
            let applied: Vec<_> = tree.scan_prefix(b"v").map(Result::unwrap).collect();
            let last = &writes[writes.len() - applied.len()..];
            assert!(applied.iter().zip(last).all(|((row, sealed), write)| *row == write.0 && *sealed == write.1));
            if left == 0 {
                return;
            }
        }
    }

    #[test]
    fn a_damaged_group_and_a_missing_one_are_reported() {
        let (row, damages) = (rows::group(3), [None, Some(IVec::from(b"damaged"))]);
        for damage in damages {
            let tree = tree();
            written(&tree, &writes());
            match damage {
                Some(sealed) => tree.insert(&row, sealed).unwrap(),
                None => tree.remove(&row).unwrap(),
            };
            assert!(apply_left(&tree).unwrap_err().starts_with("a group of writes"));
        }
    }
}
