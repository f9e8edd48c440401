//! The defects found in a text.

use crate::Defect;

/// The most defects that are kept: a text of 1 MiB can have a million, and each is shown with its line.
const MAX_DEFECTS: usize = 100;

/// Everything that is wrong with a text so far.
#[derive(Default)]
pub struct Found {
    list: Vec<Defect>,
    /// The number of defects beyond those in the list.
    beyond: usize,
}

impl Found {
    /// Adds a defect, or only counts it if there are 100 already.
    pub fn add(&mut self, defect: Defect) {
        if self.is_full() {
            self.beyond += 1;
        } else {
            self.list.push(defect);
        }
    }

    /// As [`Found::add`], unless it is known already.
    pub fn add_once(&mut self, defect: Defect) {
        if self.is_full() || !self.list.contains(&defect) {
            self.add(defect);
        }
    }

    /// Returns how many defects are kept: 100 at most, even if more were found.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether no more defects are kept.
    fn is_full(&self) -> bool {
        self.list.len() >= MAX_DEFECTS
    }

    /// Returns whether no defect was added so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns what was read, if nothing was wrong with it.
    ///
    /// # Errors
    /// Everything that was wrong.
    pub fn or<T>(self, read: T) -> Result<T, Vec<Defect>> {
        if self.is_empty() { Ok(read) } else { Err(self.into_defects()) }
    }

    /// Returns the defects in the order of the text, those without a place first. If more were found than are kept, the
    /// last one counts the others.
    #[must_use]
    pub fn into_defects(mut self) -> Vec<Defect> {
        self.list.sort_by_key(|defect| defect.place.as_ref().map(|place| (place.start, place.end)));
        if self.beyond > 0 {
            self.list.push(Defect::new(&None, format!("too many defects to show: {} more", self.beyond)));
        }
        self.list
    }
}
