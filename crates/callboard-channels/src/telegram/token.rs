//! The token of a bot, which is a part of each URL of the Bot API.

use std::fmt;
use std::sync::Arc;

use super::error::TelegramError;

/// The replacement for the token in a text that is shown.
const SHOWN: &str = "[the token]";

/// The token of a bot, as @BotFather gives it out. Who has it acts as the bot. It is not shown by `Debug`, and has no other form.
///
/// ```
/// use callboard_channels::telegram::BotToken;
/// let token = BotToken::new("123456:ABC-DEF_ghi\n")?;
/// assert_eq!(format!("{token:?}"), "BotToken(…)");
/// assert!(BotToken::new("ABC-DEF_ghi").is_err());
/// # Ok::<(), callboard_channels::telegram::TelegramError>(())
/// ```
#[derive(Clone)]
pub struct BotToken(Arc<str>);

impl BotToken {
    /// Creates the token with this text; white space at its ends is removed.
    ///
    /// # Errors
    /// [`TelegramError::Token`]: it is no number, a colon, and letters, digits, `_` or `-`.
    pub fn new(text: &str) -> Result<Self, TelegramError> {
        let text = text.trim();
        let is_secret = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let is_token = text.split_once(':').is_some_and(|(bot, secret)| {
            let is_number = !bot.is_empty() && bot.chars().all(|c| c.is_ascii_digit());
            is_number && !secret.is_empty() && secret.chars().all(is_secret)
        });
        if is_token { Ok(Self(text.into())) } else { Err(TelegramError::Token) }
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without the token, and without its secret part.
    pub(super) fn masked(&self, text: &str) -> String {
        let secret = self.0.split_once(':').map_or(&*self.0, |(_, secret)| secret);
        text.replace(&*self.0, SHOWN).replace(secret, SHOWN)
    }
}

impl fmt::Debug for BotToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BotToken(…)")
    }
}
