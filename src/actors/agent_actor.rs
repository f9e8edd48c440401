//! The actor of one agent: it builds the agent's value, and rebuilds it after a panic, within a restart window. Turns run in
//! workers beside it, so it always answers messages.

use std::collections::VecDeque;
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::messages::{AgentName, TurnId};
use crate::supervision::{actor_point, panic_text};

use super::agent::{AgentMsg, AgentValue, Factory, RestartWindow};
use super::router::PresenceHandle;
use super::scheduler::Scheduler;

/// The actor.
pub(crate) struct AgentActor;

/// The actor's start arguments.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) name: AgentName,
    pub(crate) factory: Factory,
    pub(crate) window: RestartWindow,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) presence: PresenceHandle,
}

/// The actor's state.
pub(crate) struct AgentState {
    me: ActorRef<AgentMsg>,
    /// The arguments of its start, or of the last replacement.
    agent: Arc<Arguments>,
    /// The generation of the value that was announced last, until it is withdrawn.
    generation: Option<u64>,
    rebuilds: Rebuilds,
}

impl Actor for AgentActor {
    type Msg = AgentMsg;
    type State = Box<AgentState>;
    type Arguments = Arc<Arguments>;

    async fn pre_start(
        &self,
        me: ActorRef<AgentMsg>,
        arguments: Arc<Arguments>,
    ) -> Result<Box<AgentState>, ActorProcessingErr> {
        arguments.scheduler.env.slow_fault_point_of("agent.start", arguments.name.as_str()).await?;
        let value = make(&arguments.factory)?;
        let mut state = Box::new(AgentState { me, agent: arguments, generation: None, rebuilds: Rebuilds::default() });
        state.begin_life(value);
        Ok(state)
    }

    async fn post_stop(&self, _: ActorRef<AgentMsg>, state: &mut Box<AgentState>) -> Result<(), ActorProcessingErr> {
        state.agent.scheduler.env.slow_fault_point_of("agent.stop", state.agent.name.as_str()).await?;
        state.end_life();
        Ok(())
    }

    /// The actor has no children.
    fn handle_supervisor_evt(
        &self,
        _: ActorRef<AgentMsg>,
        _: SupervisionEvent,
        _: &mut Box<AgentState>,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        ready(Ok(()))
    }

    // Boxed, because an actor's task reserves this size several times, and an agent rarely receives a message.
    fn handle(
        &self,
        me: ActorRef<AgentMsg>,
        message: AgentMsg,
        state: &mut Box<AgentState>,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        Box::pin(async move {
            actor_point(&state.agent.scheduler.env, "agent.handle", state.agent.name.as_str(), &me).await?;
            state.react(message);
            Ok(())
        })
    }
}

/// Withdraws the announcement also if the actor is killed or fails as it stops.
impl Drop for AgentState {
    fn drop(&mut self) {
        self.end_life();
    }
}

impl AgentState {
    fn react(&mut self, message: AgentMsg) {
        match message {
            AgentMsg::Panicked { turn, text } => self.rebuild(turn, &text),
            AgentMsg::Rebuild => self.build(),
            AgentMsg::Replace(factory, window, description, reply) => {
                let made = make(&factory);
                if let Ok(value) = &made {
                    let agent = Arc::make_mut(&mut self.agent);
                    (agent.factory, agent.window, agent.presence.description) = (factory, window, description);
                    self.rebuilds = Rebuilds::default();
                    self.begin_life(Arc::clone(value));
                }
                let _ = reply.send(made.map(|_| ()));
            }
            AgentMsg::Restart(reply) => {
                self.rebuilds = Rebuilds::default();
                let made = make(&self.agent.factory).map(|value| self.begin_life(value));
                let _ = reply.send(made);
            }
        }
    }

    /// Gives the scheduler a new value, and announces the agent.
    fn begin_life(&mut self, value: Arc<dyn AgentValue>) {
        let generation = self.agent.scheduler.set_value(&self.agent.name, value, self.me.clone());
        // It is registered before its actor starts, and never removed.
        let generation = generation.unwrap_or_default();
        self.agent.presence.announce(generation);
        self.generation = Some(generation);
    }

    fn give_up(&mut self, error: String) {
        self.agent.scheduler.fail_agent(&self.agent.name, &error);
        self.end_life();
    }

    /// Withdraws the announcement, once.
    fn end_life(&mut self) {
        if let Some(generation) = self.generation.take() {
            self.agent.presence.withdraw(generation);
        }
    }

    /// Counts one rebuild, and builds the value or gives up.
    fn rebuild(&mut self, turn: Option<TurnId>, text: &str) {
        let is_within = self.rebuilds.add(self.agent.scheduler.env.now().monotonic, turn, self.agent.window);
        self.agent.scheduler.note_restart(&self.agent.name, text);
        if is_within {
            self.build();
        } else {
            tracing::error!(agent = %self.agent.name, error = text, "agent was rebuilt too often and takes no more turns");
            self.give_up(text.to_owned());
        }
    }

    fn build(&mut self) {
        match make(&self.agent.factory) {
            Ok(value) => self.begin_life(value),
            Err(text) => {
                tracing::warn!(agent = %self.agent.name, error = %text, "agent could not be rebuilt");
                if self.rebuilds.add(self.agent.scheduler.env.now().monotonic, None, self.agent.window) {
                    let wait = Duration::from_millis(100) * (1 << self.rebuilds.0.len().min(6));
                    self.me.send_after(wait, || AgentMsg::Rebuild);
                } else {
                    self.give_up(text);
                }
            }
        }
    }
}

/// When the value was rebuilt, and for which turn.
#[derive(Default)]
struct Rebuilds(VecDeque<(Duration, Option<TurnId>)>);

impl Rebuilds {
    /// Adds a rebuild at `now`; returns whether the window allows it. As in the restart window of a supervisor, a rebuild that is
    /// exactly one window old still counts. A turn counts once, with its last rebuild.
    fn add(&mut self, now: Duration, turn: Option<TurnId>, window: RestartWindow) -> bool {
        let is_recent = |at: Duration| at.saturating_add(window.within) >= now;
        self.0.retain(|&(at, before)| is_recent(at) && (turn.is_none() || before != turn));
        self.0.push_back((now, turn));
        self.0.len() <= window.max as usize
    }
}

fn make(factory: &Factory) -> Result<Arc<dyn AgentValue>, String> {
    catch_unwind(AssertUnwindSafe(|| factory()))
        .unwrap_or_else(|panic| Err(format!("the factory panicked: {}", panic_text(&*panic))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::RunId;

    #[test]
    fn a_rebuild_counts_until_it_is_older_than_the_window() {
        let window = RestartWindow { max: 1, within: Duration::from_secs(60) };
        let mut rebuilds = Rebuilds::default();
        let mut add = |secs| rebuilds.add(Duration::from_secs(secs), None, window);
        assert_eq!([add(0), add(60), add(121)], [true, false, true]);
    }

    #[test]
    fn a_window_without_end_counts_all_rebuilds_and_those_of_one_turn_once() {
        let window = RestartWindow { max: 2, within: Duration::MAX };
        let turn = |number| Some(TurnId { run: RunId(uuid::Uuid::nil()), number });
        let mut rebuilds = Rebuilds::default();
        let mut add = |secs, turn| rebuilds.add(Duration::from_secs(secs), turn, window);
        assert_eq!([add(1, turn(1)), add(2, turn(1)), add(3, turn(2)), add(4, None)], [true, true, true, false]);
    }
}
