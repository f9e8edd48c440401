//! The environment in which all templates are parsed and rendered: strict, and with a limit of steps.

use std::sync::LazyLock;

use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

use super::values::{bound_filters, json_of};

/// The limit of a template's steps, in instructions of minijinja's machine.
pub(super) const FUEL: u64 = 1_000_000;

pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|out, _, value| {
        let text = match value.as_str() {
            Some(text) => text.into(),
            None if value.is_undefined() => return Err(ErrorKind::UndefinedError.into()),
            None => std::borrow::Cow::Owned(json_of(value)?.to_string()),
        };
        out.write_str(&text).map_err(Error::from)
    });
    bound_filters(&mut environment);
    environment
});
