//! The rules of chains against a model that keeps each chain as a list of names.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::messages::{ChainStep, Handoffs, RunId};
use crate::testing::rules::play;

use super::*;

const AGENTS: usize = 6;

static NAMES: LazyLock<Vec<AgentName>> =
    LazyLock::new(|| (0..AGENTS).map(|number| AgentName::new(&format!("agent-{number}")).unwrap()).collect());

/// A chain that extends one of the earlier ones.
#[derive(Clone, Debug)]
struct Growth {
    base: Index,
    from: usize,
    to: usize,
}

#[derive(Clone, Debug)]
enum What {
    Handoff(usize),
    FanOut(Vec<usize>),
    Delegation(usize),
}

#[derive(Clone, Debug)]
struct Question {
    chain: Index,
    from: usize,
    what: What,
    depth: usize,
}

fn cases() -> impl Strategy<Value = (Vec<Growth>, Vec<Question>)> {
    let index = any::<Index>;
    let growth = (index(), 0..AGENTS, 0..AGENTS).prop_map(|(base, from, to)| Growth { base, from, to });
    let what = prop_oneof![
        (0..AGENTS).prop_map(What::Handoff),
        prop::collection::vec(0..AGENTS, 1..4).prop_map(What::FanOut),
        (0..AGENTS).prop_map(What::Delegation),
        (0..AGENTS).prop_map(What::Delegation),
    ];
    let question = (index(), 0..AGENTS, what, 0_usize..6);
    let question = question.prop_map(|(chain, from, what, depth)| Question { chain, from, what, depth });
    (prop::collection::vec(growth, 0..8), prop::collection::vec(question, 1..8))
}

/// The links of a chain, first to last: which agent gave a task to which.
type Model = Vec<(usize, usize)>;

/// The expected answer of the guard, with the agent that it names.
#[derive(Debug, PartialEq)]
enum Answer {
    Admitted,
    AlreadyInChain(usize),
    MaxDepth,
}

fn predict(chain: &Model, question: &Question) -> Answer {
    let takes_part = |agent: usize| chain.iter().any(|(from, to)| *from == agent || *to == agent);
    // An agent that gave a task away waits for it.
    let waits = |agent: usize| chain.iter().any(|(from, _)| *from == agent);
    match &question.what {
        What::Delegation(to) if *to == question.from || takes_part(*to) => Answer::AlreadyInChain(*to),
        What::Delegation(_) if chain.len() >= question.depth => Answer::MaxDepth,
        What::Handoff(to) if waits(*to) => Answer::AlreadyInChain(*to),
        What::FanOut(all) => match all.iter().find(|to| waits(**to)) {
            Some(to) => Answer::AlreadyInChain(*to),
            None => Answer::Admitted,
        },
        What::Delegation(_) | What::Handoff(_) => Answer::Admitted,
    }
}

/// Asks the guard in a situation where only the chain and its depth can cause a refusal.
fn ask(chain: &Chain, question: &Question) -> Admission {
    let (kind, targets) = match &question.what {
        What::Handoff(to) => (Kind::Handoff { fingerprint: 0, recent: &[] }, vec![NAMES[*to].clone()]),
        What::FanOut(all) => (Kind::FanOut, all.iter().map(|to| NAMES[*to].clone()).collect()),
        What::Delegation(to) => (Kind::Delegation, vec![NAMES[*to].clone()]),
    };
    let limits = Limits { handoffs: u32::MAX, agents: u32::MAX, depth: question.depth, ..Limits::default() };
    let request = Request {
        kind,
        from: &NAMES[question.from],
        targets: &targets,
        first: TurnId { run: RunId(uuid::Uuid::nil()), number: 1 },
        chain,
        waiter: None,
        switch: Handoffs::default(),
        limits: &limits,
        handoffs: 0,
        agents: &SmallSet::default(),
        budget: &Budget::new(1),
        sub_budget: None,
        consent: &Consent::Auto,
        now: Duration::ZERO,
    };
    admit(&request, &mut AdmissionFacts::default())
}

