//! The rules of budgets against a model that keeps plain lists: accounts, and the admitted calls.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::testing::rules::play;

use super::*;

#[derive(Clone, Debug)]
enum Action {
    Reserve { turn: u32, from: Index, tokens: u64 },
    Settle { call: Index, used: Option<(u64, u64)> },
    EndAttempt { turn: u32 },
    OpenPurse { within: Index, limit: u64 },
    ClosePurse { which: Index },
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let index = any::<Index>;
    let used = prop::option::weighted(0.8, (0_u64..250, 0_u64..250));
    let action = prop_oneof![
        6 => (0_u32..3, index(), 0_u64..300).prop_map(|(turn, from, tokens)| Action::Reserve { turn, from, tokens }),
        4 => (index(), used).prop_map(|(call, used)| Action::Settle { call, used }),
        2 => (0_u32..3).prop_map(|turn| Action::EndAttempt { turn }),
        2 => (index(), 0_u64..800).prop_map(|(within, limit)| Action::OpenPurse { within, limit }),
        1 => index().prop_map(|which| Action::ClosePurse { which }),
    ];
    prop::collection::vec(action, 1..30)
}

/// One limit. The first account is the run's, the others are sub-budgets.
struct Account {
    limit: u64,
    spent: u64,
    is_open: bool,
    /// The indices of the enclosing accounts, outermost first, and its own.
    path: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    UnderWay,
    AttemptOver,
    Settled,
}

struct Made {
    turn: u32,
    tokens: u64,
    /// The accounts that it counts in.
    path: Vec<usize>,
    state: State,
}

struct Model {
    accounts: Vec<Account>,
    calls: Vec<Made>,
    overrun: u64,
    usage: (u64, u64),
}

impl Model {
    fn held(&self, account: usize, state: State) -> u64 {
        let counts = |call: &&Made| call.path.contains(&account) && call.state == state;
        self.calls.iter().filter(counts).map(|call| call.tokens).sum()
    }

    fn left(&self, account: usize) -> u64 {
        let Account { limit, spent, .. } = self.accounts[account];
        limit - spent - self.held(account, State::UnderWay) - self.held(account, State::AttemptOver)
    }

    fn open(&self) -> Vec<usize> {
        (0..self.accounts.len()).filter(|account| self.accounts[*account].is_open).collect()
    }

    /// The refusal of the innermost account that has no room for so many tokens.
    fn refusal(&self, path: &[usize], asked: u64) -> Option<Refusal> {
        let of = |account: usize| {
            let unsettled = self.held(account, State::AttemptOver);
            Refusal::TokenBudget {
                budget: self.accounts[account].limit,
                spent: self.accounts[account].spent + unsettled,
                unsettled,
                reserved: self.held(account, State::UnderWay),
                asked,
                is_delegated: account != 0,
            }
        };
        let open = path.iter().rev().filter(|account| self.accounts[**account].is_open);
        open.copied().find(|account| self.left(*account) < asked).map(of)
    }

    fn settle(&mut self, call: usize, used: Option<(u64, u64)>) {
        self.calls[call].state = State::Settled;
        let (input, output) = used.unwrap_or_default();
        let path = self.calls[call].path.clone();
        let open = self.open();
        for account in path.into_iter().filter(|account| open.contains(account)) {
            let counted = (input + output).min(self.left(account));
            self.accounts[account].spent += counted;
            self.overrun += if account == 0 { input + output - counted } else { 0 };
        }
        self.usage = (self.usage.0 + input, self.usage.1 + output);
    }
}

/// The run has no sub-budget; the others are named by their index in the list.
fn sub_budget(account: usize) -> Option<RequestKey> {
    (account != 0).then_some(RequestKey { turn: account as u32, ordinal: 0 })
}

