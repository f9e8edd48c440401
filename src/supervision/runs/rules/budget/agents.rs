//! What one agent may use in a run (SEMANTICS 2). The limit is that of the moment of a call; what counts is what the budget has of the
//! agent's calls, so a run without such a limit has nothing more to keep.

use crate::messages::{AgentLimit, AgentName, Cost, Refusal};

use super::Budget;

impl Budget {
    /// Checks that a call fits what its agent may use in the run. Where money is limited, a call of unknown cost fits nothing.
    ///
    /// # Errors
    /// [`Refusal::AgentBudget`].
    pub(in crate::supervision::runs) fn check_agent(
        &self,
        agent: &AgentName,
        limit: AgentLimit,
        tokens: u64,
        cost: Option<Cost>,
    ) -> Result<(), Refusal> {
        if limit == AgentLimit::default() {
            return Ok(());
        }
        let used = self.used_by_host(agent.host());
        let check = |is_money, limit: u64, used: u64, asked: Option<u64>| {
            if asked.is_some_and(|asked| used.saturating_add(asked) <= limit) {
                return Ok(());
            }
            Err(Refusal::AgentBudget { agent: agent.host_name(), limit, used, asked, is_money })
        };
        limit.tokens.map_or(Ok(()), |limit| check(false, limit, used.0, Some(tokens)))?;
        limit.cost.map_or(Ok(()), |Cost(limit)| check(true, limit, used.1, cost.map(|cost| cost.0)))
    }

    /// Tokens and billionths of a dollar that an agent, and those that it made, have used or hold for calls that have not reported.
    fn used_by_host(&self, host: &str) -> (u64, u64) {
        let (used, _) = self.used();
        let used = used.iter().filter(|used| used.agent.host() == host);
        let used = used.map(|used| (used.usage.total(), used.usage.cost.0));
        let open =
            self.open.iter().filter(|(_, held)| held.call.agent.as_ref().is_some_and(|agent| agent.host() == host));
        let open = open.map(|(_, held)| (held.tokens, held.call.cost));
        used.chain(open).fold((0, 0), |(tokens, cost): (u64, u64), more| {
            (tokens.saturating_add(more.0), cost.saturating_add(more.1))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use crate::messages::Usage;
    use crate::supervision::runs::rules::budget::{Call, UsedBy};

    use super::*;

    const NAMES: [&str; 3] = ["coder", "coder~helper", "coder2"];

    fn agents() -> [AgentName; 3] {
        NAMES.map(|name| AgentName::new(name).unwrap())
    }

    #[test]
    fn a_refusal_of_an_agent_s_limit_of_a_run_names_the_limit_and_where_it_is_raised() {
        let [coder, helper, other] = agents();
        let mut budget = Budget::new(1_000);
        let call = |agent: &AgentName, cost| Call { agent: Some(agent.clone()), cost };
        budget.reserve((1, 0), None, 60, call(&coder, 1_500_000_000));
        budget.reserve((2, 0), None, 30, call(&helper, 500_000_000));
        budget.reserve((3, 0), None, 500, call(&other, 0));
        let tokens = AgentLimit { tokens: Some(100), cost: None };
        assert_eq!(budget.check_agent(&helper, tokens, 10, None), Ok(()), "the limit itself is allowed");
        assert_eq!(
            budget.check_agent(&helper, tokens, 20, None).unwrap_err().to_string(),
            "agent coder may use 100 tokens in a run, and in this one it has used or set aside 90: 20 more do not fit; raise \
             `tokens_per_run` in [agent.limits] of its file (AgentSpec::per_run in Rust)"
        );
        let money = AgentLimit { tokens: None, cost: Some(Cost(2_500_000_000)) };
        assert_eq!(
            budget.check_agent(&coder, money, 1, Some(Cost(600_000_000))).unwrap_err().to_string(),
            "agent coder may cost $2.50 in a run, and in this one it has cost or set aside $2.00: $0.6000 more does not fit; \
             raise `cost_per_run` in [agent.limits] of its file (AgentSpec::per_run in Rust)"
        );
        assert_eq!(
            budget.check_agent(&coder, money, 1, None).unwrap_err().to_string(),
            "agent coder may cost $2.50 in a run, and what this may cost is not known: give the model prices"
        );
    }

    #[derive(Clone, Debug)]
    enum Action {
        Call { agent: usize, tokens: u64 },
        Report { call: Index, part: Option<u64> },
        EndAttempt { agent: usize },
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let part = prop::option::weighted(0.8, 0_u64..=100);
        let action = prop_oneof![
            5 => (0_usize..3, 0_u64..60).prop_map(|(agent, tokens)| Action::Call { agent, tokens }),
            4 => (any::<Index>(), part).prop_map(|(call, part)| Action::Report { call, part }),
            1 => (0_usize..3).prop_map(|agent| Action::EndAttempt { agent }),
        ];
        prop::collection::vec(action, 1..60)
    }

    proptest! {
        /// The model keeps the list of calls: what they used, or what was held for those that have not reported. Each agent has one turn;
        /// a token costs three billionths.
        #[test]
        fn an_agent_and_those_that_it_made_never_use_more_than_its_limit_of_a_run(
            limit in 0_u64..200,
            is_of_money in any::<bool>(),
            actions in actions(),
        ) {
            let limit = if is_of_money {
                AgentLimit { tokens: None, cost: Some(Cost(3 * limit)) }
            } else {
                AgentLimit { tokens: Some(limit), cost: None }
            };
            let most = limit.tokens.or(limit.cost.map(|cost| cost.0 / 3)).unwrap();
            let (agents, mut budget) = (agents(), Budget::new(u64::MAX));
            // The agent, what counts, and whether it has reported.
            let mut calls: Vec<(usize, u64, bool)> = Vec::new();
            for action in actions {
                match action {
                    Action::Call { agent, tokens } => {
                        let used: u64 =
                            calls.iter().filter(|call| (call.0 == 2) == (agent == 2)).map(|call| call.1).sum();
                        let checked = budget.check_agent(&agents[agent], limit, tokens, Some(Cost(3 * tokens)));
                        prop_assert_eq!(checked.is_ok(), used + tokens <= most, "{:?}", checked);
                        if checked.is_ok() {
                            let call = Call { agent: Some(agents[agent].clone()), cost: 3 * tokens };
                            budget.reserve((agent as u32, calls.len() as u32), None, tokens, call);
                            calls.push((agent, tokens, false));
                        }
                    }
                    Action::Report { call, part } if !calls.is_empty() => {
                        let call = call.index(calls.len());
                        let (agent, held, has_reported) = calls[call];
                        let used = part.map(|part| held * part / 100);
                        let usage = used.map(|used| Usage { cost: Cost(3 * used), ..Usage::of(used, 0) });
                        let (model, first) = (Arc::from("m"), &agents[0]);
                        budget.settle((agent as u32, call as u32), usage, UsedBy::Agent(first, Some(&model)));
                        if !has_reported {
                            calls[call] = (agent, used.unwrap_or_default(), true);
                        }
                    }
                    Action::Report { .. } => {}
                    Action::EndAttempt { agent } => budget.end_attempt(agent as u32),
                }
            }
        }
    }
}
