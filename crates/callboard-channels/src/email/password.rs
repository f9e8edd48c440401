//! The password of the account that sends.

use std::fmt;
use std::sync::Arc;

use super::error::EmailError;

/// The replacement for the password in a text that is shown.
const SHOWN: &str = "[the password]";

/// The password of the account that sends. It is not shown by `Debug`, and has no other form.
///
/// ```
/// use callboard_channels::email::EmailPassword;
/// let password = EmailPassword::new("correct horse\n")?;
/// assert_eq!(format!("{password:?}"), "EmailPassword(…)");
/// assert!(EmailPassword::new("\n").is_err());
/// # Ok::<(), callboard_channels::email::EmailError>(())
/// ```
#[derive(Clone)]
pub struct EmailPassword(Arc<str>);

impl EmailPassword {
    /// Creates the password with this text; white space at its ends is removed.
    ///
    /// # Errors
    /// [`EmailError::Password`]: it is empty, or has control characters.
    pub fn new(text: &str) -> Result<Self, EmailError> {
        let text = text.trim();
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(EmailError::Password);
        }
        Ok(Self(text.into()))
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without the password.
    pub(super) fn masked(&self, text: &str) -> String {
        text.replace(&*self.0, SHOWN)
    }
}

impl fmt::Debug for EmailPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmailPassword(…)")
    }
}
