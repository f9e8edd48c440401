//! The approvals, questions and interrupts for which a run waits for people. Pure.

use crate::messages::{Chain, Pending, Question, QuestionId};

use super::fold::Run;
use super::record::{Once, OnceState, QuestionState, Record};
use super::turn::Phase;

impl Run {
    /// What the run waits for people with: approvals by expiry, questions by age, nodes that are to be resumed, and turns that
    /// need attention. What has expired and the run has yet to notice is among them ([`Pending::is_expired`]). So is what turns wait for that
    /// other boards have taken, if they were read ([`Run::with_placed`]): it has the id of their run.
    ///
    /// ```
    /// use callboard::messages::Pending;
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let host = |turn: Turn| async move { Ok(Command::output(turn.people().ask("Who is there?").await?)) };
    /// let board = Callboard::builder().agent("host", host).start().await?;
    /// let run = board.submit(Task::new("receive")).await?;
    /// run.next_pending().await?;
    /// let read = run.read().await?;
    /// assert!(matches!(&read.pending()[..], [Pending::Question(asked)] if asked.question == "Who is there?"));
    /// assert!(read.waits_for_people());
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        let approvals = self.open_approvals().map(|envelope| Pending::from(envelope.clone()));
        let asked = approvals.chain(self.open_questions().map(Pending::Question));
        let attention = self.turns_that_need_attention().map(|(turn, why)| Pending::Attention {
            turn,
            node: self.node_of(turn.number),
            is_compensation: self.is_compensation(turn.number),
            why: why.to_owned(),
        });
        let mut pending: Vec<Pending> = asked.chain(self.interrupts().map(Pending::Node)).chain(attention).collect();
        pending.extend(self.placed().flat_map(Run::pending));
        pending.sort_by_cached_key(Pending::rank);
        pending
    }

    /// The delegations that led to an open turn, those that led to the run first; of a turn that is not open, these alone.
    #[must_use]
    pub fn chain_of(&self, turn: u32) -> &Chain {
        let open = self.turn(turn).map(|turn| &self.branch_of(turn).chain);
        open.unwrap_or(&self.submission().chain)
    }

    /// The questions without an answer, in the order of their turns, including those about unknown outcomes. Expired questions
    /// whose turns have not continued yet are among them.
    fn open_questions(&self) -> impl Iterator<Item = Question> {
        self.turns.requests_for_people().filter_map(|(request, turn, record)| {
            let (question, nonce, asked_at, expires_at) = match record {
                Record::Question { question, nonce, asked_at, answer: None } => {
                    (question.clone(), *nonce, *asked_at, None)
                }
                Record::TimedQuestion { question, nonce, asked_at, expires_at, state: QuestionState::Open } => {
                    (question.clone(), *nonce, *asked_at, Some(*expires_at))
                }
                Record::Once(Once { intent, state: OnceState::Asked(asked), .. }) => {
                    (asked.question(intent), asked.nonce, asked.at, Some(asked.expires_at))
                }
                _ => return None,
            };
            let id = QuestionId { request: self.request_id(request), nonce };
            Some(Question { id, agent: turn.agent.clone(), question, asked_at, expires_at })
        })
    }

    /// Whether nothing of the run continues until people decide or answer: every open turn has asked for that, needs attention or
    /// is interrupted, or waits for the answer of one that does.
    #[must_use]
    pub fn waits_for_people(&self) -> bool {
        let held = self.turns.held_for_people().map(|(turn, _)| turn);
        // A turn that is to be tried again does not wait for what it has asked.
        let asked = self.turns.requests_for_people().filter(|(_, turn, _)| *turn.phase() == Phase::Leased);
        let parked = self.branches.parked().filter_map(|(branch, _)| self.asker_of(branch));
        let placed = self.placed_that(Run::waits_for_people);
        let held_up = self.held_up_by(held.chain(asked.map(|(request, ..)| request.turn)).chain(parked).chain(placed));
        (!held_up.is_empty() || self.branches.parked().next().is_some())
            && self.turns.numbers().all(|turn| held_up.contains(&turn))
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::time::Duration;

    use futures::StreamExt as _;

    use crate::actors::StreamMode;
    use crate::messages::RunEvent;
    use crate::prelude::*;

    #[tokio::test(start_paused = true)]
    async fn a_run_waits_for_people_once_every_open_turn_does() {
        let board = Callboard::builder()
            .agent("lead", |turn: Turn| async move {
                let both = futures::future::join(turn.delegate("asks", "x"), turn.delegate("works", "x")).await;
                Ok(Command::output(format!("{:?} {:?}", both.0.is_ok(), both.1.is_ok())))
            })
            .agent("asks", |turn: Turn| async move {
                let both = futures::future::join(turn.people().ask("one?"), turn.people().ask("two?")).await;
                both.0.and(both.1)?;
                Ok(Command::output("answered"))
            })
            .agent("works", |_: Turn| async move {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(Command::output("done"))
            })
            .start()
            .await
            .unwrap();
        let run = board.submit(Task::new("x").to("lead")).await.unwrap();
        let mut events = run.events(1, &[StreamMode::Debug]).await.unwrap();
        let mut waits = Vec::new();
        while let Some(Watched::Event { event, .. }) = events.next().await {
            let is_over = matches!(&*event, RunEvent::TurnEnded { .. });
            if is_over || matches!(&*event, RunEvent::Asked { .. }) {
                let read = run.read().await.unwrap();
                waits.push((read.waits_for_people(), read.pending().len()));
            }
            if is_over {
                break;
            }
        }
        assert_eq!(waits.last(), Some(&(true, 2)), "{waits:?}");
        assert!(waits.len() == 3 && waits[..2].iter().all(|(waits, _)| !waits), "one of its turns works: {waits:?}");
        for open in run.pending().await {
            board.people().answer(&open, "yes", "ann").await.unwrap();
        }
        assert_eq!(run.result().await.unwrap().output, "true true");
        assert!(!run.read().await.unwrap().waits_for_people(), "it has ended");
        board.shutdown().await;
    }
}
