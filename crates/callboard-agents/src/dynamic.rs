//! Dynamic agents, which agents create while a board runs: the draft becomes a definition, which has no more than its maker's
//! (SEMANTICS 13).

use std::collections::BTreeSet;
use std::sync::Arc;

use callboard::actors::ContextStore;
use callboard::actors::Mode;
use callboard::messages::{AgentName, Effect};
use callboard_text::{check_name, check_own_name, did_you_mean, nearest, quoted};

use super::definition::Definition;
use super::meta::{Draft, makes_agents};

/// The longest description, and the longest prompt, in bytes.
const MAX_DESCRIPTION: usize = 1 << 10;
const MAX_INSTRUCTIONS: usize = 16 << 10;

/// The definition of a dynamic agent with these tools.
///
/// # Errors
/// What it would have beyond its maker, or another defect.
pub(super) fn within(maker: &Definition, own: &BTreeSet<Arc<str>>, draft: &Draft) -> Result<Definition, String> {
    check_own_name("agent", &draft.name, AgentName::MAX).map_err(|error| error.to_string())?;
    check_size("description", &draft.description, MAX_DESCRIPTION)?;
    check_size("instructions", &draft.instructions, MAX_INSTRUCTIONS)?;
    let name = AgentName::new(&draft.name).map_err(|error| error.to_string())?;
    let mode = draft.mode.as_deref().map_or(Ok(maker.mode), |mode| mode_within(maker.mode, mode))?;
    let tools: Vec<Arc<str>> = match &draft.tools {
        Some(tools) => tools.iter().map(|tool| tool_within(own, tool)).collect::<Result<_, _>>()?,
        None => own.iter().filter(|tool| !makes_agents(tool)).cloned().collect(),
    };
    let mut made = Definition::dynamic(name, &draft.instructions);
    made.grant = maker.grant.clone();
    made.description.clone_from(&draft.description);
    made.mode = mode;
    made.hidden_tools = maker.hidden_tools.iter().filter(|tool| contains(&tools, tool)).cloned().collect();
    made.ask = maker.ask.iter().filter(|tool| contains(&tools, tool)).cloned().collect();
    made.allowed_tools = Some(tools);
    made.max_tokens = maker.max_tokens;
    made.max_iterations = at_most("max_iterations", draft.max_iterations, Some(maker.max_iterations))?.unwrap_or(1);
    made.tokens = at_most("tokens", draft.tokens, maker.tokens)?;
    // Its calls count against the same limits.
    made.per_day = maker.per_day;
    (made.tokens_per_run, made.cost_per_run) = (maker.tokens_per_run, maker.cost_per_run);
    made.namespaces = namespaces_within(maker.namespaces.as_deref(), draft.namespaces.as_deref())?;
    Ok(made)
}

fn contains(tools: &[Arc<str>], tool: &Arc<str>) -> bool {
    tools.contains(tool)
}

fn check_size(what: &str, text: &str, max: usize) -> Result<(), String> {
    if text.len() <= max { Ok(()) } else { Err(format!("its {what} have {} bytes; {max} are the most", text.len())) }
}

/// A mode without effects that the maker's mode does not have.
fn mode_within(maker: Mode, word: &str) -> Result<Mode, String> {
    let modes = [Mode::Build, Mode::Plan, Mode::Explore, Mode::General];
    let Some(mode) = modes.into_iter().find(|mode| mode.name() == word) else {
        let likely = nearest(word, modes.map(Mode::name));
        let modes = modes.map(Mode::name).join(", ");
        return Err(format!("there is no mode {}{}; there are {modes}", quoted(word), did_you_mean(likely.as_deref())));
    };
    match Effect::ALL.into_iter().find(|effect| effect.fits(mode) && !effect.fits(maker)) {
        None => Ok(mode),
        Some(_) => Err(format!("the mode {word} may do more than that of its maker, which is {}", maker.name())),
    }
}

fn tool_within(own: &BTreeSet<Arc<str>>, tool: &str) -> Result<Arc<str>, String> {
    own.get(tool).cloned().ok_or_else(|| {
        let likely = nearest(tool, own.iter().map(|own| &**own));
        format!("its maker has no tool {}{}", quoted(tool), did_you_mean(likely.as_deref()))
    })
}

fn at_most<N: PartialOrd + std::fmt::Display + From<u8>>(
    what: &str,
    asked: Option<N>,
    maker: Option<N>,
) -> Result<Option<N>, String> {
    match (asked, maker) {
        (Some(asked), _) if asked < N::from(1) => Err(format!("{what} begins at 1")),
        (Some(asked), Some(maker)) if asked > maker => {
            Err(format!("{what} {asked} is more than its maker has, {maker}"))
        }
        (Some(asked), _) => Ok(Some(asked)),
        (None, maker) => Ok(maker),
    }
}

