//! A run as it is stored in snapshots: the order of these fields is the stored form, whatever the run looks like in memory.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::messages::state::StateRules;
use crate::messages::{AgentName, Alone, RunResult, Submission, Timestamp};
use crate::supervision::runs::rules::budget::Budget;
use crate::supervision::runs::rules::numbered::Numbered;
use crate::supervision::runs::rules::rare::Rare;
use crate::supervision::runs::rules::small_map::SmallSet;

use super::agents::DynamicAgents;
use super::branch::{Branch, Branches};
use super::consents::Consents;
use super::fold::{Extras, Run};
use super::plan::progress::PlanProgress;
use super::tally::Tally;
use super::turn::{OpenTurn, OpenTurns};

/// The form that is written.
#[derive(Serialize)]
#[serde(rename = "Run")]
struct Written<'a> {
    submission: &'a Arc<Submission>,
    sequence: u64,
    handoffs: u32,
    agents: &'a SmallSet<AgentName>,
    cast: &'a SmallSet<AgentName>,
    budget: &'a Budget,
    branches: &'a Numbered<Box<Branch>>,
    turns: &'a Numbered<Box<OpenTurn>>,
    next_turn: u32,
    next_branch: u32,
    next_reservation: u32,
    turns_ended: u32,
    retries: u32,
    last_at: Timestamp,
    is_tainted: bool,
    made: &'a DynamicAgents,
    standing: &'a Consents,
    alone: &'a Vec<Alone>,
    result: &'a Option<Arc<RunResult>>,
}

/// The form that is read: the same fields.
#[derive(Deserialize)]
#[serde(rename = "Run")]
struct Read {
    submission: Arc<Submission>,
    sequence: u64,
    handoffs: u32,
    agents: SmallSet<AgentName>,
    cast: SmallSet<AgentName>,
    budget: Budget,
    branches: Numbered<Box<Branch>>,
    turns: Numbered<Box<OpenTurn>>,
    next_turn: u32,
    next_branch: u32,
    next_reservation: u32,
    turns_ended: u32,
    retries: u32,
    last_at: Timestamp,
    is_tainted: bool,
    made: DynamicAgents,
    standing: Consents,
    alone: Vec<Alone>,
    result: Option<Arc<RunResult>>,
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (branches, next_branch) = self.branches.parts();
        let (turns, next_turn) = self.turns.parts();
        let written = Written {
            submission: &self.submission,
            sequence: self.sequence,
            handoffs: self.tally.handoffs,
            agents: &self.tally.agents,
            cast: &self.tally.cast,
            budget: &self.budget,
            branches,
            turns,
            next_turn,
            next_branch,
            next_reservation: self.budget.next_reservation(),
            turns_ended: self.tally.turns_ended,
            retries: self.tally.retries,
            last_at: self.last_at,
            is_tainted: self.is_tainted,
            made: &self.extras.agents,
            standing: &self.extras.consents,
            alone: &self.extras.alone,
            result: &self.result,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Read::deserialize(deserializer)?;
        let Read { handoffs, agents, cast, turns_ended, retries, mut budget, .. } = read;
        budget.reserved_up_to(read.next_reservation);
        Ok(Self {
            submission: read.submission,
            rules: StateRules::default(),
            sequence: read.sequence,
            tally: Tally { handoffs, agents, cast: Rare::of(cast), turns_ended, retries, tools: None },
            budget,
            branches: Branches::of_parts(read.branches, read.next_branch),
            turns: OpenTurns::of_parts(read.turns, read.next_turn),
            last_at: read.last_at,
            is_tainted: read.is_tainted,
            result: read.result,
            plan: PlanProgress::default(),
            extras: Rare::of(Extras {
                agents: read.made,
                consents: read.standing,
                alone: read.alone,
                ..Extras::default()
            }),
        })
    }
}
