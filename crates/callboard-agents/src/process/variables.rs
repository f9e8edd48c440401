//! Variables that are passed on from the board's own environment: their values are kept out of logs and errors.

use crate::secret::Secret;

/// Shorter values are common words, such as `1`, and no secrets.
const MIN_SECRET: usize = 8;

/// The values of the variables that are set.
pub(super) fn secrets(variables: &[String]) -> Vec<Secret> {
    let value = |name: &String| Secret::of_variable(&std::env::var_os(name)?.to_string_lossy());
    variables.iter().filter_map(value).collect()
}

/// The text without the secrets that are long enough.
pub(crate) fn redacted<'a>(secrets: impl IntoIterator<Item = &'a Secret>, text: String) -> String {
    let secrets = secrets.into_iter().filter(|secret| secret.expose().len() >= MIN_SECRET);
    secrets.fold(text, |text, secret| secret.taken_out_of(&text))
}
