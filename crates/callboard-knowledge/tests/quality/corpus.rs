//! The corpus in a base, the questions about it, and which results answer them.

use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::documents::{ReadLimits, read_document};
use callboard_knowledge::search::{Found, Grounded};
use callboard_knowledge::store::NewDocument;
use xtask::corpus::CrateText;
use xtask::corpus::questions::record::{self, Question};

/// How many documents are written in one transaction.
const BATCH: usize = 64;

/// The namespace of the corpus.
pub(crate) const NAMESPACE: &str = "corpus";

/// The questions that are held back, or those that are not.
pub(crate) fn questions(held_back: bool) -> Vec<Question> {
    let mut questions = record::read(include_str!("questions.jsonl")).unwrap();
    questions.retain(|question| question.held_back == held_back);
    questions
}

/// The documents of crates, as a folder of them is read.
pub(crate) fn documents(crates: &[CrateText]) -> Vec<NewDocument> {
    let texts = crates.iter().flat_map(|one| &one.extracted.documents);
    let read = texts.map(|text| read_document(&text.path, text.text.as_bytes(), &ReadLimits::default()).unwrap());
    read.map(|document| NewDocument::of(document, false)).collect()
}

/// Writes documents into a base. Returns how many passages they have.
pub(crate) async fn write(base: &KnowledgeBase, documents: Vec<NewDocument>) -> usize {
    let mut passages = 0;
    for batch in documents.chunks(BATCH) {
        passages += base.write_documents(NAMESPACE, batch.to_vec()).await.unwrap().added;
    }
    passages
}

/// Whether a passage is, or is within, a section that answers.
pub(crate) fn answers(question: &Question, document: &str, title: &str) -> bool {
    question.answers.iter().any(|answer| {
        let rest = title.strip_prefix(&*answer.section);
        answer.document == document && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" > "))
    })
}

/// The place of the first result that answers, from 1.
pub(crate) fn rank(question: &Question, results: &[Grounded]) -> Option<usize> {
    let is_right = |result: &Grounded| match &result.found {
        Found::Passage { document, title, .. } => answers(question, document, title),
        Found::Fact(_) => false,
    };
    results.iter().position(is_right).map(|place| place + 1)
}
