//! What was found wrong with a text.

use super::super::draft::Defect;

/// The most defects that are told: a text of 1 MiB can have a million, and each is shown with its line.
const MAX_DEFECTS: usize = 100;

/// Everything that is wrong with a text so far.
#[derive(Default)]
pub(super) struct Found {
    list: Vec<Defect>,
    /// How many there are beyond those in the list.
    beyond: usize,
}

impl Found {
    pub(super) fn add(&mut self, defect: Defect) {
        if self.list.len() < MAX_DEFECTS {
            self.list.push(defect);
        } else {
            self.beyond += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What was read, if nothing was wrong with it.
    pub(super) fn or<T>(mut self, read: T) -> Result<T, Vec<Defect>> {
        if self.list.is_empty() {
            return Ok(read);
        }
        self.list.sort_by_key(|defect| defect.place.as_ref().map(|place| (place.start, place.end)));
        if self.beyond > 0 {
            self.list.push(Defect::new(&None, format!("too many defects to show: {} more", self.beyond)));
        }
        Err(self.list)
    }
}
