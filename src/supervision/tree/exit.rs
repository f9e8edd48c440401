//! How a child ended.

use std::fmt;

use crate::messages::visible_lines;

/// How a child ended, as [`TreeEventKind::Exited`](super::TreeEventKind::Exited) reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It stopped or drained, with the reason it gave.
    Normal(Option<String>),
    /// It panicked or returned an error, with that text.
    Crashed(String),
    /// It was killed, and not by its supervisor. An actor that stops itself with the reason "killed" looks the same.
    Killed,
    /// Its task ended outside of its handlers: it was cancelled, or a message that was left in the mailbox panicked when it
    /// was dropped.
    Cancelled,
}

impl Exit {
    /// Whether a transient child is done after this.
    #[must_use]
    pub const fn is_normal(&self) -> bool {
        match self {
            Self::Normal(_) => true,
            Self::Crashed(_) | Self::Killed | Self::Cancelled => false,
        }
    }

    /// The text of a failure, or what else happened.
    pub(super) fn cause(&self) -> String {
        match self {
            Self::Crashed(error) => error.clone(),
            Self::Normal(_) | Self::Killed | Self::Cancelled => self.to_string(),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal(None) => f.write_str("ended normally"),
            Self::Normal(Some(reason)) => write!(f, "ended normally: {}", visible_lines(reason)),
            Self::Crashed(error) => write!(f, "failed: {}", visible_lines(error)),
            Self::Killed => f.write_str("was killed"),
            Self::Cancelled => f.write_str("lost its task"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_a_text_and_a_cause() {
        let ends = [
            (Exit::Normal(None), true, "ended normally"),
            (Exit::Normal(Some("done".into())), true, "ended normally: done"),
            (Exit::Crashed("no disk".into()), false, "failed: no disk"),
            (Exit::Killed, false, "was killed"),
            (Exit::Cancelled, false, "lost its task"),
        ];
        for (exit, is_normal, text) in ends {
            assert_eq!((exit.is_normal(), &*exit.to_string()), (is_normal, text));
            let cause = if text.starts_with("failed") { "no disk" } else { text };
            assert_eq!(exit.cause(), cause);
        }
    }
}
