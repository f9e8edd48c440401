//! Values that sections read from texts, and their places.

use callboard_documents::toml::{Field, json, misfit};
use callboard_documents::{Defect, Defects, Found, Place};

/// A text that `parse` takes; `None`, and a defect with its advice, if it takes it not.
pub(super) fn parsed<T>(
    (key, item): Field<'_>,
    expected: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
    found: &mut Found,
) -> Option<T> {
    let defect = misfit(key, expected, item);
    match item.get_ref().as_str().map(parse) {
        Some(Ok(value)) => return Some(value),
        Some(Err(advice)) => found.add(defect.advise(advice)),
        None => found.add(defect),
    }
    None
}

/// A whole number.
pub(super) fn integer((key, item): Field<'_>, expected: &str, found: &mut Found) -> Option<i64> {
    // What is no number at all is the same defect.
    let number = json(item, &mut Found::default()).and_then(|value| value.as_i64());
    if number.is_none() {
        found.add(misfit(key, expected, item));
    }
    number
}

/// A place of a text as errors begin: `callboard.toml:2:14: `, or only the file where it is nowhere.
pub(super) fn place_in(origin: &str, text: &str, place: &Place) -> String {
    let shown = Defects::of(origin, Some(text), vec![Defect::new(place, "")]).to_string();
    shown.lines().next().unwrap_or_default().to_owned()
}
