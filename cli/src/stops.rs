//! What asks this process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::page::Failure;

/// Signals that ask it to.
pub(crate) struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::trouble(format!("signals cannot be heard: {error}")));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
