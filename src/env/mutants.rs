//! Injected bugs ("mutants"): single lines that a test run can make wrong, to see that a named test notices.
//!
//! They exist only in a build with `--cfg callboard_mutants`. Of such a build, a process has the one that the environment
//! variable `CALLBOARD_MUTANT` names. In every other build [`Mutant::is_injected`] is the constant `false`.
//! `cargo xtask campaign injected` builds them, runs the named tests, and includes this file to know them.

use std::fmt;

/// An injected bug. Each changes one line of the rule that it breaks: search for its `is_injected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A commit is acknowledged before the journal has it.
    AcknowledgeEarly,
    /// Everything is written at the lowest durability, whatever was requested.
    WriteUnsynced,
    /// A task that is submitted again becomes another run.
    SubmitTwice,
    /// A delegation that is requested again becomes another one.
    DelegateTwice,
    /// A step that is in the journal is executed again.
    RepeatStep,
    /// The action that the turn requests now is executed, and not the approved one.
    RunUnapproved,
    /// An agent's queue has no bound.
    QueueWithoutBound,
    /// A reservation reserves nothing.
    ReserveNothing,
    /// No breaker counts a failure.
    BreakerNeverOpens,
    /// Waits that close a cycle are admitted.
    WaitInCircles,
    /// Writes of a board whose session has ended are accepted.
    IgnoreEndedSessions,
    /// A restart is not counted.
    RestartUncounted,
    /// An effect that must not be repeated is begun again although its intent is in the journal.
    ForgetIntent,
}

impl Mutant {
    /// All mutants.
    #[cfg_attr(not(callboard_mutants), allow(dead_code, reason = "nothing asks for the list in a build without them"))]
    pub(crate) const ALL: [Self; 13] = [
        Self::AcknowledgeEarly,
        Self::WriteUnsynced,
        Self::SubmitTwice,
        Self::DelegateTwice,
        Self::RepeatStep,
        Self::RunUnapproved,
        Self::QueueWithoutBound,
        Self::ReserveNothing,
        Self::BreakerNeverOpens,
        Self::WaitInCircles,
        Self::IgnoreEndedSessions,
        Self::RestartUncounted,
        Self::ForgetIntent,
    ];

    /// Whether this process has this mutant: never.
    #[cfg(not(callboard_mutants))]
    #[inline(always)]
    pub(crate) const fn is_injected(self) -> bool {
        false
    }

    /// Whether this process has this mutant. The variable is read once, at the first use.
    ///
    /// # Panics
    /// When `CALLBOARD_MUTANT` names none of [`Mutant::ALL`].
    #[cfg(callboard_mutants)]
    pub(crate) fn is_injected(self) -> bool {
        const VARIABLE: &str = "CALLBOARD_MUTANT";
        static INJECTED: std::sync::LazyLock<Option<Mutant>> = std::sync::LazyLock::new(|| {
            let name = std::env::var(VARIABLE).ok()?;
            let mutant = Mutant::ALL.into_iter().find(|mutant| mutant.to_string() == name);
            let all = || Mutant::ALL.map(|mutant| mutant.to_string()).join(", ");
            let mutant = mutant.unwrap_or_else(|| panic!("{VARIABLE}={name:?} is none of {}", all()));
            eprintln!("{VARIABLE}: this process has the injected bug {mutant}");
            Some(mutant)
        });
        *INJECTED == Some(self)
    }
}

/// Its name in `CALLBOARD_MUTANT`.
impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AcknowledgeEarly => "journal.acknowledge_early",
            Self::WriteUnsynced => "journal.write_unsynced",
            Self::SubmitTwice => "board.submit_twice",
            Self::DelegateTwice => "turn.delegate_twice",
            Self::RepeatStep => "turn.repeat_step",
            Self::RunUnapproved => "approval.run_unapproved",
            Self::QueueWithoutBound => "agent.queue_without_bound",
            Self::ReserveNothing => "budget.reserve_nothing",
            Self::BreakerNeverOpens => "breaker.never_opens",
            Self::WaitInCircles => "guard.wait_in_circles",
            Self::IgnoreEndedSessions => "session.ignore_end",
            Self::RestartUncounted => "tree.restart_uncounted",
            Self::ForgetIntent => "effect.forget_intent",
        })
    }
}
