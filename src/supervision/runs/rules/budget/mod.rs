//! The tokens and the money of one run: reserved before a call, settled after it (SEMANTICS 2).

mod agents;
mod money;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::env::Mutant;
use crate::messages::{AgentName, Cost, Limits, Refusal, Usage};
use crate::supervision::runs::rules::rare::Rare;
use crate::supervision::runs::rules::requests::RequestKey;

pub(in crate::supervision::runs) use self::money::{Money, MoneyV3, Used, UsedBy};

/// The key of a reservation: the turn's number and the request's ordinal in it.
pub(crate) type ReservationKey = (u32, u32);

/// At every moment `spent + reserved + unsettled <= limit`, for the run and for every delegation that has a sub-budget; what a
/// provider reports beyond that is `overrun`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Budget {
    tokens: Account,
    overrun: u64,
    /// Sorted by key: a run has few open reservations, most runs have one.
    open: Vec<(ReservationKey, OpenReservation)>,
    usage: Usage,
    /// Budgets of delegations that are open, by the delegation; each within another or within the run's.
    sub_budgets: Rare<BTreeMap<RequestKey, SubBudget>>,
    /// The ordinal of the next reservation. Stored with the run.
    #[serde(skip)]
    next: u32,
    /// `None` without a limit of money, until a call has reported. Stored beside the run.
    #[serde(skip)]
    money: Option<Box<Money>>,
}

/// Tokens, or billionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    limit: u64,
    spent: u64,
    /// Held for calls of running attempts.
    reserved: u64,
    /// Held for calls that have not reported and whose attempts are over. The calls may have been made, so this counts as spent
    /// until the calls report.
    unsettled: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SubBudget {
    tokens: Account,
    within: Option<RequestKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OpenReservation {
    tokens: u64,
    sub_budget: Option<RequestKey>,
    /// The attempt that made the reservation is over.
    is_over: bool,
    #[serde(skip)]
    call: Call,
}

/// What else is known of the call of a reservation. Stored beside the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Call {
    /// The agent that makes it, whose turn may have ended; `None` if an earlier version has stored the reservation.
    pub(in crate::supervision::runs) agent: Option<AgentName>,
    /// What it may cost in billionths of a dollar; 0 if that is not known.
    pub(in crate::supervision::runs) cost: u64,
}

/// What a turn sets aside for a run that it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) tokens: u64,
    /// Set where money is limited.
    pub(crate) cost: Option<Cost>,
}

impl Account {
    fn left(&self) -> u64 {
        self.limit - self.spent - self.reserved - self.unsettled
    }

    /// Counts the part of `used` that the reservation covers; returns the rest.
    fn settle(&mut self, held: u64, is_over: bool, used: u64) -> u64 {
        *(if is_over { &mut self.unsettled } else { &mut self.reserved }) -= held;
        let counted = used.min(self.left());
        self.spent += counted;
        used - counted
    }

    fn check(&self, asked: u64, is_delegated: bool) -> Result<(), Refusal> {
        let Self { limit: budget, spent, reserved, unsettled } = *self;
        if asked <= self.left() {
            return Ok(());
        }
        Err(Refusal::TokenBudget { budget, spent: spent + unsettled, unsettled, reserved, asked, is_delegated })
    }
}

impl Budget {
    /// A budget of this many tokens.
    #[must_use]
    pub(crate) fn new(limit: u64) -> Self {
        Self { tokens: Account { limit, ..Account::default() }, ..Self::default() }
    }

    /// The budget of a run with these limits.
    #[must_use]
    pub(crate) fn of(limits: &Limits) -> Self {
        Self { money: limits.cost.map(|limit| Box::new(Money::limited(limit))), ..Self::new(limits.tokens) }
    }

    /// What is stored beside the run.
    pub(in crate::supervision::runs) fn beside(&self) -> (Option<&Money>, Vec<(ReservationKey, &Call)>) {
        (self.money.as_deref(), self.open.iter().map(|(key, held)| (*key, &held.call)).collect())
    }

    /// Puts back what was stored beside the run.
    pub(in crate::supervision::runs) fn put_beside(
        &mut self,
        money: Option<Box<Money>>,
        calls: Vec<(ReservationKey, Call)>,
    ) {
        self.money = money;
        for (key, call) in calls {
            if let Ok(at) = self.place_of(key) {
                self.open[at].1.call = call;
            }
        }
    }

    /// The ordinal that the next reservation will have.
    #[must_use]
    pub(crate) fn next_reservation(&self) -> u32 {
        self.next
    }

