//! The rule of when the actor of a dormant agent is started and ended. Pure.
//!
//! The supervisor of the agents has a child for the agent from [`Order::Start`] on, until it has carried out [`Order::End`]. It carries
//! orders out one after the other, and a child cannot be started while an earlier one of its name is there: so an agent that is wanted
//! while it falls asleep is started again when that is done.

/// What there is of a dormant agent's actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has none.
    Asleep,
    /// It is being started.
    Waking,
    /// It has one.
    Awake,
    /// It is being ended.
    FallingAsleep,
    /// It is being ended, and is to be started again then.
    WokenTooSoon,
}

/// What happens to a dormant agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// Something needs its value.
    Wanted,
    /// It had no work for a while, and nothing of it is under way.
    Idle,
    /// Its actor was started.
    Started,
    /// Its actor could not be started; it is wanted all the same.
    NotStarted,
    /// It is given up: its actor could not be started too often, or its board ends.
    GivenUp,
    /// Its actor was ended.
    Ended,
}

/// What is to be done to its actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Start,
    End,
}

impl Phase {
    /// What follows.
    pub(super) fn after(self, happening: Happening) -> (Self, Option<Order>) {
        match (self, happening) {
            (Self::Asleep, Happening::Wanted)
            | (Self::Waking, Happening::NotStarted)
            | (Self::WokenTooSoon, Happening::Ended) => (Self::Waking, Some(Order::Start)),
            (Self::FallingAsleep, Happening::Wanted) => (Self::WokenTooSoon, None),
            (Self::Awake, Happening::Idle) => (Self::FallingAsleep, Some(Order::End)),
            (Self::Waking, Happening::Started) => (Self::Awake, None),
            (Self::FallingAsleep, Happening::Ended) | (Self::Waking, Happening::GivenUp) => (Self::Asleep, None),
            (
                phase,
                Happening::Wanted
                | Happening::Idle
                | Happening::Started
                | Happening::NotStarted
                | Happening::GivenUp
                | Happening::Ended,
            ) => (phase, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::{Just, prop_assert, prop_assert_eq, prop_oneof, proptest};
    use proptest::strategy::Strategy;
    use proptest::test_runner::TestCaseError;

    use super::*;

    /// A model of what is around the rule: the supervisor with its queue of orders, its child, and the work of the agent.
    struct World {
        phase: Phase,
        /// Orders that the supervisor has not carried out, each with the life that it is for.
        orders: VecDeque<(Order, u32)>,
        /// The life in which the agent is, which changes when it is stopped: reports about an earlier one are dropped.
        life: u32,
        has_child: bool,
        has_work: bool,
    }

    impl World {
        fn happens(&mut self, happening: Happening) {
            let (phase, order) = self.phase.after(happening);
            self.phase = phase;
            self.orders.extend(order.map(|order| (order, self.life)));
        }

        /// The supervisor carries out its first order, and reports.
        fn carry_out(&mut self, fails: bool) -> Result<(), TestCaseError> {
            let Some((order, life)) = self.orders.pop_front() else { return Ok(()) };
            let report = match order {
                Order::Start => {
                    prop_assert!(!self.has_child, "started twice");
                    self.has_child = !fails;
                    if fails { Happening::NotStarted } else { Happening::Started }
                }
                Order::End => {
                    prop_assert!(self.has_child, "ended what is not there");
                    self.has_child = false;
                    Happening::Ended
                }
            };
            if life == self.life {
                self.happens(report);
            }
            Ok(())
        }

        fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
            match step {
                Step::Work => {
                    self.has_work = true;
                    self.happens(Happening::Wanted);
                }
                Step::Finish => self.has_work &= self.phase != Phase::Awake,
                Step::Idle if !self.has_work => self.happens(Happening::Idle),
                Step::Idle => {}
                Step::CarryOut => self.carry_out(false)?,
                Step::Fail => self.carry_out(true)?,
                Step::Stop => {
                    // Whoever stops an agent forgets its phase, ends its child, and waits for that. Then the agent is declared again.
                    (self.phase, self.life) = (Phase::Asleep, self.life + 1);
                    while !self.orders.is_empty() {
                        self.carry_out(false)?;
                    }
                    (self.has_child, self.has_work) = (false, false);
                }
            }
            prop_assert!(self.orders.len() <= 1, "{:?}", self.orders);
            let is_under_way = matches!(self.phase, Phase::Waking | Phase::FallingAsleep | Phase::WokenTooSoon);
            prop_assert_eq!(is_under_way, !self.orders.is_empty());
            Ok(())
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Work,
        Finish,
        Idle,
        CarryOut,
        Fail,
        Stop,
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Work),
            4 => Just(Step::Finish),
            4 => Just(Step::Idle),
            6 => Just(Step::CarryOut),
            2 => Just(Step::Fail),
            1 => Just(Step::Stop),
        ]
    }

    proptest! {
        #[test]
        fn a_child_is_started_once_at_a_time_and_work_never_waits_for_an_agent_that_sleeps(
            steps in proptest::collection::vec(steps(), 0..60),
        ) {
            let mut world =
                World { phase: Phase::Asleep, orders: VecDeque::new(), life: 0, has_child: false, has_work: false };
            for step in steps {
                world.step(step)?;
            }
            while !world.orders.is_empty() {
                world.carry_out(false)?;
            }
            prop_assert_eq!(world.has_child, world.phase == Phase::Awake);
            prop_assert!(matches!(world.phase, Phase::Awake | Phase::Asleep));
            prop_assert!(!world.has_work || world.phase == Phase::Awake, "work waits for ever");
        }
    }

    #[test]
    fn an_agent_that_is_given_up_has_no_actor_until_it_is_wanted_again() {
        let (phase, order) = Phase::Waking.after(Happening::GivenUp);
        assert_eq!((phase, order), (Phase::Asleep, None));
        assert_eq!(phase.after(Happening::Wanted), (Phase::Waking, Some(Order::Start)));
    }
}
