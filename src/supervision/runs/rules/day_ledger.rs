//! What the board, an agent and a requester may use in a day (SEMANTICS 2). Pure.
//!
//! The ledger of a day is one value of the store, which boards change by its revision. A board takes blocks from it and reserves its calls
//! within them. A block counts as spent until the board settles it, or another one that finds the board gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::state::StateRules;
use crate::messages::{AgentName, Cost, PerDay, Refusal, RunEvent, Usage, Verdict};
use crate::storage::codec::Stored;

use super::run::Run;

/// Whose use of a day is limited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum DayAccount {
    /// All runs.
    Board,
    /// The turns of an agent, and of the agents that it has made.
    Agent(Arc<str>),
    /// The runs that somebody outside the board has given.
    From(AgentName),
}

/// Tokens, and billionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Amount {
    pub(crate) tokens: u64,
    pub(crate) cost: u64,
}

/// The ledger of one day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DayLedger(BTreeMap<DayAccount, Entry>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// What was settled.
    spent: Amount,
    /// The blocks of boards, by the board.
    blocks: BTreeMap<Arc<str>, Amount>,
}

impl Stored for DayLedger {
    const SCHEMA: u16 = 22;
    const VERSION: u16 = 1;
    const NAME: &'static str = "day-ledger";
}

/// A board's block of an account, in its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    taken: Amount,
    spent: Amount,
    /// Held for calls that have not reported.
    reserved: Amount,
}

impl Amount {
    pub(crate) fn of(usage: Usage) -> Self {
        Self { tokens: usage.total(), cost: usage.cost.0 }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), cost: self.cost.saturating_add(other.cost) }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_sub(other.tokens), cost: self.cost.saturating_sub(other.cost) }
    }

    fn max(self, other: Self) -> Self {
        Self { tokens: self.tokens.max(other.tokens), cost: self.cost.max(other.cost) }
    }

    fn min(self, other: Self) -> Self {
        Self { tokens: self.tokens.min(other.tokens), cost: self.cost.min(other.cost) }
    }

    fn is_within(self, other: Self) -> bool {
        self.tokens <= other.tokens && self.cost <= other.cost
    }
}

/// How many blocks a limit has: what a crash may leave spent is a part of the limit.
const BLOCKS: u64 = 20;

/// What the name of a board ends with in ledgers of earlier builds, whose block another one has settled: the block is what was used.
const SETTLED: &str = " settled";

/// The limit as an amount; without one, the largest.
fn most(limit: &PerDay) -> Amount {
    Amount { tokens: limit.tokens.unwrap_or(u64::MAX), cost: limit.cost.map_or(u64::MAX, |cost| cost.0) }
}

impl DayLedger {
    /// What counts against the limit of an account.
    fn used(&self, account: &DayAccount) -> Amount {
        let Some(Entry { spent, blocks }) = self.0.get(account) else { return Amount::default() };
        blocks.values().fold(*spent, |sum, block| sum.plus(*block))
    }

    /// Adds at least `needed` to a board's block, and a whole block if the limit has as much left. Returns what was added.
    ///
    /// # Errors
    /// What is used of the limit, which has less left.
    pub(crate) fn take(
        &mut self,
        account: &DayAccount,
        board: &Arc<str>,
        limit: &PerDay,
        needed: Amount,
    ) -> Result<Amount, Amount> {
        let (most, used) = (most(limit), self.used(account));
        let room = most.minus(used);
        if !needed.is_within(room) {
            return Err(used);
        }
        let part = |limit: Option<u64>| limit.map_or(0, |limit| limit / BLOCKS);
        let whole = Amount { tokens: part(limit.tokens), cost: part(limit.cost.map(|cost| cost.0)) };
        let taken = needed.max(whole).min(room);
        let block = self.0.entry(account.clone()).or_default().blocks.entry(Arc::clone(board)).or_default();
        *block = block.plus(taken);
        Ok(taken)
    }

    /// Replaces a board's blocks by what it has used of each account.
    pub(crate) fn settle(&mut self, board: &str, used: &BTreeMap<DayAccount, Amount>) {
        for (account, Entry { spent, blocks }) in &mut self.0 {
            if blocks.remove(board).is_some() {
                *spent = spent.plus(used.get(account).copied().unwrap_or_default());
            }
        }
    }

    /// Has what a board has taken, also if the ledger has expired meanwhile, by a clock that was ahead.
    pub(crate) fn keep(&mut self, board: &Arc<str>, own: &BTreeMap<DayAccount, Block>) {
        for (account, Block { taken, .. }) in own.iter().filter(|(_, block)| block.taken != Amount::default()) {
            let block = self.0.entry(account.clone()).or_default().blocks.entry(Arc::clone(board)).or_default();
            *block = block.max(*taken);
        }
    }

