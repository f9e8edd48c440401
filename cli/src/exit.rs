//! The exit codes of this program: each means the same in every command.

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use callboard::messages::{Outcome, Refusal};
use callboard::runtime::{BuildError, ConversationError, RunError};
use callboard::storage::{StorageError, TransferError};
use callboard::{AnswerError, ForkError, SubmitError};

/// Why a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    /// The run did not finish, two runs differ, or something else went wrong that none of the others names.
    Failed = 1,
    /// The command line, or a file that a person wrote, has to be changed.
    Usage = 2,
    /// There is no such run, turn, node, conversation, agent, store, fact or document.
    NotFound = 3,
    /// By a person or a policy, by the permissions or the owner of a file, or because an agent's turn started this process.
    Denied = 4,
    /// The run, or a change that was shown, waits for a person.
    Waits = 5,
    /// The same command may work later: the store is in use or has stopped, or something is overloaded.
    Unavailable = 6,
    TimedOut = 124,
    /// A signal came.
    Interrupted = 130,
}

/// The codes, for the help of all commands.
pub(crate) const EXIT_CODES: &str = "\
Exit codes, of every command:
    0  done
    1  the run failed or was cancelled, two runs differ, or an error that is none of these
    2  the command line, or a file that it names or you wrote, is wrong or missing
    3  there is no such run, turn, node, conversation, agent, store, fact or document
    4  denied: by a person, a policy, rights of files or of a database, or within an agent's turn
    5  the run, or a change that was shown, waits for a person
    6  try again later: a store is in use or has stopped, no server runs, or something is overloaded
  124  the time was over
  130  stopped by a signal, such as Ctrl-C";

impl Exit {
    /// The number that the process returns.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// Of a file or folder that the command line names.
    pub(crate) fn of_file(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::Denied,
            ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::DirectoryNotEmpty
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidData
            | ErrorKind::InvalidFilename
            | ErrorKind::Other => Self::Usage,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::WouldBlock | ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<&Outcome> for Exit {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Finished => Self::Done,
            Outcome::Failed { .. } | Outcome::Cancelled { .. } => Self::Failed,
            // An agent of the run named it, not the command line.
            Outcome::Refused(Refusal::UnknownAgent { .. } | Refusal::UnknownNode { .. }) => Self::Failed,
            Outcome::Refused(refusal) => refusal.into(),
            Outcome::Denied { .. } => Self::Denied,
        }
    }
}

impl From<&Refusal> for Exit {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Denied { .. }
            | Refusal::ApprovalExpired { .. }
            | Refusal::HandoffsOff
            | Refusal::AgentNotMade { .. } => Self::Denied,
            Refusal::UnknownAgent { .. } | Refusal::UnknownNode { .. } => Self::NotFound,
            Refusal::BreakerOpen { .. }
            | Refusal::Overloaded { .. }
            | Refusal::Unavailable { .. }
            | Refusal::ShuttingDown => Self::Unavailable,
            Refusal::DeadlinePassed | Refusal::QuestionExpired { .. } => Self::TimedOut,
            // A limit, or a circle that would not end.
            _ => Self::Failed,
        }
    }
}

impl From<&StorageError> for Exit {
    fn from(error: &StorageError) -> Self {
        match error {
            // Another writer was first, or has the store.
            StorageError::WrongSequence { .. }
            | StorageError::WrongRevision { .. }
            | StorageError::InUse { .. }
            | StorageError::NameTaken { .. }
            | StorageError::SessionLives { .. }
            | StorageError::Unavailable { .. }
            | StorageError::Stopped { .. }
            | StorageError::Closed => Self::Unavailable,
            // A damaged store, or one of a newer version.
            _ => Self::Failed,
        }
    }
}

impl From<&TransferError> for Exit {
    fn from(error: &TransferError) -> Self {
        match error {
            TransferError::Store(error) => error.into(),
            TransferError::Text(error) => Self::of_file(error),
            // The export is wrong, or the store is not empty.
            _ => Self::Usage,
        }
    }
}

