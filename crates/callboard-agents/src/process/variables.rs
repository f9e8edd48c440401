//! Variables that a program has from the board's own environment: what is in them stays out of logs and errors.

use crate::secret::Secret;

/// Shorter ones are words that stand everywhere, such as `1`, and not secret.
const MIN_SECRET: usize = 8;

/// What is in the variables that are set.
pub(super) fn secrets(variables: &[String]) -> Vec<Secret> {
    let value = |name: &String| Secret::of_variable(&std::env::var_os(name)?.to_string_lossy());
    variables.iter().filter_map(value).collect()
}

/// The text without those of the secrets that are long enough to be some.
pub(crate) fn redacted<'a>(secrets: impl IntoIterator<Item = &'a Secret>, text: String) -> String {
    let secrets = secrets.into_iter().filter(|secret| secret.expose().len() >= MIN_SECRET);
    secrets.fold(text, |text, secret| secret.taken_out_of(&text))
}
