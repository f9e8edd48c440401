//! What people respond to runs of other boards: the board that works on a run decides, or the one that takes it over. Where none can, the person
//! learns which agents the run waits for (SEMANTICS 16).

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::actors::approvals::{AnswerElsewhere, ByPerson, PersonDoes};
use crate::actors::boards::{Reply, Sendable, Unreached};
use crate::messages::{BoardEntry, BoardInfo, PendingId, RunId, Votes};
use crate::storage::StorageError;
use crate::supervision::answer_of;
use crate::supervision::runs::rules::errors::AnswerError;
use crate::supervision::runs::snapshot::{Loaded, load};

use super::handle::Callboard;
use super::reach::{LOOK_EVERY, TAKEN_OVER_WITHIN, unavailable};

impl Callboard {
    /// Has the board answer a person that works on what waits; `None` if no other board does. Where no board that lives can continue the run
    /// and none has come for some looks, none is waited for.
    pub(super) async fn answered_elsewhere(&self, asked: ByPerson) -> AnswerElsewhere {
        let id = asked.id;
        let answered = async {
            match run_of(id) {
                Some(run) => self.answered_by_owner(run, asked).await,
                None => self.answered_by_any(asked).await,
            }
        };
        let answered = tokio::select! {
            biased;
            answered = answered => answered,
            lost = self.stays_without_heir(id) => return Some(Err(lost)),
        };
        match answered {
            // There is no other board to wait for.
            None | Some(Err(AnswerError::NotHere(_))) => match self.without_heir(id).await {
                Ok(Some(lost)) => Some(Err(lost)),
                Ok(None) => answered,
                Err(error) => Some(Err(error.into())),
            },
            Some(Ok(_) | Err(_)) => answered,
        }
    }

    async fn answered_by_owner(&self, run: RunId, asked: ByPerson) -> AnswerElsewhere {
        let answered = async {
            match self.ask_owner(run, asked.into(), TAKEN_OVER_WITHIN).await? {
                Some(Reply::Answered(answered)) => Ok(Some(answered)),
                Some(reply) => Err(unavailable(&reply)),
                // It may be open.
                None if self.is_elsewhere(run).await? => Ok(Some(Err(AnswerError::NotHere(run)))),
                None => Ok(None),
            }
        };
        answered.await.unwrap_or_else(|error| Some(Err(error.into())))
    }

    /// Returns once two looks in a row have found that no board that lives can continue the run that waits for this: one that just starts has
    /// time to say what it hosts.
    async fn stays_without_heir(&self, id: PendingId) -> AnswerError {
        let mut was_lost = false;
        loop {
            tokio::time::sleep(self.board.settings.timings.scan_every).await;
            // What the store reports, whoever asks the boards learns as well.
            match self.without_heir(id).await {
                Ok(Some(lost)) if was_lost => return lost,
                found => was_lost = matches!(found, Ok(Some(_))),
            }
        }
    }

    /// That no board that lives can continue the run that waits for this, if it is so: the one that works on it is gone, or has not renewed its
    /// lease for half of it, and no other has its agents.
    async fn without_heir(&self, id: PendingId) -> Result<Option<AnswerError>, StorageError> {
        let board = &self.board;
        let here = board.ownership.board();
        let late = board.settings.timings.lease / 2;
        let is_lost = |entry: &BoardEntry| entry.info.id != *here && entry.left < late;
        let runs = match run_of(id) {
            Some(run) => board.journal.owner_of(run).await?.map(|owner| (run, owner)).into_iter().collect(),
            None if answer_of(board.journal.boards()).await?.iter().any(is_lost) => board.journal.open_notes().await?,
            None => return Ok(None),
        };
        // After the notes: a board that has taken a run over since then is among them.
        let mut boards = answer_of(board.journal.boards()).await?;
        boards.retain(|entry| entry.info.id != *here);
        // One that cannot be read may have any run, and take over any.
        if boards.iter().any(|entry| entry.info.letters == 0 && !entry.left.is_zero()) {
            return Ok(None);
        }
        for (run, owner) in runs.into_iter().filter(|(_, owner)| owner != here) {
            let entry = boards.iter().find(|entry| entry.info.id == owner);
            if entry.is_some_and(|entry| !is_lost(entry)) {
                continue;
            }
            // What cannot be read says nothing about other runs.
            let Ok(Loaded { run: Some(fold), .. }) = answer_of(load(&board.journal, run, &board.rules)).await else {
                continue;
            };
            if !fold.pending().iter().any(|open| open.id() == id) {
                continue;
            }
            let living = boards.iter().filter(|other| !other.left.is_zero() && other.info.id != owner);
            let about = BoardInfo { agents: board.router.described(), ..(board.about)() };
            let agents = fold.agents_lacking(living.map(|other| &other.info).chain([&about]));
            let silent = entry.filter(|entry| !entry.left.is_zero()).map(|entry| entry.name.clone());
            return Ok((!agents.is_empty()).then_some(AnswerError::NotHosted { run, agents, silent }));
        }
        Ok(None)
    }

