//! The end of a supervisor whose children have no order: it asks all of them to stop, and their actors report their ends.
//!
//! There is one timer for each timeout in place of a task with a timer for each child, of which there may be very many.

use std::collections::BTreeSet;
use std::time::Duration;

use ractor::ActorStatus;

use super::child::{Child, Phase, Then};
use super::event::TreeEventKind;
use super::lifecycle::end_within;
use super::message::Msg;
use super::restart::{Position, Strategy};
use super::shutdown::Shutdown;
use super::spec::Kind;
use super::state::{SupervisorState, report};

impl SupervisorState {
    /// Asks a child that runs to stop, and returns its timeout. `None` if a task has to stop it: children have an order, or it is a
    /// supervisor, is killed, or has no timeout. An actor that has another supervisor by now does not report its end here, and is looked at
    /// after its timeout.
    pub(super) fn ask_to_stop(&mut self, position: Position) -> Option<Duration> {
        if self.spec.policy.strategy != Strategy::SimpleOneForOne {
            return None;
        }
        let child = &mut self.children[position];
        let limit = match (&child.spec.kind, child.spec.shutdown) {
            (Kind::Worker(_), Shutdown::Timeout(limit)) => limit,
            (Kind::Worker(_), Shutdown::BrutalKill | Shutdown::Infinity) | (Kind::Supervisor(_), _) => return None,
        };
        child.cell.as_ref()?.stop(None);
        child.is_asked = true;
        self.children.enter(position, Phase::Stopping(Then::Stay));
        Some(limit)
    }

    /// Looks for children that were asked to stop, when their timeouts are over.
    pub(super) fn watch_asked(&mut self, limits: BTreeSet<Duration>) {
        for limit in limits {
            let myself = self.myself.clone();
            self.spawn(async move {
                tokio::time::sleep(limit).await;
                report(&myself, Msg::Overdue { limit });
            });
        }
    }

    /// The actor of a child that was asked to stop has reported its end.
    pub(super) fn has_stopped(&mut self, position: Position) {
        let key = self.children.key(position);
        match &self.children[position].cell {
            // It has reported, and is about to be gone.
            Some(cell) if cell.get_status() != ActorStatus::Stopped => self.wait_for(position, None),
            Some(_) | None => self.halted(key, TreeEventKind::Stopped),
        }
    }

    /// Kills the children with this timeout that were asked to stop and are there.
    pub(super) fn kill_overdue(&mut self, limit: Duration) {
        let is_late = |child: &Child| child.is_asked && child.spec.shutdown == Shutdown::Timeout(limit);
        for position in self.children.positions() {
            if is_late(&self.children[position]) {
                self.children[position].is_asked = false;
                self.wait_for(position, Some(Duration::ZERO));
            }
        }
    }

    /// Has a task wait until a child is gone that was asked to stop, and kill it after the limit.
    fn wait_for(&mut self, position: Position, limit: Option<Duration>) {
        let (key, child) = (self.children.key(position), &self.children[position]);
        let Some(cell) = child.cell.clone() else { return };
        let (spec, myself) = (child.spec.clone(), self.myself.clone());
        self.spawn(async move {
            let halted = end_within(&cell, &spec, limit).await;
            report(&myself, Msg::Halted { key, halted });
        });
    }
}
