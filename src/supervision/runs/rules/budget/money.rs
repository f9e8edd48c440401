//! The money of one run: reserved before a call and settled after it as tokens are, and what its agents have used of each model.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::{AgentName, Cost, Refusal, Usage};

use super::{Account, Call, ReservationKey};

/// Stored beside the run in its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Money {
    /// Billionths of a dollar; `None` if the run has no limit of money.
    pub(super) account: Option<Account>,
    used: Vec<Used>,
    /// What runs have used that turns of this one began: those runs have it among their own.
    of_runs: Usage,
}

/// A [`Money`] as snapshots of version 3 have it.
#[derive(Deserialize)]
pub(in crate::supervision::runs) struct MoneyV3 {
    account: Option<Account>,
    /// What is held for the calls that have not reported; empty without a limit.
    open: Vec<(ReservationKey, u64)>,
    used: Vec<Used>,
    of_runs: Usage,
}

impl MoneyV3 {
    /// The same in two parts.
    pub(in crate::supervision::runs) fn split(self) -> (Money, Vec<(ReservationKey, Call)>) {
        let Self { account, open, used, of_runs } = self;
        (
            Money { account, used, of_runs },
            open.into_iter().map(|(key, cost)| (key, Call { agent: None, cost })).collect(),
        )
    }
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
    /// What is left of the limit, if there is one.
    pub(super) fn left(&self) -> Option<u64> {
        self.account.as_ref().map(Account::left)
    }

    pub(super) fn check(&self, cost: Option<Cost>) -> Result<(), Refusal> {
        let Some(account) = &self.account else { return Ok(()) };
        if cost.is_some_and(|cost| cost.0 <= account.left()) {
            return Ok(());
        }
        let Account { limit, spent, reserved, unsettled } = *account;
        let [budget, spent, unsettled, reserved] = [limit, spent + unsettled, unsettled, reserved].map(Cost);
        Err(Refusal::CostBudget { budget, spent, unsettled, reserved, asked: cost })
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
