//! The secret of a webhook, which signs in both directions.

use std::fmt;
use std::sync::Arc;

use callboard_signatures::Scheme;

use super::error::WebhooksError;

/// The replacement for the secret in a text that is shown.
const SHOWN: &str = "[the secret]";

/// The secret of a webhook, as Standard Webhooks have it. Who has it can decide in the name of the people of the webhook. It is not shown
/// by `Debug`, and has no other form.
///
/// ```
/// use callboard_channels::webhooks::WebhookSecret;
/// let secret = WebhookSecret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")?;
/// assert_eq!(format!("{secret:?}"), "WebhookSecret(…)");
/// assert!(WebhookSecret::new("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_err());
/// # Ok::<(), callboard_channels::webhooks::WebhooksError>(())
/// ```
#[derive(Clone)]
pub struct WebhookSecret(Arc<str>);

impl WebhookSecret {
    /// Creates the secret with this text; white space at its ends is removed.
    ///
    /// # Errors
    /// [`WebhooksError::Secret`]: it is not `whsec_` and 24 to 64 bytes in base64.
    pub fn new(text: &str) -> Result<Self, WebhooksError> {
        let text = text.trim();
        Scheme::Standard.check_secret(text).map_err(WebhooksError::Secret)?;
        Ok(Self(text.into()))
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without the secret, and without the part of it after its prefix.
    pub(super) fn masked(&self, text: &str) -> String {
        let key = self.0.split_once('_').map_or(&*self.0, |(_, key)| key);
        text.replace(&*self.0, SHOWN).replace(key, SHOWN)
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}
