//! Channels by which people decide the approvals of a board where they are.
//!
//! With the feature `telegram`, [`telegram::TelegramChannel`] is one for [`Builder::channel`](callboard::runtime::Builder::channel):
//! each approval is a message of a bot, with buttons. With the feature `matrix`, [`matrix::MatrixChannel`] is one: each approval is a
//! message in a room, and people reply to it; and [`matrix::AgentRooms`] are rooms in which agents get tasks. With the feature `webhooks`, [`webhooks::WebhookChannel`] is one: each approval is
//! sent to other services as a signed message, and they send decisions back. With the feature `email`, [`email::EmailChannel`] is one: each
//! approval is mailed to those who may decide it, and they decide elsewhere.

// - `questions`: what was asked and what is left to send. `kept`: how that is kept. `deciding`: how it is decided. `texts`: cards and outcomes.
// - `calls`: what may be called over HTTP. `hosts`: which hosts are this machine.
#[cfg(any(feature = "matrix", feature = "telegram", feature = "webhooks"))]
mod calls;
#[cfg(any(feature = "email", feature = "matrix", feature = "telegram", feature = "webhooks"))]
#[cfg_attr(
    not(any(feature = "matrix", feature = "telegram", feature = "webhooks")),
    allow(dead_code, reason = "nobody decides by a mail")
)]
mod deciding;
#[cfg(feature = "email")]
pub mod email;
#[cfg(any(feature = "email", feature = "matrix", feature = "telegram", feature = "webhooks"))]
mod hosts;
#[cfg(any(feature = "email", feature = "matrix", feature = "telegram", feature = "webhooks"))]
mod kept;
#[cfg(feature = "matrix")]
pub mod matrix;
#[cfg(any(feature = "email", feature = "matrix", feature = "telegram", feature = "webhooks"))]
#[cfg_attr(
    not(any(feature = "matrix", feature = "telegram", feature = "webhooks")),
    allow(dead_code, reason = "nobody decides by a mail")
)]
mod questions;
#[cfg(feature = "telegram")]
pub mod telegram;
#[cfg(any(feature = "email", feature = "matrix", feature = "telegram", feature = "webhooks"))]
#[cfg_attr(
    not(any(feature = "matrix", feature = "telegram", feature = "webhooks")),
    allow(dead_code, reason = "nobody decides by a mail")
)]
mod texts;
#[cfg(feature = "webhooks")]
pub mod webhooks;
