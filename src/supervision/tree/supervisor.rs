//! The supervisor actor: passes messages and events to its [`SupervisorState`], which never waits for a child.

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::errors::EndReason;
use super::exit::Exit;
use super::message::{Arguments, Msg};
use super::state::SupervisorState;

pub(super) struct SupervisorActor;

impl Actor for SupervisorActor {
    type Msg = Msg;
    type State = SupervisorState;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        arguments: Arguments,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        Ok(SupervisorState::new(myself, arguments))
    }

    async fn post_start(&self, _: ActorRef<Msg>, state: &mut SupervisorState) -> Result<(), ActorProcessingErr> {
        state.advance()
    }

    async fn handle(
        &self,
        _: ActorRef<Msg>,
        message: Msg,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::StartChild { child, reply } => state.start_child(child, reply),
            Msg::TerminateChild { id, remove, reply } => state.terminate_child(&id, remove, reply),
            Msg::RestartChild { id, reply } => state.restart_child(&id, reply),
            Msg::Snapshot { budget, reply } => state.snapshot(budget, reply),
            #[cfg(any(test, feature = "testing"))]
            Msg::Kill { path, reply } => state.kill(&path, reply),
            Msg::Shutdown => state.end(EndReason::Stopped),
            Msg::Launched { key, outcome } => state.launched(key, outcome),
            Msg::Halted { key, halted } => state.halted(key, halted),
            Msg::Overdue { limit } => state.kill_overdue(limit),
            Msg::PauseOver { incident, positions } => state.children.end_pause(incident, &positions),
        }
        state.advance()
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(who, error) => state.exited(who.get_id(), Exit::Crashed(error.to_string())),
            // ractor distinguishes a kill from a stop only by this reason: an idle actor that is killed has a state too.
            SupervisionEvent::ActorTerminated(who, _, Some(reason)) if reason == "killed" => {
                state.exited(who.get_id(), Exit::Killed);
            }
            SupervisionEvent::ActorTerminated(who, Some(_), reason) => state.exited(who.get_id(), Exit::Normal(reason)),
            SupervisionEvent::ActorTerminated(who, None, _) => state.exited(who.get_id(), Exit::Cancelled),
            // ractor's enum grows with its features.
            _ => {}
        }
        state.advance()
    }

    /// Covers a plain ractor stop of the supervisor, which leaves no time to answer.
    async fn post_stop(&self, _: ActorRef<Msg>, state: &mut SupervisorState) -> Result<(), ActorProcessingErr> {
        state.stop_all().await;
        Ok(())
    }
}