    /// Raises the ordinal of the next reservation to at least `next`.
    pub(crate) fn reserved_up_to(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// Gives a delegation a budget of its own, within `within` if there is one.
    pub(crate) fn open_sub_budget(&mut self, key: RequestKey, limit: u64, within: Option<RequestKey>) {
        self.sub_budgets.insert(key, SubBudget { tokens: Account { limit, ..Account::default() }, within });
    }

    /// Closes the budget of a delegation that is over. Its calls that have not reported yet count against the enclosing budget.
    pub(crate) fn close_sub_budget(&mut self, key: RequestKey) {
        let Some(sub_budgets) = self.sub_budgets.get_mut() else { return };
        let Some(SubBudget { within, .. }) = sub_budgets.remove(&key) else { return };
        let outer = sub_budgets.values_mut().map(|sub_budget| &mut sub_budget.within);
        let held = self.open.iter_mut().map(|(_, held)| &mut held.sub_budget);
        for sub_budget in outer.chain(held).filter(|sub_budget| **sub_budget == Some(key)) {
            *sub_budget = within;
        }
    }

    /// Checks that `tokens` more fit the sub-budget, every budget that encloses it, and the run's.
    ///
    /// # Errors
    /// [`Refusal::TokenBudget`].
    pub(crate) fn check(&self, sub_budget: Option<RequestKey>, tokens: u64) -> Result<(), Refusal> {
        let mut next = sub_budget;
        while let Some(sub_budget) = next.and_then(|key| self.sub_budgets.get(&key)) {
            sub_budget.tokens.check(tokens, true)?;
            next = sub_budget.within;
        }
        self.tokens.check(tokens, false)
    }

    /// As [`Budget::check`], and that a call of this cost fits the run's limit of money. A call of unknown cost fits no limit.
    ///
    /// # Errors
    /// [`Refusal::TokenBudget`], [`Refusal::CostBudget`].
    pub(crate) fn check_call(
        &self,
        sub_budget: Option<RequestKey>,
        tokens: u64,
        cost: Option<Cost>,
    ) -> Result<(), Refusal> {
        self.check(sub_budget, tokens)?;
        self.money.as_ref().map_or(Ok(()), |money| money.check(cost))
    }

    /// Sets tokens and money aside; call only after [`Budget::check_call`].
    pub(in crate::supervision::runs) fn reserve(
        &mut self,
        key: ReservationKey,
        sub_budget: Option<RequestKey>,
        tokens: u64,
        call: Call,
    ) {
        if let Some(account) = self.money.as_mut().and_then(|money| money.account.as_mut()) {
            account.reserved += call.cost;
        }
        let tokens = if Mutant::ReserveNothing.is_injected() { 0 } else { tokens };
        self.each(sub_budget, |counted| counted.reserved += tokens);
        let held = OpenReservation { tokens, sub_budget, is_over: false, call };
        match self.place_of(key) {
            Ok(at) => self.open[at].1 = held,
            Err(at) => {
                if self.open.is_empty() {
                    self.open.reserve_exact(1);
                }
                self.open.insert(at, (key, held));
            }
        }
    }

    /// An attempt of the turn is over, however it ended: its reservations become `unsettled`.
    pub(crate) fn end_attempt(&mut self, turn: u32) {
        let of_turn = self.of_turn(turn);
        let open = self.open[of_turn].iter_mut().filter(|(_, held)| !held.is_over);
        let ended: Vec<(u64, Option<RequestKey>, u64)> = open
            .map(|(_, held)| {
                held.is_over = true;
                (held.tokens, held.sub_budget, held.call.cost)
            })
            .collect();
        for (tokens, sub_budget, cost) in ended {
            if let Some(account) = self.money.as_mut().and_then(|money| money.account.as_mut()) {
                account.reserved -= cost;
                account.unsettled += cost;
            }
            self.each(sub_budget, |counted| {
                counted.reserved -= tokens;
                counted.unsettled += tokens;
            });
        }
    }

    /// Replaces a reservation by what was used; `None` when the call is known not to have been sent. A reservation that
    /// is unknown or settled already changes nothing. The agent in `by` is for a reservation whose own is not known.
    pub(in crate::supervision::runs) fn settle(&mut self, key: ReservationKey, usage: Option<Usage>, by: UsedBy<'_>) {
        let Ok(at) = self.place_of(key) else { return };
        let (_, held) = self.open.remove(at);
        let used = usage.unwrap_or_default().total();
        // The run's account is the last, so this is its overrun.
        let mut overrun = 0;
        self.each(held.sub_budget, |counted| overrun = counted.settle(held.tokens, held.is_over, used));
        self.overrun += overrun;
        if let Some(account) = self.money.as_mut().and_then(|money| money.account.as_mut()) {
            // What the provider charges beyond the limit is in the usage.
            account.settle(held.call.cost, held.is_over, usage.unwrap_or_default().cost.0);
        }
        if let Some(usage) = usage {
            let by = match (by, &held.call.agent) {
                (UsedBy::Agent(_, model), Some(agent)) => UsedBy::Agent(agent, model),
                (UsedBy::Agent(..), None) | (UsedBy::Run, _) => by,
            };
            self.usage += usage;
            self.money.get_or_insert_default().add(usage, by);
        }
    }

    /// What agents have used of each model, and the part of the usage of which neither is known, because an earlier version has
    /// stored it.
    #[must_use]
    pub(in crate::supervision::runs) fn used(&self) -> (&[Used], Usage) {
        let known = self.money.as_ref().map(|money| money.known()).unwrap_or_default();
        let Usage { input_tokens, output_tokens, cost } = self.usage;
        let unknown = Usage {
            input_tokens: input_tokens.saturating_sub(known.input_tokens),
            output_tokens: output_tokens.saturating_sub(known.output_tokens),
            cost: Cost(cost.0.saturating_sub(known.cost.0)),
        };
        (self.money.as_ref().map(|money| money.used()).unwrap_or_default(), unknown)
    }

    /// Calls `count` for the sub-budget, every budget that encloses it, and the run's.
    fn each(&mut self, sub_budget: Option<RequestKey>, mut count: impl FnMut(&mut Account)) {
        let mut next = sub_budget;
        while let Some(key) = next
            && let Some(sub_budget) = self.sub_budgets.get_mut().and_then(|all| all.get_mut(&key))
        {
            count(&mut sub_budget.tokens);
            next = sub_budget.within;
        }
        count(&mut self.tokens);
    }

    /// Tokens that count against the limit: settled ones and those held for calls whose end is not known.
    #[must_use]
    pub(crate) fn spent(&self) -> u64 {
        self.tokens.spent + self.tokens.reserved + self.tokens.unsettled
    }

    /// Tokens reported beyond the limit.
    #[must_use]
    pub(crate) fn overrun(&self) -> u64 {
        self.overrun
    }

    /// The usage that providers reported.
    #[must_use]
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// The reservation of this many tokens that an earlier attempt of this turn made and whose call has not reported.
    #[must_use]
    pub(crate) fn left_by_attempt_before(&self, turn: u32, tokens: u64) -> Option<u32> {
        let mut open = self.open[self.of_turn(turn)].iter();
        open.find(|(_, held)| held.is_over && held.tokens == tokens).map(|((_, ordinal), _)| *ordinal)
    }

    /// The last reservation that earlier attempts of this turn have made and that has not reported.
    #[must_use]
    pub(crate) fn last_left_by_attempt_before(&self, turn: u32) -> Option<(u32, Share)> {
        let mut open = self.open[self.of_turn(turn)].iter();
        let ((_, ordinal), held) = open.rfind(|(_, held)| held.is_over)?;
        Some((*ordinal, Share { tokens: held.tokens, cost: self.money.as_ref().map(|_| Cost(held.call.cost)) }))
    }

    /// Whether a reservation of this turn has not reported.
    #[must_use]
    pub(crate) fn holds_for(&self, turn: u32) -> bool {
        !self.of_turn(turn).is_empty()
    }

    /// One of so many parts of what is left. Money only where it is limited.
    #[must_use]
    pub(crate) fn share(&self, sub_budget: Option<RequestKey>, parts: u64) -> Share {
        let mut left = self.tokens.left();
        let mut next = sub_budget;
        while let Some(sub_budget) = next.and_then(|key| self.sub_budgets.get(&key)) {
            left = left.min(sub_budget.tokens.left());
            next = sub_budget.within;
        }
        let cost = self.money.as_ref().and_then(|money| money.left()).map(|left| Cost(left / parts));
        Share { tokens: left / parts, cost }
    }

    /// The tokens held for a call.
    #[cfg(test)]
    pub(crate) fn held(&self, key: ReservationKey) -> Option<u64> {
        self.place_of(key).ok().map(|at| self.open[at].1.tokens)
    }

    /// The index of a reservation in `open`, or the index at which it would be inserted.
    fn place_of(&self, key: ReservationKey) -> Result<usize, usize> {
        self.open.binary_search_by_key(&key, |(key, _)| *key)
    }

    /// The range of the turn's reservations in `open`.
    fn of_turn(&self, turn: u32) -> Range<usize> {
        let before = |turn: u64| self.open.partition_point(|((of, _), _)| u64::from(*of) < turn);
        before(turn.into())..before(u64::from(turn) + 1)
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_limit_itself_is_allowed_and_the_next_token_is_not() {
        let mut budget = Budget::new(10);
        assert!(budget.check(None, 10).is_ok());
        budget.reserve((1, 0), None, 10, Call::default());
        let refusal = budget.check(None, 1).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "1 tokens do not fit the budget of 10 (0 spent, 10 reserved); raise `limits.tokens` of the task to at least this: \
             --limits '{\"tokens\": 11}' on the command line, .limits(Limits { tokens: 11, ..Limits::default() }) in Rust"
        );
    }

    #[test]
    fn what_an_attempt_leaves_unsettled_is_as_good_as_spent_until_it_reports() {
        let mut budget = Budget::new(100);
        budget.reserve((1, 0), None, 80, Call::default());
        budget.reserve((2, 0), None, 5, Call::default());
        budget.end_attempt(1);
        budget.end_attempt(1);
        assert_eq!(
            budget.check(None, 16).unwrap_err().to_string(),
            "16 tokens do not fit the budget of 100 (80 spent, of which 80 by calls that never reported, 5 reserved); \
             settle or release them before the attempt ends, or raise `limits.tokens` of the task to at least this: \
             --limits '{\"tokens\": 101}' on the command line, .limits(Limits { tokens: 101, ..Limits::default() }) in Rust"
        );
        budget.settle((1, 0), Some(Usage::of(7, 3)), UsedBy::Run);
        assert_eq!(budget.check(None, 85), Ok(()));
        assert_eq!(budget.check(None, 86).unwrap_err().name(), "TokenBudget");
    }

    #[test]
    fn a_sub_budget_lies_within_another_and_within_the_run() {
        let mut budget = Budget::new(100);
        let [outer, inner] = [1, 2].map(|turn| RequestKey { turn, ordinal: 0 });
        budget.open_sub_budget(outer, 50, None);
        budget.open_sub_budget(inner, 80, Some(outer));
        let more_than_the_outer_one_has = budget.check(Some(inner), 51).unwrap_err();
        assert!(
            matches!(
                more_than_the_outer_one_has,
                Refusal::TokenBudget { budget: 50, asked: 51, is_delegated: true, .. }
            ),
            "{more_than_the_outer_one_has:?}"
        );
        budget.reserve((3, 0), Some(inner), 30, Call::default());
        budget.reserve((3, 1), Some(outer), 20, Call::default());
        assert_eq!(budget.check(Some(inner), 1).unwrap_err().name(), "TokenBudget");
        assert!(budget.check(None, 50).is_ok(), "the run has more");
        budget.close_sub_budget(inner);
        budget.settle((3, 0), Some(Usage::of(10, 0)), UsedBy::Run);
        assert_eq!(budget.check(Some(outer), 20), Ok(()));
        let refused = budget.check(Some(outer), 21).unwrap_err();
        assert!(matches!(refused, Refusal::TokenBudget { budget: 50, spent: 10, reserved: 20, .. }), "{refused:?}");
        assert_eq!((budget.spent(), budget.overrun()), (30, 0));
    }

    #[test]
    fn money_is_held_before_a_call_and_settled_after_it_as_tokens_are() {
        let limits = Limits { cost: Some(Cost(2_500_000_000)), ..Limits::default() };
        let (mut budget, agent) = (Budget::of(&limits), AgentName::new("a").unwrap());
        let model = Arc::from("m");
        let dollars = |nanos| Some(Cost(nanos));
        assert_eq!(budget.check_call(None, 1, dollars(2_500_000_000)), Ok(()));
        budget.reserve((1, 0), None, 1, Call { cost: 2_000_000_000, ..Call::default() });
        budget.reserve((1, 1), None, 1, Call { cost: 300_000_000, ..Call::default() });
        budget.end_attempt(1);
        assert_eq!(
            budget.check_call(None, 1, dollars(200_000_001)).unwrap_err().to_string(),
            "$0.2000 more does not fit the $2.50 that the run may cost ($2.30 spent, of which $2.30 by calls that never \
             reported, $0 reserved); settle or release them before the attempt ends, or raise `limits.cost` of the task to at least this: \
             --limits '{\"cost\": \"2.500000001\"}' on the command line, \
             .limits(Limits { cost: Some(Cost(2500000001)), ..Limits::default() }) in Rust"
        );
        let usage = Usage { cost: Cost(400_000_000), ..Usage::of(7, 3) };
        budget.settle((1, 0), Some(usage), UsedBy::Agent(&agent, Some(&model)));
        budget.settle((1, 1), None, UsedBy::Agent(&agent, Some(&model)));
        assert_eq!(budget.check_call(None, 1, dollars(2_100_000_000)), Ok(()));
        assert_eq!(budget.check_call(None, 1, dollars(2_100_000_001)).unwrap_err().name(), "CostBudget");
        assert_eq!(
            budget.check_call(None, 1, None).unwrap_err().to_string(),
            "the run may cost $2.50, and what this may cost is not known: give the model prices, or the workflow a `cost` \
             among its limits"
        );
        let (used, unknown) = budget.used();
        assert_eq!((used.len(), used[0].usage, unknown), (1, usage, Usage::default()));
    }
}
