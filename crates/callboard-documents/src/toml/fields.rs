//! A table whose keys are read by name: keys that were not read are unknown.

use std::ops::Range;

use ::toml::de::{DeTable, DeValue};
use callboard_text::{did_you_mean, nearest, quoted};

use super::values::{Item, mismatch, text};
use crate::{Defect, Found, Placed};

/// Reads a table key by key. [`Fields::close`] reports the keys that nobody asked for.
pub struct Fields<'t> {
    /// The kind of thing that the table describes, as `a task`.
    what: &'static str,
    table: &'t DeTable<'t>,
    /// Where the table is: the place of a defect about a key that is missing.
    pub place: Range<usize>,
    asked: Vec<&'static str>,
    refused: Vec<&'static str>,
}

/// A key and what it is set to.
pub type Field<'t> = (&'static str, &'t Item<'t>);

impl<'t> Fields<'t> {
    /// Returns the keys of an item; `None`, and a defect, if it is no table. `advice` is an example.
    pub fn of(what: &'static str, item: &'t Item<'t>, advice: &str, found: &mut Found) -> Option<Self> {
        let DeValue::Table(table) = item.get_ref() else {
            found.add(mismatch(what, "a table", item).advise(advice));
            return None;
        };
        Some(Self { what, table, place: item.span(), asked: Vec::new(), refused: Vec::new() })
    }

    /// Returns the keys of a whole document.
    #[must_use]
    pub fn document(what: &'static str, table: &'t DeTable<'t>) -> Self {
        Self { what, table, place: 0..0, asked: Vec::new(), refused: Vec::new() }
    }

    /// Returns what a key is set to; `None` if it is not set. [`Fields::close`] takes the key for known from then on.
    pub fn get(&mut self, key: &'static str) -> Option<&'t Item<'t>> {
        self.asked.push(key);
        self.table.get(key)
    }

    /// Returns what a key is set to that the caller refuses in its own words: [`Fields::close`] neither reports nor suggests it.
    pub fn refused(&mut self, key: &'static str) -> Option<&'t Item<'t>> {
        self.refused.push(key);
        self.table.get(key)
    }

    /// Returns the same as [`Fields::get`], together with the key.
    pub fn field(&mut self, key: &'static str) -> Option<Field<'t>> {
        self.get(key).map(|item| (key, item))
    }

    /// Returns the text that a key is set to; `None` if it is not set, and a defect if it is something else.
    pub fn text(&mut self, key: &'static str, found: &mut Found) -> Option<Placed<String>> {
        self.field(key).and_then(|field| text(field, found))
    }

    /// Returns what the key is set to; `None`, and a defect, if it is not set.
    pub fn required(&mut self, key: &'static str, advice: &str, found: &mut Found) -> Option<Field<'t>> {
        let field = self.field(key);
        if field.is_none() {
            let problem = format!("{} needs `{key}`", self.what);
            found.add(Defect::new(&Some(self.place.clone()), problem).advise(advice));
        }
        field
    }

    /// Adds a defect for each key that nobody asked for.
    pub fn close(self, found: &mut Found) {
        let is_known = |key: &str| self.asked.contains(&key) || self.refused.contains(&key);
        for key in self.table.keys().filter(|key| !is_known(key.get_ref())) {
            let likely = nearest(key.get_ref(), self.asked.iter().copied());
            let problem =
                format!("{} has no key {}{}", self.what, quoted(key.get_ref()), did_you_mean(likely.as_deref()));
            let mut defect = Defect::new(&Some(key.span()), problem);
            if likely.is_none() {
                let known = self.asked.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
                defect = defect.advise(format!("its keys are {known}"));
            }
            found.add(defect);
        }
    }
}
