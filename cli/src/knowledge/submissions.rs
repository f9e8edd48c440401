//! `callboard kb submit` and `callboard kb predicate`.

use std::fmt::Write as _;

use callboard::messages::visible;
use callboard_knowledge::facts::{FactState, OnContradiction};
use callboard_knowledge::intents::{Intent, IntentResult, SubmitPayload};
use callboard_knowledge::store::Revision;
use serde_json::json;

use crate::command_line::command_line;
use crate::page::{Failure, Page, brief, count, time};

use super::arguments::{self, Predicate, Submit, Values};
use super::base::{Created, beside_new, create, end, end_after_board, failure, short};
use super::session::Session;

/// How many similar facts are shown.
const SIMILAR: usize = 3;

/// Submits a fact.
pub(super) async fn main(submit: &Submit) -> Result<Page, Failure> {
    let stores = submit.place.common.choice.stores()?;
    let Created { base, new } = create(&stores)?;
    let is_new = new.is_some();
    let payload = SubmitPayload {
        statement: submit.statement.clone(),
        subject: submit.subject.clone(),
        predicate: submit.predicate.clone(),
        value: submit.value.clone(),
        is_single: submit.single,
        place: submit.from.clone(),
        on_contradiction: match submit.on_contradiction {
            arguments::OnContradiction::Dispute => OnContradiction::Dispute,
            arguments::OnContradiction::Refuse => OnContradiction::Refuse,
            arguments::OnContradiction::Supersede => OnContradiction::Supersede,
        },
    };
    let asked = match Session::start(&stores, &base, &submit.place.namespace, &submit.asked).await {
        Ok(session) => {
            let asked = session.ask(Intent::SubmitFact, payload).await;
            session.end().await;
            asked
        }
        Err(failure) => Err(failure),
    };
    end_after_board(base, new.filter(|_| asked.is_err())).await;
    let result = asked?;
    let json = json!(result);
    let IntentResult::Submitted { submitted, similar } = result.result else {
        return Err(Failure::failed("the submission has the result of another intent".to_owned()));
    };
    let fact = &submitted.fact;
    let id = short(fact.id);
    let sources = count(fact.sources.len(), "source");
    let what = match (submitted.is_new, submitted.was_invalid.as_deref()) {
        (true, _) => "is new".to_owned(),
        (false, None) => format!("was known; it has {sources} now"),
        (false, Some(Revision { at, change, by, reason, .. })) => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {}", brief(reason, 120)) };
            let (since, change, by) = (time(*at), change.name(), visible(by));
            format!("was invalid since {since} ({change} by {by}{reason}); it is {} now, with {sources}", fact.state)
        }
    };
    let mut text = format!("{id}  {}  {what}\n", fact.state);
    if submitted.has_other_words {
        let _ = writeln!(text, "it keeps the words in which it was known: {}", brief(&fact.statement, 400));
    }
    if submitted.lacks_parts {
        text.push_str(
            "it stays without subject, predicate and value, as it was known: submit it in other words to keep these\n",
        );
    }
    for contradiction in &submitted.contradictions {
        let _ = writeln!(text, "contradicts {}: {}", short(contradiction.fact), visible(&contradiction.reason));
    }
    for superseded in &submitted.superseded {
        let _ = writeln!(text, "{} no longer holds", short(*superseded));
    }
    if fact.state == FactState::Disputed {
        let line = |command: &str| command_line(&format!("kb {command} {id}"), stores.named());
        let _ = writeln!(text, "to decide: {}  or  {}", line("accept"), line("invalidate"));
    }
    if submitted.is_new {
        for similar in similar.iter().take(SIMILAR) {
            let _ = writeln!(text, "similar: {}  {}", short(similar.fact), brief(&similar.statement, 80));
        }
    }
    let remarks = if is_new { beside_new(&stores) } else { String::new() };
    Ok(Page { remarks, ..Page::new(text, json) })
}

/// Declares a predicate.
pub(super) async fn predicate(predicate: &Predicate) -> Result<Page, Failure> {
    let stores = predicate.place.common.choice.stores()?;
    let Created { base, new } = create(&stores)?;
    let remarks = if new.is_some() { beside_new(&stores) } else { String::new() };
    let (name, is_single) = (&predicate.name, predicate.values == Values::Single);
    let declared = base.declare_predicate(&predicate.place.namespace, name, is_single).await;
    end(base, new.filter(|_| declared.is_err())).await;
    declared.map_err(|error| failure(&error))?;
    let values = if is_single { "one value" } else { "several values" };
    let json = json!({ "predicate": name, "is_single": is_single });
    Ok(Page { remarks, ..Page::new(format!("{} has {values} at a time\n", visible(name)), json) })
}
