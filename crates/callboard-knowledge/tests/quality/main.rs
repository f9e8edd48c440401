//! Deep queries find the answers of the questions about the part of the corpus that CI uses.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod corpus;

use callboard::env::Env;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::search::ReadFacts;

/// The share of the questions with an answer in the first five results that is required; a little less than what was measured.
const LEAST_RECALL: f64 = 0.92;

#[tokio::test]
async fn deep_queries_find_answers_in_their_first_five_results() {
    let mut questions = corpus::questions(false);
    questions.retain(|question| question.ci);
    let folder = tempfile::tempdir().unwrap();
    let base = KnowledgeBase::create(&folder.path().join("knowledge.db"), &Env::repeatable(7)).unwrap();
    let documents = corpus::documents(&xtask::corpus::corpus(true).unwrap());
    assert!(corpus::write(&base, documents).await > 5_000);
    let mut right = 0.0;
    for question in &questions {
        let query = ReadFacts { limit: 5, ..ReadFacts::new(corpus::NAMESPACE, &question.question) };
        let found = base.read_facts(query).await.unwrap();
        right += f64::from(corpus::rank(question, &found.results).is_some());
    }
    #[expect(clippy::cast_precision_loss, reason = "questions are few")]
    let recall = right / questions.len() as f64;
    assert!(recall >= LEAST_RECALL, "the recall is {recall}");
}
