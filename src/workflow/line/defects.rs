//! The defects found while a text is read.

use std::ops::Range;

use callboard_documents::Defect;

/// The most defects that are reported at once.
pub(super) const MAX_DEFECTS: usize = 20;

/// The defects of one text, in the order in which they are found; further ones are left out once the list is full.
#[derive(Debug, Default)]
pub(super) struct DefectList(Vec<Defect>);

impl DefectList {
    /// Adds a defect, unless the list is full.
    pub(super) fn add(&mut self, place: &Range<usize>, problem: impl Into<String>, advice: impl Into<String>) {
        if !self.is_full() {
            self.0.push(Defect::new(&Some(place.clone()), problem).advise(advice));
        }
    }

    /// Whether the list is full, so that reading can stop.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_DEFECTS
    }

    /// `sound`, or the defects in the order of their places if there are any.
    pub(super) fn or<T>(mut self, sound: T) -> Result<T, Vec<Defect>> {
        self.0.sort_by_key(|defect| defect.place.as_ref().map(|place| place.start));
        if self.0.is_empty() { Ok(sound) } else { Err(self.0) }
    }
}
