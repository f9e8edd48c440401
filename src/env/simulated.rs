//! Whether this thread runs a simulation. Its boards have its world; one with another would depend on the machine.

use std::cell::RefCell;

type Complain = Box<dyn Fn()>;

thread_local! {
    static COMPLAIN: RefCell<Option<Complain>> = const { RefCell::new(None) };
}

/// From now on, until what is returned is dropped, a board of another world is complained of.
pub(crate) fn enter(complain: impl Fn() + 'static) -> impl Drop {
    COMPLAIN.set(Some(Box::new(complain)));
    Entered
}

/// A board starts that belongs to no simulation.
pub(crate) fn strange_board() {
    COMPLAIN.with_borrow(|complain| complain.iter().for_each(|complain| complain()));
}

struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        COMPLAIN.take();
    }
}
