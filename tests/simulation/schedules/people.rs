//! The same swarms with people in them, limits and more than one board: questions, approvals that are granted, denied and
//! ignored, cancels, deadlines, budgets, restarts, and boards that share a store.

use std::future::pending;
use std::time::Duration;

use callboard::messages::{Refusal, RunId, RunResult, StateRules};
use callboard::prelude::*;
use callboard::supervision::runs::Run;
use callboard::testing::{FaultPlan, Seeds, Sim, TestError};
use serde_json::json;

use super::swarm::{Plan, Reaction, Wish, answer_to, any_fault, board, insist, limits, one_fault, task, tried};

use crate::common::people;

/// Longer than people need, crashes included.
const APPROVAL_TTL: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3600);

/// A run, and what its submitter knows of it.
struct Order {
    id: RunId,
    plan: Plan,
    fate: Fate,
    is_submitted: bool,
    /// The result of the cancel, if it is known.
    was_cancelled: Option<bool>,
}

/// What befalls a run, if it is not over before.
#[derive(Clone, Copy)]
enum Fate {
    Nothing,
    Cancel { after: Duration },
    Deadline(Duration),
    Budget(u64),
}

impl Order {
    fn random(sim: &Sim) -> Self {
        let fate = match sim.below(8) {
            0 => Fate::Cancel { after: Duration::from_millis(sim.below(3_000)) },
            1 => Fate::Deadline(Duration::from_millis(1 + sim.below(3_000))),
            2 => Fate::Budget(sim.below(600)),
            _ => Fate::Nothing,
        };
        let plan = Plan::random(sim, &wishes);
        Self { id: RunId(sim.env().id()), plan, fate, is_submitted: false, was_cancelled: None }
    }

    fn task(&self) -> Task {
        let task = task(self.id, &self.plan);
        match self.fate {
            Fate::Nothing | Fate::Cancel { .. } => task,
            Fate::Deadline(deadline) => task.deadline(deadline),
            Fate::Budget(tokens) => task.limits(Limits { tokens, ..limits() }),
        }
    }

    /// Sees the run through, on whichever board takes it.
    async fn serve(&mut self, sim: &Sim, boards: &[Callboard]) -> RunResult {
        let mut asked = self.id.0.as_u128() as usize;
        let mut run = || {
            asked = asked.wrapping_add(1);
            &boards[asked % boards.len()]
        };
        if !self.is_submitted {
            insist(sim, async || run().submit(self.task()).await).await;
            self.is_submitted = true;
        }
        if let (Fate::Cancel { after }, None) = (self.fate, self.was_cancelled) {
            tokio::time::sleep(after).await;
            self.was_cancelled = Some(insist(sim, async || run().run(self.id).cancel("enough").await).await);
        }
        insist(sim, async || run().run(self.id).result().await).await
    }

    fn check(&self, result: &RunResult) {
        let RunResult { outcome, state, metrics, .. } = result;
        match (outcome, self.fate) {
            (Outcome::Finished, _) => assert_eq!(state["count"], json!(self.plan.turns())),
            (Outcome::Cancelled { reason }, Fate::Cancel { .. }) => assert_eq!(reason, "enough"),
            (Outcome::Refused(Refusal::DeadlinePassed), Fate::Deadline(_)) => {}
            (Outcome::Refused(Refusal::TokenBudget { .. }), Fate::Budget(_)) => {}
            // What a delegation was refused fails the turn that waits for it.
            (Outcome::Failed { error }, Fate::Budget(_)) if error.contains("refused (TokenBudget)") => {}
            (_, _) => panic!("{} ended otherwise than it may: {outcome:?}", self.id),
        }
        if self.was_cancelled == Some(true) {
            assert!(matches!(outcome, Outcome::Cancelled { .. }), "a cancel that was confirmed counts: {outcome:?}");
        }
        if let Fate::Budget(tokens) = self.fate {
            assert!(metrics.tokens_spent <= tokens && metrics.overrun == 0, "{metrics:?} of {tokens}");
        }
    }
}

fn wishes(sim: &Sim) -> Vec<Wish> {
    let one = |_| match sim.below(8) {
        0 | 1 => Wish::Answer,
        2 | 3 => Wish::Approval(Reaction::Approve),
        4 => Wish::Approval(Reaction::Deny),
        5 if sim.below(3) == 0 => Wish::Approval(Reaction::Ignore),
        _ => Wish::Tokens(1 + sim.below(100)),
    };
    (0..sim.below(3)).map(one).collect()
}

