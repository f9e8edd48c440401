//! Changes of facts that are shown before they are made: what is applied is what was shown, or nothing.

use callboard::messages::{Json, Timestamp};
use rusqlite::{Connection, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KnowledgeBase;
use super::error::KnowledgeError;
use super::facts::{fact_of, invalidate, item_of, set_state};
use super::graph;
use super::history::{self, Entry, RevisionChange};
use super::items::ItemId;
use super::once::once;
use crate::digest::sha256;
use crate::facts::{Fact, FactError, FactId, FactState, Statement, check_texts};

/// What is done to a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It no longer holds.
    Invalidate,
    /// A person has decided that a disputed fact holds; what it contradicts no longer holds.
    Accept,
}

/// A change that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// What is done.
    pub kind: ChangeKind,
    /// To which fact.
    pub fact: FactId,
    /// Why, for its history.
    pub reason: String,
    /// Who asks for it.
    pub by: String,
    /// In which run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl ChangeRequest {
    fn check(&self) -> Result<(), FactError> {
        let run = self.run.as_deref().unwrap_or_default();
        check_texts([("the reason", &self.reason), ("the name of whoever asks", &self.by), ("the run", run)])
    }
}

/// A fact that a change concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedFact {
    /// Its id.
    pub fact: FactId,
    /// Its revision before the change.
    pub revision: u64,
    /// What it states.
    pub statement: String,
    /// Its state before the change.
    pub from: FactState,
    /// Its state after it.
    pub to: FactState,
}

/// An edge of the graph.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct EdgeOfGraph {
    /// Where it begins.
    pub source: String,
    /// How the two are joined.
    pub relation: String,
    /// Where it ends.
    pub target: String,
}

/// What a change would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Preview {
    /// What is done.
    pub kind: ChangeKind,
    /// The facts that change, the one that was named first.
    pub facts: Vec<ChangedFact>,
    /// The edges of the graph that nothing would support any more, and that are deleted.
    pub deleted_edges: Vec<EdgeOfGraph>,
    /// SHA-256 over all of this, in hexadecimal: a change is applied by it.
    pub hash: String,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Applied {
    /// The facts as they are now.
    pub facts: Vec<Fact>,
    /// The edges that were deleted.
    pub deleted_edges: Vec<EdgeOfGraph>,
}

impl KnowledgeBase {
    /// What a change would do; nothing is changed.
    ///
    /// # Errors
    /// The reason, who asks, or the run has more than 1,024 bytes; there is no such fact, the change would change nothing, an invalid fact is to be accepted, or the base cannot be read.
    pub async fn preview(&self, request: &ChangeRequest) -> Result<Preview, KnowledgeError> {
        request.check()?;
        let (kind, fact) = (request.kind, request.fact);
        self.read(move |connection| preview(connection, kind, fact)).await
    }

    /// Makes a change that was shown: the one with this hash. A change with a key that was made before is answered as then.
    ///
    /// # Errors
    /// What it would do now is not what was shown; as for [`KnowledgeBase::preview`].
    pub async fn apply(
        &self,
        request: ChangeRequest,
        hash: &str,
        key: Option<String>,
    ) -> Result<Applied, KnowledgeError> {
        request.check()?;
        let hash = hash.to_owned();
        self.write(move |connection, now| {
            once(connection, key.as_deref(), now, || apply(connection, &request, &hash, now))
        })
        .await
    }
}

fn preview(connection: &Connection, kind: ChangeKind, fact: FactId) -> Result<Preview, KnowledgeError> {
    let item = item_of(connection, fact)?;
    let to = match kind {
        ChangeKind::Invalidate => FactState::Invalid,
        ChangeKind::Accept => FactState::Current,
    };
    let mut facts = vec![(item, changed(connection, item, to)?)];
    if facts[0].1.from == to {
        return Err(KnowledgeError::Unchanged { id: fact, state: to });
    }
    if kind == ChangeKind::Accept {
        // What was submitted since it became invalid was not compared with it.
        if facts[0].1.from == FactState::Invalid {
            return Err(KnowledgeError::NotDisputed { id: fact });
        }
        for other in contradicted(connection, item)? {
            facts.push((other, changed(connection, other, FactState::Invalid)?));
        }
    }
    let ended: Vec<ItemId> =
        facts.iter().filter(|(_, fact)| fact.to == FactState::Invalid).map(|(item, _)| *item).collect();
    let deleted_edges = unsupported_without(connection, &ended)?;
    let facts: Vec<ChangedFact> = facts.into_iter().map(|(_, fact)| fact).collect();
    let mut preview = Preview { kind, facts, deleted_edges, hash: String::new() };
    let unreadable = |error: serde_json::Error| KnowledgeError::Unreadable(error.to_string());
    preview.hash = sha256(&Json::of(&preview).map_err(unreadable)?);
    Ok(preview)
}

