//! The supervisor actor: passes what it hears to its [`Board`], which never waits for a child.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{oneshot, watch};

use super::board::Board;
use super::child::Reply;
use super::children::Key;
use super::event::Events;
use super::handle::EndReason;
use super::lifecycle::Launched;
use super::restart::{Exit, Place};
use super::snapshot::TreeNode;
use super::spec::{ChildSpec, SupervisorSpec};
use crate::env::Env;

/// What supervisors are told.
pub(super) enum Msg {
    StartChild {
        child: ChildSpec,
        reply: Reply,
    },
    TerminateChild {
        id: Arc<str>,
        remove: bool,
        reply: Reply,
    },
    RestartChild {
        id: Arc<str>,
        reply: Reply,
    },
    Snapshot {
        budget: Duration,
        reply: oneshot::Sender<TreeNode>,
    },
    /// A test kills what stands there, as seen from this supervisor.
    #[cfg(any(test, feature = "testing"))]
    Kill {
        path: Vec<Arc<str>>,
        reply: oneshot::Sender<bool>,
    },
    Shutdown,
    /// A start has ended.
    Launched {
        key: Key,
        outcome: Launched,
    },
    /// A stop has ended.
    Halted {
        key: Key,
        killed: bool,
    },
    /// The pause of an incident is over.
    PauseOver {
        incident: u64,
        places: Vec<Place>,
    },
}

/// What a supervisor starts with.
pub(super) struct Arguments {
    pub(super) spec: Arc<SupervisorSpec>,
    pub(super) path: Arc<str>,
    pub(super) generation: u64,
    pub(super) env: Env,
    pub(super) events: Events,
    /// Answered when all first children run, or when the supervisor ends before.
    pub(super) ready: oneshot::Sender<Result<(), EndReason>>,
    pub(super) ended: watch::Sender<Option<EndReason>>,
}

pub(super) struct SupervisorActor;

impl Actor for SupervisorActor {
    type Msg = Msg;
    type State = Board;
    type Arguments = Arguments;

    async fn pre_start(&self, myself: ActorRef<Msg>, arguments: Arguments) -> Result<Board, ActorProcessingErr> {
        Ok(Board::new(myself, arguments))
    }

    async fn post_start(&self, _: ActorRef<Msg>, board: &mut Board) -> Result<(), ActorProcessingErr> {
        board.advance()
    }

    async fn handle(&self, _: ActorRef<Msg>, message: Msg, board: &mut Board) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::StartChild { child, reply } => board.add(child, reply),
            Msg::TerminateChild { id, remove, reply } => board.terminate(id, remove, reply),
            Msg::RestartChild { id, reply } => board.restart_by_hand(id, reply),
            Msg::Snapshot { budget, reply } => board.picture(budget, reply),
            #[cfg(any(test, feature = "testing"))]
            Msg::Kill { path, reply } => board.kill(&path, reply),
            Msg::Shutdown => board.end(EndReason::Stopped),
            Msg::Launched { key, outcome } => board.launched(key, outcome),
            Msg::Halted { key, killed } => board.halted(key, killed),
            Msg::PauseOver { incident, places } => board.children.end_pause(incident, &places),
        }
        board.advance()
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        board: &mut Board,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(who, error) => board.exited(who.get_id(), Exit::Failed(error.to_string())),
            // ractor tells a kill from a stop only by this word. A state is no sign: an idle actor leaves it also when killed.
            SupervisionEvent::ActorTerminated(who, _, Some(reason)) if reason == "killed" => {
                board.exited(who.get_id(), Exit::Killed);
            }
            SupervisionEvent::ActorTerminated(who, Some(_), reason) => board.exited(who.get_id(), Exit::Normal(reason)),
            SupervisionEvent::ActorTerminated(who, None, _) => board.exited(who.get_id(), Exit::Cancelled),
            // ractor's enum grows with its features.
            _ => {}
        }
        board.advance()
    }

    /// Covers a plain ractor stop of the supervisor, which leaves no time to answer.
    async fn post_stop(&self, _: ActorRef<Msg>, board: &mut Board) -> Result<(), ActorProcessingErr> {
        board.stop_all().await;
        Ok(())
    }
}
