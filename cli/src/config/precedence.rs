//! Where the value of a setting comes from.

use callboard::messages::visible;

use crate::page::Failure;
use crate::values::variable;

/// The value of an option, else of a variable, else of the file.
///
/// # Errors
/// The variable has a text that is none of its values.
pub(super) fn chosen<T>(
    option: Option<T>,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
    file: Option<T>,
) -> Result<Option<T>, Failure> {
    let Some(text) = variable(name).filter(|_| option.is_none()) else { return Ok(option.or(file)) };
    let text = text.to_string_lossy();
    let value = parse(&text).map_err(|problem| Failure::usage(visible(&format!("{name} is {text:?}: {problem}"))))?;
    Ok(Some(value))
}
