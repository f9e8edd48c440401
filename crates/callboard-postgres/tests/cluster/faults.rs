//! What happens to boards and to the database, in an order that a seed chooses.

use crate::campaigns::Campaign;
use crate::support::proxy::Cut;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL of a board, whose successor starts at once.
    Kill,
    /// SIGSTOP of a board until others have ended its session, then SIGCONT.
    Freeze,
    /// A board has no connection to the database until others have ended its session.
    Apart,
    /// A board does not notice that its lease is over: its time stands still, its renewals are lost, and it writes on.
    Zombie,
    /// The connection with a board's next write is cut, at one of three moments.
    Cut(Cut),
    /// A board shuts down in order.
    Shutdown,
    /// The database is stopped at once, and starts again.
    Crash,
}

/// Each as often as it is here, in turn.
const FAULTS: [Fault; 13] = [
    Fault::Kill,
    Fault::Cut(Cut::Answer),
    Fault::Freeze,
    Fault::Kill,
    Fault::Shutdown,
    Fault::Crash,
    Fault::Kill,
    Fault::Cut(Cut::Statement),
    Fault::Apart,
    Fault::Kill,
    Fault::Zombie,
    Fault::Cut(Cut::Unanswered),
    Fault::Kill,
];

/// The faults of a campaign: all kinds in each round, which begins somewhere.
pub(crate) fn schedule(campaign: &Campaign, count: u64) -> Vec<Fault> {
    let first = campaign.below(FAULTS.len());
    FAULTS.iter().copied().cycle().skip(first).take(count as usize).collect()
}
