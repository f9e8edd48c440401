//! How a statement becomes a fact: in one transaction, with everything that follows from it.

use callboard::messages::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KnowledgeBase;
use super::error::KnowledgeError;
use super::facts::{
    compared, declared, fact_id, fact_of, id_of, invalidate, item_of, named, revision, set_state, triple,
};
use super::graph;
use super::history::{self, Entry, Revision, RevisionChange};
use super::items::{self, ItemId, NewItem, millis};
use super::once::once;
use crate::entities::Named;
use crate::facts::{
    Contradiction, Fact, FactId, FactState, OnContradiction, Placement, Source, Statement, Stored, Triple,
    has_one_value, kept_reason, place, predicate_form,
};

/// The most sources of a fact that are kept; more are counted. A trusted one is kept in place of the newest untrusted one, so that no number of
/// untrusted ones hides it.
pub(super) const MAX_SOURCES: i64 = 100;

/// A statement that is submitted.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Where it holds.
    pub namespace: String,
    /// What is known.
    pub statement: Statement,
    /// Where it comes from; the time is that of the change.
    pub source: Source,
    /// Its predicate has one value at a time. That declares it, if nothing is declared of the predicate so far, unless the source is untrusted: then it
    /// is so for this comparison alone.
    pub is_single: bool,
    /// What happens if it contradicts current facts.
    pub on_contradiction: OnContradiction,
    /// Contradictions that a model found.
    pub judged: Vec<Contradiction>,
    /// The facts that were read for that, with their revisions: if one has changed, the submission is refused.
    pub read: Vec<(FactId, u64)>,
    /// Entities and relations beside those that the statement itself has.
    pub named: Vec<Named>,
    /// A submission with a key that was made before is answered as then.
    pub key: Option<String>,
}

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submitted {
    /// The fact, as it is now.
    pub fact: Fact,
    /// Whether there was no such fact before.
    pub is_new: bool,
    /// What it contradicts, and what else is on record to contradict the fact and is not invalid.
    pub contradictions: Vec<Contradiction>,
    /// Facts that have become invalid by it.
    pub superseded: Vec<FactId>,
    /// The fact was known without subject, predicate and value, and stays so: those of the submission are not kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_parts: bool,
    /// The fact was known in other words, with the same subject, predicate and value, and keeps its own: those of the submission find it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_other_words: bool,
    /// The fact was invalid, and was compared anew: the change by which it had become invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_invalid: Option<Box<Revision>>,
}

impl Submitted {
    fn new(fact: Fact, statement: &Statement) -> Self {
        Self {
            is_new: false,
            contradictions: Vec::new(),
            superseded: Vec::new(),
            lacks_parts: statement.triple().is_some() && fact.triple.is_none(),
            has_other_words: fact.id != statement.id(&fact.namespace),
            was_invalid: None,
            fact,
        }
    }
}

impl KnowledgeBase {
    /// Submits a statement: a new fact, or another source of the same one. Everything that follows from it is changed with it.
    ///
    /// # Errors
    /// It was to be refused if it contradicts current facts; a fact has the same words with other parts; a fact that was read for it has changed;
    /// its predicate is declared otherwise, or is to have one value while current facts have several;
    /// the base cannot be changed.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, KnowledgeError> {
        self.write(move |connection, now| {
            once(connection, submission.key.as_deref(), now, || submit(connection, &submission, now))
        })
        .await
    }

    /// Declares whether a predicate has one value at a time.
    ///
    /// # Errors
    /// It is no predicate, as when it is empty; it is to have one value, and current facts of one subject have several; the base cannot be changed.
    pub async fn declare_predicate(
        &self,
        namespace: &str,
        predicate: &str,
        is_single: bool,
    ) -> Result<(), KnowledgeError> {
        let (namespace, form) = (namespace.to_owned(), predicate_form(predicate)?);
        self.write(move |connection, _| declare(connection, &namespace, &form, is_single)).await
    }
}

