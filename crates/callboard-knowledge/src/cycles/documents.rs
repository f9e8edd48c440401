//! What a document of a model is in the base.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use callboard::messages::Json;

use super::types::{CandidateDoc, InitContext, Related};
use crate::digest;
use crate::entities::Relation;
use crate::indexing::{below, of_file};
use crate::intents::Claim;
use crate::store::{KnowledgeBase, KnowledgeError, NewDocument, NewPassage, PassageGraph, Removed, SUMMARY};
use crate::words::{normalised, words};

/// The most bytes of a passage.
const MAX_PASSAGE: usize = 1_500;

/// The beginning of the paths of what a model wrote about what was read.
pub(super) fn folder_of(name: &str) -> String {
    format!("{SUMMARY}{}/", if name.is_empty() { "." } else { name })
}

/// Ends the documents that were read from a folder or file, by its name in the base, and those that a model wrote about it.
///
/// # Errors
/// The base cannot be changed.
pub async fn end_documents(base: &KnowledgeBase, namespace: &str, name: &str) -> Result<Removed, KnowledgeError> {
    let (file, is_of) = of(name);
    let read = base.end_documents_below(namespace, &file, move |path| !is_of(path)).await?;
    let is_project = name.is_empty();
    let written = if is_project { SUMMARY.to_owned() } else { folder_of(name) };
    let is_elsewhere = move |path: &str| is_project && path[SUMMARY.len()..].starts_with('/');
    let written = base.end_documents_below(namespace, &written, is_elsewhere).await?;
    Ok(Removed { documents: read.documents + written.documents, passages: read.passages + written.passages })
}

/// How many documents that were read from a folder or file are in the base.
///
/// # Errors
/// The base cannot be read.
pub async fn documents_of(base: &KnowledgeBase, namespace: &str, name: &str) -> Result<usize, KnowledgeError> {
    let (file, is_of) = of(name);
    Ok(base.documents_below(namespace, &file).await?.iter().filter(|path| is_of(path)).count())
}

/// The document of a file of this name, and which documents are of a file or folder of this name.
fn of(name: &str) -> (String, impl Fn(&str) -> bool + Send + use<>) {
    let (file, below) = (of_file(name.to_owned()), below(name));
    (file.clone(), move |path| path == file || path.starts_with(&below))
}

/// The documents that have claims, as they are written. Topics that differ in what a path does not have get a number.
pub(super) fn new_documents<'d>(
    context: &InitContext,
    documents: &'d [CandidateDoc],
) -> Vec<(&'d CandidateDoc, NewDocument)> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let with_claims = documents.iter().filter(|document| !document.claims.is_empty());
    let new = with_claims.map(|document| {
        let path = format!("{}{}", folder_of(&context.name), slug(&document.topic));
        let time = times.entry(path.clone()).or_default();
        *time += 1;
        // No slug has this sign.
        let path = if *time == 1 { path } else { format!("{path}.{time}") };
        (document, new_document(path, document))
    });
    new.collect()
}

/// The document as it is written, with a passage for each part of its claims.
fn new_document(path: String, document: &CandidateDoc) -> NewDocument {
    let CandidateDoc { topic, title, is_untrusted, .. } = document;
    let title = if title.is_empty() { topic } else { title };
    let passages: Vec<NewPassage> = parts(document)
        .map(|(text, claims)| NewPassage {
            title: title.clone(),
            anchor: String::new(),
            text,
            lines: line_of(claims.start)..=line_of(claims.end - 1),
            named: Vec::new(),
            links: Vec::new(),
        })
        .collect();
    let texts: Vec<&str> = passages.iter().map(|passage| &*passage.text).collect();
    let hash = digest::bytes(&Json::from(serde_json::json!([title, texts])));
    NewDocument { path, title: title.clone(), hash, is_untrusted: *is_untrusted, passages }
}

fn line_of(claim: usize) -> u32 {
    u32::try_from(claim).unwrap_or(u32::MAX).saturating_add(1)
}

/// The texts of passages, each with the claims that it has.
fn parts(document: &CandidateDoc) -> impl Iterator<Item = (String, Range<usize>)> {
    let mut parts: Vec<(String, Range<usize>)> = Vec::new();
    for (number, claim) in document.claims.iter().enumerate() {
        let written = written(claim);
        match parts.last_mut().filter(|(text, _)| text.len() + written.len() < MAX_PASSAGE) {
            Some((text, claims)) => {
                text.push('\n');
                text.push_str(&written);
                claims.end = number + 1;
            }
            None => parts.push((written, number..number + 1)),
        }
    }
    parts.into_iter()
}

/// A claim as a line, with its citations.
fn written(Claim { text, cites }: &Claim) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{text} [{}]", cites.join("; "))
}

/// A topic as the last part of a path.
fn slug(topic: &str) -> String {
    let words: Vec<String> = words(topic).take(12).map(str::to_lowercase).collect();
    if words.is_empty() { "topic".to_owned() } else { words.join("-") }
}

