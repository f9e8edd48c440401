//! Sends statuses, each in a transaction of its own: one that is sent again after its answer was lost is there once.

use std::sync::Arc;

use callboard::runtime::RunError;

use super::Shared;
use super::ledger::{Request, Step};
use super::status::{Status, answer};
use crate::matrix::api::CallError;
use crate::matrix::tasks::transaction;

impl Shared {
    /// Sends what is left to send.
    pub(super) async fn send(self: Arc<Self>) {
        let (kept, following) = (&self.opened.kept, &self.opened.following);
        let (mut delays, mut changes) = (kept.delays(), kept.changes());
        loop {
            changes.mark_unchanged();
            let next = kept.ledger().next(following.rooms.lock().ready());
            // What is sent is kept before: what is sent again has the same transaction.
            kept.save().await;
            let Some((event, request, step)) = next else {
                if changes.changed().await.is_err() {
                    return;
                }
                continue;
            };
            match self.send_one(&event, &request, &step).await {
                Ok(()) => delays = kept.delays(),
                Err(error) => {
                    tracing::debug!(%error, "a status of a request on Matrix is not sent yet");
                    following.wait(kept, &error, &mut delays).await;
                }
            }
        }
    }

    /// # Errors
    /// The status is to be sent again.
    async fn send_one(&self, event: &str, request: &Request, step: &Step) -> Result<(), CallError> {
        let (kept, following) = (&self.opened.kept, &self.opened.following);
        let (name, status) = match step {
            Step::Acknowledge => ("ack".to_owned(), Status::acknowledged(request.agent.as_str(), request.run)),
            Step::Notice { number, text } => (format!("notice.{number}"), Status::noticed(text)),
            Step::Result => ("end".to_owned(), self.ending(request).await?),
            Step::Refuse(why) => ("end".to_owned(), Status::refused(why)),
        };
        let (kind, content) = answer(&self.opened.config.prefix, event, request, &status);
        match following.api.send((&request.room, &kind), &transaction(event, &name), &content).await {
            Ok(_) => {
                following.note_refusing(&request.room, None);
                kept.change(|ledger| ledger.sent(event, step));
            }
            Err(error) => {
                let error = error.of_room()?;
                following.note_refusing(&request.room, Some(&error));
                tracing::warn!(room = request.room, error, "a room of Matrix does not take a status");
                kept.change(|ledger| ledger.hold(event));
            }
        }
        Ok(())
    }

    /// How the run of a request has ended.
    async fn ending(&self, request: &Request) -> Result<Status, CallError> {
        let Some(run) = request.run else { return Ok(Status::refused("it has no run")) };
        match self.board.run(run).read().await {
            Ok(fold) => Ok(match fold.result() {
                Some(result) => Status::of_result(result, &(self.opened.config.how_to_see)(&run)),
                None => return Err(CallError::Unreachable("a run that has ended is read again".to_owned())),
            }),
            Err(RunError::Storage(error)) => Err(CallError::Unreachable(error.to_string())),
            Err(error) => Ok(Status::refused(&error.to_string())),
        }
    }
}
