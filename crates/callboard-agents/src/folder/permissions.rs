//! What a changed definition permits beyond the one that was loaded first. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use callboard::messages::{Effect, OnUnknown, PerDay};
use callboard_text::quoted;

use crate::catalog::Models;
use crate::definition::Definition;
use crate::meta::makes_agents;

/// The definitions that were loaded first.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) agents: Vec<Definition>,
    pub(super) models: Option<Models>,
}

impl Loaded {
    /// What a definition permits beyond that of the same agent; a new agent may have what any agent had.
    pub(super) fn beyond(&self, now: &Definition) -> Option<String> {
        let own = self.agents.iter().find(|before| before.name == now.name);
        if let Some(own) = own {
            let more = more(own, now);
            return (!more.is_empty()).then(|| more.join("; "));
        }
        let Some(least) = self.agents.iter().map(|before| more(before, now)).min_by_key(Vec::len) else {
            return Some("it is new, and no agent was there".to_owned());
        };
        (!least.is_empty()).then(|| format!("it is new, and no other agent had this: {}", least.join("; ")))
    }
}

/// What `now` permits and `before` does not.
fn more(before: &Definition, now: &Definition) -> Vec<String> {
    let mut more = Vec::new();
    // A program has no mode and no tools; which programs are allowed is checked elsewhere.
    if now.process.is_none() {
        add_tools(&mut more, before, now);
    }
    if trust(now.on_unknown) > trust(before.on_unknown) {
        let name = now.on_unknown.unwrap_or_default().name();
        more.push(format!("`on_unknown = {}`", quoted(name)));
    }
    let effects: Vec<_> = now.authority.effects().filter(|effect| !before.authority.allows(*effect)).collect();
    if !effects.is_empty() {
        let names: Vec<_> = effects.iter().map(|effect| effect.name()).collect();
        more.push(format!("effects {}", names.join(", ")));
    }
    if !now.grant.is_within(&before.grant) {
        more.push(now.granted().unwrap_or_else(|| "no role, whose grant bounds what its file says".to_owned()));
    }
    let passed = |of: &Definition| {
        of.process
            .iter()
            .flat_map(|process| &process.env_from)
            .map(|name| name.as_str().into())
            .collect::<Vec<Arc<str>>>()
    };
    add(&mut more, "variables", new(&passed(now), &passed(before)));
    let run = vec![Arc::from("run")];
    let namespaces = |of: &Definition| of.namespaces.clone().unwrap_or_else(|| run.clone());
    add(&mut more, "namespaces", new(&namespaces(now), &namespaces(before)));
    for ((limit, had), (_, has)) in limits(before).into_iter().zip(limits(now)) {
        match (had, has) {
            (Some(_), None) => more.push(format!("no limit `{limit}`")),
            (Some(had), Some(has)) if had < has => more.push(format!("a higher limit `{limit}`")),
            (Some(_) | None, _) => {}
        }
    }
    more
}

/// What an agent may use at most, by the keys of its file.
fn limits(of: &Definition) -> [(&'static str, Option<u64>); 5] {
    let PerDay { tokens, cost } = of.per_day;
    [
        ("tokens", of.tokens),
        ("tokens_per_run", of.tokens_per_run),
        ("cost_per_run", of.cost_per_run.map(|cost| cost.0)),
        ("tokens_per_day", tokens),
        ("cost_per_day", cost.map(|cost| cost.0)),
    ]
}

/// Adds the tools that are newly permitted.
fn add_tools(more: &mut Vec<String>, before: &Definition, now: &Definition) {
    let is_new = |effect: &Effect| effect.fits(now.mode) && !effect.fits(before.mode);
    if before.mode.is_analysis_only() != now.mode.is_analysis_only() || Effect::ALL.iter().any(is_new) {
        more.push(format!("mode {} in place of {}", now.mode.name(), before.mode.name()));
    }
    let none = Vec::new();
    // A program has no tools of this process.
    let had = if before.process.is_some() { Some(&none) } else { before.allowed_tools.as_ref() };
    match (had, &now.allowed_tools) {
        (None, None) => {}
        // Without a list it had all tools, except those that need to be named.
        (None, Some(has)) => add(more, "tools", has.iter().filter(|tool| makes_agents(tool)).collect()),
        (Some(_), None) => more.push("all tools".to_owned()),
        (Some(had), Some(has)) => add(more, "tools", new(has, had)),
    }
    let may_use = |tool: &&Arc<str>| now.allowed_tools.as_ref().is_none_or(|allowed| allowed.contains(tool));
    let asked = before.ask.iter().filter(may_use);
    add(more, "without `ask` for", asked.filter(|tool| !now.ask.contains(tool)).collect());
    add(more, "`idempotent` for", new(&now.idempotent, &before.idempotent));
}

fn new<'a>(now: &'a [Arc<str>], before: &[Arc<str>]) -> BTreeSet<&'a Arc<str>> {
    now.iter().filter(|name| !before.contains(name)).collect()
}

fn add(more: &mut Vec<String>, what: &str, names: BTreeSet<&Arc<str>>) {
    if !names.is_empty() {
        let names: Vec<_> = names.into_iter().map(|name| quoted(name)).collect();
        more.push(format!("{what} {}", names.join(", ")));
    }
}

/// The rank of a rule by how much the agent may decide itself about an effect with an unknown outcome.
fn trust(on_unknown: Option<OnUnknown>) -> u8 {
    match on_unknown {
        Some(OnUnknown::Fail) => 0,
        Some(OnUnknown::Ask) | None => 1,
        Some(OnUnknown::Report) => 2,
        Some(OnUnknown::Repeat) => 3,
    }
}