/// Answers every question and decides every approval, as often as it is asked.
async fn people(sim: &Sim, boards: &[Callboard], runs: &[RunId]) {
    loop {
        for board in boards {
            for open in sim.open_approvals(board) {
                let (reaction, _): (Reaction, usize) = open.action.arguments.parse().unwrap();
                let decided = match reaction {
                    Reaction::Approve => tried(board.people().approve(open.id(), "ann")).await,
                    Reaction::Deny => tried(board.people().deny(open.id(), "bob", "no")).await,
                    Reaction::Ignore => continue,
                };
                if let Err(error) = decided {
                    sim.note(&format!("not decided: {error}"));
                }
            }
            for run in runs {
                let asked = async { Ok::<_, String>(people::questions(&board.run(*run)).await) };
                for open in tried(asked).await.unwrap_or_default() {
                    if let Err(error) = tried(board.people().answer(open.id, answer_to(&open.question), "ann")).await {
                        sim.note(&format!("not answered: {error}"));
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Corrects the machine's date for a while, now back and now ahead. Draws no number of the simulation's.
async fn correct_dates(sim: &Sim, run: RunId) {
    let mut random = run.0.as_u128() as u64 >> 2;
    let mut wrong_by = 0;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(random % 200)).await;
        random = random.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let will_be_wrong_by = (random % 10_000) as i64 - 5_000;
        sim.correct_date(will_be_wrong_by - wrong_by);
        wrong_by = will_be_wrong_by;
    }
    pending().await
}

/// Works until every run has ended, or until the boards are to be restarted.
async fn work(sim: &Sim, orders: &mut [Order], boards: &[Callboard], restart_after: Option<Duration>) -> bool {
    let runs: Vec<_> = orders.iter().map(|order| order.id).collect();
    let results = tokio::select! {
        biased;
        results = futures::future::join_all(orders.iter_mut().map(|order| order.serve(sim, boards))) => results,
        () = people(sim, boards, &runs) => unreachable!("people go on for ever"),
        () = correct_dates(sim, runs[0]) => unreachable!("it is never over"),
        () = tokio::time::sleep(restart_after.unwrap_or(Duration::MAX)) => return false,
    };
    for (order, result) in orders.iter().zip(results) {
        order.check(&result);
        let history = insist(sim, async || boards[0].run(order.id).history().await).await;
        assert_eq!(**Run::of(history, &StateRules::default()).unwrap().result().unwrap(), result);
    }
    // The turn of a run that has ended may continue until it yields.
    sim.assert_nothing_left().await;
    let effects = sim.effects().count();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(sim.effects().count(), effects, "what has ended does nothing any more");
    true
}

async fn play(sim: Sim, fault: fn(&Sim, FaultPlan) -> FaultPlan) -> Result<(), TestError> {
    sim.time_limit(48 * HOUR);
    let mut orders: Vec<_> = (0..1 + sim.below(3)).map(|_| Order::random(&sim)).collect();
    let boards = 1 + sim.below(2);
    let mut restarts: Vec<_> = (0..sim.below(3)).map(|_| Duration::from_millis(sim.below(10_000))).collect();
    for _ in 0..sim.below(4) {
        fault(&sim, sim.faults());
    }
    loop {
        let lived = sim.until_crash(async {
            let mut started = Vec::new();
            for _ in 0..boards {
                let start = async || board(&sim).approval_ttl(APPROVAL_TTL).start().await;
                started.push(insist(&sim, start).await);
            }
            let has_ended = work(&sim, &mut orders, &started, restarts.pop()).await;
            for board in &started {
                board.shutdown().await;
            }
            has_ended
        });
        if lived.await == Some(true) {
            break;
        }
    }
    let planned = orders.iter().map(|order| order.plan.effects()).sum::<u64>();
    let done = sim.effects().count() as u64;
    let are_whole = orders.iter().all(|order| matches!(order.fate, Fate::Nothing));
    assert!(done == planned || !are_whole && done < planned, "{done} effects of {planned}");
    sim.assert_effects_at_most_once_per_key();
    Ok(())
}

/// Seeds that once failed.
#[test]
fn what_went_wrong_with_people_once_does_not_again() {
    // 328: two boards took over one run. 1340: a submission was acknowledged that a claim alone had refused. 1819: a cancel was
    // confirmed of a run that had ended in the same moment. 3658: a board that had ended was asked what is left. 18,982: an
    // effect of a turn was counted whose run had just ended. 30,224: a run that waited for a claim to end was submitted again,
    // its supervisor panicked, and it was not resumed. 32,079: two boards worked on one run. 36,625: a board that had ended
    // claimed a run late, which took it from the board that had it.
    for seed in [328, 1340, 1819, 3658, 18_982, 30_224, 32_079, 36_625] {
        Seeds::only(seed).simulate(async |sim| play(sim, one_fault).await);
    }
}

/// Seeds of [`one_fault_anywhere_loses_nothing`] that once failed.
#[test]
fn one_thing_that_went_wrong_once_does_not_again() {
    // 150: a store panicked as the people of the test looked at a run. 358: a store panicked while a run was taken over. 1364: a run was
    // journaled whose note was not written, its board crashed, and it was submitted again. 2296: the gateway failed as an approval expired,
    // and its next life left out what had expired. 3478: a store panicked as an approval expired. 4342: a turn was still on its way to its
    // agent when its run ended.
    for seed in [150, 358, 1364, 2296, 3478, 4342] {
        Seeds::only(seed).simulate(async |sim| play(sim, any_fault).await);
    }
}

#[test]
fn people_limits_and_boards_side_by_side_count_once_whatever_the_schedule_and_the_faults() {
    Seeds::new(30).simulate(async |sim| play(sim, one_fault).await);
}

#[test]
fn one_fault_anywhere_loses_nothing() {
    Seeds::new(30).simulate(async |sim| play(sim, any_fault).await);
}
