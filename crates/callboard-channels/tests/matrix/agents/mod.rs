//! Rooms in which agents get tasks.

mod attacks;
mod crew;
mod requests;
mod restarts;
mod rooms;
#[cfg(target_os = "linux")]
mod synapse;
