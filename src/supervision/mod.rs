//! Supervision: the generic tree and the run supervisors.

mod mailbox;
mod points;
pub mod runs;
pub mod tree;

pub(crate) use mailbox::Mailbox;
pub(crate) use points::actor_point;

/// The text of a caught panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}
