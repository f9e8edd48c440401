//! The rule of what follows when a child ends: pure, over plain facts, without actors, tasks or a clock.
//!
//! The rule is Erlang/OTP's `supervisor`. Whether the child is restarted depends on its [`Restart`] type; which children are
//! restarted with it, on the supervisor's [`Strategy`]; whether the supervisor gives up on its [`Intensity`].

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::intensity::{Intensity, Window};

/// Who is restarted together with a child that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Only the child itself.
    OneForOne,
    /// All children: the others are stopped in reverse order, then all are started in order.
    OneForAll,
    /// The child and those listed after it.
    RestForOne,
    /// Only the child itself. The children are alike, started from a [`ChildTemplate`](super::ChildTemplate) while the
    /// supervisor runs; they have no order, so they stop at the same time, and one that is done leaves the list.
    SimpleOneForOne,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneForOne => "one_for_one",
            Self::OneForAll => "one_for_all",
            Self::RestForOne => "rest_for_one",
            Self::SimpleOneForOne => "simple_one_for_one",
        })
    }
}

/// When a child that ended by itself is restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restart {
    /// Always, also after a normal end.
    #[default]
    Permanent,
    /// Only after an abnormal end: a panic, an error, a kill, a cancelled task.
    Transient,
    /// Never; the child is forgotten when it ends, also when a sibling's crash stopped it.
    Temporary,
}

/// Whether a supervisor ends, as if stopped, when its significant children have ended by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AutoShutdown {
    /// The supervisor does not end by itself, and refuses significant children
    /// ([`SpecError::SignificantWithoutShutdown`](super::SpecError::SignificantWithoutShutdown)).
    #[default]
    Never,
    /// When the first significant child has ended.
    AnySignificant,
    /// When the last significant child has ended.
    AllSignificant,
}

/// The rules of one supervisor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) strategy: Strategy,
    pub(super) intensity: Intensity,
    pub(super) auto_shutdown: AutoShutdown,
}

/// The position of a child in the start order. None is assigned twice.
pub(super) type Position = u64;

/// The facts about a child that the rule needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChildFacts {
    pub(super) restart: Restart,
    pub(super) significant: bool,
    /// A window of the child's own: too many restarts fail the child, not the supervisor.
    pub(super) own_intensity: Option<Intensity>,
    pub(super) presence: Presence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Running or starting: there is something to stop.
    Up,
    /// Waits to be started.
    Pending,
    /// Finished, stopped or failed.
    Down,
}

/// One child's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incident {
    pub(super) child: Position,
    pub(super) facts: ChildFacts,
    pub(super) normal: bool,
    pub(super) now: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The child is done and leaves the list.
    Forget,
    /// The child is done and stays listed as stopped.
    Keep,
    /// Stop these in this order, then start those in that order. `attempt` counts the child's recent incidents.
    Restart { stop: Vec<Position>, start: Vec<Position>, attempt: u32 },
    /// The child has failed for good; the supervisor continues.
    Fail,
    /// Too many restarts: the supervisor stops its children and fails.
    Escalate,
    /// The supervisor's work is done: it stops its children and ends.
    Shutdown,
}

