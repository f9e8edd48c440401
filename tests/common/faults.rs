//! A fault plan for boards outside of simulations.

use std::sync::Arc;

use callboard::env::{Env, Fault, Faults};
use parking_lot::Mutex;

/// What is to happen at fault points.
#[derive(Clone, Default)]
pub(crate) struct FaultPlan(Arc<Mutex<Vec<Planned>>>);

#[derive(Debug)]
struct Planned {
    point: &'static str,
    fault: Fault,
    /// How often it is still to happen.
    times: u32,
}

impl FaultPlan {
    /// Plans a fault of the next passes of a point.
    pub(crate) fn arm(&self, point: &'static str, fault: Fault, times: u32) {
        self.0.lock().push(Planned { point, fault, times });
    }

    /// Plans a panic at the next pass of a point.
    pub(crate) fn panic_at(&self, point: &'static str) {
        self.arm(point, Fault::Panic("injected".into()), 1);
    }

    /// Nothing more is to happen.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Whether all has happened that was planned.
    pub(crate) fn is_carried_out(&self) -> bool {
        self.0.lock().iter().all(|planned| planned.times == 0)
    }

    /// A repeatable world with this plan.
    pub(crate) fn env(&self) -> Env {
        Env::repeatable(7).with_faults(Arc::new(self.clone()))
    }
}

impl Faults for FaultPlan {
    fn at(&self, point: &'static str, _: &str) -> Option<Fault> {
        let mut plan = self.0.lock();
        let planned = plan.iter_mut().find(|planned| planned.point == point && planned.times > 0)?;
        planned.times -= 1;
        Some(planned.fault.clone())
    }
}
