//! The steps of a change of a fact: shown, then applied.

use super::asking::IntentError;
use super::envelope::{IntentResult, InvalidatePayload, Refused};
use super::origin::Origin;
use crate::store::{ChangeKind, ChangeRequest, KnowledgeBase, KnowledgeError};

/// Shows what a change would do, or applies what was shown.
#[derive(Clone, Debug)]
pub struct InvalidateOrchestrator {
    base: KnowledgeBase,
    origin: Origin,
}

impl InvalidateOrchestrator {
    /// For a base, with the origin of the change.
    #[must_use]
    pub const fn new(base: KnowledgeBase, origin: Origin) -> Self {
        Self { base, origin }
    }

    /// Shows or applies a change.
    ///
    /// # Errors
    /// The base failed.
    pub async fn change(
        &self,
        namespace: &str,
        principal: &str,
        payload: InvalidatePayload,
    ) -> Result<IntentResult, IntentError> {
        let InvalidatePayload { fact, kind, reason, apply } = payload;
        if let Err(refused) = self.check(kind, apply.is_some()) {
            return Ok(IntentResult::Refused(refused));
        }
        let request = ChangeRequest { kind, fact, reason, by: principal.to_owned(), run: self.origin.run.clone() };
        let changed = async {
            if self.base.fact(fact).await?.namespace != namespace {
                // What another namespace has is not told apart from what nobody has.
                return Err(KnowledgeError::NoSuchFact { id: fact });
            }
            match apply {
                None => self.base.preview(&request).await.map(IntentResult::Preview),
                Some(hash) => self.base.apply(request, &hash, self.origin.key.clone()).await.map(IntentResult::Applied),
            }
        };
        match changed.await {
            Ok(result) => Ok(result),
            Err(error) => Ok(IntentResult::Refused(Refused::of(error)?)),
        }
    }

    /// Whether whoever asks may make such a change.
    fn check(&self, kind: ChangeKind, applies: bool) -> Result<(), Refused> {
        let Origin { by_agent, is_untrusted, is_approved, .. } = self.origin;
        let refused = |code: &str, message: &str| {
            Err(Refused { code: code.to_owned(), message: message.to_owned(), contradictions: Vec::new() })
        };
        if kind == ChangeKind::Accept && by_agent {
            return refused(
                "needs_person",
                "agents do not accept disputed facts: a person does, with `callboard kb accept`",
            );
        }
        if applies && is_untrusted && !is_approved {
            return refused(
                "untrusted",
                "the run has read untrusted input, so it changes no facts: a person does, with `callboard kb invalidate`",
            );
        }
        Ok(())
    }
}
