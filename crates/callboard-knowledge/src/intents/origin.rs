//! Where a change comes from.

use callboard::messages::Timestamp;

use crate::facts::Source;

/// Where a pass comes from, for the source of what it submits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The run.
    pub run: Option<String>,
    /// The turn of the run.
    pub turn: Option<u32>,
    /// The run has read untrusted input.
    pub is_untrusted: bool,
    /// An agent asks, and not a person or a client outside the board. Agents do not accept disputed facts.
    pub by_agent: bool,
    /// A person has approved the change, so it is made although the run has read untrusted input.
    pub is_approved: bool,
    /// Under which a change is made once, however often it is asked for.
    pub key: Option<String>,
}

impl Origin {
    /// The source of what somebody submits.
    pub(super) fn source(&self, by: &str, place: Option<String>) -> Source {
        let Self { run, turn, is_untrusted, .. } = self;
        let at = Timestamp::default();
        Source { by: by.to_owned(), place, run: run.clone(), turn: *turn, at, is_untrusted: *is_untrusted }
    }
}
