//! A supervisor's children, in start order. What happens to one of them costs the same however many there are: it is
//! found by its place, its id or its actor, and those that have to start or stop stand in queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Index, IndexMut, RangeInclusive};
use std::sync::Arc;

use ractor::{ActorCell, ActorId};

use super::child::{Child, Origin, Phase, Queue, Then};
use super::restart::{ChildFacts, Place, Strategy};

/// One start of one child; what comes back from an earlier one does not match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) place: Place,
    generation: u64,
}

#[derive(Default)]
pub(super) struct Children {
    list: BTreeMap<Place, Box<Child>>,
    by_id: HashMap<Arc<str>, Place>,
    by_actor: HashMap<ActorId, Place>,
    queues: BTreeSet<(Queue, Place)>,
    next: Place,
}

impl Children {
    /// Adds a child after the others. Its id must be free.
    pub(super) fn push(&mut self, child: Child) {
        let place = self.next;
        self.next += 1;
        self.by_id.insert(Arc::clone(&child.spec.id), place);
        self.list.insert(place, Box::new(child));
        self.requeue(place);
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.set_actor(place, None);
        let Some(child) = self.list.remove(&place) else { return };
        self.by_id.remove(&child.spec.id);
        if let Some(queue) = child.queue {
            self.queues.remove(&(queue, place));
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Child> {
        self.list.values().map(|child| &**child)
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.list.keys().copied().collect()
    }

    pub(super) fn facts(&self, places: RangeInclusive<Place>) -> Vec<(Place, ChildFacts)> {
        self.list.range(places).map(|(&place, child)| (place, child.facts())).collect()
    }

    pub(super) fn named(&self, id: &str) -> Option<Place> {
        self.by_id.get(id).copied()
    }

    pub(super) fn played_by(&self, actor: ActorId) -> Option<Place> {
        self.by_actor.get(&actor).copied()
    }

    pub(super) fn key(&self, place: Place) -> Key {
        Key { place, generation: self[place].generation }
    }

    /// Whether this is the child's latest start.
    pub(super) fn is_latest(&self, key: Key) -> bool {
        self.list.get(&key.place).is_some_and(|child| child.generation == key.generation)
    }

    pub(super) fn set_actor(&mut self, place: Place, cell: Option<ActorCell>) {
        let id = cell.as_ref().map(ActorCell::get_id);
        if let Some(before) = std::mem::replace(&mut self[place].cell, cell) {
            self.by_actor.remove(&before.get_id());
        }
        if let Some(id) = id {
            self.by_actor.insert(id, place);
        }
    }

    /// Lets a child enter a phase.
    pub(super) fn enter(&mut self, place: Place, phase: Phase) {
        self[place].enter(phase);
        self.requeue(place);
    }

    /// Ends the pause that this incident asked for, of those children that are still in it.
    pub(super) fn end_pause(&mut self, incident: u64, places: &[Place]) {
        for &place in places {
            if let Some(child) = self.list.get_mut(&place) {
                child.end_pause(incident);
                self.requeue(place);
            }
        }
    }

    fn requeue(&mut self, place: Place) {
        let child = &mut self[place];
        let (before, now) = (child.queue, child.due());
        child.queue = now;
        if let Some(queue) = before {
            self.queues.remove(&(queue, place));
        }
        if let Some(queue) = now {
            self.queues.insert((queue, place));
        }
    }

    fn queued(&self, queue: Queue) -> impl DoubleEndedIterator<Item = Place> {
        self.queues.range((queue, Place::MIN)..=(queue, Place::MAX)).map(|&(_, place)| place)
    }

    /// Whether children still have to stop.
    pub(super) fn are_stopping(&self) -> bool {
        self.queued(Queue::Stop).next().is_some()
    }

    /// Whether children still have to run for the first time with their supervisor; some may have to stop before.
    pub(super) fn are_starting(&self) -> bool {
        let mut queued = self.queued(Queue::First).chain(self.queued(Queue::Stop));
        queued.any(|place| self[place].origin == Origin::Initial)
    }

    /// The doomed child whose turn to stop has come: the last one, once nothing after it is still stopping; children without
    /// an order do not wait for each other.
    pub(super) fn next_to_stop(&self, strategy: Strategy) -> Option<(Place, Then)> {
        let doomed = |place: Place| match *self[place].phase() {
            Phase::Doomed(then) => Some((place, then)),
            Phase::Waiting(_) | Phase::Starting | Phase::Running | Phase::Stopping(_) | Phase::Down | Phase::Failed => {
                None
            }
        };
        let mut queued = self.queued(Queue::Stop).rev();
        match strategy {
            Strategy::SimpleOneForOne => queued.find_map(doomed),
            Strategy::OneForOne | Strategy::OneForAll | Strategy::RestForOne => doomed(queued.next()?),
        }
    }

    /// The children whose turn to start has come.
    ///
    /// A first start waits for the one before it. Under one_for_one a restart waits for nothing; in a group it also waits
    /// for everything that stops and for the start before it.
    pub(super) fn next_to_start(&self, strategy: Strategy) -> Vec<Place> {
        let first = |queue| self.queued(queue).next();
        let is_due = |place: &Place| matches!(self[*place].phase(), Phase::Waiting(None));
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

impl Index<Place> for Children {
    type Output = Child;

    fn index(&self, place: Place) -> &Child {
        &self.list[&place]
    }
}

impl IndexMut<Place> for Children {
    fn index_mut(&mut self, place: Place) -> &mut Child {
        self.list.get_mut(&place).expect("a place is not used after its child has left")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, any, prop, prop_assert_eq, prop_oneof, proptest};
    use proptest::strategy::Strategy as Generate;

    use super::*;
    use crate::supervision::tree::child::Pause;
    use crate::supervision::tree::{ChildSpec, SupervisorSpec};

    /// The queues again, said the long way: each question walks the list.
    fn next_to_stop(children: &Children) -> Option<Place> {
        let leaves = |child: &Child| matches!(child.phase(), Phase::Doomed(_) | Phase::Stopping(_));
        let (place, last) = children.list.iter().rfind(|(_, child)| leaves(child))?;
        matches!(last.phase(), Phase::Doomed(_)).then_some(*place)
    }

    fn next_to_start(children: &Children, strategy: Strategy) -> Vec<Place> {
        let grouped = strategy != Strategy::OneForOne;
        if grouped && children.iter().any(|child| matches!(child.phase(), Phase::Doomed(_) | Phase::Stopping(_))) {
            return Vec::new();
        }
        let holds_up = |earlier: &Child, child: &Child| {
            matches!(earlier.phase(), Phase::Waiting(_) | Phase::Starting)
                && (grouped || (earlier.origin == Origin::Initial && child.origin == Origin::Initial))
        };
        let has_turn = |place: &Place| {
            let child = &children[*place];
            matches!(child.phase(), Phase::Waiting(None))
                && !children.list.range(..place).any(|(_, earlier)| holds_up(earlier, child))
        };
        children.places().into_iter().filter(has_turn).collect()
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
        fn the_queues_say_what_a_walk_over_the_children_says(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), changes()), 1..40),
        ) {
            let mut children = Children::default();
            let add = |children: &mut Children| {
                let spec = ChildSpec::supervisor(SupervisorSpec::one_for_one(format!("c{}", children.next))).0;
                children.push(Child::new(spec, "app", Origin::Added));
            };
            (0..6).for_each(|_| add(&mut children));
            for (at, change) in changes {
                let place = *at.get(&children.places());
                match change {
                    Change::Enter(origin, phase) => {
                        children[place].origin = origin;
                        children.enter(place, phase());
                    }
                    Change::EndPause => children.end_pause(1, &[place]),
                    Change::Replace => {
                        children.remove(place);
                        add(&mut children);
                    }
                }
                prop_assert_eq!(children.next_to_stop(Strategy::OneForOne).map(|(place, _)| place), next_to_stop(&children));
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
