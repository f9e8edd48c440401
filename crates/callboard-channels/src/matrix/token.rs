//! The access token of an account of Matrix.

use std::fmt;
use std::sync::Arc;

use super::error::MatrixError;

/// The replacement for the token in a text that is shown.
const SHOWN: &str = "[the token]";
/// The shortest and the longest token, in bytes. A shorter one could be a part of other words.
const LENGTHS: std::ops::RangeInclusive<usize> = 8..=4_096;

/// The access token of an account of Matrix. Who has it acts as the account. It is not shown by `Debug`, and has no other form.
///
/// ```
/// use callboard_channels::matrix::AccessToken;
/// let token = AccessToken::new("syt_Ym9hcmQ_abcdefgh\n")?;
/// assert_eq!(format!("{token:?}"), "AccessToken(…)");
/// assert!(AccessToken::new("two words").is_err());
/// # Ok::<(), callboard_channels::matrix::MatrixError>(())
/// ```
#[derive(Clone)]
pub struct AccessToken(Arc<str>);

impl AccessToken {
    /// Creates the token with this text; white space at its ends is removed.
    ///
    /// # Errors
    /// [`MatrixError::Token`]: it is shorter than 8 characters, or has others than visible ones of ASCII.
    pub fn new(text: &str) -> Result<Self, MatrixError> {
        let text = text.trim();
        let is_token = LENGTHS.contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic());
        if is_token { Ok(Self(text.into())) } else { Err(MatrixError::Token) }
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without the token.
    pub(super) fn masked(&self, text: &str) -> String {
        text.replace(&*self.0, SHOWN)
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}
