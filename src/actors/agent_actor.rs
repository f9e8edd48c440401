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

use super::agent::{AgentMsg, AgentValue, Factory, RestartWindow, Source};
use super::router::PresenceHandle;
use super::scheduler::Scheduler;

/// The actor.
pub(crate) struct AgentActor;

/// The actor's start arguments.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) name: AgentName,
    pub(crate) source: Arc<Source>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) presence: PresenceHandle,
    /// The number of this start ([`Scheduler::begin_life`]).
    pub(crate) life: u64,
    /// Work waits for it already: a failure to build its value is one of a rebuild.
    pub(crate) is_wanted: bool,
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
        let made = make(&arguments.source.factory);
        let mut state = Box::new(AgentState { me, agent: arguments, generation: None, rebuilds: Rebuilds::default() });
        match made {
            Ok(value) => {
                if !state.begin_life(value) {
                    return Err("it was stopped meanwhile".into());
                }
            }
            Err(text) if state.agent.is_wanted => state.could_not_build(text),
            Err(text) => return Err(text.into()),
        }
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
            AgentMsg::Replace(source, reply) => {
                let made = make(&source.factory);
                if let Ok(value) = &made {
                    let agent = Arc::make_mut(&mut self.agent);
                    agent.presence.description = Arc::clone(&source.description);
                    agent.source = source;
                    self.rebuilds = Rebuilds::default();
                    self.begin_life(Arc::clone(value));
                }
                let _ = reply.send(made.map(|_| ()));
            }
            AgentMsg::Restart(reply) => {
                self.rebuilds = Rebuilds::default();
                let made = make(&self.agent.source.factory).map(|value| self.begin_life(value));
                let _ = reply.send(made.map(|_| ()));
            }
        }
    }

    /// Gives the scheduler a new value, and announces the agent. `false` if the agent was stopped meanwhile.
    fn begin_life(&mut self, value: Arc<dyn AgentValue>) -> bool {
        let Arguments { name, scheduler, presence, life, .. } = &*self.agent;
        let Some(generation) = scheduler.set_value(name, value, (self.me.clone(), *life)) else { return false };
        presence.announce(generation);
        self.generation = Some(generation);
        true
    }

    fn give_up(&mut self, error: String) {
        self.agent.scheduler.fail_agent(&self.agent.name, &error);
        self.end_life();
    }

    /// Withdraws the announcement, once. An agent that falls asleep stays announced.
    fn end_life(&mut self) {
        let Arguments { name, scheduler, presence, life, .. } = &*self.agent;
        if let Some(generation) = self.generation.take()
            && scheduler.leaves_with(name, *life)
        {
            presence.withdraw(generation);
        }
    }

    /// Counts one rebuild, and builds the value or gives up.
    fn rebuild(&mut self, turn: Option<TurnId>, text: &str) {
        let is_within = self.rebuilds.add(self.agent.scheduler.env.now().monotonic, turn, self.agent.source.window);
        self.agent.scheduler.note_restart(&self.agent.name, text);
        if is_within {
            self.build();
        } else {
            tracing::error!(agent = %self.agent.name, error = text, "agent was rebuilt too often and takes no more turns");
            self.give_up(text.to_owned());
        }
    }

    fn build(&mut self) {
        match make(&self.agent.source.factory) {
            Ok(value) => {
                self.begin_life(value);
            }
            Err(text) => self.could_not_build(text),
        }
    }

    fn could_not_build(&mut self, text: String) {
        tracing::warn!(agent = %self.agent.name, error = %text, "agent could not be built");
        if self.rebuilds.add(self.agent.scheduler.env.now().monotonic, None, self.agent.source.window) {
            let wait = Duration::from_millis(100) * (1 << self.rebuilds.0.len().min(6));
            self.me.send_after(wait, || AgentMsg::Rebuild);
        } else {
            self.give_up(text);
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
