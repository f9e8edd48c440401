//! Limits of requests and connections.

use std::time::Duration;

use crate::body::MAX_BODY;

/// Limits of requests and connections. The defaults are those of the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpLimits {
    /// The most bytes of a body.
    pub body_bytes: usize,
    /// How long a body may take to arrive.
    pub body_time: Duration,
    /// From how many bytes on no more of the headers of a request is read, at least 8,192. One read may bring as many again, so that
    /// headers of more than twice this size are refused.
    pub header_bytes: usize,
    /// How long the headers of a request may take to arrive.
    pub header_time: Duration,
    /// How long a request may take until its response begins.
    pub answer_time: Duration,
    /// The most connections at a time. More wait until one ends.
    pub connections: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: MAX_BODY,
            body_time: Duration::from_secs(30),
            header_bytes: 32 * 1024,
            header_time: Duration::from_secs(10),
            answer_time: Duration::from_secs(60),
            connections: 16_384,
        }
    }
}
