//! An outside service that agents cause effects in.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::actors::Turn;
use crate::messages::{RunEvent, TurnId};

use super::disk::Disk;
use super::trace::Weight;
use super::world::World;

/// An outside service that honours idempotency keys: what it receives again under a known key, it does not do
/// again. It is outside the node, so crashes do not touch it. A cheap clone.
#[derive(Clone)]
pub struct Effects {
    world: Arc<World>,
    disk: Arc<Disk>,
    book: Arc<Mutex<Book>>,
}

#[derive(Default)]
struct Book {
    done: BTreeMap<(TurnId, String), Effect>,
    wrongs: Vec<String>,
}

struct Effect {
    what: String,
    requests: u64,
}

impl Effects {
    pub(super) fn new(world: Arc<World>, disk: Arc<Disk>) -> Self {
        Self { world, disk, book: Arc::default() }
    }

    /// Does `what` inside the work of the step `step` of a turn; the key is both of them, as [`Turn::step`] advises.
    /// `true` the first time. Two different effects under one key, and an effect whose step is in the journal already, are
    /// remembered as wrong.
    pub fn apply(&self, turn: &Turn, step: &str, what: &str) -> bool {
        let id = turn.id();
        if self.world.has_crashed() {
            // The process is dead: its request is lost.
            return false;
        }
        self.world.note(Weight::Shown, format!("effect of {id} {step}: {what}"));
        let mut book = self.book.lock();
        let is_recorded = self.disk.events(id.run).iter().any(
            |event| matches!(event, RunEvent::StepFinished { turn, name, .. } if *turn == id.number && **name == *step),
        );
        if is_recorded {
            book.wrongs.push(format!("{what:?} was done again although step {step:?} of {id} is in the journal"));
        }
        let effect =
            book.done.entry((id, step.to_owned())).or_insert_with(|| Effect { what: what.to_owned(), requests: 0 });
        effect.requests += 1;
        if effect.what != what {
            let wrong = format!("step {step:?} of {id} did {:?}, and then {what:?} under the same key", effect.what);
            book.wrongs.push(wrong);
            return false;
        }
        effect.requests == 1
    }

    /// How many effects were done, each key once.
    #[must_use]
    pub fn count(&self) -> usize {
        self.book.lock().done.len()
    }

    /// How often the service received a request again that it had carried out.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.book.lock().done.values().map(|effect| effect.requests - 1).sum()
    }

    pub(super) fn wrongs(&self) -> Vec<String> {
        self.book.lock().wrongs.clone()
    }
}