#[test]
fn no_delegation_returns_to_its_chain_or_grows_it_too_deep_and_no_handoff_goes_to_whom_it_waits_for() {
    let branches = [
        "admitted",
        "AlreadyInChain for a delegation",
        "AlreadyInChain for a handoff",
        "AlreadyInChain before MaxDepth",
        "MaxDepth",
        "handed back to somebody who does not wait",
        "two chains with one tail",
    ];
    play("chain", &branches, cases(), |(growths, questions), seen| {
        let (mut chains, mut models) = (vec![Chain::default()], vec![Model::new()]);
        for Growth { base, from, to } in growths {
            let base = base.index(chains.len());
            if base + 1 < chains.len() && !models[base].is_empty() {
                seen.insert("two chains with one tail");
            }
            chains.push(chains[base].add_step(&NAMES[from], &NAMES[to], "task"));
            models.push([models[base].clone(), vec![(from, to)]].concat());
        }
        for question in questions {
            let which = question.chain.index(chains.len());
            let (chain, model) = (&chains[which], &models[which]);
            let predicted = predict(model, &question);
            let is_delegation = matches!(question.what, What::Delegation(_));
            let answer = ask(chain, &question);
            let shown = match &answer {
                Admission::Refuse(refusal) => refusal.to_string(),
                Admission::Admit | Admission::Park => String::new(),
            };
            let actual = match answer {
                Admission::Admit => Answer::Admitted,
                Admission::Refuse(Refusal::AlreadyInChain { agent, chain: named }) => {
                    prop_assert_eq!(&named, chain);
                    Answer::AlreadyInChain(NAMES.iter().position(|name| *name == agent).unwrap())
                }
                Admission::Refuse(Refusal::MaxDepth { max, chain: named }) => {
                    prop_assert_eq!((max, &named), (question.depth, chain));
                    Answer::MaxDepth
                }
                Admission::Refuse(_) | Admission::Park => return Err(TestCaseError::fail(format!("{answer:?}"))),
            };
            prop_assert_eq!(&actual, &predicted, "{:?} with {}", question, chain);
            match actual {
                Answer::Admitted => {
                    seen.insert("admitted");
                    let takes_part = |to: &usize| model.iter().any(|(_, took)| took == to);
                    if matches!(&question.what, What::Handoff(to) if takes_part(to)) {
                        seen.insert("handed back to somebody who does not wait");
                    }
                    continue;
                }
                Answer::AlreadyInChain(_) if is_delegation && model.len() >= question.depth => {
                    seen.insert("AlreadyInChain before MaxDepth");
                }
                Answer::AlreadyInChain(_) if is_delegation => _ = seen.insert("AlreadyInChain for a delegation"),
                Answer::AlreadyInChain(_) => _ = seen.insert("AlreadyInChain for a handoff"),
                Answer::MaxDepth => _ = seen.insert("MaxDepth"),
            }
            // The end of a link need not be the start of the next one: handoffs may lie between them.
            for takes_part in model.first().into_iter().map(|(from, _)| from).chain(model.iter().map(|(_, to)| to)) {
                prop_assert!(shown.contains(NAMES[*takes_part].as_str()), "{shown} leaves somebody out");
            }
        }
        // No later operation has changed a chain.
        for (chain, model) in chains.iter().zip(&models) {
            let step = |(from, to): &(usize, usize)| ChainStep {
                from: NAMES[*from].clone(),
                to: NAMES[*to].clone(),
                task: "task".into(),
            };
            prop_assert_eq!(chain.steps(), model.iter().map(step).collect::<Vec<_>>());
            prop_assert_eq!((chain.len(), chain.is_empty()), (model.len(), model.is_empty()));
            for (other, other_model) in chains.iter().zip(&models) {
                prop_assert_eq!(chain == other, model == other_model);
            }
        }
        Ok(())
    });
}