fn submit(connection: &Connection, submission: &Submission, now: Timestamp) -> Result<Submitted, KnowledgeError> {
    let Submission { namespace, statement, source, on_contradiction, judged, .. } = submission;
    source.check()?;
    for &(id, read) in &submission.read {
        let has = revision(connection, item_of(connection, id)?)?;
        if has != read {
            return Err(KnowledgeError::Changed { id, has, read });
        }
    }
    let is_single = match (declared(connection, namespace, statement)?, statement.triple_form()) {
        (Some(false), Some(triple)) if submission.is_single => {
            return Err(KnowledgeError::Predicate { predicate: triple.predicate.clone(), is_single: false });
        }
        (Some(is_single), _) => is_single,
        (None, Some(triple)) if submission.is_single => {
            if !source.is_untrusted {
                declare(connection, namespace, &triple.predicate, true)?;
            }
            true
        }
        (None, _) => false,
    };
    let mut stored = compared(connection, namespace, statement)?;
    add_named(connection, namespace, judged, &mut stored)?;
    let source = Source { at: now, ..source.clone() };
    let mut placed = place(statement, &stored, is_single, judged, source.is_untrusted, *on_contradiction);
    if let Placement::Same { fact, becomes: Some(_), .. } = placed {
        // A fact that is compared anew contradicts what a model found earlier, too.
        let earlier = judged_earlier(connection, item_of(connection, fact)?)?;
        add_named(connection, namespace, &earlier, &mut stored)?;
        let judged = [&judged[..], &earlier].concat();
        placed = place(statement, &stored, is_single, &judged, source.is_untrusted, *on_contradiction);
    }
    if submission.key.is_some()
        && !matches!(placed, Placement::OtherParts { .. })
        && let Some(item) = submitted_before(connection, statement.id(namespace), &source)?
    {
        return Ok(Submitted::new(fact_of(connection, item)?, statement));
    }
    let (mut restated, mut was_invalid) = (None, None);
    let (item, state, is_new, contradictions, supersedes) = match placed {
        Placement::Refused(contradictions) => return Err(KnowledgeError::Contradicts(contradictions)),
        Placement::OtherParts { known, is_contradiction } => {
            return Err(KnowledgeError::OtherParts { known, is_contradiction });
        }
        Placement::New { state, contradictions, supersedes } => {
            (insert(connection, namespace, statement, state, now)?, Some(state), true, contradictions, supersedes)
        }
        Placement::Same { fact, becomes, is_restated, contradictions, supersedes } => {
            let item = item_of(connection, fact)?;
            if let Some(state) = becomes {
                // Its last change is the one by which it became invalid.
                was_invalid = history::of_item(connection, item)?
                    .pop()
                    .filter(|last| last.state == FactState::Invalid)
                    .map(Box::new);
                set_state(connection, item, state, now)?;
            }
            if is_restated {
                restate(connection, item, statement, now)?;
                restated = Some("it had untrusted sources alone");
            }
            (item, becomes, false, contradictions, supersedes)
        }
    };
    if state.is_some() {
        graph::add_fact(connection, item, namespace, statement, &submission.named)?;
    }
    let is_kept = add_source(connection, item, &source)?;
    remember_form(connection, item, statement.id(namespace))?;
    let why = contradictions.iter().map(|contradiction| &*contradiction.reason);
    let why = restated.into_iter().chain(why).collect::<Vec<_>>().join("; ");
    if is_new || state.is_some() || is_kept {
        let change = match (is_new, state) {
            (true, _) => RevisionChange::Submitted,
            (false, Some(_)) => RevisionChange::SubmittedAgain,
            (false, None) => RevisionChange::AnotherSource,
        };
        history::add(
            connection,
            item,
            &Entry { change, by: &source.by, run: source.run.as_deref(), reason: &why },
            now,
        )?;
    }
    for contradiction in &contradictions {
        let other = item_of(connection, contradiction.fact)?;
        connection
            .prepare_cached(
                "INSERT INTO kb_contradictions (item, other, reason, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            )?
            .execute(params![item, other, kept_reason(&contradiction.reason), millis(now)])?;
    }
    let id = id_of(connection, item)?;
    for &superseded in &supersedes {
        let reason = format!("superseded by {id}");
        let change = RevisionChange::Superseded;
        let entry = Entry { change, by: &source.by, run: source.run.as_deref(), reason: &reason };
        invalidate(connection, superseded, &entry, now)?;
        graph::add_supersession(connection, item, namespace, id, superseded)?;
    }
    let contradictions = with_recorded(connection, item, contradictions)?;
    let submitted = Submitted::new(fact_of(connection, item)?, statement);
    Ok(Submitted { is_new, contradictions, superseded: supersedes, was_invalid, ..submitted })
}

/// Adds the facts that contradictions name to those that a statement is compared with.
fn add_named(
    connection: &Connection,
    namespace: &str,
    contradictions: &[Contradiction],
    stored: &mut Vec<Stored>,
) -> Result<(), KnowledgeError> {
    for Contradiction { fact, .. } in contradictions {
        if stored.iter().all(|known| known.id != *fact) {
            stored.extend(named(connection, namespace, *fact)?);
        }
    }
    Ok(())
}

/// A contradiction that was found when a fact was submitted.
struct Recorded {
    /// The rows of the two facts.
    items: [ItemId; 2],
    /// The one that contradicts the fact that was asked for.
    with: Contradiction,
    /// It follows from the parts of the facts, and not from their words, of which a model judged.
    is_of_parts: bool,
}

/// The contradictions of a fact.
fn recorded(connection: &Connection, item: ItemId) -> Result<Vec<Recorded>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT c.item, c.other, w.fact, c.reason, o.subject_form, o.predicate_form, o.value_form
         FROM kb_contradictions c JOIN kb_facts o ON o.item = c.other
         JOIN kb_facts w ON w.item = CASE c.item WHEN ?1 THEN c.other ELSE c.item END
         WHERE c.item = ?1 OR c.other = ?1 ORDER BY c.item, c.other",
    )?;
    let found = find.query_map([item], |row| {
        let (items, with) = ([row.get(0)?, row.get(1)?], Contradiction { fact: fact_id(row, 2)?, reason: row.get(3)? });
        let is_of_parts = triple(row, 4)?.is_some_and(|triple| has_one_value(&triple) == with.reason);
        Ok(Recorded { items, with, is_of_parts })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Adds what is on record to contradict a fact, unless it is invalid.
fn with_recorded(
    connection: &Connection,
    item: ItemId,
    mut contradictions: Vec<Contradiction>,
) -> Result<Vec<Contradiction>, KnowledgeError> {
    for Recorded { with, .. } in recorded(connection, item)? {
        let is_known = contradictions.iter().any(|known| known.fact == with.fact);
        if !is_known && fact_of(connection, item_of(connection, with.fact)?)?.state != FactState::Invalid {
            contradictions.push(with);
        }
    }
    Ok(contradictions)
}

/// What a model found to contradict the words of a fact.
fn judged_earlier(connection: &Connection, item: ItemId) -> Result<Vec<Contradiction>, KnowledgeError> {
    let found = recorded(connection, item)?.into_iter().filter(|found| !found.is_of_parts);
    Ok(found.map(|found| found.with).collect())
}

/// Replaces what untrusted sources alone have stated: the text and the parts, what the graph has of them, and what these contradict. What a model
/// found about the words stays.
fn restate(connection: &Connection, item: ItemId, statement: &Statement, now: Timestamp) -> Result<(), KnowledgeError> {
    let mut forget = connection.prepare_cached("DELETE FROM kb_contradictions WHERE item = ?1 AND other = ?2")?;
    for found in recorded(connection, item)?.iter().filter(|found| found.is_of_parts) {
        forget.execute(found.items)?;
    }
    items::rewrite(connection, item, statement.triple().map_or("", |triple| &triple.subject), statement.text())?;
    graph::end_item(connection, item, now)?;
    connection
        .prepare_cached("DELETE FROM kb_forms WHERE item = ?1 AND form <> (SELECT fact FROM kb_facts WHERE item = ?1)")?
        .execute([item])?;
    let [subject, predicate, value, subject_form, predicate_form, value_form] = parts(statement);
    connection
        .prepare_cached(
            "UPDATE kb_facts SET subject = ?2, predicate = ?3, value = ?4, subject_form = ?5, predicate_form = ?6,
                 value_form = ?7 WHERE item = ?1",
        )?
        .execute(params![item, subject, predicate, value, subject_form, predicate_form, value_form])?;
    Ok(())
}

/// The columns of the parts: as they are written, and the forms by which they are compared.
fn parts(statement: &Statement) -> [Option<&str>; 6] {
    let both = |part: fn(&Triple) -> &str| [statement.triple().map(part), statement.triple_form().map(part)];
    let ([subject, subject_form], [predicate, predicate_form], [value, value_form]) =
        (both(|triple| &triple.subject), both(|triple| &triple.predicate), both(|triple| &triple.value));
    [subject, predicate, value, subject_form, predicate_form, value_form]
}

fn declare(connection: &Connection, namespace: &str, form: &str, is_single: bool) -> Result<(), KnowledgeError> {
    if is_single {
        let mut find = connection.prepare_cached(
            "SELECT f.fact FROM kb_facts f WHERE f.namespace = ?1 AND f.predicate_form = ?2 AND f.state = 'current' AND EXISTS (
                 SELECT 1 FROM kb_facts o WHERE o.namespace = ?1 AND o.subject_form = f.subject_form
                     AND o.predicate_form = ?2 AND o.state = 'current' AND o.value_form <> f.value_form
             ) ORDER BY f.item LIMIT 10",
        )?;
        let facts = find.query_map([namespace, form], |row| fact_id(row, 0))?.collect::<Result<Vec<FactId>, _>>()?;
        if !facts.is_empty() {
            return Err(KnowledgeError::SeveralValues { predicate: form.to_owned(), facts });
        }
    }
    connection
        .prepare_cached(
            "INSERT INTO kb_predicates (namespace, form, is_single) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET is_single = excluded.is_single",
        )?
        .execute(params![namespace, form, is_single])?;
    Ok(())
}

fn insert(
    connection: &Connection,
    namespace: &str,
    statement: &Statement,
    state: FactState,
    now: Timestamp,
) -> Result<ItemId, KnowledgeError> {
    let title = statement.triple().map_or("", |triple| &triple.subject);
    let item = items::insert(connection, &NewItem { namespace, title, body: statement.text() }, now)?;
    let row = FactRow { item, id: statement.id(namespace), namespace, statement, state, valid_from: now };
    insert_row(connection, &row, 0, 0)?;
    Ok(item)
}

/// A row of the table of facts.
pub(super) struct FactRow<'a> {
    pub(super) item: ItemId,
    pub(super) id: FactId,
    pub(super) namespace: &'a str,
    pub(super) statement: &'a Statement,
    pub(super) state: FactState,
    pub(super) valid_from: Timestamp,
}

