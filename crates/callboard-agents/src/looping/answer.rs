//! Receives a model's answer as a stream.

use std::time::Duration;

use callboard::actors::{Reservation, TurnError};
use callboard::messages::{AgentEvent, ToolCall, Usage};
use futures::StreamExt;

use crate::model::{
    MAX_CALLS, MAX_REPLY, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream,
};

use super::AgentLoop;
use super::context::Reply;
use super::host::Host;

/// If a provider asks for a longer wait than this, it is not asked again in the turn: the turn's attempts are closer together.
const FAR_OFF: Duration = Duration::from_secs(60);

/// The received part of a model's answer.
struct Heard {
    text: String,
    calls: Vec<ToolCall>,
    /// The size of the answer so far, in bytes.
    size: usize,
    /// `None` if the host counts no tokens.
    reserved: Option<Reservation>,
}

/// The consequence of a piece of an answer.
enum Next {
    Listen,
    /// Another try begins. The reservation of the one before stays spent, because its tokens may have been counted.
    Reserve,
    Done(Box<Reply>),
}

impl AgentLoop {
    /// Asks the model once; `needed` are the tokens of the request and of the longest answer. Keeps no piece of the answer across an await, because an agent waits here most of the time.
    pub(super) fn ask<'a>(
        &'a self,
        host: &'a dyn Host,
        request: ModelRequest,
        needed: u64,
    ) -> impl Future<Output = Result<Reply, TurnError>> + Send + 'a {
        let answer = u64::from(request.max_tokens);
        let most = Usage::of(needed.saturating_sub(answer), answer);
        let cost = self.settings.model.prices().map(|prices| prices.of(most));
        let request = Box::new(request);
        async move {
            let mut heard = Heard { text: String::new(), calls: Vec::new(), size: 0, reserved: None };
            heard.reserved = host.reserve(needed, cost).await?;
            let mut answer = self.call(request, heard.reserved.as_ref());
            loop {
                let next = match answer.next().await {
                    Some(event) => self.hear(host, event, &mut heard)?,
                    None => {
                        let name = self.settings.model.name();
                        return Err(TurnError::transient(format!("model {name}: its answer has no end")));
                    }
                };
                match next {
                    Next::Listen => {}
                    Next::Reserve => heard.reserved = host.reserve(needed, cost).await?,
                    Next::Done(reply) => return Ok(*reply),
                }
            }
        }
    }

    /// Begins the call. The box is freed, which a turn would keep until the model has answered.
    #[allow(clippy::boxed_local, reason = "the caller's future keeps the box in place of the request")]
    fn call(&self, mut request: Box<ModelRequest>, reserved: Option<&Reservation>) -> ModelStream {
        request.trace_parent = reserved.and_then(Reservation::trace_parent);
        self.settings.model.call(*request)
    }

    fn hear(
        &self,
        host: &dyn Host,
        event: Result<ModelEvent, ModelError>,
        heard: &mut Heard,
    ) -> Result<Next, TurnError> {
        let mut next = Next::Listen;
        match event {
            Ok(ModelEvent::Text(text)) => {
                heard.text.push_str(&text);
                heard.size += text.len();
                host.show(AgentEvent::Text { text });
            }
            Ok(ModelEvent::Reasoning(text)) => {
                heard.size += text.len();
                host.show(AgentEvent::Reasoning { text });
            }
            Ok(ModelEvent::ToolCall(call)) => {
                heard.size += call.size();
                heard.calls.push(call);
            }
            Ok(ModelEvent::Failed { model, error, next: follower }) => {
                host.show(AgentEvent::ModelFailed { model, error: error.to_string().into(), next: follower });
                if !error.is_free {
                    next = Next::Reserve;
                }
            }
            Ok(ModelEvent::Ended(answer)) => return Ok(Next::Done(Box::new(heard.ended(answer)))),
            Err(error) => {
                if let Some(reserved) = heard.reserved.take().filter(|_| error.is_free) {
                    drop(reserved.release());
                }
                return Err(self.failed(&error));
            }
        }
        if heard.size > MAX_REPLY || heard.calls.len() > MAX_CALLS {
            let (model, most) = (self.settings.model.name(), MAX_REPLY >> 20);
            let text = format!("model {model}: its answer has more than {most} MiB or {MAX_CALLS} calls");
            return Err(TurnError::terminal(text));
        }
        Ok(next)
    }

    fn failed(&self, error: &ModelError) -> TurnError {
        let text = format!("model {}: {error}", self.settings.model.name());
        if error.kind.needs_person() {
            return TurnError::needs_person(text);
        }
        // Attempts are close together.
        let is_far_off = matches!(error.kind, ModelErrorKind::RateLimited(Some(wait)) if wait > FAR_OFF);
        if error.kind.is_transient() && !is_far_off { TurnError::transient(text) } else { TurnError::terminal(text) }
    }
}

impl Heard {
    fn ended(&mut self, answer: ModelAnswer) -> Reply {
        let ModelAnswer { stop, usage, model, cost, is_estimate } = answer;
        let usage = Usage { cost: cost.unwrap_or_default(), ..usage };
        if let Some(reserved) = self.reserved.take() {
            drop(reserved.settle_by(&model, usage));
        }
        let (text, calls) = (std::mem::take(&mut self.text).into(), std::mem::take(&mut self.calls));
        Reply { text, calls, stop, usage, is_estimate, model, cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FakeModel;
    use crate::looping::context::LoopContext;
    use crate::looping::standalone::Alone;

    #[test]
    fn what_is_kept_of_a_request_while_its_model_is_waited_for_is_small() {
        let (thinker, host) = (AgentLoop::new(FakeModel), Alone::new());
        let request = thinker.request(&host, &LoopContext::default());
        let size = size_of_val(&thinker.ask(&host, request, 0));
        assert!(size <= 200, "{size} bytes");
    }
}
