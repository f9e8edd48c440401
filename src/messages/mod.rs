//! The vocabulary: plain, serialisable data that every room shares. No tokio, no ractor.

mod time;

pub use time::{Durability, Timestamp};
