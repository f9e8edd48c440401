//! A base in a folder of its own, and what tests submit to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callboard::env::{Clock, Env, Now};
use callboard::messages::Timestamp;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::facts::{FactId, OnContradiction, Source, Statement, Triple};
use callboard_knowledge::store::{ChangeKind, ChangeRequest, NewDocument, NewPassage, Submission, Submitted};
use tempfile::TempDir;

/// A base whose clock is moved by hand.
pub(crate) struct Base {
    pub(crate) base: KnowledgeBase,
    pub(crate) clock: Hands,
    pub(crate) folder: TempDir,
}

#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<AtomicU64>);

impl Hands {
    pub(crate) fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Now {
        let millis = self.0.load(Ordering::SeqCst);
        Now { monotonic: Duration::from_millis(millis), wall: Timestamp::from_millis(millis) }
    }
}

impl Base {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Hands::default();
        clock.set(1_000);
        let base = KnowledgeBase::create(&folder.path().join("knowledge.db"), &Env::new(clock.clone(), 7)).unwrap();
        Self { base, clock, folder }
    }

    pub(crate) async fn submit(&self, statement: &str) -> Submitted {
        self.base.submit(submission(statement)).await.unwrap()
    }

    pub(crate) async fn write(&self, path: &str, passages: &[(&str, &str)]) {
        self.base.write_documents("default", vec![document(path, passages)]).await.unwrap();
    }
}

pub(crate) fn source(by: &str) -> Source {
    Source { by: by.to_owned(), place: None, run: None, turn: None, at: Timestamp::default(), is_untrusted: false }
}

pub(crate) fn submission(statement: &str) -> Submission {
    Submission {
        namespace: "default".to_owned(),
        statement: Statement::new(statement, None).unwrap(),
        source: source("ann"),
        is_single: false,
        on_contradiction: OnContradiction::Dispute,
        judged: Vec::new(),
        read: Vec::new(),
        named: Vec::new(),
        key: None,
    }
}

/// The same submission of somebody for whom nobody vouches, or of a run that had read untrusted input.
pub(crate) fn untrusted(submission: Submission) -> Submission {
    Submission { source: Source { is_untrusted: true, ..source("mallory") }, ..submission }
}

/// "SUBJECT PREDICATE VALUE", of which the predicate has one value at a time.
pub(crate) fn single(subject: &str, predicate: &str, value: &str) -> Submission {
    let triple = Triple { subject: subject.into(), predicate: predicate.into(), value: value.into() };
    let statement = Statement::new(&format!("{subject} {predicate} {value}"), Some(triple)).unwrap();
    Submission { statement, is_single: true, ..submission("x") }
}

/// A document with a passage for each title and text.
pub(crate) fn document(path: &str, passages: &[(&str, &str)]) -> NewDocument {
    let mut hash = [0_u8; 32];
    for (place, byte) in passages.iter().flat_map(|(title, text)| title.bytes().chain(text.bytes())).enumerate() {
        hash[place % 32] = hash[place % 32].wrapping_mul(31).wrapping_add(byte);
    }
    let passages = passages.iter().zip(1..).map(|((title, text), line)| NewPassage {
        title: (*title).to_owned(),
        anchor: String::new(),
        text: (*text).to_owned(),
        lines: line..=line,
        named: Vec::new(),
        links: Vec::new(),
    });
    NewDocument {
        path: path.to_owned(),
        title: path.to_owned(),
        hash,
        is_untrusted: false,
        passages: passages.collect(),
    }
}

pub(crate) fn change(kind: ChangeKind, fact: FactId) -> ChangeRequest {
    ChangeRequest { kind, fact, reason: "it is so".to_owned(), by: "ann".to_owned(), run: None }
}

/// Shows a change and applies it.
pub(crate) async fn applied(base: &Base, kind: ChangeKind, fact: FactId) {
    let request = change(kind, fact);
    let preview = base.base.preview(&request).await.unwrap();
    base.base.apply(request, &preview.hash, None).await.unwrap();
}
