//! One call: the candidates are asked one after the other until one answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use callboard::supervision::runs::Signal;
use futures::StreamExt;

use crate::model::{ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};

use super::admitted::Admitted;
use super::failure::{Then, after, signal, together};
use super::registry::{Listed, Registry};

struct Call {
    registry: Arc<Registry>,
    request: ModelRequest,
    ahead: VecDeque<Arc<Listed>>,
    failed: Vec<(Arc<str>, ModelError)>,
    candidate: Option<Candidate>,
    is_over: bool,
}

/// The model that is being asked.
struct Candidate {
    listed: Arc<Listed>,
    admitted: Admitted,
    retries: u32,
    has_spoken: bool,
    then: Asking,
}

enum Asking {
    /// It is asked after this time.
    Later(Duration),
    Answering(ModelStream),
}

type EventResult = Result<ModelEvent, ModelError>;

pub(super) fn call(registry: &Arc<Registry>, ahead: Vec<Arc<Listed>>, request: ModelRequest) -> ModelStream {
    let call = Call {
        registry: Arc::clone(registry),
        request,
        ahead: ahead.into(),
        failed: Vec::new(),
        candidate: None,
        is_over: false,
    };
    futures::stream::unfold(call, |mut call| async move {
        let event = call.next().await?;
        if let Ok(ModelEvent::Failed { .. }) = event {
            // What follows is another try.
            call.request.trace_parent = call.request.trace_parent.map(|span| span.next_try());
        }
        Some((event, call))
    })
    .boxed()
}

impl Call {
    async fn next(&mut self) -> Option<EventResult> {
        if self.is_over {
            return None;
        }
        loop {
            let Some(candidate) = &mut self.candidate else {
                match self.admit() {
                    Some(event) => return Some(event),
                    None => continue,
                }
            };
            match &mut candidate.then {
                Asking::Later(wait) => {
                    if !wait.is_zero() {
                        tokio::time::sleep(*wait).await;
                    }
                    let share = self.registry.share.lock().clone();
                    candidate.listed.gate.acquire(&share).await;
                    candidate.listed.provider.acquire(&share).await;
                    let mut request = self.request.clone();
                    if let Some(most) = candidate.listed.entry.max_output {
                        request.max_tokens = request.max_tokens.min(most);
                    }
                    candidate.then = Asking::Answering(candidate.listed.entry.model.call(request));
                }
                Asking::Answering(stream) => {
                    let event = stream.next().await.unwrap_or_else(|| {
                        let text = "the answer ended without saying that it was complete";
                        Err(ModelError::new(ModelErrorKind::CutOff, text))
                    });
                    match event {
                        Ok(ModelEvent::Ended(answer)) => return Some(Ok(self.answered(answer))),
                        Ok(event @ (ModelEvent::Text(_) | ModelEvent::Reasoning(_) | ModelEvent::ToolCall(_))) => {
                            candidate.has_spoken = true;
                            return Some(Ok(event));
                        }
                        Ok(event @ ModelEvent::Failed { .. }) => return Some(Ok(event)),
                        Err(error) => return Some(self.failed(error)),
                    }
                }
            }
        }
    }

    /// Admits the next candidate. Reports an open breaker.
    fn admit(&mut self) -> Option<EventResult> {
        let Some(listed) = self.ahead.pop_front() else { return Some(self.give_up()) };
        match Admitted::new(&listed, &self.registry.env, self.registry.policy.breaker) {
            Ok(admitted) => {
                let then = Asking::Later(Duration::ZERO);
                self.candidate = Some(Candidate { listed, admitted, retries: 0, has_spoken: false, then });
                None
            }
            Err((whose, wait)) => {
                let text = format!(
                    "the circuit breaker of the {whose} is open after repeated failures; it may be asked again in {} s",
                    wait.as_secs_f64().ceil()
                );
                Some(self.on_to_the_next(&listed, ModelError::new(ModelErrorKind::NotSent, text)))
            }
        }
    }

    fn answered(&mut self, mut answer: ModelAnswer) -> ModelEvent {
        self.is_over = true;
        if let Some(mut candidate) = self.candidate.take() {
            candidate.admitted.end(Signal::Success);
            let entry = &candidate.listed.entry;
            answer.model = Arc::clone(&entry.name);
            answer.cost = entry.prices.map(|prices| prices.of(answer.usage)).or(answer.cost);
        }
        ModelEvent::Ended(answer)
    }

    fn failed(&mut self, error: ModelError) -> EventResult {
        let Some(mut candidate) = self.candidate.take() else { return Err(error) };
        let Registry { policy, env, .. } = &*self.registry;
        match after(&error.kind, candidate.has_spoken, candidate.retries, policy, env.random()) {
            Then::Again(wait) => {
                let name = Arc::clone(&candidate.listed.entry.name);
                self.candidate =
                    Some(Candidate { retries: candidate.retries + 1, then: Asking::Later(wait), ..candidate });
                Ok(ModelEvent::Failed { model: Arc::clone(&name), error, next: name })
            }
            Then::Next => {
                candidate.admitted.end(signal(error.kind));
                self.on_to_the_next(&candidate.listed, error)
            }
            Then::GiveUp => {
                candidate.admitted.end(signal(error.kind));
                self.is_over = true;
                Err(error)
            }
        }
    }

    fn on_to_the_next(&mut self, listed: &Listed, error: ModelError) -> EventResult {
        let model = Arc::clone(&listed.entry.name);
        self.failed.push((Arc::clone(&model), error.clone()));
        match self.ahead.front() {
            Some(next) => Ok(ModelEvent::Failed { model, error, next: Arc::clone(&next.entry.name) }),
            None => self.give_up(),
        }
    }

    fn give_up(&mut self) -> EventResult {
        self.is_over = true;
        Err(together(std::mem::take(&mut self.failed)))
    }
}