/// Decides what follows from `incident`.
///
/// An incident after which the child's restart type asks for a restart first enters the windows: always the child's own,
/// and the supervisor's unless the child counts for itself. It stays there whatever follows, also a failure or an
/// escalation. An incident after which the child is done enters none.
///
/// `children` returns those at the positions, in order; it is called for no more than the rule looks at.
pub(super) fn decide(
    policy: &Policy,
    children: impl Fn(RangeInclusive<Position>) -> Vec<(Position, ChildFacts)>,
    incident: Incident,
    shared: &mut Window,
    own: &mut Window,
) -> Decision {
    let Incident { child, facts, normal, now } = incident;
    let returns = match facts.restart {
        Restart::Permanent => true,
        Restart::Transient => !normal,
        Restart::Temporary => false,
    };
    if !returns {
        let is_active = |(other, facts): (Position, ChildFacts)| {
            other != child && facts.significant && facts.presence != Presence::Down
        };
        let shuts_down = facts.significant
            && match policy.auto_shutdown {
                AutoShutdown::Never => false,
                AutoShutdown::AnySignificant => true,
                AutoShutdown::AllSignificant => !children(Position::MIN..=Position::MAX).into_iter().any(is_active),
            };
        return match (shuts_down, facts.restart, policy.strategy) {
            (true, ..) => Decision::Shutdown,
            (false, Restart::Temporary, _) | (false, _, Strategy::SimpleOneForOne) => Decision::Forget,
            (false, Restart::Permanent | Restart::Transient, _) => Decision::Keep,
        };
    }
    let within_own = own.add_restart(now, facts.own_intensity.unwrap_or(policy.intensity));
    if facts.own_intensity.is_some() {
        if !within_own {
            return Decision::Fail;
        }
    } else if !shared.add_restart(now, policy.intensity) {
        return Decision::Escalate;
    }
    let affected = children(match policy.strategy {
        Strategy::OneForOne | Strategy::SimpleOneForOne => child..=child,
        Strategy::OneForAll => Position::MIN..=Position::MAX,
        Strategy::RestForOne => child..=Position::MAX,
    });
    let stops = affected.iter().rev().filter(|(other, facts)| *other != child && facts.presence == Presence::Up);
    let starts = affected.iter().filter(|(_, facts)| facts.restart != Restart::Temporary);
    Decision::Restart {
        stop: stops.map(|&(other, _)| other).collect(),
        start: starts.map(|&(other, _)| other).collect(),
        attempt: own.count(),
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    fn child(restart: Restart) -> ChildFacts {
        ChildFacts { restart, significant: false, own_intensity: None, presence: Presence::Up }
    }

    fn policy(strategy: Strategy) -> Policy {
        Policy { strategy, intensity: Intensity::default(), auto_shutdown: AutoShutdown::Never }
    }

    /// The positions are the indices.
    fn at(children: &[ChildFacts]) -> impl Fn(RangeInclusive<Position>) -> Vec<(Position, ChildFacts)> {
        move |positions| {
            (0..).zip(children.iter().copied()).filter(|(position, _)| positions.contains(position)).collect()
        }
    }

    fn decide_once(policy: &Policy, children: &[ChildFacts], child: usize, normal: bool) -> Decision {
        let incident = Incident { child: child as Position, facts: children[child], normal, now: Duration::ZERO };
        decide(policy, at(children), incident, &mut Window::default(), &mut Window::default())
    }

    #[test]
    fn strategies_have_the_names_of_otp() {
        let strategies = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne, Strategy::SimpleOneForOne];
        assert_eq!(
            strategies.map(|strategy| strategy.to_string()),
            ["one_for_one", "one_for_all", "rest_for_one", "simple_one_for_one"]
        );
    }

    #[test]
    fn the_strategy_decides_which_children_restart_with_a_crash() {
        let children = [child(Restart::Permanent), child(Restart::Transient), child(Restart::Permanent)];
        let restart = |strategy| match decide_once(&policy(strategy), &children, 1, false) {
            Decision::Restart { stop, start, attempt: 1 } => (stop, start),
            other => panic!("{other:?}"),
        };
        assert_eq!(restart(Strategy::OneForOne), (vec![], vec![1]));
        assert_eq!(restart(Strategy::OneForAll), (vec![2, 0], vec![0, 1, 2]));
        assert_eq!(restart(Strategy::RestForOne), (vec![2], vec![1, 2]));
    }

    #[test]
    fn the_restart_type_decides_which_children_return() {
        let after = |restart, normal| decide_once(&policy(Strategy::OneForOne), &[child(restart)], 0, normal);
        let again = Decision::Restart { stop: vec![], start: vec![0], attempt: 1 };
        assert_eq!([after(Restart::Permanent, true), after(Restart::Permanent, false)], [again.clone(), again.clone()]);
        assert_eq!([after(Restart::Transient, true), after(Restart::Transient, false)], [Decision::Keep, again]);
        assert_eq!(
            [after(Restart::Temporary, true), after(Restart::Temporary, false)],
            [Decision::Forget, Decision::Forget]
        );
        let done = decide_once(&policy(Strategy::SimpleOneForOne), &[child(Restart::Transient)], 0, true);
        assert_eq!(done, Decision::Forget, "children of a template do not stay listed");
    }

    #[test]
    fn a_window_of_its_own_fails_the_child_and_not_the_supervisor() {
        let own_intensity = Some(Intensity::new(1, Duration::from_secs(60)));
        let children = [ChildFacts { own_intensity, ..child(Restart::Permanent) }, child(Restart::Permanent)];
        let (mut shared, mut own) = (Window::default(), Window::default());
        let incident = Incident { child: 0, facts: children[0], normal: false, now: Duration::ZERO };
        let mut next = || decide(&policy(Strategy::OneForOne), at(&children), incident, &mut shared, &mut own);
        assert!(matches!(next(), Decision::Restart { .. }));
        assert_eq!([next(), next()], [Decision::Fail, Decision::Fail]);
        assert_eq!(shared, Window::default());
    }

    #[test]
    fn the_supervisor_shuts_down_with_its_significant_children() {
        let significant = ChildFacts { significant: true, ..child(Restart::Transient) };
        let gone = ChildFacts { presence: Presence::Down, ..significant };
        let after = |auto_shutdown, other| {
            let policy = Policy { auto_shutdown, ..policy(Strategy::OneForOne) };
            decide_once(&policy, &[significant, other, child(Restart::Permanent)], 0, true)
        };
        assert_eq!(after(AutoShutdown::Never, gone), Decision::Keep);
        assert_eq!(after(AutoShutdown::AnySignificant, significant), Decision::Shutdown);
        assert_eq!(after(AutoShutdown::AllSignificant, significant), Decision::Keep);
        assert_eq!(after(AutoShutdown::AllSignificant, gone), Decision::Shutdown);
    }
}
