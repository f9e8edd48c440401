use std::fmt;

/// A bug that can be planted in a build with the feature `testing`, to see that a check can fail. The variable
/// `CALLBOARD_PLANT` names the one that a process has; without the feature there are none.
///
/// Each is one line where the rule stands that it breaks: look for `is_planted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bug {
    /// A commit is acknowledged before the journal has it.
    AcknowledgeEarly,
    /// Everything is written at the lowest durability, whatever was asked.
    WriteUnsynced,
    /// A task that is submitted again is another run.
    SubmitTwice,
    /// A delegation that is asked for again is another one.
    DelegateTwice,
    /// A step that is in the journal is done again.
    RepeatStep,
    /// What runs is what the turn asks for now, and not what was approved.
    RunUnapproved,
    /// An agent's queue has no bound.
    QueueWithoutBound,
    /// A reservation sets nothing aside.
    ReserveNothing,
    /// No failure is counted by a breaker.
    BreakerNeverOpens,
    /// Waits that close a circle are admitted.
    WaitInCircles,
    /// What comes from a board that has lost its claim is written.
    IgnoreFences,
    /// A restart is not counted.
    RestartUncounted,
    /// What must not be repeated is begun again although its intent is in the journal.
    ForgetIntent,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 13] = [
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
        Self::IgnoreFences,
        Self::RestartUncounted,
        Self::ForgetIntent,
    ];
}

/// Its name in `CALLBOARD_PLANT`.
impl fmt::Display for Bug {
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
            Self::IgnoreFences => "claim.ignore_fences",
            Self::RestartUncounted => "tree.restart_uncounted",
            Self::ForgetIntent => "effect.forget_intent",
        })
    }
}
