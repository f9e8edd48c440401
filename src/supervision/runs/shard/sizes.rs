//! The sizes of what a run in flight is made of. A board may have tens of thousands of runs that wait, so each byte here is one for each
//! of them: who needs more room finds out here, and may box what few runs have.

use crate::actors::{SIZE_OF_RUNNING_TURN, SIZE_OF_TURN};
use crate::messages::Submission;
use crate::supervision::runs::rules::requests::TurnReply;
use crate::supervision::runs::rules::run::{Branch, OpenTurn, Record, Run};

use super::dispatch::ReadyTurn;
use super::live::LiveRun;
use super::queue::RunMessage;

#[test]
fn a_run_in_flight_is_small() {
    let sizes = [
        ("Run", size_of::<Run>(), 376),
        ("LiveRun", size_of::<LiveRun>(), 624),
        ("Branch", size_of::<Branch>(), 152),
        ("OpenTurn", size_of::<OpenTurn>(), 144),
        ("Record", size_of::<Record>(), 72),
        ("ReadyTurn", size_of::<ReadyTurn>(), 264),
        ("TurnShared", SIZE_OF_TURN, 88),
        ("RunningTurn", SIZE_OF_RUNNING_TURN, 64),
        ("RunMessage", size_of::<RunMessage>(), 176),
        ("TurnReply", size_of::<TurnReply>(), 40),
        ("Submission", size_of::<Submission>(), 328),
    ];
    let larger: Vec<_> = sizes.into_iter().filter(|(_, size, most)| size > most).collect();
    assert!(larger.is_empty(), "larger than they should be (bytes, most): {larger:?}");
}
