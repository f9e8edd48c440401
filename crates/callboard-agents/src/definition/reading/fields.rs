//! Values that several parts of a definition have.

use std::sync::Arc;

use callboard::actors::Mode;
use callboard::messages::{Authority, Effect, OnUnknown};
use callboard_documents::toml::{DeValue, Field, Item, list, string, text, word};
use callboard_documents::{Defect, Found, Placed};

use crate::roles::{AgentGrant, Asked};

pub(super) fn mode(field: Field<'_>, found: &mut Found) -> Option<Mode> {
    let words = [Mode::Build, Mode::Plan, Mode::Explore, Mode::General].map(|mode| (mode.name(), mode));
    word(field, &words, found)
}

/// The rule for effects that must not be repeated and whose outcome is unknown.
pub(super) fn on_unknown(field: Field<'_>, found: &mut Found) -> Option<OnUnknown> {
    let words = [OnUnknown::Ask, OnUnknown::Report, OnUnknown::Fail, OnUnknown::Repeat].map(|rule| (rule.name(), rule));
    word(field, &words, found)
}

/// The effects that an agent may cause, within its grant.
pub(super) fn authority(field: Field<'_>, grant: &AgentGrant, found: &mut Found) -> Option<Authority> {
    let words = Effect::ALL.map(|effect| (effect.name(), effect));
    let items = list(field, "write authority = [\"reads\", \"notes\"]", found);
    let effects: Vec<Option<Effect>> = items
        .iter()
        .map(|item| {
            let effect = word((field.0, item), &words, found)?;
            grant.defect(Asked::Effect(effect), &Some(item.span())).into_iter().for_each(|defect| found.add(defect));
            Some(effect)
        })
        .collect();
    effects.into_iter().collect::<Option<Vec<_>>>().map(Authority::of)
}

pub(super) fn check_tier(field: Field<'_>, found: &mut Found) {
    let (_, item) = field;
    let claimed = match item.get_ref().as_str() {
        Some("built_in") => "agents that are compiled in",
        Some("dynamic") => "agents that other agents make",
        Some(_) | None => {
            word(field, &[("user_defined", ())], found);
            return;
        }
    };
    let problem = format!("a file cannot claim this tier: it is for {claimed}");
    found.add(Defect::new(&Some(item.span()), problem).advise("write \"user_defined\", or nothing"));
}

/// A text, or a list of texts.
pub(super) fn one_or_several(field: Field<'_>, found: &mut Found) -> Vec<Placed<String>> {
    let (_, item) = field;
    match item.get_ref() {
        DeValue::Array(_) => texts(field, found),
        _ => text(field, found).into_iter().collect(),
    }
}

/// A list of texts with their places.
pub(super) fn texts((key, item): Field<'_>, found: &mut Found) -> Vec<Placed<String>> {
    let items = list((key, item), &format!("put it in brackets: {key} = [\"…\"]"), found);
    let one = |item: &Item<'_>, found: &mut Found| {
        let text = string(&format!("an entry of `{key}`"), "a string", item, found)?;
        Some(Placed::at(text.to_owned(), item.span()))
    };
    items.iter().filter_map(|item| one(item, found)).collect()
}

pub(super) fn values(texts: Vec<Placed<String>>) -> Vec<Arc<str>> {
    texts.into_iter().map(|text| text.value.into()).collect()
}
