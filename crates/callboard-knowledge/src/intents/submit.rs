//! The steps of a submission: what it is compared with, what a model judges, and the one transaction that makes it a fact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::asking::{Ask, IntentError, question, read_json};
use super::envelope::{IntentResult, Refused, SubmitPayload};
use super::origin::Origin;
use crate::entities::Named;
use crate::facts::{Contradiction, Fact, FactError, FactState, Similar, Statement, Triple};
use crate::search::{Depth, Found, ReadFacts};
use crate::store::{KnowledgeBase, KnowledgeError, Submission};

/// What the agent is asked for.
const TASK: &str = "Judge a statement";

/// How many similar facts are shown to the submitter and to the model.
const SIMILAR: usize = 5;

/// How often a submission is judged again because facts changed meanwhile.
const JUDGED_AGAIN: u32 = 3;

/// Submits statements.
#[derive(Clone, Debug)]
pub struct SubmitOrchestrator {
    base: KnowledgeBase,
    origin: Origin,
}

/// What a model is asked about a statement.
#[derive(Debug, Serialize)]
struct Judgement<'a> {
    statement: &'a str,
    similar: Vec<Similar>,
}

/// What a model answers about a statement.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Verdict {
    /// Facts of those it was shown that cannot hold together with the statement.
    #[serde(default)]
    contradicts: Vec<Contradiction>,
    /// What the statement names.
    #[serde(default)]
    entities: Vec<Named>,
}

impl SubmitOrchestrator {
    /// For a base, with the origin of what is submitted.
    #[must_use]
    pub const fn new(base: KnowledgeBase, origin: Origin) -> Self {
        Self { base, origin }
    }

    /// Submits a statement. The model is asked before the transaction, which is refused and repeated if what the model saw has changed. It is not
    /// asked about the words of a current fact with a trusted source, which gets another one and is not compared anew.
    ///
    /// # Errors
    /// The base failed, or the agent that judges has no answer.
    pub(super) async fn submit(
        &self,
        namespace: &str,
        principal: &str,
        payload: SubmitPayload,
        judge: Option<(String, Ask<'_>)>,
    ) -> Result<IntentResult, IntentError> {
        let submission = match self.checked(namespace, principal, payload) {
            Ok(submission) => submission,
            Err(error) => return Ok(IntentResult::Refused(Refused::of(error.into())?)),
        };
        let judge = if self.holds(namespace, &submission.statement).await? { None } else { judge };
        let mut judged = 0;
        loop {
            let (similar, facts) = self.similar(namespace, &submission.statement).await?;
            let mut submission = submission.clone();
            if let Some((provider, ask)) = &judge {
                let verdict = match judged_by(provider, *ask, &submission.statement, &similar).await? {
                    Ok(verdict) => verdict,
                    Err(refused) => return Ok(IntentResult::Refused(refused)),
                };
                let is_shown = |found: &Contradiction| similar.iter().any(|similar| similar.fact == found.fact);
                submission.judged = verdict.contradicts.into_iter().filter(is_shown).collect();
                submission.named = verdict.entities;
                submission.read = facts.iter().map(|fact| (fact.id, fact.revision)).collect();
            }
            match self.base.submit(submission).await {
                Ok(submitted) => return Ok(IntentResult::Submitted { submitted, similar }),
                Err(KnowledgeError::Changed { .. }) if judged < JUDGED_AGAIN => judged += 1,
                Err(error) => return Ok(IntentResult::Refused(Refused::of(error)?)),
            }
        }
    }

    fn checked(&self, namespace: &str, principal: &str, payload: SubmitPayload) -> Result<Submission, FactError> {
        let SubmitPayload { statement, subject, predicate, value, is_single, place, on_contradiction } = payload;
        let triple = match (subject, predicate, value) {
            (None, None, None) => None,
            (Some(subject), Some(predicate), Some(value)) => Some(Triple { subject, predicate, value }),
            _ => return Err(FactError::PartOfTriple),
        };
        if is_single && triple.is_none() {
            return Err(FactError::PartOfTriple);
        }
        // Before a model is asked.
        let source = self.origin.source(principal, place);
        source.check()?;
        Ok(Submission {
            namespace: namespace.to_owned(),
            statement: Statement::new(&statement, triple)?,
            source,
            is_single,
            on_contradiction,
            judged: Vec::new(),
            read: Vec::new(),
            named: Vec::new(),
            key: self.origin.key.clone(),
        })
    }

    /// Whether a current fact with a trusted source has the statement's words.
    async fn holds(&self, namespace: &str, statement: &Statement) -> Result<bool, IntentError> {
        match self.base.fact(statement.id(namespace)).await {
            Ok(fact) => Ok(fact.state == FactState::Current && fact.sources.iter().any(|source| !source.is_untrusted)),
            Err(KnowledgeError::NoSuchFact { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The facts that have most words in common with a statement, apart from itself.
    async fn similar(&self, namespace: &str, statement: &Statement) -> Result<(Vec<Similar>, Vec<Fact>), IntentError> {
        let query = ReadFacts { discovery_depth: Depth::Shallow, ..ReadFacts::new(namespace, statement.text()) };
        let own = statement.id(namespace);
        let found = self.base.read_facts(query).await?.results.into_iter().filter_map(|result| match result.found {
            Found::Fact(fact) if fact.id != own && fact.state != FactState::Invalid => Some(*fact),
            Found::Fact(_) | Found::Passage { .. } => None,
        });
        let facts: Vec<Fact> = found.take(SIMILAR).collect();
        let similar = facts.iter().map(|fact| Similar { fact: fact.id, statement: fact.statement.clone() }).collect();
        Ok((similar, facts))
    }
}

async fn judged_by(
    provider: &str,
    ask: Ask<'_>,
    statement: &Statement,
    similar: &[Similar],
) -> Result<Result<Verdict, Refused>, IntentError> {
    let judgement = Judgement { statement: statement.text(), similar: similar.to_vec() };
    let unwritable = |error: serde_json::Error| IntentError::Unreadable(format!("what {provider} is asked: {error}"));
    let input = question::<Verdict>(TASK, &judgement).map_err(unwritable)?;
    let verdict = ask(provider, TASK, input).await?;
    Ok(read_json(&verdict).map_err(|error| Refused {
        code: "no_verdict".to_owned(),
        message: format!(
            "nothing was changed: the verdict of {provider} does not have the form that was asked for ({error}); repeat it, or submit without a model, as `callboard kb submit` without --model does"
        ),
        contradictions: Vec::new(),
    }))
}
