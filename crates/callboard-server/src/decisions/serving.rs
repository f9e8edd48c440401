//! The server of decisions.

use std::sync::Arc;

use callboard_channels::webhooks::WebhookReceiver;

use crate::context::Context;
use crate::routes::Server;

impl Server {
    /// Takes the decisions that receivers of webhooks send to `/v1/channels/webhooks/{name}` (docs/webhooks.md). The channel is one of the
    /// board's.
    #[must_use]
    pub fn webhook_decisions(self, receiver: WebhookReceiver) -> Self {
        let renewed = self.context.renewed(self.context.origins.clone());
        Self { context: Arc::new(Context { receiver: Some(receiver), ..renewed }) }
    }
}
