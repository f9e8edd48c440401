//! What people see of a board: metrics, the flow of a run, tracing spans, and streams of events.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic; time is tokio's virtual time")]

mod flow;
mod metrics;
mod recorder;
mod spans;
mod streams;
