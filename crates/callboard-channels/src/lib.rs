//! Channels by which people decide the approvals of a board where they are.
//!
//! With the feature `telegram`, [`telegram::TelegramChannel`] is one for [`Builder::channel`](callboard::runtime::Builder::channel):
//! each approval is a message of a bot, with buttons.

#[cfg(feature = "telegram")]
pub mod telegram;
