//! Channels by which people decide the approvals of a board where they are.
//!
//! With the feature `telegram`, [`telegram::TelegramChannel`] is one for [`Builder::channel`](callboard::runtime::Builder::channel):
//! each approval is a message of a bot, with buttons. With the feature `matrix`, [`matrix::MatrixChannel`] is one: each approval is a
//! message in a room, and people reply to it. With the feature `webhooks`, [`webhooks::WebhookChannel`] is one: each approval is
//! sent to other services as a signed message, and they send decisions back.

// - `questions`: what was asked and what is left to send. `kept`: how that is kept and decided. `texts`: cards and outcomes.
// - `calls`: what may be called over HTTP.
#[cfg(any(feature = "matrix", feature = "telegram", feature = "webhooks"))]
mod calls;
#[cfg(any(feature = "matrix", feature = "telegram", feature = "webhooks"))]
mod kept;
#[cfg(feature = "matrix")]
pub mod matrix;
#[cfg(any(feature = "matrix", feature = "telegram", feature = "webhooks"))]
mod questions;
#[cfg(feature = "telegram")]
pub mod telegram;
#[cfg(any(feature = "matrix", feature = "telegram", feature = "webhooks"))]
mod texts;
#[cfg(feature = "webhooks")]
pub mod webhooks;
