//! The rule of what the agent gets that is first in the wait queue. Pure.

/// The grant for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// A turn that has waited continues.
    ContinueTurn,
    /// A typed request gets a slot.
    TypedRequest,
    /// A ready turn begins.
    BeginTurn,
    /// A permit is missing; something of the agent may run as soon as one is free.
    AwaitPermit,
    /// Nothing of it may run now.
    Nothing,
}

/// The waiting work of an agent, and the free resources for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// The turn that has waited longest to continue; `None` if no turn wants to.
    pub(super) continuing: Option<Continuing>,
    pub(super) has_typed_request: bool,
    pub(super) has_ready_turn: bool,
    /// It has a value, and the board is not stopping. Turns that have begun continue in either case.
    pub(super) takes_new_work: bool,
    pub(super) has_slot: bool,
    pub(super) has_permit: bool,
}

/// What a turn needs to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuing {
    /// A permit: it kept the slot of its non-reentrant agent while it waited.
    WithSlot,
    /// A permit and a slot.
    WithoutSlot,
}

impl Demand {
    /// Turns that continue come before typed requests, and these before turns that begin. A typed request takes no permit.
    pub(super) fn next_grant(self) -> Grant {
        let or_await_permit = |grant| if self.has_permit { grant } else { Grant::AwaitPermit };
        match self.continuing {
            Some(Continuing::WithSlot) => return or_await_permit(Grant::ContinueTurn),
            Some(Continuing::WithoutSlot) if self.has_slot => return or_await_permit(Grant::ContinueTurn),
            Some(Continuing::WithoutSlot) | None => {}
        }
        if !(self.takes_new_work && self.has_slot) {
            Grant::Nothing
        } else if self.has_typed_request {
            Grant::TypedRequest
        } else if self.has_ready_turn {
            or_await_permit(Grant::BeginTurn)
        } else {
            Grant::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: Demand = Demand {
        continuing: Some(Continuing::WithoutSlot),
        has_typed_request: true,
        has_ready_turn: true,
        takes_new_work: true,
        has_slot: true,
        has_permit: true,
    };

    #[test]
    fn turns_that_continue_come_before_typed_requests_and_these_before_turns_that_begin() {
        let mut demand = EVERYTHING;
        assert_eq!(demand.next_grant(), Grant::ContinueTurn);
        demand.continuing = None;
        assert_eq!(demand.next_grant(), Grant::TypedRequest);
        demand.has_typed_request = false;
        assert_eq!(demand.next_grant(), Grant::BeginTurn);
        demand.has_ready_turn = false;
        assert_eq!(demand.next_grant(), Grant::Nothing);
    }

    #[test]
    fn turns_wait_for_a_permit_and_typed_requests_do_not() {
        let mut demand = Demand { has_permit: false, ..EVERYTHING };
        assert_eq!(demand.next_grant(), Grant::AwaitPermit, "a typed request does not overtake a turn that continues");
        demand.continuing = None;
        assert_eq!(demand.next_grant(), Grant::TypedRequest);
        demand.has_typed_request = false;
        assert_eq!(demand.next_grant(), Grant::AwaitPermit);
        demand.has_ready_turn = false;
        assert_eq!(demand.next_grant(), Grant::Nothing);
    }

    #[test]
    fn without_a_free_slot_only_a_turn_that_kept_its_own_continues() {
        let mut demand = Demand { has_slot: false, ..EVERYTHING };
        assert_eq!(demand.next_grant(), Grant::Nothing);
        demand.continuing = None;
        assert_eq!(demand.next_grant(), Grant::Nothing);
        demand.continuing = Some(Continuing::WithSlot);
        assert_eq!(demand.next_grant(), Grant::ContinueTurn);
        demand.has_permit = false;
        assert_eq!(demand.next_grant(), Grant::AwaitPermit);
    }

    #[test]
    fn an_agent_that_takes_no_new_work_continues_what_it_has_begun() {
        for continuing in [Continuing::WithSlot, Continuing::WithoutSlot] {
            let demand = Demand { takes_new_work: false, continuing: Some(continuing), ..EVERYTHING };
            assert_eq!(demand.next_grant(), Grant::ContinueTurn, "{continuing:?}");
        }
        let demand = Demand { takes_new_work: false, continuing: None, ..EVERYTHING };
        assert_eq!(demand.next_grant(), Grant::Nothing);
    }
}