#[test]
fn spent_and_reserved_never_exceed_the_limit_of_the_run_or_of_a_delegation() {
    let branches = [
        "refused by the run",
        "refused by a sub_budget",
        "refused by a sub_budget around it",
        "overrun",
        "refunded",
        "reported after its attempt",
        "settled twice",
        "reported after its sub_budget was closed",
    ];
    play("budget", &branches, (0_u64..1_500, actions()), |(limit, actions), seen| {
        let mut budget = Budget::new(limit);
        let account = Account { limit, spent: 0, is_open: true, path: vec![0] };
        let mut model = Model { accounts: vec![account], calls: Vec::new(), overrun: 0, usage: (0, 0) };
        for action in actions {
            match action {
                Action::OpenPurse { within, limit } => {
                    let (within, new) = (*within.get(&model.open()), model.accounts.len());
                    budget.open_sub_budget(RequestKey { turn: new as u32, ordinal: 0 }, limit, sub_budget(within));
                    let path = [model.accounts[within].path.clone(), vec![new]].concat();
                    model.accounts.push(Account { limit, spent: 0, is_open: true, path });
                }
                Action::ClosePurse { which } => {
                    let which = *which.get(&model.open());
                    if let Some(key) = sub_budget(which) {
                        budget.close_sub_budget(key);
                        model.accounts[which].is_open = false;
                    }
                }
                Action::Reserve { turn, from, tokens } => {
                    let from = *from.get(&model.open());
                    let path = model.accounts[from].path.clone();
                    let refused = model.refusal(&path, tokens);
                    prop_assert_eq!(budget.check(sub_budget(from), tokens).err(), refused.clone());
                    match refused {
                        None => {
                            budget.reserve((turn, model.calls.len() as u32), sub_budget(from), tokens, Call::default());
                            model.calls.push(Made { turn, tokens, path, state: State::UnderWay });
                        }
                        Some(Refusal::TokenBudget { is_delegated: false, .. }) => _ = seen.insert("refused by the run"),
                        Some(_) if model.left(from) < tokens => _ = seen.insert("refused by a sub_budget"),
                        Some(_) => _ = seen.insert("refused by a sub_budget around it"),
                    }
                }
                Action::Settle { call, used } if !model.calls.is_empty() => {
                    let call = call.index(model.calls.len());
                    let Made { turn, tokens, ref path, state } = model.calls[call];
                    let key = (turn, call as u32);
                    let is_open = state != State::Settled;
                    prop_assert_eq!(budget.held(key), is_open.then_some(tokens));
                    let usage = used.map(|(input_tokens, output_tokens)| Usage::of(input_tokens, output_tokens));
                    budget.settle(key, usage, UsedBy::Run);
                    match state {
                        State::Settled => _ = seen.insert("settled twice"),
                        State::AttemptOver => _ = seen.insert("reported after its attempt"),
                        State::UnderWay => {}
                    }
                    if is_open {
                        if path.iter().any(|account| !model.accounts[*account].is_open) {
                            seen.insert("reported after its sub_budget was closed");
                        }
                        if used.is_none() && tokens > 0 {
                            seen.insert("refunded");
                        }
                        let before = model.overrun;
                        model.settle(call, used);
                        if model.overrun > before {
                            seen.insert("overrun");
                        }
                    }
                }
                Action::Settle { .. } => budget.settle((0, 0), Some(Usage::of(1, 1)), UsedBy::Run),
                Action::EndAttempt { turn } => {
                    budget.end_attempt(turn);
                    for call in model.calls.iter_mut().filter(|call| (call.turn, call.state) == (turn, State::UnderWay))
                    {
                        call.state = State::AttemptOver;
                    }
                }
            }
            prop_assert_eq!(
                (budget.spent(), budget.overrun()),
                (model.accounts[0].limit - model.left(0), model.overrun)
            );
            let Usage { input_tokens, output_tokens, cost: _ } = budget.usage();
            prop_assert_eq!((input_tokens, output_tokens), model.usage);
        }
        // A request above every limit is refused with the figures of each account.
        for account in model.open() {
            let refusal = model.refusal(&model.accounts[account].path, 10_000);
            prop_assert_eq!(budget.check(sub_budget(account), 10_000).err(), refusal);
        }
        Ok(())
    });
}
