//! Deterministic simulation of whole agent systems: one thread, virtual time, seeded ids, a seeded order of events, a
//! simulated disk, planned faults, and crashes of the whole node.
//!
//! ```
//! use callboard::prelude::*;
//! use callboard::testing::{Seeds, Sim};
//!
//! Seeds::new(20).simulate(async |sim: Sim| {
//!     let coder = |_: Turn| async { Ok(Command::default().goto("reviewer")) };
//!     let reviewer = |_: Turn| async { Ok(Command::output("fine")) };
//!     let board = sim.board().agent("coder", coder).agent("reviewer", reviewer).start().await?;
//!     sim.faults().panic("reviewer").on_turn(1).hang("coder").for_secs(90);
//!     let run = board.submit(Task::new("fix the bug").to("coder")).await?;
//!     assert_eq!(run.result().await?.outcome, Outcome::Finished);
//!     sim.assert_restarted("reviewer", 1).await;
//!     sim.assert_nothing_left().await;
//!     Ok(())
//! });
//! ```
//!
//! The same seed gives the same trace, event by event; one seed in a hundred, and the first, runs twice to check that.
//! Every storage call may take its time, every turn may begin and end late, and what is ready runs in a seeded order, so
//! each seed is another schedule.
//!
//! What a simulation cannot see, and tests must not use in one: the machine's clocks (`std::time`), random numbers of the
//! operating system, the iteration order of `std` hash maps, `select!` without `biased;`, threads of `std`, files and other
//! global state. A socket panics where it is made, because tokio's IO is off; a thread of tokio's blocking pool, and a board
//! that is not of the simulation, end the seed with an error that names it.

mod coverage;
mod disk;
mod driver;
mod effects;
mod faults;
mod points;
mod sim;
mod trace;
mod watchdog;
mod world;

pub use self::driver::{Seeds, TestError};
pub use self::effects::Effects;
pub use self::faults::{FaultPlan, Strikes};
pub use self::points::FaultPoint;
pub use self::sim::Sim;
