//! Where the tree has no rows. Names of runs and of what is noted about them follow the time, so new ones are beside each other, and a look
//! at the tree for one shows that there is nothing for the next ones either.

use sled::Tree;

/// How many gaps are remembered.
const GAPS: usize = 8;

/// How many looks may be in vain before most are left out, as where names follow no order; and how many a hit pays for.
const CREDIT: u32 = 64;
const FOR_A_HIT: u32 = 2;

/// Without credit, one look in so many is taken.
const ONE_OF: u32 = 16;

/// Ranges of the tree without rows.
#[derive(Debug)]
pub(super) struct Gaps {
    /// The rows before and behind each, or what sorts before and behind all; the last one used is the first.
    gaps: Vec<(Vec<u8>, Vec<u8>)>,
    /// How often rows had been added to the tree when these were found.
    applied: u64,
    credit: u32,
    left_out: u32,
}

impl Default for Gaps {
    fn default() -> Self {
        Self { gaps: Vec::with_capacity(GAPS), applied: 0, credit: CREDIT, left_out: 0 }
    }
}

impl Gaps {
    /// Whether the tree has nothing from one row to another, as far as is known. `applied` is how often rows were added to it.
    pub(super) fn have(&mut self, first: &[u8], last: &[u8], applied: u64) -> bool {
        if self.applied != applied {
            self.gaps.clear();
            self.applied = applied;
        }
        let Some(at) = self.gaps.iter().position(|(low, high)| **low < *first && *last < **high) else { return false };
        self.gaps[..=at].rotate_right(1);
        self.credit = (self.credit + FOR_A_HIT).min(CREDIT);
        true
    }

    /// Remembers the gap in which a row would be that the tree does not have. If it cannot be read, nothing is remembered.
    pub(super) fn learn(&mut self, tree: &Tree, row: &[u8]) {
        if self.credit == 0 {
            self.left_out = (self.left_out + 1) % ONE_OF;
            if self.left_out != 0 {
                return;
            }
        }
        self.credit = self.credit.saturating_sub(1);
        let (before, behind) = (tree.range(..row).next_back().transpose(), tree.range(row..).next().transpose());
        let (Ok(before), Ok(behind)) = (before, behind) else { return };
        let low = before.map_or_else(Vec::new, |(row, _)| row.to_vec());
        let high = behind.map_or_else(|| vec![u8::MAX], |(row, _)| row.to_vec());
        self.gaps.truncate(GAPS - 1);
        self.gaps.insert(0, (low, high));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_between_two_rows_until_rows_are_added() {
        let tree = sled::Config::new().temporary(true).open().unwrap();
        let mut gaps = Gaps::default();
        for row in [b"v3", b"v7"] {
            tree.insert(row, b"x").unwrap();
        }
        assert!(!gaps.have(b"v5", b"v5", 0));
        for row in [b"v1", b"v5", b"v9"] {
            gaps.learn(&tree, row);
        }
        for (first, last, is_empty) in [
            (b"v0", b"v2", true),
            (b"v4", b"v6", true),
            (b"v8", b"w0", true),
            (b"v3", b"v3", false),
            (b"v7", b"v7", false),
            (b"v2", b"v4", false),
            (b"v6", b"v8", false),
        ] {
            assert_eq!(gaps.have(first, last, 0), is_empty, "{}", first.escape_ascii());
        }
        assert!(!gaps.have(b"v4", b"v6", 1));
        assert!(!gaps.have(b"v4", b"v6", 0), "it was forgotten");
    }

    #[test]
    fn where_names_have_no_order_few_looks_are_taken() {
        let tree = sled::Config::new().temporary(true).open().unwrap();
        let mut gaps = Gaps::default();
        let mut looks = 0;
        for applied in 0..CREDIT + 10 * ONE_OF {
            assert!(!gaps.have(b"v", b"v", applied.into()));
            gaps.learn(&tree, b"v");
            looks += gaps.gaps.len();
        }
        assert_eq!(looks, CREDIT as usize + 10);
    }
}
