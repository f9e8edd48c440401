//! Reads roles that a document declares.

use callboard::messages::{AgentName, Authority, Effect};
use callboard_documents::toml::{DeValue, Fields, Item, boolean, list, mismatch, string, word};
use callboard_documents::{Defect, Found};
use callboard_text::{check_name, quoted};

use super::grant::{Grant, Names};
use super::{BUILT_IN, SPECIALIST, built_in};

const EXAMPLE: &str = "write [roles.NAME], and below it tools = [\"FileRead\", \"Task\"]";

/// The roles below the key `roles` of a document.
pub(super) fn roles(item: &Item<'_>, found: &mut Found) -> Vec<(String, Grant)> {
    let DeValue::Table(table) = item.get_ref() else {
        found.add(mismatch("`roles`", "a table", item).advise(EXAMPLE));
        return Vec::new();
    };
    let mut roles = Vec::new();
    for (name, item) in table.iter() {
        let (place, name) = (Some(name.span()), name.get_ref());
        if let Err(error) = check_name("role", name, AgentName::MAX) {
            found.add(Defect::new(&place, error.to_string()));
        }
        if BUILT_IN.contains(&&**name) {
            let problem = format!("the role {} is built in, and its grant cannot be changed", quoted(name));
            found.add(Defect::new(&place, problem).advise("declare a role of another name"));
        }
        if let Some(grant) = grant(item, found) {
            roles.push((name.to_string(), grant));
        }
    }
    roles
}

/// What one role grants. A key that it does not have is as that of a specialist.
fn grant(item: &Item<'_>, found: &mut Found) -> Option<Grant> {
    let mut fields = Fields::of("a role", item, EXAMPLE, found)?;
    let mut grant = built_in(SPECIALIST);
    if let Some(field) = fields.field("tools") {
        let words = words(field, found);
        let effect = |word: &String| Effect::ALL.into_iter().find(|effect| effect.name() == word);
        grant.tools_with = Authority::of(words.iter().filter_map(effect));
        grant.tools =
            Names(words.iter().filter(|word| effect(word).is_none()).map(|word| word.as_str().into()).collect());
    }
    if let Some(field) = fields.field("authority") {
        let effects = Effect::ALL.map(|effect| (effect.name(), effect));
        let items = list(field, "write authority = [\"reads\", \"notes\"]", found);
        grant.authority = Authority::of(items.iter().filter_map(|item| word((field.0, item), &effects, found)));
    }
    let mut names = |key, found: &mut Found| {
        let words = words(fields.field(key)?, found);
        Some(Names(words.into_iter().map(Into::into).collect()))
    };
    let (namespaces, variables) = (names("namespaces", found), names("variables", found));
    grant.namespaces = namespaces.unwrap_or(grant.namespaces);
    grant.variables = variables.unwrap_or(grant.variables);
    if let Some(is_granted) = fields.field("docker_socket").and_then(|field| boolean(field, found)) {
        grant.docker_socket = is_granted;
    }
    fields.close(found);
    Some(grant)
}

/// A list of names, of which `*` may end each.
fn words<'t>((key, item): (&'static str, &'t Item<'t>), found: &mut Found) -> Vec<String> {
    let mut words = Vec::new();
    for item in list((key, item), &format!("put it in brackets: {key} = [\"…\"]"), found) {
        let Some(word) = string(&format!("an entry of `{key}`"), "a string", item, found) else { continue };
        if word.is_empty() || word.strip_suffix('*').unwrap_or(word).contains('*') {
            let problem = format!("an entry of `{key}` must be a name, which `*` may end, not {}", quoted(word));
            found.add(Defect::new(&Some(item.span()), problem).advise(format!("as {key} = [\"tickets*\"]")));
            continue;
        }
        words.push(word.to_owned());
    }
    words
}
