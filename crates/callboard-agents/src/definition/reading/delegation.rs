//! Reads which part of its conversation an agent passes on, and which other agents it knows.

use callboard::messages::ConversationStrategy;
use callboard_documents::Found;
use callboard_documents::toml::{Field, Fields, Item, count, list, word};

use crate::builtin_agents::BuiltIn;
use crate::definition::Definition;

const EXAMPLE: &str = "write [agent.delegation], and below it context = \"summary\"";

pub(super) fn delegation(item: &Item<'_>, definition: &mut Definition, found: &mut Found) {
    let Some(mut fields) = Fields::of("what an agent does when it delegates", item, EXAMPLE, found) else { return };
    if let Some(strategy) = fields.field("context").and_then(|field| strategy(field, found)) {
        definition.passed_context = strategy;
    }
    if let Some(tokens) = fields.field("max_tokens").and_then(|field| count(field, found)) {
        definition.reported_tokens = tokens.value;
    }
    if let Some(field) = fields.field("built_in") {
        let items = list(field, "put it in brackets: built_in = [\"enricher\"]", found);
        definition.built_in_team = items.iter().filter_map(|item| built_in(item, found)).collect();
    }
    fields.close(found);
}

fn strategy(field: Field<'_>, found: &mut Found) -> Option<ConversationStrategy> {
    let words = ConversationStrategy::ALL.map(|strategy| (strategy.name(), strategy));
    word(field, &words, found)
}

fn built_in(item: &Item<'_>, found: &mut Found) -> Option<BuiltIn> {
    let words = BuiltIn::ALL.map(|agent| (agent.name(), agent));
    word(("built_in", item), &words, found)
}
