//! Reads the tools and the authority of an agent that uses a model.

use callboard_documents::toml::{Fields, Item, count, duration};
use callboard_documents::{Defect, Found, Placed};
use callboard_text::{did_you_mean, nearest, quoted};

use super::fields::{authority, check_tier, on_unknown, texts, values};
use crate::definition::Definition;
use crate::meta::MetaTool;
use crate::roles::Asked;
use crate::tool::Tools;

/// Reads `capabilities`. Without `tools`, the known ones, any name is accepted.
pub(super) fn capabilities(item: &Item<'_>, tools: Option<&Tools>, definition: &mut Definition, found: &mut Found) {
    const WHAT: &str = "the capabilities of an agent";
    let Some(mut fields) =
        Fields::of(WHAT, item, "write [agent.capabilities], and below it allowed_tools = […]", found)
    else {
        return;
    };
    let allowed = fields.field("allowed_tools").map(|field| texts(field, found));
    let hidden = fields.field("hidden_tools").map(|field| texts(field, found)).unwrap_or_default();
    let ask = fields.field("ask").map(|field| texts(field, found)).unwrap_or_default();
    let idempotent = fields.field("idempotent").map(|field| texts(field, found)).unwrap_or_default();
    definition.on_unknown = fields.field("on_unknown").and_then(|field| on_unknown(field, found));
    definition.question_ttl =
        fields.field("question_ttl").and_then(|field| duration(field, found)).map(|ttl| ttl.value);
    if let Some(times) = fields.field("max_iterations").and_then(|field| count(field, found)) {
        definition.max_iterations = times.value;
    }
    if let Some(authority) = fields.field("authority").and_then(|field| authority(field, &definition.grant, found)) {
        definition.authority = authority;
    }
    if let Some(tier) = fields.field("trust_tier") {
        check_tier(tier, found);
    }
    fields.close(found);
    for tool in allowed.iter().flatten() {
        check_tool(tool, tools, definition, found);
    }
    for tool in hidden.iter().chain(&ask).chain(&idempotent) {
        match &allowed {
            Some(allowed) if allowed.iter().all(|one| one.value != tool.value) => {
                let likely = nearest(&tool.value, allowed.iter().map(|one| one.value.as_str()));
                let problem = format!(
                    "{} is not among the allowed tools{}",
                    quoted(&tool.value),
                    did_you_mean(likely.as_deref())
                );
                found.add(Defect::new(&tool.place, problem).advise("add it to `allowed_tools`, or remove it here"));
            }
            Some(_) => {}
            None => check_tool(tool, tools, definition, found),
        }
    }
    (definition.allowed_tools, definition.hidden_tools) = (allowed.map(values), values(hidden));
    (definition.ask, definition.idempotent) = (values(ask), values(idempotent));
}

fn check_tool(tool: &Placed<String>, tools: Option<&Tools>, definition: &Definition, found: &mut Found) {
    let effect = match MetaTool::of(&tool.value) {
        Some(tool) => Some(tool.spec().effect),
        None => tools.and_then(|tools| tools.get(&tool.value)).map(|entry| entry.spec.effect),
    };
    let defect = definition.grant.defect(Asked::Tool(&tool.value, effect), &tool.place);
    let is_there = effect.is_some() || tools.is_none();
    defect.filter(|_| is_there).into_iter().for_each(|defect| found.add(defect));
    let Some(tools) = tools else { return };
    if MetaTool::of(&tool.value).is_some() {
        return;
    }
    let Some(entry) = tools.get(&tool.value) else {
        let known: Vec<&str> = tools.names().chain(MetaTool::ALL.map(MetaTool::name)).collect();
        let likely = nearest(&tool.value, known.iter().copied());
        let problem = format!("there is no tool {}{}", quoted(&tool.value), did_you_mean(likely.as_deref()));
        let mut defect = Defect::new(&tool.place, problem);
        if likely.is_none() {
            defect = defect.advise(format!("there are {}", known.join(", ")));
        }
        found.add(defect);
        return;
    };
    let mode = definition.mode;
    if !entry.spec.effect.fits(mode) {
        let problem = format!("an agent of the mode {} has no tool {}", mode.name(), quoted(&tool.value));
        found.add(Defect::new(&tool.place, problem).advise("give the agent the mode build, or remove the tool"));
    }
}
