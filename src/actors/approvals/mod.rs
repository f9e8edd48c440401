//! The approval gateway: questions of consent to people, over any number of channels; the first valid decision wins.
//!
//! What is asked is in the run's journal; what was decided is one record under the approval's id, which is the hash of
//! the exact question. A decision that was stored and not yet delivered is delivered when the run asks again.

mod card;
mod channel;
mod decider;
mod folding;
mod gateway;
mod keyboard;
mod queue;
mod terminal;

pub use card::Card;
pub use channel::Channel;
pub(crate) use channel::{ChannelActor, ChannelView};
pub use decider::Decider;
pub use folding::Rows;
pub(crate) use gateway::GatewayActor;
pub use keyboard::{Keyboard, Typed};
pub use terminal::TerminalChannel;

#[cfg(test)]
mod reference;
