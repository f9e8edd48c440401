//! `callboard kb query`.

use std::fmt::Write as _;

use callboard::messages::{Timestamp, visible, visible_lines};
use callboard_knowledge::intents::{Answer, Claim, Intent, IntentLoopResult, IntentResult, QueryPayload};
use callboard_knowledge::search::{Depth, Found, Grounded, Retrieved, excerpt};
use callboard_knowledge::words::words;
use serde_json::json;

use crate::exit::Exit;
use crate::page::{Failure, Page, brief, count};

use super::arguments::{NAMESPACE, Query};
use super::base::{open_to_read, short};
use super::lists::sources;
use super::session::Session;

/// The most characters of a passage that are shown.
const SHOWN: usize = 400;

/// Finds what is known about a question.
pub(super) async fn main(query: &Query) -> Result<Page, Failure> {
    if words(&query.question).next().is_none() {
        return Err(Failure::usage("the question has no words".to_owned()));
    }
    let stores = query.place.common.choice.stores()?;
    let base = open_to_read(&stores).await?;
    let payload = QueryPayload {
        query: query.question.clone(),
        discovery_depth: if query.shallow { Depth::Shallow } else { Depth::Deep },
        limit: usize::from(query.limit),
        as_of: query.as_of.map(Timestamp::from_millis),
        answer: None,
    };
    let session = Session::start_to_read(&stores, &base, &query.place.namespace, &query.asked).await?;
    let asked = session.ask(Intent::QueryTruth, payload).await;
    session.end().await;
    let result = asked?;
    let json = json!(result);
    let IntentLoopResult { result: IntentResult::Found { retrieved, answer }, iterations, .. } = result else {
        return Err(Failure::failed("the query has the result of another intent".to_owned()));
    };
    let exit = if retrieved.results.is_empty() { Exit::NotFound } else { Exit::Done };
    Ok(Page {
        exit,
        remarks: remark(&retrieved, query, iterations),
        ..Page::new(format!("{}{}", answer.as_ref().map(answered).unwrap_or_default(), text(&retrieved, query)), json)
    })
}

/// What the model answers, before what it answers from.
fn answered(answer: &Answer) -> String {
    let mut text = String::new();
    match answer {
        Answer::Known { claims } => {
            for Claim { text: claim, cites } in claims {
                let _ = writeln!(text, "{} [{}]", visible_lines(claim.trim()), visible(&cites.join("; ")));
            }
        }
        Answer::NotKnown => text.push_str("not known\n"),
        Answer::Refused { why } => {
            let _ = writeln!(text, "the answer of the model is refused: {}", visible(&brief(why, 120)));
        }
    }
    text.push('\n');
    text
}

fn text(retrieved: &Retrieved, query: &Query) -> String {
    let mut text = String::new();
    for (number, Grounded { cite, found, is_untrusted, .. }) in (1..).zip(&retrieved.results) {
        let (place, title, body) = match found {
            Found::Fact(fact) => (short(fact.id), format!("{} · from {}", fact.state, sources(fact)), &*fact.statement),
            Found::Passage { title, text, .. } => {
                let untrusted = if *is_untrusted { "  (untrusted)" } else { "" };
                (visible(cite), format!("{}{untrusted}", visible(title)), &**text)
            }
        };
        let _ = writeln!(text, "{number}. {place}  {title}");
        for line in excerpt(&query.question, &visible_lines(body.trim_end().trim_start_matches('\n')), SHOWN).lines() {
            let _ = writeln!(text, "   {line}");
        }
        text.push('\n');
    }
    text
}

fn remark(retrieved: &Retrieved, query: &Query, passes: u32) -> String {
    let passes = if passes > 1 { format!(" after {passes} passes") } else { String::new() };
    let namespace = match &*query.place.namespace {
        NAMESPACE => String::new(),
        other => format!(" in the namespace {}", visible(other)),
    };
    if retrieved.results.is_empty() {
        let then = if query.as_of.is_some() { "was known about it then" } else { "is known about it" };
        return format!("nothing {then}{namespace}{passes}\n");
    }
    // A search that was widened may have found more than it hands out.
    let shown = retrieved.results.len();
    let all = retrieved.checkpoints.last().map_or(shown, |checkpoint| checkpoint.found.max(shown));
    let more = if all > shown { "; a higher --limit shows more of them" } else { "" };
    format!("{}{namespace}{passes}, confidence {:.2}{more}\n", count(all, "result"), retrieved.confidence)
}
