//! The signals that ask this process to stop.

use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::page::Failure;

/// Streams of SIGINT, SIGTERM and SIGHUP.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal was closed; `None` if the signal is ignored, as `nohup` sets it.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("signal handlers cannot be installed: {error}")))
        };
        let hangup = (!is_hangup_ignored()).then(|| listen(SignalKind::hangup())).transpose()?;
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())?, hangup })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(_) = recv(&mut self.hangup) => {}
        }
    }
}

async fn recv(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => None,
    }
}

/// Whether this process was started with SIGHUP ignored, as by `nohup`. Read once, because installing a handler changes it.
fn is_hangup_ignored() -> bool {
    static IS_IGNORED: OnceLock<bool> = OnceLock::new();
    *IS_IGNORED.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status");
        status.is_ok_and(|status| ignores_hangup(&status))
    })
}

/// Reads `/proc/self/status`: the mask of ignored signals, whose lowest bit is SIGHUP.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_that_nohup_ignores_stays_ignored() {
        assert!(ignores_hangup("Name:\tcallboard\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
