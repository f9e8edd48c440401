//! Places for typed requests outside any run: a slot, and no permit.

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

use super::{AgentStatus, Floor};

impl Floor {
    /// Whether the agent answers typed requests, and has no turns of runs; unknown while there is no value of it.
    pub(crate) fn is_typed(&self, name: &AgentName) -> Option<bool> {
        let state = self.state.lock();
        let place = &state.places[*state.names.get(name)?];
        place.value.as_ref().map(|value| value.types().is_some())
    }

    /// A place at the agent for a typed request outside any run: a slot and no permit. `None` when the agent is gone.
    pub(crate) async fn ask_place(self: &Arc<Self>, name: &AgentName) -> Result<Option<AskPlace>, Refusal> {
        let (index, turn) = {
            let mut state = self.state.lock();
            let Some(index) = state.names.get(name.host()).copied() else { return Ok(None) };
            if state.is_closed {
                return Err(Refusal::ShuttingDown);
            }
            let place = &mut state.places[index];
            if let (Some(value), true) = (&place.value, place.busy < place.slots) {
                let (value, generation) = (Arc::clone(value), place.generation);
                place.busy += 1;
                return Ok(Some(AskPlace { floor: Arc::clone(self), index, value, generation }));
            }
            if matches!(place.status, AgentStatus::Failed(_) | AgentStatus::Stopped) {
                return Ok(None);
            }
            if place.asks.len() >= self.ready_bound {
                return Err(Refusal::Overloaded { what: format!("agent {name}"), retry_after: Duration::from_secs(1) });
            }
            let (turn, granted) = oneshot::channel();
            place.asks.push_back(turn);
            (index, granted)
        };
        // A sender that is dropped means that the agent takes no more work.
        let granted = turn.await.ok();
        Ok(granted.map(|(value, generation)| AskPlace { floor: Arc::clone(self), index, value, generation }))
    }
}

/// A slot for one typed request; given back when dropped.
pub(crate) struct AskPlace {
    floor: Arc<Floor>,
    index: usize,
    value: Arc<dyn AgentValue>,
    generation: u64,
}

impl AskPlace {
    /// The types that the agent answers, if it answers any.
    pub(crate) fn types(&self) -> Option<(&'static str, &'static str)> {
        self.value.types()
    }

    /// Begins an answer; gives the request back if it is of another type.
    pub(crate) fn answer(&self, request: Box<dyn Any + Send>) -> TypedAnswer {
        catch_unwind(AssertUnwindSafe(|| Arc::clone(&self.value).answer(request))).unwrap_or_else(|panic| {
            let text = panic_text(&*panic);
            self.panicked(&text);
            Ok(std::future::ready(Err(TurnError::transient(format!("panic: {text}")))).boxed())
        })
    }

    /// The answer panicked: the agent is rebuilt.
    pub(crate) fn panicked(&self, text: &str) {
        self.floor.discard(self.index, self.generation, None, text);
    }
}

impl Drop for AskPlace {
    fn drop(&mut self) {
        let mut state = self.floor.state.lock();
        state.places[self.index].busy -= 1;
        state.mark_runnable(self.index);
        self.floor.fill(state);
    }
}