    /// The boards that have blocks, but for those whose blocks others have settled.
    pub(crate) fn boards(&self) -> Vec<Arc<str>> {
        let names = self.0.values().flat_map(|entry| entry.blocks.keys().cloned());
        let mut boards: Vec<Arc<str>> = names.filter(|board| !board.ends_with(SETTLED)).collect();
        boards.sort_unstable();
        boards.dedup();
        boards
    }
}

impl Block {
    /// What the block needs more before a call of this amount fits; `None` if it fits.
    pub(crate) fn lacks(&self, limit: &PerDay, needed: Amount) -> Option<Amount> {
        // What is not limited is counted, and not taken.
        let counted = most(limit);
        let limited = |value: u64, limit: u64| if limit == u64::MAX { 0 } else { value };
        let lacking = self.counted().plus(needed).minus(self.taken);
        let lacking =
            Amount { tokens: limited(lacking.tokens, counted.tokens), cost: limited(lacking.cost, counted.cost) };
        (lacking != Amount::default()).then_some(lacking)
    }

    pub(crate) fn add(&mut self, taken: Amount) {
        self.taken = self.taken.plus(taken);
    }

    /// Holds an amount; call only when [`Block::lacks`] is `None`.
    pub(crate) fn reserve(&mut self, amount: Amount) {
        self.reserved = self.reserved.plus(amount);
    }

