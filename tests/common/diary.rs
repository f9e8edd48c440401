//! A channel for approvals.

use std::sync::Arc;

use callboard::actors::approvals::{Channel, Decider};
use callboard::messages::{Decision, Envelope};
use parking_lot::Mutex;

/// Records what it receives, and decides nothing.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    /// What it has noted: `asked ACTION`, `settled ACTION by NAME` and `withdrawn ACTION`.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl Channel for Diary {
    fn name(&self) -> &str {
        "diary"
    }

    fn ask(&self, envelope: &Envelope, _: &Decider) {
        self.0.lock().push(format!("asked {}", envelope.action));
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        self.0.lock().push(match decision {
            Some(decision) => format!("settled {} by {}", envelope.action, decision.by),
            None => format!("withdrawn {}", envelope.action),
        });
    }
}
