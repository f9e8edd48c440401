//! The money of one run: reserved before a call and settled after it as tokens are, and what its agents have used of each model.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::{AgentName, Cost, Refusal, Usage};

use super::{Account, ReservationKey};

/// Stored beside the run in its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Money {
    /// Billionths of a dollar; `None` if the run has no limit of money.
    account: Option<Account>,
    /// What is held for the calls that have not reported; empty without a limit.
    open: Vec<(ReservationKey, u64)>,
    used: Vec<Used>,
    /// What runs have used that turns of this one began: those runs have it among their own.
    of_runs: Usage,
}

/// What an agent has used of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Used {
    pub(in crate::supervision::runs) agent: AgentName,
    /// `None` if it is not known.
    pub(in crate::supervision::runs) model: Option<Arc<str>>,
    pub(in crate::supervision::runs) usage: Usage,
}

/// Whose usage a call reports.
#[derive(Clone, Copy, Debug)]
pub(in crate::supervision::runs) enum UsedBy<'a> {
    /// An agent's, of a model if it is known.
    Agent(&'a AgentName, Option<&'a Arc<str>>),
    /// That of a run that a turn began.
    Run,
}

impl Money {
    /// With a limit, and nothing spent.
    pub(super) fn limited(limit: Cost) -> Self {
        Self { account: Some(Account { limit: limit.0, ..Account::default() }), ..Self::default() }
    }

    /// Checks that a call of this cost fits the limit.
    pub(super) fn check(&self, cost: Option<Cost>) -> Result<(), Refusal> {
        let Some(account) = &self.account else { return Ok(()) };
        if cost.is_some_and(|cost| cost.0 <= account.left()) {
            return Ok(());
        }
        let Account { limit, spent, reserved, unsettled } = *account;
        let [budget, spent, unsettled, reserved] = [limit, spent + unsettled, unsettled, reserved].map(Cost);
        Err(Refusal::CostBudget { budget, spent, unsettled, reserved, asked: cost })
    }

    pub(super) fn reserve(&mut self, key: ReservationKey, cost: Option<Cost>) {
        if let (Some(account), Some(Cost(cost))) = (&mut self.account, cost) {
            account.reserved += cost;
            self.open.push((key, cost));
        }
    }

    /// The attempt that made the reservation is over.
    pub(super) fn end_attempt(&mut self, key: ReservationKey) {
        if let (Some(account), Some((_, cost))) = (&mut self.account, self.open.iter().find(|(open, _)| *open == key)) {
            account.reserved -= cost;
            account.unsettled += cost;
        }
    }

    pub(super) fn settle(&mut self, key: ReservationKey, is_over: bool, used: Cost) {
        if let (Some(account), Some(at)) = (&mut self.account, self.open.iter().position(|(open, _)| *open == key)) {
            let (_, cost) = self.open.remove(at);
            // What the provider charges beyond the limit is in the usage.
            account.settle(cost, is_over, used.0);
        }
    }

    pub(super) fn add(&mut self, usage: Usage, by: UsedBy<'_>) {
        let (agent, model) = match by {
            UsedBy::Agent(agent, model) => (agent, model),
            UsedBy::Run => {
                self.of_runs += usage;
                return;
            }
        };
        match self.used.iter_mut().find(|used| used.agent == *agent && used.model.as_ref() == model) {
            Some(used) => used.usage += usage,
            None => self.used.push(Used { agent: agent.clone(), model: model.cloned(), usage }),
        }
    }

    /// What agents have used of each model, in the order of their first calls.
    pub(super) fn used(&self) -> &[Used] {
        &self.used
    }

    /// What is known of who has used it.
    pub(super) fn known(&self) -> Usage {
        self.used.iter().fold(self.of_runs, |mut sum, used| {
            sum += used.usage;
            sum
        })
    }
}
