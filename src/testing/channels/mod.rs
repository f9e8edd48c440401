//! What every [`Channel`] has to keep, one rule per test.
//!
//! [`channel_conformance!`](crate::channel_conformance) makes a module of tests out of an [`Audience`]: the people whom the channel
//! reaches, as the test plays them. Each rule has boards of its own, on a store that outlives them:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use callboard::actors::approvals::{Channel, TerminalChannel};
//! # use callboard::testing::channels::{Audience, SeenCard};
//! # use futures::future::BoxFuture;
//! # struct Chat;
//! # impl Chat { fn new() -> Self { Self } }
//! # impl Audience for Chat {
//! #     fn names(&self) -> [String; 2] { ["ann".to_owned(), "bob".to_owned()] }
//! #     fn open(&self) -> Arc<dyn Channel> { Arc::new(TerminalChannel::new()) }
//! #     fn cards(&self) -> Vec<SeenCard> { Vec::new() }
//! #     fn changes(&self) -> tokio::sync::watch::Receiver<()> { tokio::sync::watch::channel(()).1 }
//! #     fn choose<'a>(&'a self, _: usize, _: &'a SeenCard, _: bool) -> BoxFuture<'a, String> { Box::pin(async { String::new() }) }
//! #     fn set_reachable(&self, _: bool) {}
//! # }
//! callboard::channel_conformance! {
//!     whole chat: Chat::new()
//! }
//! ```
//!
//! A channel that keeps nothing beyond its process, or that a single person answers, takes `shown` in place of `whole`: what is left
//! are the rules of what is shown and closed.

mod rules;
mod stage;

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::actors::approvals::Channel;

use self::stage::Stage;

/// The people whom a channel reaches, and the service that it reaches them by.
pub trait Audience: Send + Sync + 'static {
    /// The names of two people who may decide, as decisions have them.
    fn names(&self) -> [String; 2];

    /// Opens the channel as a process does that starts; a later one finds what the earlier one has kept. It is called in a runtime,
    /// whose end is the end of the process.
    fn open(&self) -> Arc<dyn Channel>;

    /// Everything that people see of the channel, open or closed.
    fn cards(&self) -> Vec<SeenCard>;

    /// Is notified of each change of what people see.
    fn changes(&self) -> watch::Receiver<()>;

    /// One of the two people approves or denies on a card that they have seen, which may be out of date. Returns what the channel
    /// tells that person; empty if nothing.
    fn choose<'a>(&'a self, person: usize, card: &'a SeenCard, approves: bool) -> BoxFuture<'a, String>;

    /// Takes away the service by which the channel reaches people, or brings it back.
    fn set_reachable(&self, is_reachable: bool);
}

/// A question as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenCard {
    /// Where it is shown, such as a chat: people see a question once in each place.
    pub place: String,
    /// What distinguishes it from other cards, for [`Audience::choose`].
    pub key: String,
    /// All of its text, as it is now.
    pub text: String,
    /// Whether people are still asked.
    pub is_open: bool,
}

/// A rule's name, and what checks it.
type ChannelRule = (&'static str, fn(&Stage));

static RULES: [&[ChannelRule]; 2] =
    [crate::channel_conformance!(@shown (@table)), crate::channel_conformance!(@kept (@table))];

/// Checks the rule of this name, one of [`channel_conformance!`](crate::channel_conformance).
///
/// # Panics
/// If the channel breaks the rule, or does not do for two minutes what the rule waits for.
pub fn check(audience: impl Audience, rule: &str) {
    match RULES.iter().copied().flatten().find(|(name, _)| *name == rule) {
        Some((_, check)) => Stage::new(Box::new(audience)).check_with(*check),
        None => panic!("there is no rule {rule:?}"),
    }
}

/// Makes a module with one test for each rule of [`Channel`](crate::actors::approvals::Channel); see
/// [`testing::channels`](crate::testing::channels).
///
/// - `whole name: audience` tests all rules.
/// - `shown name: audience` tests those that a channel keeps that has no memory and a single person.
#[macro_export]
macro_rules! channel_conformance {
    (whole $name:ident: $audience:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "the expression may use what surrounds the macro")]
            use super::*;
            $crate::channel_conformance! { @shown (@tests shown, $audience) }
            $crate::channel_conformance! { @kept (@tests kept, $audience) }
        }
    };
    (shown $name:ident: $audience:expr) => {
        $crate::channel_conformance! { @shown (@tests $name, $audience) }
    };
    (@shown ($($use:tt)*)) => {
        $crate::channel_conformance! { $($use)*;
            a_question_is_shown_once
            a_decision_made_elsewhere_closes_the_question_and_is_shown
            an_expired_question_is_closed
            a_withdrawn_question_is_closed
            a_panic_of_the_channel_loses_no_question
        }
    };
    (@kept ($($use:tt)*)) => {
        $crate::channel_conformance! { $($use)*;
            a_decision_is_shown_to_everybody_and_later_choices_are_told_of_it
            of_two_people_at_once_one_decides_and_the_other_is_told
            a_channel_that_reaches_nobody_delays_nobody_and_catches_up
            an_open_question_is_open_once_after_a_restart
            what_was_decided_meanwhile_is_closed_after_a_restart
            what_has_expired_meanwhile_is_closed_after_a_restart
        }
    };
    (@tests $name:ident, $audience:expr; $($rule:ident)*) => {
        mod $name {
            #[allow(unused_imports, reason = "the expression may use what surrounds the macro")]
            use super::*;
            $(#[test] fn $rule() { $crate::testing::channels::check($audience, stringify!($rule)); })*
        }
    };
    (@table; $($rule:ident)*) => {
        &[$((stringify!($rule), rules::$rule),)*]
    };
}
