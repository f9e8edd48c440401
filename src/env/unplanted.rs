//! Without the feature `testing` no bug can be planted.

use super::Bug;

#[inline(always)]
/// Never.
pub(crate) const fn is_planted(_: Bug) -> bool {
    false
}
