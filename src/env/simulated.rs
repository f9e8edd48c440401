//! Whether this thread runs a simulation. All boards on it must use the simulation's `Env`; another one would depend on the
//! machine.

use std::cell::RefCell;

type Complain = Box<dyn Fn()>;

thread_local! {
    /// Set by the test kit alone, while a simulation runs on this thread.
    static COMPLAIN: RefCell<Option<Complain>> = const { RefCell::new(None) };
}

/// A board with another `Env` has started: notifies the simulation on this thread, if there is one.
pub(crate) fn report_foreign_env() {
    COMPLAIN.with_borrow(|complain| complain.iter().for_each(|complain| complain()));
}

/// Until the returned value is dropped, `complain` is called for each board with another `Env`.
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
