//! The base of a server without the feature: there is none.

#[derive(Default)]
pub(crate) struct FactsCell;

impl FactsCell {
    #[expect(clippy::unused_self, reason = "the room may reserve names")]
    pub(super) const fn reserves(&self) -> bool {
        false
    }
}