/// What each passage adds to the graph: the entities and relations whose names its claims have, and the documents that they cite.
pub(super) fn graph_of(document: &CandidateDoc) -> Vec<PassageGraph> {
    let of_part = |(text, claims): (String, Range<usize>)| {
        let claims = &document.claims[claims];
        let named = Names::of(claims);
        let edges = document.relations.iter().filter(|edge| named.has(&edge.source) && named.has(&edge.target));
        let edges = edges.map(|Related { source, relation, target }| {
            (source.clone(), Relation::of_predicate(&normalised(relation)), target.clone())
        });
        let links: BTreeSet<&str> =
            claims.iter().flat_map(|claim| &claim.cites).filter_map(|cite| document_of(cite)).collect();
        PassageGraph {
            text,
            entities: document.entities.iter().filter(|name| named.has(name)).cloned().collect(),
            edges: edges.collect(),
            links: links.into_iter().map(str::to_owned).collect(),
        }
    };
    parts(document).map(of_part).collect()
}

/// The document of a citation such as `docs/auth.md:3-9`; `None` for a fact.
fn document_of(cite: &str) -> Option<&str> {
    let (path, lines) = cite.rsplit_once(':')?;
    lines.starts_with(|first: char| first.is_ascii_digit()).then_some(path)
}

/// Names and relations of a model that the claims have: what is written nowhere is no entity.
pub(super) fn named_in(
    claims: &[Claim],
    entities: Vec<String>,
    relations: Vec<Related>,
) -> (Vec<String>, Vec<Related>) {
    const MAX_ENTITIES: usize = 40;
    let named = Names::of(claims);
    let written: BTreeSet<String> = entities.into_iter().filter(|name| named.has(name)).take(MAX_ENTITIES).collect();
    let is_joined = |edge: &Related| written.contains(&edge.source) && written.contains(&edge.target);
    let relations: BTreeSet<Related> = relations.into_iter().filter(is_joined).take(MAX_ENTITIES).collect();
    (written.into_iter().collect(), relations.into_iter().collect())
}

/// The words of claims, to see whether they have a name.
struct Names(Vec<Vec<String>>);

impl Names {
    fn of(claims: &[Claim]) -> Self {
        Self(claims.iter().map(|claim| forms(&claim.text)).collect())
    }

    /// Whether a claim has the words of the name, one after the other.
    fn has(&self, name: &str) -> bool {
        const MAX_NAME: usize = 100;
        let name = if name.len() > MAX_NAME { Vec::new() } else { forms(name) };
        !name.is_empty() && self.0.iter().any(|claim| claim.windows(name.len()).any(|words| *words == name))
    }
}

fn forms(text: &str) -> Vec<String> {
    words(&normalised(text)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(text: &str, cite: &str) -> Claim {
        Claim { text: text.to_owned(), cites: vec![cite.to_owned()] }
    }

    #[test]
    fn only_names_that_claims_have_are_entities() {
        let claims = [claim("The `Gate` opens, and calls run_loop().", "a.md:1")];
        let related = |source: &str, target: &str| Related {
            source: source.to_owned(),
            relation: "calls".to_owned(),
            target: target.to_owned(),
        };
        let named = ["gate", "run_loop", "Wall", "", "opens and"].map(str::to_owned).to_vec();
        let edges = vec![related("gate", "run_loop"), related("gate", "Wall"), related("opens", "run_loop")];
        let (entities, relations) = named_in(&claims, named, edges);
        assert_eq!(entities, ["gate", "opens and", "run_loop"]);
        assert_eq!(relations, [related("gate", "run_loop")]);
    }

    #[test]
    fn a_long_document_has_passages_whose_lines_are_its_claims() {
        let claims: Vec<Claim> = (0..5).map(|number| claim(&"word ".repeat(120), &format!("a.md:{number}"))).collect();
        let document = CandidateDoc { topic: "On Gates & walls".to_owned(), claims, ..CandidateDoc::default() };
        let again = CandidateDoc { topic: "on gates -- walls?".to_owned(), ..document.clone() };
        let context = InitContext { name: "docs".to_owned(), ..InitContext::default() };
        let documents = [document.clone(), CandidateDoc::default(), again];
        let new = new_documents(&context, &documents);
        let [(_, written), (_, other)] = &new[..] else { panic!() };
        assert_eq!(other.path, "summary:docs/on-gates-walls.2");
        assert_eq!((&*written.path, &*written.title), ("summary:docs/on-gates-walls", "On Gates & walls"));
        let lines: Vec<_> = written.passages.iter().map(|passage| passage.lines.clone()).collect();
        assert_eq!(lines, [1..=2, 3..=4, 5..=5]);
        assert!(written.passages[2].text.ends_with("word [a.md:4]"));
        let graph = graph_of(&document);
        assert!(graph.iter().zip(&written.passages).all(|(graph, passage)| graph.text == passage.text));
        assert_eq!(graph[0].links, ["a.md"]);
    }
}
