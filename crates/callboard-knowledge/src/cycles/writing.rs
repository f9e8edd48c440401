//! What a model writes in the cycles, checked before it is kept.

use callboard::{Turn, TurnError};
use serde_json::json;

use super::asked::{Draft, Enrichment, Missing, Review, ask};
use super::documents::named_in;
use super::passages::passages;
use super::types::{
    Answered, CandidateDoc, Gaps, InitContext, MAX_ADDED, MAX_CLAIMS, MAX_QUESTIONS, Work, line, lines, supported,
};
use crate::intents::{Claim, ShownResult};
use crate::store::KnowledgeBase;

/// The document that a model writes about a topic, or refines; one without claims if nothing is found or can be kept.
pub(super) async fn written(
    turn: &Turn,
    (base, context): (&KnowledgeBase, &InitContext),
    work: Work,
    answers: &[Answered],
) -> Result<CandidateDoc, TurnError> {
    let Work { topic, document, instruction } = work;
    let before = document.unwrap_or_else(|| CandidateDoc { topic: topic.clone(), ..CandidateDoc::default() });
    let query = instruction.as_deref().map_or_else(|| topic.clone(), |more| format!("{topic} {more}"));
    let found = passages(turn, base, &context.namespace, &query).await?;
    if found.is_empty() {
        return Ok(before);
    }
    let answers: Vec<&Answered> = context.answers.iter().chain(answers).collect();
    let asked = json!({
        "topic": topic, "passages": found, "answers_of_people": answers, "instruction": instruction,
        "document": (!before.claims.is_empty()).then_some(&before.claims),
    });
    let Some(Draft { title, claims, open }) =
        ask::<Draft>(turn, provider(context)?, ("Write a document", asked)).await?
    else {
        return Ok(before);
    };
    let (claims, dropped) = supported(claims, |cite| is_found(&found, &before.claims, cite));
    if claims.is_empty() {
        return Ok(CandidateDoc { dropped: before.dropped + dropped, ..before });
    }
    let (title, open) = (line(&title), lines(open, MAX_ADDED));
    let dropped = before.dropped + dropped;
    let is_untrusted = before.is_untrusted || turn.is_tainted();
    Ok(CandidateDoc { topic, title, claims, open, dropped, is_untrusted, ..CandidateDoc::default() })
}

pub(super) async fn enriched(
    turn: &Turn,
    (base, context): (&KnowledgeBase, &InitContext),
    mut document: CandidateDoc,
) -> Result<CandidateDoc, TurnError> {
    if document.claims.is_empty() {
        return Ok(document);
    }
    let query = format!("{} {}", document.topic, document.open.join(" "));
    let found = passages(turn, base, &context.namespace, &query).await?;
    let asked = json!({
        "topic": document.topic, "title": document.title, "claims": document.claims, "open": document.open,
        "passages": found,
    });
    let asked = ("Enrich a document", asked);
    let Some(Enrichment { claims, entities, relations }) = ask(turn, provider(context)?, asked).await? else {
        return Ok(document);
    };
    let (claims, dropped) = supported(claims, |cite| is_found(&found, &document.claims, cite));
    let is_new = |claim: &Claim| document.claims.iter().all(|known| known.text != claim.text);
    let new: Vec<Claim> = claims.into_iter().filter(is_new).collect();
    document.claims.extend(new);
    document.claims.truncate(MAX_CLAIMS);
    document.dropped += dropped;
    (document.entities, document.relations) = named_in(&document.claims, entities, relations);
    document.is_untrusted |= turn.is_tainted();
    Ok(document)
}

/// What the documents lack, as the model sees it.
pub(super) async fn gaps(turn: &Turn, context: &InitContext, documents: Vec<CandidateDoc>) -> Result<Gaps, TurnError> {
    let asked = json!({
        "topics": context.topics, "answers_of_people": context.answers, "documents": outlines(&documents),
        "may_ask_people": context.follows_up,
    });
    let missing: Option<Missing> = ask(turn, provider(context)?, ("Find what is missing", asked)).await?;
    let Missing { topics, questions, refine } = missing.unwrap_or_default();
    let mut work: Vec<Work> = documents
        .into_iter()
        .map(|document| {
            let instruction = refine.iter().find(|refine| line(&refine.topic) == document.topic);
            let instruction = instruction.map(|refine| line(&refine.instruction));
            Work { topic: document.topic.clone(), document: Some(document), instruction }
        })
        .collect();
    for topic in lines(topics, MAX_ADDED) {
        if work.iter().all(|work| work.topic != topic) {
            work.push(Work { topic, document: None, instruction: None });
        }
    }
    let questions = if context.follows_up { lines(questions, MAX_QUESTIONS) } else { Vec::new() };
    Ok(Gaps { work, questions })
}

/// The documents after the model has said which claims to leave out.
pub(super) async fn reviewed(
    turn: &Turn,
    context: &InitContext,
    mut documents: Vec<CandidateDoc>,
) -> Result<Vec<CandidateDoc>, TurnError> {
    let asked = ("Review documents", json!({ "documents": outlines(&documents) }));
    let Review { documents: reviewed } = ask::<Review>(turn, provider(context)?, asked).await?.unwrap_or_default();
    for review in reviewed {
        let Some(document) = documents.iter_mut().find(|document| document.topic == line(&review.topic)) else {
            continue;
        };
        if let Some(title) = review.title.map(|title| line(&title)).filter(|title| !title.is_empty()) {
            document.title = title;
        }
        let mut number = 0;
        document.claims.retain(|_| {
            number += 1;
            !review.leave_out.contains(&number)
        });
        let (entities, relations) = (std::mem::take(&mut document.entities), std::mem::take(&mut document.relations));
        (document.entities, document.relations) = named_in(&document.claims, entities, relations);
    }
    Ok(documents)
}

/// Documents as a model is shown all of them: their claims, by numbers from 1, as many as fit.
fn outlines(documents: &[CandidateDoc]) -> Vec<serde_json::Value> {
    const MAX_OUTLINE: usize = 48 << 10;
    let of_each = MAX_OUTLINE / documents.len().max(1);
    let outline = |document: &CandidateDoc| {
        let mut bytes = 0;
        let claims =
            document.claims.iter().zip(1..).map(|(claim, number)| json!({ "number": number, "text": claim.text }));
        let fitting = claims.take_while(|claim| {
            bytes += claim.to_string().len();
            bytes <= of_each
        });
        let claims: Vec<_> = fitting.collect();
        json!({ "topic": document.topic, "title": document.title, "claims": claims, "open": document.open })
    };
    documents.iter().map(outline).collect()
}

fn is_found(found: &[ShownResult], known: &[Claim], cite: &str) -> bool {
    found.iter().any(|shown| shown.cite == cite)
        || known.iter().any(|claim| claim.cites.iter().any(|known| known == cite))
}

fn provider(context: &InitContext) -> Result<&str, TurnError> {
    context.provider.as_deref().ok_or_else(|| TurnError::terminal("the request names no provider"))
}
