//! `callboard kb facts`, `kb documents`, `kb predicates` and `kb namespaces`.

use callboard::messages::visible;
use callboard_knowledge::facts::{Fact, FactState};
use callboard_knowledge::store::Beginning;
use comfy_table::Table;
use serde::Serialize;
use serde_json::json;

use crate::page::{Failure, Page, brief, counted, grouped, lines_of, table, time};

use super::arguments::{Facts, List, Namespaces};
use super::base::{failure, open_to_read, short};

/// How many sources of a fact are named.
const NAMED: usize = 3;

/// Lists facts, the newest first.
pub(super) async fn facts(facts: &Facts) -> Result<Page, Failure> {
    let List { limit, place } = &facts.list;
    let base = open_to_read(&place.common.choice.stores()?).await?;
    let states = match (facts.disputed, facts.invalid) {
        (false, false) => vec![FactState::Current, FactState::Disputed],
        (true, false) => vec![FactState::Disputed],
        (false, true) => vec![FactState::Invalid],
        (true, true) => vec![FactState::Disputed, FactState::Invalid],
    };
    let found = base.facts(&place.namespace, &states, limit.limit.into()).await.map_err(|error| failure(&error))?;
    let mut drawn = table(["fact", "state", "since", "statement", "sources"], &[]);
    for fact in &found.rows {
        drawn.add_row([
            short(fact.id),
            fact.state.to_string(),
            time(fact.valid_from),
            brief(&fact.statement, 120),
            sources(fact),
        ]);
    }
    Ok(page("facts", "fact", &found, &drawn))
}

/// The places that say so, and who does where there is none.
pub(super) fn sources(fact: &Fact) -> String {
    let mut named: Vec<String> = Vec::new();
    for source in &fact.sources {
        let name = brief(source.place.as_deref().unwrap_or(&source.by), 80);
        let name = if source.is_untrusted { format!("{name} (untrusted)") } else { name };
        if !named.contains(&name) {
            named.push(name);
        }
    }
    let more = named.len().saturating_sub(NAMED);
    named.truncate(NAMED);
    let more = if more > 0 { format!(" and {} more", grouped(more as u64)) } else { String::new() };
    named.join(", ") + &more
}

/// Lists documents by their paths.
pub(super) async fn documents(List { limit, place }: &List) -> Result<Page, Failure> {
    let base = open_to_read(&place.common.choice.stores()?).await?;
    let found = base.documents(&place.namespace, limit.limit.into()).await.map_err(|error| failure(&error))?;
    let mut drawn = table(["document", "passages", "read", "title"], &[1]);
    for row in &found.rows {
        let untrusted = if row.is_untrusted { " (untrusted)" } else { "" };
        drawn.add_row([
            format!("{}{untrusted}", visible(&row.document)),
            grouped(row.passages),
            time(row.read_at),
            brief(&row.title, 80),
        ]);
    }
    Ok(page("documents", "document", &found, &drawn))
}

/// Lists predicates, and how many values they have at a time.
pub(super) async fn predicates(List { limit, place }: &List) -> Result<Page, Failure> {
    let base = open_to_read(&place.common.choice.stores()?).await?;
    let found = base.predicates(&place.namespace, limit.limit.into()).await.map_err(|error| failure(&error))?;
    let mut drawn = table(["predicate", "values at a time", "facts"], &[2]);
    for row in &found.rows {
        let values = match row.is_single {
            Some(true) => "one",
            Some(false) => "several",
            None => "several (nothing is declared)",
        };
        drawn.add_row([brief(&row.predicate, 120), values.to_owned(), grouped(row.facts)]);
    }
    Ok(page("predicates", "predicate", &found, &drawn))
}

/// Lists namespaces, and how much they have.
pub(super) async fn namespaces(Namespaces { limit, common }: &Namespaces) -> Result<Page, Failure> {
    let base = open_to_read(&common.choice.stores()?).await?;
    let found = base.namespaces(limit.limit.into()).await.map_err(|error| failure(&error))?;
    let mut drawn = table(["namespace", "documents", "current", "disputed", "invalid"], &[1, 2, 3, 4]);
    for row in &found.rows {
        let [documents, current, disputed, invalid] =
            [row.documents, row.current, row.disputed, row.invalid].map(grouped);
        drawn.add_row([visible(&row.namespace), documents, current, disputed, invalid]);
    }
    Ok(page("namespaces", "namespace", &found, &drawn))
}

/// The table, and how many rows it has not.
fn page<T: Serialize>(key: &str, what: &str, found: &Beginning<T>, drawn: &Table) -> Page {
    let more = found.count.saturating_sub(found.rows.len() as u64);
    let remarks = match (found.rows.is_empty(), more) {
        (true, _) => format!("there are no {key}\n"),
        (false, 0) => String::new(),
        (false, more) => format!("{} more; a higher --limit lists them\n", counted(more, what)),
    };
    let text = if found.rows.is_empty() { String::new() } else { lines_of(drawn) };
    Page { remarks, ..Page::new(text, json!({ key: found.rows, "count": found.count })) }
}
