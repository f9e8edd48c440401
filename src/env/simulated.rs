//! Whether this thread runs a simulation. Its boards have its world; one with another would depend on the machine.

use std::cell::RefCell;

type Complain = Box<dyn Fn()>;

thread_local! {
    /// Set by the test kit alone, while a simulation runs on this thread.
    static COMPLAIN: RefCell<Option<Complain>> = const { RefCell::new(None) };
}

/// A board starts that belongs to no simulation: one that runs on this thread is notified.
pub(crate) fn strange_board() {
    COMPLAIN.with_borrow(|complain| complain.iter().for_each(|complain| complain()));
}

/// From now on, until what is returned is dropped, a board of another world is complained of.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn enter(complain: impl Fn() + 'static) -> impl Drop {
    struct Entered;

    impl Drop for Entered {
        fn drop(&mut self) {
            COMPLAIN.take();
        }
    }

    COMPLAIN.set(Some(Box::new(complain)));
    Entered
}
