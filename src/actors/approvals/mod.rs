//! The approval gateway: questions of consent to people, over any number of channels; the first valid decision wins.
//!
//! What is asked is in the run's journal; what was decided is one record under the approval's id, which is the hash of
//! the exact question. A decision that was stored and not yet delivered is delivered when the run asks again.

// - `queue`: the open questions, outside of the actor. `message`, `gateway`: the actor that passes them on and expires them.
// - `channel`: what users implement, and the actor of each. `decider`: the handle by which questions are answered.
// - `elsewhere`: the questions of other boards that channels of this one show, and the way to those boards.
// - `card`: what a person sees of a question. `terminal`: the channel of the terminal, with `keyboard` and `folding`.
mod card;
mod channel;
mod decider;
mod elsewhere;
mod folding;
mod gateway;
mod keyboard;
mod message;
mod queue;
mod terminal;

pub use card::Card;
pub use channel::Channel;
pub(crate) use channel::{ChannelActor, ChannelView};
pub use decider::Decider;
pub(crate) use elsewhere::{AnswerElsewhere, ByPerson, OtherBoards, PersonDoes};
pub use folding::Rows;
pub(crate) use gateway::GatewayActor;
pub use keyboard::{Keyboard, Typed};
pub use terminal::TerminalChannel;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod votes_reference;
