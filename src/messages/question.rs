//! Questions of turns to people.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{AgentName, Json, RequestId, Timestamp};

/// A pending question as a front end shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The id that [`PeopleHandle::answer`](crate::runtime::PeopleHandle::answer) takes.
    pub id: QuestionId,
    /// The agent whose turn asks.
    pub agent: AgentName,
    /// The question as the agent asked it; for an effect whose outcome is unknown,
    /// [`AskedOutcome::question`](super::AskedOutcome::question).
    pub question: Json,
    /// When the question was asked, by the wall clock.
    pub asked_at: Timestamp,
    /// When the turn stops waiting for an answer; `None` if it does not expire.
    pub expires_at: Option<Timestamp>,
}

impl Question {
    /// Its text, without choices: the member `question` where it is an object with one, the text where it is one, and JSON otherwise.
    /// Untrusted, as the agent wrote it.
    #[must_use]
    pub fn text(&self) -> String {
        let text = self.question.get("question").and_then(serde_json::Value::as_str).or(self.question.as_str());
        text.map_or_else(|| self.question.to_string(), str::to_owned)
    }

    /// What a person types to have run again what may have run already ([`AskedOutcome`](super::AskedOutcome)): four hexadecimal digits of the hash of
    /// this question, so that nothing that was typed before it was shown can be meant. `None` for any other question.
    #[must_use]
    pub fn outcome_code(&self) -> Option<String> {
        const BYTES: usize = 2;
        self.question.get("outcome_unknown")?;
        let QuestionId { request, nonce } = self.id;
        let hash = Sha256::digest(format!("{request} {nonce} {}", self.question));
        Some(hash.iter().take(BYTES).map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Names a question of a turn; the nonce keeps an answer from reaching another question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuestionId {
    /// The turn that asks, and which of its requests the question is.
    pub request: RequestId,
    /// A random number, drawn when the question was asked.
    pub nonce: u64,
}
