//! A supervisor's children, in start order. Operations on one child do not depend on the number of children: it is found by its
//! position, its id or its actor, and those that have to start or stop are in queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Index, IndexMut, RangeInclusive};
use std::sync::Arc;

use ractor::{ActorCell, ActorId};

use super::child::{Child, Origin, Phase, Queue, Then};
use super::message::Key;
use super::restart::{ChildFacts, Position, Strategy};

#[derive(Default)]
pub(super) struct Children {
    list: BTreeMap<Position, Box<Child>>,
    by_id: HashMap<Arc<str>, Position>,
    by_actor: HashMap<ActorId, Position>,
    queues: BTreeSet<(Queue, Position)>,
    next: Position,
}

impl Children {
    /// Adds a child after the others. Its id must be free.
    pub(super) fn push(&mut self, child: Child) {
        let position = self.next;
        self.next += 1;
        self.by_id.insert(Arc::clone(&child.spec.id), position);
        self.list.insert(position, Box::new(child));
        self.requeue(position);
    }

    pub(super) fn remove(&mut self, position: Position) {
        self.set_actor(position, None);
        let Some(child) = self.list.remove(&position) else { return };
        self.by_id.remove(&child.spec.id);
        if let Some(queue) = child.queue {
            self.queues.remove(&(queue, position));
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Child> {
        self.list.values().map(|child| &**child)
    }

    pub(super) fn positions(&self) -> Vec<Position> {
        self.list.keys().copied().collect()
    }

    pub(super) fn facts(&self, positions: RangeInclusive<Position>) -> Vec<(Position, ChildFacts)> {
        self.list.range(positions).map(|(&position, child)| (position, child.facts())).collect()
    }

    pub(super) fn named(&self, id: &str) -> Option<Position> {
        self.by_id.get(id).copied()
    }

    pub(super) fn played_by(&self, actor: ActorId) -> Option<Position> {
        self.by_actor.get(&actor).copied()
    }

    pub(super) fn key(&self, position: Position) -> Key {
        Key { position, generation: self[position].generation }
    }

    /// Whether this is the child's latest start.
    pub(super) fn is_latest(&self, key: Key) -> bool {
        self.list.get(&key.position).is_some_and(|child| child.generation == key.generation)
    }

    pub(super) fn set_actor(&mut self, position: Position, cell: Option<ActorCell>) {
        let id = cell.as_ref().map(ActorCell::get_id);
        if let Some(before) = std::mem::replace(&mut self[position].cell, cell) {
            self.by_actor.remove(&before.get_id());
        }
        if let Some(id) = id {
            self.by_actor.insert(id, position);
        }
    }

    /// Lets a child enter a phase.
    pub(super) fn enter(&mut self, position: Position, phase: Phase) {
        self[position].enter(phase);
        self.requeue(position);
    }

    /// Ends the pause that this incident asked for, of those children that are still in it.
    pub(super) fn end_pause(&mut self, incident: u64, positions: &[Position]) {
        for &position in positions {
            if let Some(child) = self.list.get_mut(&position) {
                child.end_pause(incident);
                self.requeue(position);
            }
        }
    }

    fn requeue(&mut self, position: Position) {
        let child = &mut self[position];
        let (before, now) = (child.queue, child.due());
        child.queue = now;
        if let Some(queue) = before {
            self.queues.remove(&(queue, position));
        }
        if let Some(queue) = now {
            self.queues.insert((queue, position));
        }
    }

    fn queued(&self, queue: Queue) -> impl DoubleEndedIterator<Item = Position> {
        self.queues.range((queue, Position::MIN)..=(queue, Position::MAX)).map(|&(_, position)| position)
    }

    /// Whether children still have to stop.
    pub(super) fn are_stopping(&self) -> bool {
        [Queue::Doomed, Queue::Stopping].into_iter().any(|queue| self.queued(queue).next().is_some())
    }

    /// Whether children still have to run for the first time with their supervisor; some may have to stop before.
    pub(super) fn are_starting(&self) -> bool {
        let queues = [Queue::First, Queue::Doomed, Queue::Stopping].into_iter();
        queues.flat_map(|queue| self.queued(queue)).any(|position| self[position].origin == Origin::Initial)
    }

    /// The doomed child that stops next: the last one, once nothing after it is still stopping; children without an order do not
    /// wait for each other.
    pub(super) fn next_to_stop(&self, strategy: Strategy) -> Option<(Position, Then)> {
        let last = |queue| self.queued(queue).next_back();
        let position = last(Queue::Doomed)?;
        let waits = match strategy {
            Strategy::SimpleOneForOne => false,
            Strategy::OneForOne | Strategy::OneForAll | Strategy::RestForOne => last(Queue::Stopping) > Some(position),
        };
        match *self[position].phase() {
            Phase::Doomed(then) if !waits => Some((position, then)),
            Phase::Doomed(_)
            | Phase::Waiting(_)
            | Phase::Starting
            | Phase::Running
            | Phase::Stopping(_)
            | Phase::Down
            | Phase::Failed => None,
        }
    }

    /// The children that may start now.
    ///
    /// A first start waits for the one before it. Under one_for_one a restart waits for nothing; in a group it also waits
    /// for everything that stops and for the start before it.
    pub(super) fn next_to_start(&self, strategy: Strategy) -> Vec<Position> {
        let first = |queue| self.queued(queue).next();
        let is_due = |position: &Position| matches!(self[*position].phase(), Phase::Waiting(None));
        match strategy {
            Strategy::OneForOne | Strategy::SimpleOneForOne => {
                first(Queue::First).filter(is_due).into_iter().chain(self.queued(Queue::Start)).collect()
            }
            Strategy::OneForAll | Strategy::RestForOne if self.are_stopping() => Vec::new(),
            Strategy::OneForAll | Strategy::RestForOne => {
                let next = [Queue::First, Queue::Start, Queue::Pending].into_iter().filter_map(first).min();
                next.filter(is_due).into_iter().collect()
            }
        }
    }
}

impl Index<Position> for Children {
    type Output = Child;

    fn index(&self, position: Position) -> &Child {
        &self.list[&position]
    }
}

impl IndexMut<Position> for Children {
    fn index_mut(&mut self, position: Position) -> &mut Child {
        self.list.get_mut(&position).expect("a position is not used after its child has left")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, any, prop, prop_assert_eq, prop_oneof, proptest};
    use proptest::strategy::Strategy as Generate;

    use super::*;
    use crate::supervision::tree::child::Pause;
    use crate::supervision::tree::{ChildSpec, SupervisorSpec};

    /// A reference model of the queues: each query walks the list.
    fn next_to_stop(children: &Children, strategy: Strategy) -> Option<Position> {
        let has_order = strategy != Strategy::SimpleOneForOne;
        let leaves = |child: &Child| match child.phase() {
            Phase::Doomed(_) => true,
            Phase::Stopping(_) => has_order,
            _ => false,
        };
        let (position, last) = children.list.iter().rfind(|(_, child)| leaves(child))?;
        matches!(last.phase(), Phase::Doomed(_)).then_some(*position)
    }

    fn next_to_start(children: &Children, strategy: Strategy) -> Vec<Position> {
        let grouped = strategy != Strategy::OneForOne;
        if grouped && children.iter().any(|child| matches!(child.phase(), Phase::Doomed(_) | Phase::Stopping(_))) {
            return Vec::new();
        }
        let holds_up = |earlier: &Child, child: &Child| {
            matches!(earlier.phase(), Phase::Waiting(_) | Phase::Starting)
                && (grouped || (earlier.origin == Origin::Initial && child.origin == Origin::Initial))
        };
        let has_turn = |position: &Position| {
            let child = &children[*position];
            matches!(child.phase(), Phase::Waiting(None))
                && !children.list.range(..position).any(|(_, earlier)| holds_up(earlier, child))
        };
        children.positions().into_iter().filter(has_turn).collect()
    }

    fn phases() -> impl Generate<Value = (Origin, fn() -> Phase)> {
        const PAUSE: Option<Pause> = Some(Pause { incident: 1, until: std::time::Duration::ZERO });
        let origin = prop_oneof![Just(Origin::Initial), Just(Origin::Added), Just(Origin::Restart)];
        let phase = prop_oneof![
            Just((|| Phase::Waiting(None)) as fn() -> Phase),
            Just((|| Phase::Waiting(PAUSE)) as fn() -> Phase),
            Just((|| Phase::Starting) as fn() -> Phase),
            Just((|| Phase::Running) as fn() -> Phase),
            Just((|| Phase::Doomed(Then::Restart(PAUSE))) as fn() -> Phase),
            Just((|| Phase::Stopping(Then::Stay)) as fn() -> Phase),
            Just((|| Phase::Down) as fn() -> Phase),
        ];
        (origin, phase)
    }

    #[derive(Clone, Debug)]
    enum Change {
        Enter(Origin, fn() -> Phase),
        EndPause,
        Replace,
    }

    fn changes() -> impl Generate<Value = Change> {
        let enter = phases().prop_map(|(origin, phase)| Change::Enter(origin, phase));
        prop_oneof![6 => enter, 1 => Just(Change::EndPause), 1 => Just(Change::Replace)]
    }

    proptest! {
        #[test]
        fn the_queues_hold_what_a_walk_over_the_children_finds(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), changes()), 1..40),
        ) {
            let mut children = Children::default();
            let add = |children: &mut Children| {
                let spec = ChildSpec::supervisor(SupervisorSpec::one_for_one(format!("c{}", children.next))).0;
                children.push(Child::new(spec, "app", Origin::Added));
            };
            (0..6).for_each(|_| add(&mut children));
            for (at, change) in changes {
                let position = *at.get(&children.positions());
                match change {
                    Change::Enter(origin, phase) => {
                        children[position].origin = origin;
                        children.enter(position, phase());
                    }
                    Change::EndPause => children.end_pause(1, &[position]),
                    Change::Replace => {
                        children.remove(position);
                        add(&mut children);
                    }
                }
                for strategy in [Strategy::OneForOne, Strategy::SimpleOneForOne] {
                    let next = children.next_to_stop(strategy).map(|(position, _)| position);
                    prop_assert_eq!(next, next_to_stop(&children, strategy));
                }
                for strategy in [Strategy::OneForOne, Strategy::OneForAll] {
                    let mut next = children.next_to_start(strategy);
                    next.sort_unstable();
                    prop_assert_eq!(next, next_to_start(&children, strategy));
                }
                prop_assert_eq!(children.by_id.len(), children.list.len());
            }
        }
    }
}
