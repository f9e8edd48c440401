//! Writes a base as lines, from one snapshot.

use std::io::Write;

use rusqlite::{Connection, Row};

use super::Transferred;
use super::lines::{Contradiction, Document, Entity, Fact, Graph, Line, Lines, Passage, Predicate, VERSION};
use crate::digest::hex;
use crate::entities::{EntityKind, Relation};
use crate::facts::FactId;
use crate::store::KnowledgeBase;
use crate::store::error::KnowledgeError;
use crate::store::facts::{fact_id, fact_of, id_of};
use crate::store::history;
use crate::store::items::{ItemId, timestamp};

impl KnowledgeBase {
    /// Writes the base, as it is at one moment, as lines of JSON, and flushes them. The memory that it takes does not grow with the base.
    /// The bytes depend on the base alone: an export of an import is the same.
    ///
    /// # Errors
    /// The base cannot be read, or the text not be written.
    pub async fn export<W: Write + Send + 'static>(&self, to: W) -> Result<(W, Transferred), KnowledgeError> {
        self.read(move |connection| export(connection, to)).await
    }
}

fn export<W: Write>(connection: &Connection, to: W) -> Result<(W, Transferred), KnowledgeError> {
    let mut lines = Lines::new(to);
    let mut counts = Transferred::default();
    lines.write(&Line::Version(VERSION))?;
    let mut each = connection.prepare("SELECT namespace, name, kind FROM kb_graph_entities ORDER BY id")?;
    let mut rows = each.query([])?;
    while let Some(row) = rows.next()? {
        let kind: EntityKind = named(row, 2)?;
        lines.write(&Line::Entity(Entity { namespace: row.get(0)?, name: row.get(1)?, kind }))?;
        counts.entities += 1;
    }
    documents(connection, &mut lines, &mut counts)?;
    let mut each = connection.prepare(
        "SELECT f.item, i.since, i.ended_at, f.source_count FROM kb_facts f JOIN kb_items i ON i.id = f.item ORDER BY f.item",
    )?;
    let mut rows = each.query([])?;
    while let Some(row) = rows.next()? {
        lines.write(&Line::Fact(Box::new(fact(connection, row)?)))?;
        counts.facts += 1;
    }
    let mut each = connection.prepare("SELECT item, other, reason, at FROM kb_contradictions ORDER BY item, other")?;
    let mut rows = each.query([])?;
    while let Some(row) = rows.next()? {
        let (fact, other) = (id_of(connection, row.get(0)?)?, id_of(connection, row.get(1)?)?);
        let (reason, at) = (row.get(2)?, timestamp(row.get(3)?));
        lines.write(&Line::Contradiction(Contradiction { fact, other, reason, at }))?;
        counts.contradictions += 1;
    }
    let mut each =
        connection.prepare("SELECT namespace, form, is_single FROM kb_predicates ORDER BY namespace, form")?;
    let mut rows = each.query([])?;
    while let Some(row) = rows.next()? {
        let predicate = Predicate { namespace: row.get(0)?, form: row.get(1)?, is_single: row.get(2)? };
        lines.write(&Line::Predicate(predicate))?;
        counts.predicates += 1;
    }
    Ok((lines.end(counts)?, counts))
}

fn documents<W: Write>(
    connection: &Connection,
    lines: &mut Lines<W>,
    counts: &mut Transferred,
) -> Result<(), KnowledgeError> {
    let mut each = connection
        .prepare("SELECT id, namespace, path, title, hash, read_at, is_untrusted FROM kb_documents ORDER BY id")?;
    let mut passages = connection.prepare(
        "SELECT id, ordinal, anchor, first_line, last_line, title, body, since, ended_at FROM kb_items
         WHERE document = ?1 ORDER BY id",
    )?;
    let mut rows = each.query([])?;
    while let Some(row) = rows.next()? {
        let hash: Vec<u8> = row.get(4)?;
        lines.write(&Line::Document(Document {
            namespace: row.get(1)?,
            path: row.get(2)?,
            title: row.get(3)?,
            hash: (!hash.is_empty()).then(|| hex(&hash)),
            read_at: timestamp(row.get(5)?),
            is_untrusted: row.get(6)?,
        }))?;
        counts.documents += 1;
        let mut of_document = passages.query([row.get::<_, i64>(0)?])?;
        while let Some(row) = of_document.next()? {
            let item = row.get(0)?;
            lines.write(&Line::Passage(Passage {
                item,
                ordinal: row.get(1)?,
                anchor: row.get(2)?,
                lines: [row.get(3)?, row.get(4)?],
                title: row.get(5)?,
                text: row.get(6)?,
                since: timestamp(row.get(7)?),
                ended_at: row.get::<_, Option<i64>>(8)?.map(timestamp),
                graph: graph(connection, item)?,
            }))?;
            counts.passages += 1;
        }
    }
    Ok(())
}

fn fact(connection: &Connection, row: &Row<'_>) -> Result<Fact, KnowledgeError> {
    let item = row.get(0)?;
    let crate::facts::Fact { id, namespace, statement, triple, sources, state, valid_from, revision } =
        fact_of(connection, item)?;
    let mut forms = connection.prepare_cached("SELECT form FROM kb_forms WHERE item = ?1 ORDER BY form")?;
    let forms = forms.query_map([item], |row| fact_id(row, 0))?.collect::<Result<Vec<FactId>, _>>()?;
    Ok(Fact {
        item,
        id,
        namespace,
        statement,
        triple,
        state,
        valid_from,
        since: timestamp(row.get(1)?),
        ended_at: row.get::<_, Option<i64>>(2)?.map(timestamp),
        revision,
        source_count: row.get(3)?,
        sources,
        forms,
        history: history::of_item(connection, item)?,
        graph: graph(connection, item)?,
    })
}

fn graph(connection: &Connection, item: ItemId) -> Result<Graph, KnowledgeError> {
    let mut names = connection.prepare_cached(
        "SELECT e.form, m.relation FROM kb_graph_mentions m JOIN kb_graph_entities e ON e.id = m.entity
         WHERE m.item = ?1 AND m.deleted_at IS NULL ORDER BY e.form, m.relation",
    )?;
    let names = names.query_map([item], |row| Ok((row.get(0)?, named::<Relation>(row, 1)?)))?;
    let names = names.collect::<Result<_, _>>()?;
    let mut edges = connection.prepare_cached(
        "SELECT s.form, g.relation, t.form FROM kb_graph_provenance p JOIN kb_graph_edges g ON g.id = p.edge
         JOIN kb_graph_entities s ON s.id = g.source JOIN kb_graph_entities t ON t.id = g.target
         WHERE p.item = ?1 AND p.deleted_at IS NULL ORDER BY s.form, g.relation, t.form",
    )?;
    let edges = edges.query_map([item], |row| Ok((row.get(0)?, named::<Relation>(row, 1)?, row.get(2)?)))?;
    let edges = edges.collect::<Result<_, _>>()?;
    Ok(Graph { names, edges })
}

/// What a column names, by its name in JSON.
fn named<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_value(serde_json::Value::String(row.get(column)?))
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into()))
}
