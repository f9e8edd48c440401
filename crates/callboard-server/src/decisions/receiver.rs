//! What takes the decisions.

use callboard_channels::webhooks::WebhookReceiver;

/// What takes the decisions, if the server has it.
pub(crate) type Receiver = Option<WebhookReceiver>;
