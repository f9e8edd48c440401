//! Typed requests outside any run: each takes a slot of its agent, and no permit.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;

use crate::actors::agent::{AgentValue, TypedAnswer};
use crate::actors::turn::TurnError;
use crate::messages::{AgentName, Refusal};
use crate::supervision::panic_text;

use super::Scheduler;
use super::availability::Availability;
use super::permits::AgentSlot;

impl Scheduler {
    /// Whether the agent answers typed requests instead of turns of runs; `None` while it has no value.
    pub(crate) fn is_typed(&self, name: &AgentName) -> Option<bool> {
        let state = self.state.lock();
        let agent = state.agents.in_use(state.index_of(name.as_str())?)?;
        agent.availability.value().map(|value| value.types().is_some())
    }

    /// Acquires a slot of the agent for a typed request outside any run. `None` if the agent takes no work.
    pub(crate) async fn typed_slot(self: &Arc<Self>, name: &AgentName) -> Result<Option<TypedSlot>, Refusal> {
        let (index, granted) = {
            let mut state = self.state.lock();
            let Some(index) = state.index_of(name.host()) else { return Ok(None) };
            if state.is_closed {
                return Err(Refusal::ShuttingDown);
            }
            self.want(&mut state, index);
            let agent = &mut state.agents[index];
            if let Some(value) = agent.availability.value()
                && let Some(slot) = agent.slots.try_acquire(|| None)
            {
                let (value, generation) = (Arc::clone(value), agent.generation);
                return Ok(Some(TypedSlot::new(self, index, value, generation, slot)));
            }
            if matches!(agent.availability, Availability::Failed(_) | Availability::Stopped { .. }) {
                return Ok(None);
            }
            if agent.typed_requests.len() >= self.ready_bound {
                return Err(Refusal::Overloaded { what: format!("agent {name}"), retry_after: Duration::from_secs(1) });
            }
            let (request, granted) = oneshot::channel();
            agent.typed_requests.push_back(request);
            (index, granted)
        };
        // A dropped sender means that the agent takes no more work.
        let granted = granted.await.ok();
        Ok(granted.map(|(value, generation, slot)| TypedSlot::new(self, index, value, generation, slot)))
    }
}

/// A slot for one typed request; released when dropped.
pub(crate) struct TypedSlot {
    scheduler: Arc<Scheduler>,
    agent: usize,
    value: Arc<dyn AgentValue>,
    generation: u64,
    slot: Option<AgentSlot>,
}

impl TypedSlot {
    fn new(
        scheduler: &Arc<Scheduler>,
        agent: usize,
        value: Arc<dyn AgentValue>,
        generation: u64,
        slot: AgentSlot,
    ) -> Self {
        Self { scheduler: Arc::clone(scheduler), agent, value, generation, slot: Some(slot) }
    }

    /// The types of the agent's requests and replies, if it is a typed one.
    pub(crate) fn types(&self) -> Option<(&'static str, &'static str)> {
        self.value.types()
    }

    /// Begins an answer; returns the request if it is of another type.
    pub(crate) fn answer(&self, request: Box<dyn Any + Send>) -> TypedAnswer {
        catch_unwind(AssertUnwindSafe(|| Arc::clone(&self.value).answer(request))).unwrap_or_else(|panic| {
            let text = panic_text(&*panic);
            self.panicked(&text);
            Ok(std::future::ready(Err(TurnError::transient(format!("panic: {text}")))).boxed())
        })
    }

    /// The answer panicked: the agent is rebuilt.
    pub(crate) fn panicked(&self, text: &str) {
        self.scheduler.discard_value(self.agent, self.generation, None, text);
    }
}

/// Releases the slot and starts what waits for it.
impl Drop for TypedSlot {
    fn drop(&mut self) {
        let mut state = self.scheduler.state.lock();
        self.slot = None;
        state.push_waiting(self.agent);
        self.scheduler.start_waiting(state);
        // A ready turn may have begun.
        self.scheduler.capacity_changed.notify_waiters();
    }
}