    /// Asks all other boards at once: the answer of the one that has what waits. If one of them is gone meanwhile, or has left runs before
    /// that no other has taken over, they are asked again until one has. Those that do not reply are not waited for once one has done it.
    async fn answered_by_any(&self, asked: ByPerson) -> AnswerElsewhere {
        let board = &self.board;
        let mut gone_at = None;
        loop {
            let others = board.boards.others();
            let asks = others.iter().map(|other| board.boards.ask(&other.info.id, asked.clone().into()).boxed());
            let mut asks: FuturesUnordered<_> = asks.collect();
            if gone_at.is_some() {
                // This board may have taken it over.
                let here = self.answered_here(asked.clone());
                asks.push(async { Ok(Reply::Answered(here.await)) }.boxed());
            }
            let (mut failed, mut refused) = (None, None);
            while let Some(replied) = asks.next().await {
                match replied {
                    Ok(Reply::Answered(Err(AnswerError::NotOpen(_)))) => {}
                    Ok(Reply::Answered(Err(AnswerError::Storage(error)))) | Err(Unreached::Storage(error)) => {
                        failed = Some(error);
                    }
                    Ok(Reply::Answered(Ok(answered))) => return Some(Ok(answered)),
                    // The board that has it may have decided before this one looked.
                    Ok(Reply::Answered(Err(error))) => refused = Some(error),
                    Ok(reply) => failed = Some(unavailable(&reply)),
                    Err(Unreached::Gone) => gone_at = gone_at.or_else(|| Some(board.env.now().monotonic)),
                }
            }
            if let Some(error) = refused {
                return Some(Err(error));
            }
            let now = board.env.now().monotonic;
            if gone_at.is_none() && !others.is_empty() {
                match board.journal.boards().await {
                    Ok(boards) => gone_at = boards.iter().any(|board| board.left.is_zero()).then_some(now),
                    Err(error) => failed = Some(error),
                }
            }
            let waits = gone_at.is_some_and(|gone_at| now.saturating_sub(gone_at) <= TAKEN_OVER_WITHIN);
            if failed.is_some() || !waits || board.is_closed() {
                return failed.map(|error| Err(error.into()));
            }
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = answer_of(board.boards.look()).await {
                return Some(Err(error.into()));
            }
        }
    }

    /// Answers a person about what a run of this board waits for.
    pub(super) async fn answered_here(
        &self,
        ByPerson { id, by, what }: ByPerson,
    ) -> Result<Option<Votes>, AnswerError> {
        let people = self.people();
        let answered = match (what, id) {
            (PersonDoes::Respond { response, via }, id) => people.via(&via).answer_here(id, response, &by).await,
            (PersonDoes::Check, PendingId::Approval(id)) => people.check_here(id, &by).await.map(Some),
            (PersonDoes::Check, id @ (PendingId::Question(_) | PendingId::Node(_) | PendingId::Attention(_))) => {
                Err(AnswerError::NotOpen(id))
            }
        };
        answered.map_err(AnswerError::sendable)
    }
}

/// The run that waits for this, if the id names it: that of an approval does not.
fn run_of(id: PendingId) -> Option<RunId> {
    match id {
        PendingId::Approval(_) => None,
        PendingId::Question(question) => Some(question.request.turn.run),
        PendingId::Node(turn) | PendingId::Attention(turn) => Some(turn.run),
    }
}