fn changed(connection: &Connection, item: ItemId, to: FactState) -> Result<ChangedFact, KnowledgeError> {
    let Fact { id, revision, statement, state, .. } = fact_of(connection, item)?;
    Ok(ChangedFact { fact: id, revision, statement, from: state, to })
}

/// The facts that contradict one and have not been invalidated: by the contradictions that were found when either was submitted, and because its
/// predicate has one value at a time, which may have been declared since.
fn contradicted(connection: &Connection, item: ItemId) -> Result<Vec<ItemId>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT f.item FROM kb_facts f
         WHERE f.state <> 'invalid' AND f.item IN (
             SELECT other FROM kb_contradictions WHERE item = ?1 UNION SELECT item FROM kb_contradictions WHERE other = ?1
             UNION SELECT o.item FROM kb_facts a JOIN kb_predicates p ON p.namespace = a.namespace AND p.form = a.predicate_form
                 JOIN kb_facts o ON o.namespace = a.namespace AND o.subject_form = a.subject_form
                     AND o.predicate_form = a.predicate_form AND o.value_form <> a.value_form
                 WHERE a.item = ?1 AND p.is_single
         ) ORDER BY f.item",
    )?;
    let items = find.query_map([item], |row| row.get(0))?;
    Ok(items.collect::<Result<_, _>>()?)
}

/// The edges that only these rows support.
fn unsupported_without(connection: &Connection, items: &[ItemId]) -> Result<Vec<EdgeOfGraph>, KnowledgeError> {
    let mut edges = connection
        .prepare_cached("SELECT edge FROM kb_graph_provenance WHERE item = ?1 AND deleted_at IS NULL ORDER BY edge")?;
    let mut supports =
        connection.prepare_cached("SELECT item FROM kb_graph_provenance WHERE edge = ?1 AND deleted_at IS NULL")?;
    let mut name = connection.prepare_cached(
        "SELECT s.name, e.relation, t.name FROM kb_graph_edges e
         JOIN kb_graph_entities s ON s.id = e.source JOIN kb_graph_entities t ON t.id = e.target WHERE e.id = ?1",
    )?;
    let mut unsupported = Vec::new();
    for item in items {
        let edges: Vec<i64> = edges.query_map([item], |row| row.get(0))?.collect::<Result<_, _>>()?;
        for edge in edges {
            let mut others = supports.query_map([edge], |row| row.get::<_, ItemId>(0))?;
            if others.all(|other| other.is_ok_and(|other| items.contains(&other))) {
                unsupported.push(name.query_row(params![edge], |row| {
                    Ok(EdgeOfGraph { source: row.get(0)?, relation: row.get(1)?, target: row.get(2)? })
                })?);
            }
        }
    }
    unsupported.sort();
    unsupported.dedup();
    Ok(unsupported)
}

fn apply(
    connection: &Connection,
    request: &ChangeRequest,
    hash: &str,
    now: Timestamp,
) -> Result<Applied, KnowledgeError> {
    let ChangeRequest { kind, fact, reason, by, run } = request;
    let preview = preview(connection, *kind, *fact)?;
    if preview.hash != hash {
        return Err(KnowledgeError::PreviewChanged { id: *fact });
    }
    let accepted = format!("{fact} was accepted: {reason}");
    for changed in &preview.facts {
        let item = item_of(connection, changed.fact)?;
        match (changed.to, changed.fact == *fact) {
            (FactState::Invalid, is_named) => {
                let reason = if is_named { reason } else { &accepted };
                let change = if is_named { RevisionChange::Invalidated } else { RevisionChange::Superseded };
                invalidate(connection, changed.fact, &Entry { change, by, run: run.as_deref(), reason }, now)?;
            }
            (FactState::Current | FactState::Disputed, _) => {
                set_state(connection, item, changed.to, now)?;
                let of_fact = fact_of(connection, item)?;
                let statement = Statement::new(&of_fact.statement, of_fact.triple)?;
                graph::add_fact(connection, item, &of_fact.namespace, &statement, &[])?;
                let entry = Entry { change: RevisionChange::Accepted, by, run: run.as_deref(), reason };
                history::add(connection, item, &entry, now)?;
            }
        }
        if *kind == ChangeKind::Accept && changed.fact != *fact {
            let accepted = item_of(connection, *fact)?;
            graph::add_supersession(
                connection,
                accepted,
                &fact_of(connection, accepted)?.namespace,
                *fact,
                changed.fact,
            )?;
        }
    }
    let facts = preview.facts.iter().map(|changed| fact_of(connection, item_of(connection, changed.fact)?));
    Ok(Applied { facts: facts.collect::<Result<_, _>>()?, deleted_edges: preview.deleted_edges })
}
