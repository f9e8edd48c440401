//! Writes as bytes: which rows they change, one write after the other. So they are in the write-ahead log, and were, in format 2 of the
//! store, in rows of sled's tree, some kilobytes in each (groups).

use sled::{IVec, Tree};

use super::overlay::Rows;
use super::rows::{self, GROUP};

/// A group begins with the number of its bytes that belong to a write which an earlier group has begun. The first ones are removed before
/// the last ones, so a crash may leave the end of a write that was applied.
const BEGUN_BEFORE: usize = 4;

/// Writes that are not in the log yet, in their order.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    bytes: Vec<u8>,
}

impl Unwritten {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
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

/// Takes a piece from the front.
pub(super) fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (piece, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(piece)
}

/// Applies the groups in the tree of a store of format 2, and removes them.
///
/// # Errors
/// A group is damaged: an acknowledged write is lost.
pub(super) fn apply_groups(tree: &Tree) -> Result<(), String> {
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
    apply(tree, &bytes)?;
    keys.into_iter().try_for_each(|row| tree.remove(row).map(drop)).map_err(|error| error.to_string())
}

/// Applies writes to a tree: what the last of them leaves.
///
/// # Errors
/// They cannot be read, or sled fails.
pub(super) fn apply(tree: &Tree, writes: &[u8]) -> Result<(), String> {
    for (row, sealed) in whole_writes(writes)? {
        let applied = match sealed {
            Some(sealed) => tree.insert(row, sealed),
            None => tree.remove(row),
        };
        applied.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What the writes that are whole have changed.
fn whole_writes(mut bytes: &[u8]) -> Result<Rows, String> {
    let mut changed = Rows::new();
    while let Some(mut write) = take(&mut bytes) {
        while !write.is_empty() {
            let (row, sealed) = change(&mut write).ok_or("the changes of a write cannot be read")?;
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

    /// The longest piece that one group had.
    const PIECE: usize = 32 << 10;

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

    /// Writes groups as format 2 had them.
    fn written(tree: &Tree, writes: &[(Vec<u8>, Vec<u8>)]) {
        let mut number = 1;
        for some in writes.chunks(7) {
            let mut unwritten = Unwritten::default();
            for (row, sealed) in some {
                unwritten.add([(&**row, Some(&**sealed)), (b"removed".as_slice(), None)].into_iter());
            }
            // Where the next write begins, counted from the piece.
            let mut begins = 0;
            for (piece, at) in unwritten.bytes.chunks(PIECE).zip((0..).step_by(PIECE)) {
                let row = rows::group(number);
                let sealed = rows::seal(&row, &[&length_of(begins.min(piece.len())), piece]);
                tree.insert(row, sealed).unwrap();
                number += 1;
                while begins < piece.len() {
                    let mut rest = &unwritten.bytes[at + begins..];
                    begins += 4 + take(&mut rest).map_or(0, <[u8]>::len);
                }
                begins -= piece.len();
            }
        }
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
            apply_groups(&tree).unwrap();
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
            written(&tree, &writes);
            for group in 1..removed {
                tree.remove(rows::group(group)).unwrap();
            }
            let left = groups_in(&tree);
            apply_groups(&tree).unwrap();
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
            assert!(apply_groups(&tree).unwrap_err().starts_with("a group of writes"));
        }
    }
}
