//! A run: the fold over its journal, and what can be read of it. Everything that changes a run is in this module.
//!
//! - `fold`: a run as data. `stored`: its form in snapshots. `step`: applies an event. `effect`: what an event asks for.
//! - `branch`, `turn`, `record`: lines of control, open turns, and what a turn has asked for.
//! - `control`: where control goes after a turn. `ending`: how branches, delegations and the run end.
//! - `plan`: how a run follows its workflow.
//! - `tally`, `tools`, `consents`, `agents`: its use of limits and of tools, consent for the whole run, and its dynamic agents.
//! - `views`, `waiting`, `people`: what a turn sees, what turns wait for, and what people are asked. `placed`: turns at other boards.
//! - `heirs`: which boards can continue it.

mod agents;
mod branch;
mod consents;
mod control;
mod effect;
mod ending;
mod fold;
mod heirs;
mod people;
mod placed;
mod plan;
mod record;
mod step;
mod stored;
mod tally;
mod tools;
mod turn;
mod views;
mod waiting;

pub(in crate::supervision::runs) use branch::{Branch, Now, Origin};
pub(crate) use effect::{Answered, Effect, WorkedOut};
pub(in crate::supervision::runs) use fold::Conversing;
pub use fold::Run;
pub(crate) use record::HANDOFF_ORDINAL;
pub(in crate::supervision::runs) use record::LATE_ORDINAL;
pub(crate) use record::{Once, OnceState, QuestionState, Record, Records, has_requests, is_taken_elsewhere};
pub(in crate::supervision::runs) use tools::Tools;
pub(crate) use turn::OpenTurn;
pub(in crate::supervision::runs) use turn::Phase;
pub(in crate::supervision::runs) use views::Bounds;
