//! `callboard kb invalidate`, `accept` and `log`.

use std::fmt::Write as _;

use callboard::messages::visible;
use callboard_knowledge::facts::Triple;
use callboard_knowledge::intents::{Intent, IntentResult, InvalidatePayload};
use callboard_knowledge::store::{ChangeKind, Preview};
use serde_json::json;

use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, brief, lines_of, table, time};
use crate::person::{Person as _, at_the_terminal, is_anybody_here};
use crate::quote::quoted;

use super::arguments::{Asked, Change, Log};
use super::base::{failure, named, open, open_to_read, short};
use super::session::Session;

/// Shows a change, and applies it once the person agrees.
pub(super) async fn main(change: &Change, accepts: bool) -> Result<Page, Failure> {
    let stores = change.place.common.choice.stores()?;
    let base = open(&stores).await?;
    let namespace = &change.place.namespace;
    let fact = named(&base, namespace, &change.fact).await?;
    let kind = if accepts { ChangeKind::Accept } else { ChangeKind::Invalidate };
    let payload = |apply| InvalidatePayload { fact: fact.id, kind, reason: change.reason.clone(), apply };
    let session = Session::start(&stores, &base, namespace, &Asked::default()).await?;
    let changed = async {
        let hash = match &change.apply {
            Some(hash) => hash.clone(),
            None => {
                let shown = session.ask(Intent::InvalidateFact, payload(None)).await?;
                let json = json!(shown);
                let IntentResult::Preview(preview) = shown.result else { return Err(other()) };
                let text = described(&preview);
                let is_asked = !change.yes && !change.place.common.json && is_anybody_here(false);
                let is_agreed = if is_asked { agrees(&text) } else { change.yes };
                if !is_agreed {
                    let command = if accepts { "accept" } else { "invalidate" };
                    let reason = match &*change.reason {
                        "" => String::new(),
                        reason => format!(" --reason {}", quoted(reason)),
                    };
                    let line = format!("kb {command} {} --apply {}{reason}", short(fact.id), preview.hash);
                    let line = command_line(&line, stores.named());
                    let exit = if is_asked { Exit::Denied } else { Exit::Waits };
                    let text = format!("{text}nothing was changed; to apply it: {line}\n");
                    return Ok(Page { exit, ..Page::new(text, json) });
                }
                preview.hash
            }
        };
        let applied = session.ask(Intent::InvalidateFact, payload(Some(hash))).await?;
        let json = json!(applied);
        let IntentResult::Applied(applied) = applied.result else { return Err(other()) };
        let mut text = String::new();
        for fact in &applied.facts {
            let _ = writeln!(text, "{}  {}  {}", short(fact.id), fact.state, brief(&fact.statement, 80));
        }
        Ok(Page::new(text, json))
    };
    let changed = changed.await;
    session.end().await;
    changed
}

fn other() -> Failure {
    Failure::failed("the change has the result of another intent".to_owned())
}

fn described(preview: &Preview) -> String {
    let mut text = String::new();
    for changed in &preview.facts {
        let _ = writeln!(
            text,
            "{}  {} → {}  {}",
            short(changed.fact),
            changed.from,
            changed.to,
            brief(&changed.statement, 80)
        );
    }
    for edge in &preview.deleted_edges {
        let _ =
            writeln!(text, "the graph loses: {} {} {}", visible(&edge.source), edge.relation, visible(&edge.target));
    }
    text
}

fn agrees(change: &str) -> bool {
    let answer = at_the_terminal(None, |person| person.answers(&format!("{change}apply it? [y/N] ")));
    matches!(answer.flatten().as_deref(), Some("y" | "Y" | "yes"))
}

/// Shows the history of a fact.
pub(super) async fn log(log: &Log) -> Result<Page, Failure> {
    let stores = log.place.common.choice.stores()?;
    let base = open_to_read(&stores).await?;
    let fact = named(&base, &log.place.namespace, &log.fact).await?;
    let revisions = base.log(fact.id).await.map_err(|error| failure(&error))?;
    let mut drawn = table(["revision", "at", "change", "state", "by", "why"], &[0]);
    for revision in &revisions {
        drawn.add_row([
            revision.revision.to_string(),
            time(revision.at),
            revision.change.name().to_owned(),
            revision.state.to_string(),
            visible(&revision.by),
            brief(&revision.reason, 120),
        ]);
    }
    let mut text = format!("{}  {}\n", fact.id, brief(&fact.statement, 200));
    if let Some(Triple { subject, predicate, value }) = &fact.triple {
        for (part, name) in [("subject", subject), ("predicate", predicate), ("value", value)] {
            let _ = writeln!(text, "{part}: {}", brief(name, 200));
        }
    }
    let _ = write!(text, "\n{}\n", lines_of(&drawn));
    for source in &fact.sources {
        let place = source.place.as_deref().map(|place| format!("  {}", visible(place))).unwrap_or_default();
        let untrusted = if source.is_untrusted { "  (untrusted)" } else { "" };
        let _ = writeln!(text, "source: {}{place}  {}{untrusted}", visible(&source.by), time(source.at));
    }
    Ok(Page::new(text, json!({ "fact": fact, "revisions": revisions })))
}
