//! Reads the models of an agent.

use std::collections::BTreeSet;

use callboard_documents::toml::{Fields, Item, count};
use callboard_documents::{Defect, Found};
use callboard_text::{did_you_mean, nearest, quoted};

use super::fields::{one_or_several, texts, values};
use crate::catalog::ModelChoice;
use crate::definition::Definition;

/// Reads `model`. Without `known`, the names of the known models, any name is accepted.
pub(super) fn model(item: &Item<'_>, known: Option<&BTreeSet<String>>, definition: &mut Definition, found: &mut Found) {
    const WHAT: &str = "the model of an agent";
    let Some(mut fields) = Fields::of(WHAT, item, "write [agent.model], and below it preferred = \"…\"", found)
    else {
        return;
    };
    // Of several preferred models, the first is preferred, and the others are its first fallbacks.
    let mut fallback = fields.field("preferred").map(|field| one_or_several(field, found)).unwrap_or_default();
    let preferred = (!fallback.is_empty()).then(|| fallback.remove(0));
    fallback.extend(fields.field("fallback").map(|field| texts(field, found)).unwrap_or_default());
    let tags = fields.field("provider_tags").map(|field| texts(field, found)).unwrap_or_default();
    if let Some(tokens) = fields.field("max_tokens").and_then(|field| count(field, found)) {
        definition.max_tokens = tokens.value;
    }
    definition.compact_at = fields.field("compact_at").and_then(|field| count(field, found)).map(|tokens| tokens.value);
    fields.close(found);
    let mut seen = BTreeSet::new();
    for model in preferred.iter().chain(&fallback) {
        if !seen.insert(&model.value) {
            let problem = format!(
                "the model {} stands here twice: it would be asked again after it failed",
                quoted(&model.value)
            );
            found.add(Defect::new(&model.place, problem).advise("name another one, or none"));
        }
        if let Some(known) = known
            && !known.contains(&model.value)
        {
            let likely = nearest(&model.value, known.iter().map(String::as_str));
            let problem = format!("there is no model {}{}", quoted(&model.value), did_you_mean(likely.as_deref()));
            found.add(Defect::new(&model.place, problem));
        }
    }
    definition.model = ModelChoice {
        preferred: preferred.map(|model| model.value.into()),
        fallback: values(fallback),
        tags: values(tags),
    };
}