impl From<&RunError> for Exit {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Unknown(_) => Self::NotFound,
            RunError::Storage(error) | RunError::StoreStopped { error, .. } => error.into(),
            RunError::NotHere(_) | RunError::Stopped(_) => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

impl From<&SubmitError> for Exit {
    fn from(error: &SubmitError) -> Self {
        match error {
            SubmitError::Refused(refusal) => refusal.into(),
            SubmitError::Storage(error) => error.into(),
            SubmitError::Unacknowledged(_) => Self::Unavailable,
            _ => Self::Usage,
        }
    }
}

impl From<&BuildError> for Exit {
    fn from(error: &BuildError) -> Self {
        match error {
            BuildError::Storage(error) => error.into(),
            BuildError::Tree(_) => Self::Failed,
            _ => Self::Usage,
        }
    }
}

impl From<&ForkError> for Exit {
    fn from(error: &ForkError) -> Self {
        match error {
            ForkError::Unknown(_) | ForkError::NoLetter(_) | ForkError::NoTurn { .. } => Self::NotFound,
            ForkError::Storage(error) => error.into(),
            ForkError::Refused(refusal) => refusal.into(),
            ForkError::Submit(error) => (&**error).into(),
            ForkError::NotHere(_) | ForkError::Unacknowledged(_) => Self::Unavailable,
            ForkError::Trimmed => Self::Failed,
            _ => Self::Usage,
        }
    }
}

impl From<&AnswerError> for Exit {
    fn from(error: &AnswerError) -> Self {
        match error {
            AnswerError::NotOpen(_) => Self::NotFound,
            AnswerError::Expired { .. } => Self::TimedOut,
            AnswerError::Unacknowledged(_) | AnswerError::NotHere(_) | AnswerError::NotHosted { .. } => {
                Self::Unavailable
            }
            AnswerError::Storage(error) => error.into(),
            AnswerError::Panicked(_) => Self::Failed,
            _ => Self::Usage,
        }
    }
}

impl From<&ConversationError> for Exit {
    fn from(error: &ConversationError) -> Self {
        match error {
            ConversationError::Unknown(_) | ConversationError::NoRun { .. } => Self::NotFound,
            ConversationError::Storage(error) => error.into(),
            // A run of it is open, or the id is taken.
            _ => Self::Usage,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_help_names_the_number_of_each_exit() {
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::NotFound,
            Exit::Denied,
            Exit::Waits,
            Exit::Unavailable,
            Exit::TimedOut,
            Exit::Interrupted,
        ];
        let named: Vec<u8> =
            EXIT_CODES.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        assert_eq!(named, all.map(Exit::code));
        assert_eq!(named, [0, 1, 2, 3, 4, 5, 6, 124, 130]);
    }

    #[test]
    fn what_a_later_try_may_change_is_told_from_what_a_person_has_to_change() {
        let in_use = StorageError::InUse { path: "store".to_owned(), holder: Some(7) };
        let damaged = StorageError::Open { path: "store".to_owned(), detail: "no checksum".to_owned() };
        assert_eq!([&in_use, &damaged].map(Exit::from), [Exit::Unavailable, Exit::Failed]);
        assert_eq!(Exit::from(&SubmitError::Storage(in_use)), Exit::Unavailable);
        let full = Refusal::Overloaded { what: "the board".to_owned(), retry_after: Duration::from_secs(1) };
        assert_eq!(Exit::from(&Outcome::refused(full)), Exit::Unavailable);
        assert_eq!(Exit::from(&Outcome::refused(Refusal::DeadlinePassed)), Exit::TimedOut);
        assert_eq!(Exit::from(&Outcome::Denied { reason: "no".to_owned() }), Exit::Denied);
        let unknown = Refusal::UnknownAgent { target: "x".to_owned(), nearest: None };
        assert_eq!(Exit::from(&SubmitError::Refused(unknown)), Exit::NotFound);
        let file = |kind: ErrorKind| Exit::of_file(&kind.into());
        assert_eq!(file(ErrorKind::PermissionDenied), Exit::Denied);
        assert_eq!([ErrorKind::NotFound, ErrorKind::IsADirectory].map(file), [Exit::Usage; 2]);
        assert_eq!(file(ErrorKind::StorageFull), Exit::Failed);
    }
}