/// Adds a row with so many revisions and sources.
pub(super) fn insert_row(
    connection: &Connection,
    row: &FactRow<'_>,
    revision: u64,
    sources: u64,
) -> Result<(), KnowledgeError> {
    let FactRow { item, id, namespace, statement, state, valid_from } = *row;
    let [subject, predicate, value, subject_form, predicate_form, value_form] = parts(statement);
    connection
        .prepare_cached(
            "INSERT INTO kb_facts (item, fact, namespace, subject, predicate, value, subject_form, predicate_form,
                 value_form, state, valid_from, revision, source_count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            item,
            id.0.as_bytes(),
            namespace,
            subject,
            predicate,
            value,
            subject_form,
            predicate_form,
            value_form,
            state.name(),
            millis(valid_from),
            revision,
            sources,
        ])?;
    Ok(())
}

/// Keeps a source of a fact.
pub(super) fn insert_source(
    connection: &Connection,
    item: ItemId,
    ordinal: i64,
    source: &Source,
) -> Result<(), KnowledgeError> {
    let Source { by, place, run, turn, at, is_untrusted } = source;
    connection
        .prepare_cached(
            "INSERT INTO kb_sources (item, ordinal, submitter, place, run, turn, at, is_untrusted)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![item, ordinal, by, place, run, turn, millis(*at), is_untrusted])?;
    Ok(())
}

/// Adds a source; returns whether it is kept, or only counted.
fn add_source(connection: &Connection, item: ItemId, source: &Source) -> Result<bool, KnowledgeError> {
    let mut count = connection
        .prepare_cached("UPDATE kb_facts SET source_count = source_count + 1 WHERE item = ?1 RETURNING source_count")?;
    let count: i64 = count.query_row([item], |row| row.get(0))?;
    if count > MAX_SOURCES && (source.is_untrusted || !drop_untrusted(connection, item)?) {
        return Ok(false);
    }
    insert_source(connection, item, count, source)?;
    Ok(true)
}

/// Removes the newest untrusted source of a fact; returns whether there was one.
fn drop_untrusted(connection: &Connection, item: ItemId) -> Result<bool, KnowledgeError> {
    let mut drop = connection.prepare_cached(
        "DELETE FROM kb_sources WHERE item = ?1
         AND ordinal = (SELECT max(ordinal) FROM kb_sources WHERE item = ?1 AND is_untrusted)",
    )?;
    Ok(drop.execute([item])? > 0)
}

/// The fact with this form, if this turn has submitted it from this place: the result of that may have been forgotten.
fn submitted_before(connection: &Connection, form: FactId, source: &Source) -> Result<Option<ItemId>, KnowledgeError> {
    let Source { by, place, run: Some(run), turn: Some(turn), .. } = source else { return Ok(None) };
    let mut find = connection.prepare_cached(
        "SELECT s.item FROM kb_forms o JOIN kb_sources s ON s.item = o.item
         WHERE o.form = ?1 AND s.submitter = ?2 AND s.place IS ?3 AND s.run = ?4 AND s.turn = ?5 LIMIT 1",
    )?;
    Ok(find.query_row(params![form.0.as_bytes(), by, place, run, turn], |row| row.get(0)).optional()?)
}

/// Has a fact be found by a form. That of its own statement is its own, also if another fact had it.
fn remember_form(connection: &Connection, item: ItemId, form: FactId) -> Result<(), KnowledgeError> {
    connection
        .prepare_cached(
            "INSERT INTO kb_forms (form, item) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET item = excluded.item
             WHERE form = (SELECT fact FROM kb_facts WHERE item = excluded.item)",
        )?
        .execute(params![form.0.as_bytes(), item])?;
    Ok(())
}
