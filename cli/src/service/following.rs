//! A run that is followed: read from its journal, by what was added to it since, whenever its process reports an event.

use std::borrow::Cow;
use std::time::Duration;

use callboard::messages::{AgentName, RunEvent, RunId, Timestamp};
use callboard::supervision::runs::{Follower, Run};
use callboard_server::private::ClientError;

use crate::page::Failure;
use crate::run_names::short;
use crate::stores::store::{Rules, Store};

use super::boards::{of_other, unanswered};
use super::follow::unread;

/// How long to wait before looking again at a run whose process does not answer.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// How often to look at a run that no process works on, before that is reported: another process may be about to take it over.
const LOOKS: u32 = 5;
/// The same on a database, where boards on other machines look for such runs every 2 s.
const LOOKS_ON_DATABASE: u32 = 25;
/// How often to look at the turns of a run that other boards have taken: what they wait for is no event of the run.
const LOOK_AT_PLACED: Duration = Duration::from_secs(1);
/// After so many of these looks without an event, on a database, the store is asked whether the board still works on the run: it may be
/// suspended, and another one may have the run.
const SILENT_LOOKS: u32 = 5;

/// A run, as far as it was read.
pub(super) struct Following<'s> {
    store: &'s Store,
    id: RunId,
    follower: Option<Follower>,
    /// The last record of its journal that was read.
    record: u64,
    /// The time of the last event that has one.
    at: Timestamp,
    /// Its turns that other boards have taken, as far as they were read.
    placed: Vec<Run>,
}

/// An event that was added to the journal.
pub(super) struct Added {
    pub(super) number: u64,
    pub(super) at: Timestamp,
    /// The agent of its turn.
    pub(super) agent: Option<AgentName>,
    pub(super) event: RunEvent,
}

/// Why a run is no longer followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It has ended, or enough of it was seen.
    Enough,
    /// No process works on it, and it has not ended.
    Abandoned,
}

impl<'s> Following<'s> {
    /// Begins to follow a run: nothing of it is read.
    pub(super) fn new(store: &'s Store, id: RunId) -> Self {
        Self { store, id, follower: None, record: 0, at: Timestamp::default(), placed: Vec::new() }
    }

    /// The run, as far as it was read.
    pub(super) fn run(&self) -> Result<&Run, Failure> {
        let run = self.follower.as_ref().and_then(Follower::run);
        let missing = || format!("run {}: its journal does not go back to its beginning", short(self.id));
        run.ok_or_else(|| Failure::failed(missing()))
    }

    /// The same, with what its turns wait for that other boards have taken.
    pub(super) fn run_with_placed(&self) -> Result<Cow<'_, Run>, Failure> {
        let run = self.run()?;
        Ok(match self.placed.is_empty() {
            true => Cow::Borrowed(run),
            false => Cow::Owned(run.clone().with_placed(&self.placed)),
        })
    }

    /// The time of the last event that was read.
    pub(super) fn at(&self) -> Timestamp {
        self.at
    }

    /// The number of the last event that was read.
    pub(super) fn last(&self) -> u64 {
        self.follower.as_ref().map_or(0, |follower| follower.next_sequence() - 1)
    }

    /// Reads what was added to the journal, and returns it.
    pub(super) async fn advance(&mut self) -> Result<Vec<Added>, Failure> {
        let (events, record) =
            self.store.events_after(self.id, self.record).await.map_err(|error| unread(self.store, self.id, &error))?;
        let follower = self.follower.get_or_insert_with(|| Follower::new(Rules::of(&events).state));
        let mut added = Vec::with_capacity(events.len());
        for (number, event) in (follower.next_sequence()..).zip(events) {
            let agent = |follower: &Follower| follower.run()?.agent_of(event.turn()?).cloned();
            let before = agent(follower);
            let _ = follower.take(number, &event);
            let agent = before.or_else(|| agent(follower));
            self.at = event.at().unwrap_or(self.at);
            added.push(Added { number, at: self.at, agent, event });
        }
        self.record = record;
        self.run()?;
        Ok(added)
    }

    /// Follows the run, and its turns that other boards have taken, until it has ended or `see`, which receives what was added, has seen
    /// enough.
    pub(super) async fn follow(&mut self, mut see: impl FnMut(&Run, &[Added]) -> bool) -> Result<Seen, Failure> {
        let most = if self.store.is_database() { LOOKS_ON_DATABASE } else { LOOKS };
        let mut looks = most;
        loop {
            if self.is_over_with_placed(&mut see).await? {
                return Ok(Seen::Enough);
            }
            match self.store.board_of(self.id).await? {
                Some(board) => {
                    looks = most;
                    // Everything that is journaled, and nothing else.
                    let path = format!("/v1/delegations/{}/events?modes=debug", self.id);
                    match of_other(self.store, &board).events(&path, Some(self.last())).await {
                        Ok(mut events) => {
                            let (mut silent_looks, mut looks) = (0, tokio::time::interval(LOOK_AT_PLACED));
                            loop {
                                let is_over = tokio::select! {
                                    biased;
                                    _ = looks.tick() => {
                                        silent_looks += 1;
                                        if silent_looks > SILENT_LOOKS {
                                            silent_looks = 0;
                                            if self.has_moved_from(&board).await? {
                                                break;
                                            }
                                        }
                                        self.is_over_with_placed(&mut see).await?
                                    }
                                    message = events.next() => match message {
                                        Ok(Some(message)) => {
                                            silent_looks = 0;
                                            let is_new = message.id.is_none_or(|number| number > self.last());
                                            is_new && self.is_over(&mut see).await?
                                        }
                                        Ok(None) | Err(_) => break,
                                    },
                                };
                                if is_over {
                                    return Ok(Seen::Enough);
                                }
                            }
                        }
                        // It has ended meanwhile, or is about to.
                        Err(
                            ClientError::Absent(_)
                            | ClientError::Silent(_)
                            | ClientError::Broken(_)
                            | ClientError::Refused { .. },
                        ) => {}
                        Err(error) => return Err(unanswered(&error)),
                    }
                }
                None if looks == 0 => return Ok(Seen::Abandoned),
                None => looks -= 1,
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Whether another board works on the run by now than the one that is asked, or none.
    async fn has_moved_from(&self, board: &str) -> Result<bool, Failure> {
        Ok(self.store.is_database() && self.store.board_of(self.id).await?.is_none_or(|now| *now != *board))
    }

    async fn is_over(&mut self, see: &mut impl FnMut(&Run, &[Added]) -> bool) -> Result<bool, Failure> {
        let added = self.advance().await?;
        let run = self.run_with_placed()?;
        let is_enough = see(&run, &added);
        Ok(is_enough || run.result().is_some())
    }

    async fn is_over_with_placed(&mut self, see: &mut impl FnMut(&Run, &[Added]) -> bool) -> Result<bool, Failure> {
        let added = self.advance().await?;
        self.placed = self.store.placed_of(self.run()?).await?;
        let run = self.run_with_placed()?;
        let is_enough = see(&run, &added);
        Ok(is_enough || run.result().is_some())
    }
}
