//! TOML, read so that everything that is wrong with a text is found, each defect with its place.
//!
//! A text is read in three steps: its grammar (`scan`), its tree (the `toml` crate), and what the tree says
//! ([`Fields`] and the functions for values).

mod fields;
mod scan;
mod values;

pub use ::toml::Spanned;
pub use ::toml::de::{DeInteger, DeTable, DeValue};

pub use fields::{Field, Fields};
pub use values::{Item, boolean, count, duration, json, list, misfit, mismatch, placed_json, string, text, word};

use callboard_text::quoted;

use crate::{Defect, Found, MAX_TEXT};

/// Has `read` make something of the tree of a text; nothing is made of one that is too long or whose grammar is wrong.
/// `advice` says what to do about one that is too long.
pub fn read<T: Default>(
    text: &str,
    advice: &str,
    found: &mut Found,
    read: impl FnOnce(&DeTable<'_>, &mut Found) -> T,
) -> T {
    if text.len() > MAX_TEXT {
        let problem = format!("the text has more than {MAX_TEXT} bytes");
        found.add(Defect::new(&None, problem).advise(advice));
        return T::default();
    }
    if !scan::is_sound(text, found) {
        return T::default();
    }
    let (tree, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let key = error.span().and_then(|place| text.get(place)).filter(|_| error.message() == "duplicate key");
        found.add(match key {
            Some(key) => {
                let problem = format!("the key {} is repeated", quoted(key.trim_matches(['"', '\''])));
                Defect::new(&error.span(), problem).advise("keep one of them")
            }
            None => Defect::new(&error.span(), error.message()),
        });
    }
    read(tree.get_ref(), found)
}