    /// Replaces a held amount by what was used.
    pub(crate) fn settle(&mut self, held: Amount, used: Amount) {
        self.reserved = self.reserved.minus(held);
        self.spent = self.spent.plus(used);
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Amount {
        self.taken.minus(self.counted())
    }

    /// What was used beyond it, on a later day ([`Block::carry`]).
    pub(crate) fn owed(&self) -> Amount {
        self.counted().minus(self.taken)
    }

    /// Counts what was used on a later day, from which the clock was set back to this one: the next block has to cover it.
    pub(crate) fn carry(&mut self, used: Amount) {
        self.spent = self.spent.plus(used);
    }

    /// What the board has used, calls that have not reported included.
    pub(crate) fn counted(&self) -> Amount {
        self.spent.plus(self.reserved)
    }
}

impl DayAccount {
    /// The refusal of a call that may cost so much; `used` is what counts against the limit, with the whole blocks of other boards.
    pub(crate) fn refusal(&self, day: &str, limit: &PerDay, used: Amount, tokens: u64, cost: Option<Cost>) -> Refusal {
        let whose = match self {
            Self::Board => "the board".into(),
            Self::Agent(agent) => format!("agent {agent}").into(),
            Self::From(from) => from.as_str().into(),
        };
        let is_money = limit.tokens.is_none_or(|limit| used.tokens.saturating_add(tokens) <= limit);
        let (limit, used, asked) = match (is_money, limit.cost) {
            (true, Some(limit)) => (limit.0, used.cost, cost.map(|cost| cost.0)),
            _ => (limit.tokens.unwrap_or_default(), used.tokens, Some(tokens)),
        };
        Refusal::DayLimit { whose, day: day.into(), limit, used, asked, is_money }
    }
}

/// What a run has used of each account through a board's blocks of a day, by its history: calls that have not reported count with what was
/// reserved for them.
///
/// # Panics
/// When a custom reducer does.
pub(crate) fn used_through(
    history: &[RunEvent],
    rules: &StateRules,
    (day, board): (u32, &str),
) -> BTreeMap<DayAccount, Amount> {
    let mut used: BTreeMap<DayAccount, Amount> = BTreeMap::new();
    let mut held: BTreeMap<(u32, u32), (Arc<str>, Amount)> = BTreeMap::new();
    let Some((RunEvent::Submitted(submission), events)) = history.split_first() else { return used };
    let (mut run, _) = Run::begin(Arc::clone(submission), rules.clone());
    let mut add = |agent: Arc<str>, amount: Amount| {
        let from = submission.task.from_agent.clone().map(DayAccount::From);
        for account in [DayAccount::Board, DayAccount::Agent(agent)].into_iter().chain(from) {
            let sum = used.entry(account).or_default();
            *sum = sum.plus(amount);
        }
    };
    for event in events {
        match event {
            RunEvent::Reserved { turn, ordinal, tokens, verdict: Verdict::Admitted(_), cost, charged, .. } => {
                let is_of_block = charged.as_ref().is_some_and(|(of, by)| (*of, &**by) == (day, board));
                if let Some(open) = run.turn(*turn).filter(|_| is_of_block) {
                    let amount = Amount { tokens: *tokens, cost: cost.map_or(0, |cost| cost.0) };
                    held.insert((*turn, *ordinal), (open.agent().host().into(), amount));
                }
            }
            RunEvent::Settled { turn, ordinal, usage, .. } => {
                if let Some((agent, _)) = held.remove(&(*turn, *ordinal)) {
                    add(agent, Amount::of(usage.unwrap_or_default()));
                }
            }
            _ => {}
        }
        run.step(event);
    }
    held.into_values().for_each(|(agent, amount)| add(agent, amount));
    used
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    fn tokens(tokens: u64) -> Amount {
        Amount { tokens, cost: 0 }
    }

    const LIMIT: PerDay = PerDay { tokens: Some(100), cost: None };

    #[test]
    fn a_board_takes_blocks_and_what_it_needs_beyond_them_up_to_the_limit() {
        let (mut ledger, [ann, bob]) = (DayLedger::default(), ["ann", "bob"].map(Arc::from));
        let mut take = |board, needed| ledger.take(&DayAccount::Board, board, &LIMIT, tokens(needed));
        assert_eq!(take(&ann, 1), Ok(tokens(5)), "a twentieth of the limit");
        assert_eq!(take(&bob, 92), Ok(tokens(92)));
        assert_eq!(take(&ann, 4), Err(tokens(97)));
        assert_eq!(take(&ann, 3), Ok(tokens(3)), "the limit itself is allowed");
        ledger.settle("bob", &BTreeMap::from([(DayAccount::Board, tokens(10))]));
        assert_eq!(ledger.boards(), [ann]);
        assert_eq!(ledger.used(&DayAccount::Board), tokens(18));
    }

    #[test]
    fn a_ledger_that_has_expired_has_the_block_of_the_board_again() {
        let (board, mut block) = (Arc::from("ann"), Block::default());
        block.add(DayLedger::default().take(&DayAccount::Board, &board, &LIMIT, tokens(60)).unwrap());
        let own = BTreeMap::from([(DayAccount::Board, block)]);
        let mut ledger = DayLedger::default();
        ledger.keep(&board, &own);
        ledger.keep(&board, &own);
        assert_eq!(ledger.used(&DayAccount::Board), tokens(60));
    }

    #[test]
    fn the_bytes_of_a_ledger_are_golden() {
        let mut ledger = DayLedger::default();
        let (ann, money) = (Arc::from("ann"), PerDay { tokens: Some(100), cost: Some(Cost(1_000)) });
        let accounts =
            [DayAccount::Board, DayAccount::Agent("coder".into()), DayAccount::From(AgentName::new("ci").unwrap())];
        for account in &accounts {
            ledger.take(account, &ann, &money, Amount { tokens: 10, cost: 70 }).unwrap();
        }
        ledger.settle("ann", &BTreeMap::from([(DayAccount::Board, tokens(3))]));
        ledger.take(&DayAccount::Board, &Arc::from("bob"), &money, tokens(1)).unwrap();
        crate::testing::golden::check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/day_limits"), &ledger);
    }

    #[test]
    fn a_refusal_of_a_day_names_the_limit_and_where_it_is_raised() {
        let text = |account: DayAccount, limit: PerDay, cost| {
            account.refusal("2026-01-31", &limit, Amount { tokens: 90, cost: 2_000_000_000 }, 20, cost).to_string()
        };
        assert_eq!(
            text(DayAccount::Board, LIMIT, None),
            "the board may use 100 tokens a day, and on 2026-01-31 it has used or set aside 90: 20 more do not fit; raise \
             `tokens_per_day` in [limits] of callboard.toml (Builder::day_limits in Rust), or try again the next day"
        );
        let money = PerDay { tokens: None, cost: Some(Cost(2_500_000_000)) };
        assert_eq!(
            text(DayAccount::Agent("coder".into()), money, Some(Cost(600_000_000))),
            "agent coder may cost $2.50 a day, and on 2026-01-31 it has cost or set aside $2.00: $0.6000 more does not fit; \
             raise `cost_per_day` in [agent.limits] of its file (AgentSpec::per_day in Rust), or try again the next day"
        );
        assert_eq!(
            text(DayAccount::From(AgentName::new("ci").unwrap()), money, None),
            "ci may cost $2.50 a day, and what this may cost is not known: give the model prices"
        );
        let revoked = PerDay { tokens: Some(0), cost: None };
        assert_eq!(
            text(DayAccount::From(AgentName::new("ci").unwrap()), revoked, None),
            "ci may use no tokens: its limit of a day is 0, as that of a token that was revoked"
        );
    }

    #[derive(Clone, Debug)]
    enum Deed {
        Hold { board: usize, amount: u64 },
        Settle { call: Index, part: u64 },
        Crash { board: usize },
        Recover,
        Stop { board: usize },
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let deed = prop_oneof![
            8 => (0_usize..3, 0_u64..40).prop_map(|(board, amount)| Deed::Hold { board, amount }),
            5 => (any::<Index>(), 0_u64..100).prop_map(|(call, part)| Deed::Settle { call, part }),
            1 => (0_usize..3).prop_map(|board| Deed::Crash { board }),
            1 => Just(Deed::Recover),
            1 => (0_usize..3).prop_map(|board| Deed::Stop { board }),
        ];
        prop::collection::vec(deed, 1..80)
    }

    /// A call as its journal has it.
    struct Call {
        board: Arc<str>,
        held: u64,
        used: Option<u64>,
    }

    fn used_by(calls: &[Call], board: &Arc<str>) -> u64 {
        calls.iter().filter(|call| call.board == *board).map(|call| call.used.unwrap_or(call.held)).sum()
    }

    proptest! {
        /// The model keeps the list of calls: what they used, or what was held for those that never reported, is never over the
        /// limit, and whatever fits the limit beside the other boards' blocks is admitted.
        #[test]
        fn boards_that_take_blocks_crash_and_are_settled_never_use_more_than_the_limit(limit in 0_u64..200, deeds in deeds()) {
            let limit = PerDay { tokens: Some(limit), cost: None };
            let mut ledger = DayLedger::default();
            let mut boards: Vec<(Arc<str>, Block)> = (0..3).map(|name| (format!("{name}").into(), Block::default())).collect();
            let (mut calls, mut dead, mut lives) = (Vec::<Call>::new(), Vec::<Arc<str>>::new(), 3);
            for deed in deeds {
                match deed {
                    Deed::Hold { board, amount } => {
                        let (name, block) = &mut boards[board];
                        let lacking = block.lacks(&limit, tokens(amount));
                        ledger.keep(name, &BTreeMap::from([(DayAccount::Board, *block)]));
                        let taken = lacking.map(|lacking| ledger.take(&DayAccount::Board, name, &limit, lacking));
                        match taken.transpose() {
                            Ok(taken) => {
                                block.add(taken.unwrap_or_default());
                                prop_assert_eq!(block.lacks(&limit, tokens(amount)), None);
                                block.reserve(tokens(amount));
                                calls.push(Call { board: Arc::clone(name), held: amount, used: None });
                            }
                            Err(used) => {
                                let lacking = lacking.unwrap_or_default().tokens;
                                prop_assert!(used.tokens + lacking > limit.tokens.unwrap());
                            }
                        }
                    }
                    Deed::Settle { call, part } if !calls.is_empty() => {
                        let Call { board, held, used } = call.get_mut(&mut calls);
                        let block = boards.iter_mut().find(|(name, _)| name == board);
                        // The calls of a board that is gone report no more.
                        if let Some((_, block)) = block.filter(|_| used.is_none()) {
                            let now = *held * part / 100;
                            block.settle(tokens(*held), tokens(now));
                            *used = Some(now);
                        }
                    }
                    Deed::Settle { .. } => {}
                    Deed::Crash { board } => {
                        lives += 1;
                        let (gone, _) = std::mem::replace(&mut boards[board], (format!("{lives}").into(), Block::default()));
                        dead.push(gone);
                    }
                    Deed::Recover => {
                        for gone in dead.drain(..) {
                            let used = used_by(&calls, &gone);
                            ledger.settle(&gone, &BTreeMap::from([(DayAccount::Board, tokens(used))]));
                        }
                    }
                    Deed::Stop { board } => {
                        lives += 1;
                        let (gone, block) = std::mem::replace(&mut boards[board], (format!("{lives}").into(), Block::default()));
                        ledger.settle(&gone, &BTreeMap::from([(DayAccount::Board, block.counted())]));
                    }
                }
                let truth: u64 = calls.iter().map(|call| call.used.unwrap_or(call.held)).sum();
                prop_assert!(truth <= ledger.used(&DayAccount::Board).tokens, "the ledger has less than was used");
                prop_assert!(ledger.used(&DayAccount::Board).tokens <= limit.tokens.unwrap());
            }
        }
    }
}
