//! Reads the settings that a board needs of every agent, whether it uses a model or is a program: how it is found, and its
//! limits.

use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Cost, PerDay};
use callboard_documents::toml::{Fields, Item, count, duration, misfit};
use callboard_documents::{Defect, Found, Place, Placed};

use super::fields::{texts, values};
use super::names::checked;
use crate::definition::Definition;
use crate::roles::Asked;

const EXAMPLE_RESTARTS: &str = "write restarts = { max = 5, within = \"60s\" }";

/// Reads what an agent announces; returns where its role is.
pub(super) fn announces(item: &Item<'_>, definition: &mut Definition, found: &mut Found) -> Place {
    const WHAT: &str = "what an agent announces";
    let mut fields = Fields::of(WHAT, item, "write [agent.announces], and below it role = \"…\"", found)?;
    let role = fields.text("role", found).and_then(|role| checked("role", role, found));
    let mut names = |key, kind, found: &mut Found| -> Vec<Arc<str>> {
        let given = fields.field(key).map(|field| texts(field, found)).unwrap_or_default();
        values(given.into_iter().filter_map(|name| checked(kind, name, found)).collect())
    };
    definition.capabilities = names("capabilities", "capability", found);
    definition.projects = names("projects", "project", found);
    fields.close(found);
    let role = role?;
    definition.role = Some(role.value.into());
    role.place
}

pub(super) fn limits(item: &Item<'_>, definition: &mut Definition, found: &mut Found) {
    const WHAT: &str = "the limits of an agent";
    let Some(mut fields) = Fields::of(WHAT, item, "write [agent.limits], and below it tokens = 20000", found) else {
        return;
    };
    if let Some(turns) = fields.field("concurrency").and_then(|field| count(field, found)) {
        definition.concurrency = turns.value as usize;
    }
    if let Some(timeout) = fields.field("timeout").and_then(|field| duration(field, found)) {
        definition.timeout = timeout.value;
    }
    let tokens = fields.field("tokens").and_then(|field| count(field, found));
    if let Some(tokens) = &tokens
        && definition.process.is_none()
        && tokens.value < definition.max_tokens
    {
        let (budget, needed) = (tokens.value, definition.max_tokens);
        let problem = format!(
            "{budget} tokens in a turn are less than one call of its model may need, which is {needed} for the answer alone"
        );
        let advice = "raise `tokens`, or lower `max_tokens` under [agent.model]";
        found.add(Defect::new(&tokens.place, problem).advise(advice));
    }
    definition.tokens = tokens.map(|tokens| tokens.value.into());
    let mut of_time = |tokens_key: &'static str, cost_key: &'static str| {
        let tokens = fields.field(tokens_key).and_then(|field| count(field, found));
        let cost = fields.field(cost_key);
        if let Some((key, item)) = cost.filter(|_| definition.process.is_some()) {
            let problem =
                format!("`{key}` is for agents that think: what the calls of a program cost is not known before them");
            found.add(Defect::new(&Some(item.span()), problem).advise(format!("limit {tokens_key} instead")));
        }
        (tokens.map(|tokens| tokens.value.into()), cost.and_then(|field| dollars(field, found)))
    };
    let (tokens, cost) = of_time("tokens_per_day", "cost_per_day");
    definition.per_day = PerDay { tokens, cost };
    (definition.tokens_per_run, definition.cost_per_run) = of_time("tokens_per_run", "cost_per_run");
    if let Some(restarts) = fields.get("restarts").and_then(|item| restarts(item, found)) {
        definition.restarts = restarts;
    }
    fields.close(found);
}

/// An amount of US dollars as a text, which is exact.
fn dollars((key, item): (&str, &Item<'_>), found: &mut Found) -> Option<Cost> {
    let cost = item.get_ref().as_str().and_then(|text| text.parse().ok()).filter(|cost: &Cost| cost.0 > 0);
    if cost.is_none() {
        found.add(misfit(key, "an amount of US dollars above zero", item).advise(format!("write {key} = \"2.50\"")));
    }
    cost
}

fn restarts(item: &Item<'_>, found: &mut Found) -> Option<(u32, Duration)> {
    let mut fields = Fields::of("`restarts`", item, EXAMPLE_RESTARTS, found)?;
    let max = fields.required("max", EXAMPLE_RESTARTS, found).and_then(|field| count(field, found));
    let within = fields.required("within", EXAMPLE_RESTARTS, found).and_then(|field| duration(field, found));
    fields.close(found);
    Some((max?.value, within?.value))
}

pub(super) fn context(item: &Item<'_>, definition: &mut Definition, found: &mut Found) {
    const WHAT: &str = "the context of an agent";
    let Some(mut fields) = Fields::of(WHAT, item, "write [agent.context], and below it namespaces = […]", found)
    else {
        return;
    };
    let grant = &definition.grant;
    let checked = |name: Placed<String>, found: &mut Found| {
        let name = checked("namespace", name, found)?;
        let defect = grant.defect(Asked::Namespace(&name.value), &name.place);
        defect.into_iter().for_each(|defect| found.add(defect));
        Some(name)
    };
    let namespaces = fields.field("namespaces").map(|field| texts(field, found));
    definition.namespaces =
        namespaces.map(|names| values(names.into_iter().filter_map(|name| checked(name, found)).collect()));
    fields.close(found);
}
