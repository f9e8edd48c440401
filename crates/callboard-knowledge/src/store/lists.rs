//! Lists of what a base has: facts, documents and predicates of a namespace, and the namespaces.

use callboard::messages::Timestamp;
use rusqlite::{Connection, params};
use serde::Serialize;

use super::KnowledgeBase;
use super::error::KnowledgeError;
use super::facts::fact_of;
use super::items::{ItemId, timestamp};
use crate::facts::{Fact, FactState};

/// The beginning of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Beginning<T> {
    /// As many as were asked for.
    pub rows: Vec<T>,
    /// How many the list has.
    pub count: u64,
}

/// A document of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DocumentRow {
    /// Its path.
    pub document: String,
    /// Its title.
    pub title: String,
    /// How many passages it has.
    pub passages: u64,
    /// When it was read.
    #[serde(with = "crate::times")]
    pub read_at: Timestamp,
    /// Nobody vouches for it.
    pub is_untrusted: bool,
}

/// A predicate of a namespace, in normal form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PredicateRow {
    /// Which.
    pub predicate: String,
    /// Whether it has one value at a time; `None` if nothing is declared of it, so that other values are no contradiction.
    pub is_single: Option<bool>,
    /// How many facts have it, without those that no longer hold.
    pub facts: u64,
}

/// A namespace that has documents, facts or declared predicates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamespaceRow {
    /// Which.
    pub namespace: String,
    /// How many documents it has.
    pub documents: u64,
    /// How many facts hold.
    pub current: u64,
    /// How many facts somebody has to decide about.
    pub disputed: u64,
    /// How many facts no longer hold.
    pub invalid: u64,
}

impl KnowledgeBase {
    /// The facts of a namespace that are in one of these states, those first that have been in theirs for the shortest time.
    ///
    /// # Errors
    /// The base cannot be read.
    pub async fn facts(
        &self,
        namespace: &str,
        states: &[FactState],
        limit: usize,
    ) -> Result<Beginning<Fact>, KnowledgeError> {
        let (namespace, names) = (namespace.to_owned(), states.iter().map(|state| format!("'{state}'")));
        let from =
            format!("FROM kb_facts WHERE namespace = ?1 AND state IN ({})", names.collect::<Vec<_>>().join(", "));
        self.read(move |connection| {
            let count = connection.query_row(&format!("SELECT count(*) {from}"), [&namespace], |row| row.get(0))?;
            let mut find =
                connection.prepare(&format!("SELECT item {from} ORDER BY valid_from DESC, item DESC LIMIT ?2"))?;
            let items = find.query_map(params![namespace, limit], |row| row.get(0))?;
            let items = items.collect::<Result<Vec<ItemId>, _>>()?;
            let rows = items.into_iter().map(|item| fact_of(connection, item));
            Ok(Beginning { rows: rows.collect::<Result<_, _>>()?, count })
        })
        .await
    }

    /// The documents of a namespace, by their paths.
    ///
    /// # Errors
    /// The base cannot be read.
    pub async fn documents(&self, namespace: &str, limit: usize) -> Result<Beginning<DocumentRow>, KnowledgeError> {
        let namespace = namespace.to_owned();
        self.read(move |connection| {
            let from = "FROM kb_documents d WHERE d.namespace = ?1 AND d.hash <> x''";
            let count = connection.query_row(&format!("SELECT count(*) {from}"), [&namespace], |row| row.get(0))?;
            let mut find = connection.prepare(&format!(
                "SELECT d.path, d.title, d.read_at, d.is_untrusted,
                     (SELECT count(*) FROM kb_items i WHERE i.document = d.id AND i.ended_at IS NULL)
                 {from} ORDER BY d.path LIMIT ?2"
            ))?;
            let rows = find.query_map(params![namespace, limit], |row| {
                Ok(DocumentRow {
                    document: row.get(0)?,
                    title: row.get(1)?,
                    read_at: timestamp(row.get(2)?),
                    is_untrusted: row.get(3)?,
                    passages: row.get(4)?,
                })
            })?;
            Ok(Beginning { rows: rows.collect::<Result<_, _>>()?, count })
        })
        .await
    }

    /// The predicates of a namespace that are declared or that facts have, in order.
    ///
    /// # Errors
    /// The base cannot be read.
    pub async fn predicates(&self, namespace: &str, limit: usize) -> Result<Beginning<PredicateRow>, KnowledgeError> {
        let namespace = namespace.to_owned();
        self.read(move |connection| {
            let of_facts = "SELECT predicate_form AS form, sum(state <> 'invalid') AS facts FROM kb_facts
                            WHERE namespace = ?1 AND predicate_form IS NOT NULL GROUP BY predicate_form";
            let all = format!(
                "SELECT form, max(facts) AS facts FROM (
                     {of_facts} UNION ALL SELECT form, 0 FROM kb_predicates WHERE namespace = ?1
                 ) GROUP BY form"
            );
            let count =
                connection.query_row(&format!("SELECT count(*) FROM ({all})"), [&namespace], |row| row.get(0))?;
            let mut find = connection.prepare(&format!(
                "SELECT a.form, p.is_single, a.facts FROM ({all}) a
                 LEFT JOIN kb_predicates p ON p.namespace = ?1 AND p.form = a.form ORDER BY a.form LIMIT ?2"
            ))?;
            let rows = find.query_map(params![namespace, limit], |row| {
                Ok(PredicateRow { predicate: row.get(0)?, is_single: row.get(1)?, facts: row.get(2)? })
            })?;
            Ok(Beginning { rows: rows.collect::<Result<_, _>>()?, count })
        })
        .await
    }

    /// The namespaces that have documents, facts or declared predicates, in order.
    ///
    /// # Errors
    /// The base cannot be read.
    pub async fn namespaces(&self, limit: usize) -> Result<Beginning<NamespaceRow>, KnowledgeError> {
        self.read(move |connection| namespaces(connection, limit)).await
    }
}

fn namespaces(connection: &Connection, limit: usize) -> Result<Beginning<NamespaceRow>, KnowledgeError> {
    let all = "SELECT namespace, 0 AS documents, state FROM kb_facts
               UNION ALL SELECT namespace, 1, NULL FROM kb_documents WHERE hash <> x''
               UNION ALL SELECT namespace, 0, NULL FROM kb_predicates";
    let count = format!("SELECT count(DISTINCT namespace) FROM ({all})");
    let count = connection.query_row(&count, [], |row| row.get(0))?;
    let of_state = |state: FactState| format!("count(*) FILTER (WHERE state = '{state}')");
    let states = FactState::ALL.map(of_state).join(", ");
    let mut find = connection.prepare(&format!(
        "SELECT namespace, sum(documents), {states} FROM ({all}) GROUP BY namespace ORDER BY namespace LIMIT ?1"
    ))?;
    let rows = find.query_map([limit], |row| {
        let [documents, current, disputed, invalid] = [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?];
        Ok(NamespaceRow { namespace: row.get(0)?, documents, current, disputed, invalid })
    })?;
    Ok(Beginning { rows: rows.collect::<Result<_, _>>()?, count })
}
