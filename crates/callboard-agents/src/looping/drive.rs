//! The loop itself.

use std::future::Future;

use callboard::actors::{Turn, TurnError};
use callboard::messages::{AgentEvent, Command, LoopEnd, Message};
use futures::FutureExt;
use parking_lot::Mutex;

use super::AgentLoop;
use super::context::{After, LoopContext};
use super::finish::Finish;
use super::host::Host;
use super::in_turn::InTurn;

impl AgentLoop {
    /// Runs it in a turn of a board: each answer of the model and each use of a tool is a step.
    ///
    /// # Errors
    /// The model cannot be asked, has not answered in time, or the turn cannot go on.
    pub fn turn<'a>(
        &'a self,
        turn: &'a Turn,
        messages: Vec<Message>,
    ) -> impl Future<Output = Result<Command, TurnError>> + Send + 'a {
        let context = Mutex::new(LoopContext::begin(messages));
        async move {
            let finish = self.drive(&InTurn::new(turn), &context).await;
            let end = match &finish {
                Ok(finish) => finish.end(),
                Err(error) => LoopEnd::Failed(error.to_string().into()),
            };
            turn.show(AgentEvent::Ended { end });
            match finish? {
                Finish::Answered(output) => Ok(Command::output(output)),
                Finish::HandedOff(command) => Ok(*command),
                Finish::Failed(why) => Err(TurnError::terminal(&*why)),
                Finish::IterationLimit => Err(TurnError::terminal(format!(
                    "the model was asked {} times and wants tools still: raise max_iterations, or ask for less",
                    self.settings.max_iterations
                ))),
            }
        }
    }

    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` has room for its arguments twice, and most agents wait here"
    )]
    pub(super) fn drive<'a>(
        &'a self,
        host: &'a dyn Host,
        context: &'a Mutex<LoopContext>,
    ) -> impl Future<Output = Result<Finish, TurnError>> + Send + 'a {
        async move {
            loop {
                // Boxed to keep the loop's future small: it waits for its model most of the time.
                if self.settings.compact_at.is_some() {
                    self.compact(host, context).boxed().await?;
                }
                let asked = match self.next_request(host, context) {
                    Ok((request, needed)) => host.ask_model(self.ask(host, request, needed).boxed()),
                    Err(finish) => return Ok(finish),
                };
                // The reply is not kept while its tools are used.
                let after = {
                    let reply = asked.await?;
                    host.show(reply.usage());
                    context.lock().replied(reply)
                };
                match after {
                    After::Fail(why) => return Ok(Finish::Failed(why.into())),
                    After::Answer(text) => {
                        if let Some(finish) = self.judged(host, context, &text) {
                            return Ok(finish);
                        }
                    }
                    After::Use(calls) => {
                        if let Some(handoff) = self.use_tools(host, context, calls).boxed().await? {
                            return Ok(Finish::HandedOff(Box::new(handoff)));
                        }
                    }
                }
            }
        }
    }
}