fn namespaces_within(maker: Option<&[Arc<str>]>, asked: Option<&[String]>) -> Result<Option<Vec<Arc<str>>>, String> {
    let Some(asked) = asked else { return Ok(maker.map(<[_]>::to_vec)) };
    for namespace in asked {
        check_name("namespace", namespace, ContextStore::MAX_NAMESPACE).map_err(|error| error.to_string())?;
        let is_of_maker = |own: &str| own == namespace;
        if !maker.map_or(is_of_maker("run"), |granted| granted.iter().any(|own| is_of_maker(own))) {
            return Err(format!("its maker may not use the namespace {}", quoted(namespace)));
        }
    }
    Ok(Some(asked.iter().map(|namespace| namespace.as_str().into()).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOOLS: [&str; 6] = ["read", "write", "run", "send", "Task", "agent_create"];
    const SPACES: [&str; 5] = ["plans", "notes", "memory:lead", "secrets", "run"];
    const MODES: [&str; 5] = ["build", "plan", "explore", "general", "root"];

    fn draft() -> impl Strategy<Value = Draft> {
        let some = |words: &'static [&'static str]| {
            proptest::option::of(proptest::sample::subsequence(words, 0..=words.len()))
                .prop_map(|chosen| chosen.map(|chosen| chosen.into_iter().map(str::to_owned).collect::<Vec<_>>()))
        };
        let mode = proptest::option::of(proptest::sample::select(&MODES[..]));
        let (iterations, tokens) = (proptest::option::of(0_u32..40), proptest::option::of(0_u64..4_000));
        (mode, some(&TOOLS), some(&SPACES), iterations, tokens).prop_map(
            |(mode, tools, namespaces, max_iterations, tokens)| Draft {
                name: "child".to_owned(),
                mode: mode.map(str::to_owned),
                tools,
                namespaces,
                max_iterations,
                tokens,
                ..Draft::default()
            },
        )
    }

    fn tools_of(definition: &Definition) -> BTreeSet<Arc<str>> {
        definition.allowed_tools.iter().flatten().cloned().collect()
    }

    /// Whether the permissions of one agent, as plain sets, are within those of another.
    fn is_within(one: &Definition, other: &Definition) -> bool {
        let spaces = |definition: &Definition| definition.namespaces.clone().unwrap_or_else(|| vec!["run".into()]);
        let effects = |definition: &Definition| Effect::ALL.map(|effect| effect.fits(definition.mode));
        tools_of(one).is_subset(&tools_of(other))
            && spaces(one).iter().all(|namespace| spaces(other).contains(namespace))
            && one.tokens.unwrap_or(u64::MAX) <= other.tokens.unwrap_or(u64::MAX)
            && one.max_iterations <= other.max_iterations
            && one.max_tokens <= other.max_tokens
            && effects(one).into_iter().zip(effects(other)).all(|(one, other)| !one || other)
            && one.tier() == crate::Tier::Dynamic
            && one.process.is_none()
            && other.ask.iter().all(|ask| one.ask.contains(ask) || !tools_of(one).contains(ask))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// A tree of agents, each created by an earlier one: none has more than any agent above it.
        #[test]
        fn a_dynamic_agent_has_no_more_than_its_creators(
            root in draft(),
            drafts in proptest::collection::vec((any::<proptest::sample::Index>(), draft()), 0..24),
        ) {
            let mut lead = Definition::dynamic(AgentName::new("lead").unwrap(), "");
            lead.allowed_tools = Some(TOOLS.map(Arc::from).to_vec());
            lead.ask = vec!["read".into()];
            lead.tokens = root.tokens;
            lead.max_iterations = root.max_iterations.unwrap_or(25);
            lead.mode = root.mode.as_deref().and_then(|mode| mode_within(Mode::Build, mode).ok()).unwrap_or(Mode::Build);
            lead.namespaces = root.namespaces.map(|names| names.into_iter().map(Arc::from).collect());
            let mut tree: Vec<(Option<usize>, Definition)> = vec![(None, lead)];
            for (maker, draft) in drafts {
                let maker = maker.index(tree.len());
                let above = &tree[maker].1;
                let made = within(above, &tools_of(above), &draft);
                let asks_for_more = draft.tools.iter().flatten().any(|tool| !tools_of(above).contains(tool.as_str()))
                    || draft.tokens.is_some_and(|asked| above.tokens.is_some_and(|most| asked > most))
                    || draft.max_iterations.is_some_and(|asked| asked > above.max_iterations);
                prop_assert!(!(asks_for_more && made.is_ok()), "{draft:?}");
                if let Ok(made) = made {
                    tree.push((Some(maker), made));
                }
            }
            for (maker, made) in &tree {
                let mut above = *maker;
                while let Some(number) = above {
                    prop_assert!(is_within(made, &tree[number].1), "{made:?}\nis more than\n{:?}", tree[number].1);
                    above = tree[number].0;
                }
            }
        }
    }
}
