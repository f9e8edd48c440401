//! The graph of entities: what mentions or defines them, and what joins them.

use callboard::messages::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::error::KnowledgeError;
use super::items::{ItemId, millis};
use crate::entities::{EntityKind, Named, Relation};
use crate::facts::{FactId, Statement};
use crate::words::{is_identifier, normalised, words};

/// The most entities of one row.
const MAX_NAMED: usize = 200;

/// Adds what a fact names: its identifiers, its subject and its value, which an edge joins, and what else was found in it.
pub(super) fn add_fact(
    connection: &Connection,
    item: ItemId,
    namespace: &str,
    statement: &Statement,
    found: &[Named],
) -> Result<(), KnowledgeError> {
    for name in words(statement.text()).filter(|word| is_identifier(word)).take(MAX_NAMED) {
        mention(connection, item, namespace, name, EntityKind::Identifier, Relation::Mentions)?;
    }
    for Named { name, kind, relation } in found.iter().take(MAX_NAMED) {
        mention(connection, item, namespace, name, *kind, *relation)?;
    }
    if let (Some(written), Some(form)) = (statement.triple(), statement.triple_form()) {
        let source = mention(connection, item, namespace, &written.subject, EntityKind::Thing, Relation::Defines)?;
        let target = mention(connection, item, namespace, &written.value, EntityKind::Thing, Relation::Mentions)?;
        if let (Some(source), Some(target)) = (source, target) {
            join(connection, item, source, target, Relation::of_predicate(&form.predicate))?;
        }
    }
    Ok(())
}

/// Joins a fact to the one whose place it takes.
pub(super) fn add_supersession(
    connection: &Connection,
    item: ItemId,
    namespace: &str,
    new: FactId,
    old: FactId,
) -> Result<(), KnowledgeError> {
    let source = mention(connection, item, namespace, &new.to_string(), EntityKind::Fact, Relation::Defines)?;
    let target = mention(connection, item, namespace, &old.to_string(), EntityKind::Fact, Relation::Supersedes)?;
    if let (Some(source), Some(target)) = (source, target) {
        join(connection, item, source, target, Relation::Supersedes)?;
    }
    Ok(())
}

/// Adds that a row names an entity. Returns the entity, unless nothing is left of its name.
pub(super) fn mention(
    connection: &Connection,
    item: ItemId,
    namespace: &str,
    name: &str,
    kind: EntityKind,
    relation: Relation,
) -> Result<Option<i64>, KnowledgeError> {
    let form = normalised(name);
    if form.is_empty() {
        return Ok(None);
    }
    let mut find = connection.prepare_cached("SELECT id FROM kb_graph_entities WHERE namespace = ?1 AND form = ?2")?;
    let entity = match find.query_row([namespace, &form], |row| row.get(0)).optional()? {
        Some(entity) => entity,
        None => {
            connection
                .prepare_cached("INSERT INTO kb_graph_entities (namespace, form, name, kind) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![namespace, form, name.trim(), kind.name()])?;
            connection.last_insert_rowid()
        }
    };
    connection
        .prepare_cached(
            "INSERT INTO kb_graph_mentions (entity, item, relation) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET deleted_at = NULL",
        )?
        .execute(params![entity, item, relation.name()])?;
    Ok(Some(entity))
}

/// Adds an edge, or this row as one more that supports it.
pub(super) fn join(
    connection: &Connection,
    item: ItemId,
    source: i64,
    target: i64,
    relation: Relation,
) -> Result<(), KnowledgeError> {
    if source == target {
        return Ok(());
    }
    let values = params![source, target, relation.name()];
    let mut find = connection
        .prepare_cached("SELECT id FROM kb_graph_edges WHERE source = ?1 AND target = ?2 AND relation = ?3")?;
    let edge = match find.query_row(values, |row| row.get(0)).optional()? {
        Some(edge) => edge,
        None => {
            connection
                .prepare_cached("INSERT INTO kb_graph_edges (source, target, relation) VALUES (?1, ?2, ?3)")?
                .execute(values)?;
            connection.last_insert_rowid()
        }
    };
    connection
        .prepare_cached(
            "INSERT INTO kb_graph_provenance (edge, item) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET deleted_at = NULL",
        )?
        .execute([edge, item])?;
    Ok(())
}

/// Marks what a row supports, and deletes the edges that nothing supports any more.
pub(super) fn end_item(connection: &Connection, item: ItemId, now: Timestamp) -> Result<(), KnowledgeError> {
    let values = params![item, millis(now)];
    connection
        .prepare_cached("UPDATE kb_graph_mentions SET deleted_at = ?2 WHERE item = ?1 AND deleted_at IS NULL")?
        .execute(values)?;
    let mut mark = connection.prepare_cached(
        "UPDATE kb_graph_provenance SET deleted_at = ?2 WHERE item = ?1 AND deleted_at IS NULL RETURNING edge",
    )?;
    let edges: Vec<i64> = mark.query_map(values, |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut delete = connection.prepare_cached(
        "DELETE FROM kb_graph_edges WHERE id = ?1
         AND NOT EXISTS (SELECT 1 FROM kb_graph_provenance WHERE edge = ?1 AND deleted_at IS NULL)",
    )?;
    for edge in edges {
        delete.execute([edge])?;
    }
    Ok(())
}
