//! The restart rule against a reference model that keeps every restart ever made and walks the list for each question.

use proptest::prelude::{Just, any, prop, prop_assert, prop_assert_eq, prop_oneof};
use proptest::sample::Index;
use proptest::strategy::Strategy as Generate;

use super::super::backoff::RestartBackoff;
use super::*;
use crate::testing::rules::play;

#[derive(Default)]
struct Model {
    restarts: Vec<(Position, Duration)>,
}

impl Model {
    fn next(&mut self, policy: &Policy, children: &[ChildFacts], incident: Incident) -> Decision {
        let it = incident.facts;
        if it.restart == Restart::Temporary || (it.restart == Restart::Transient && incident.normal) {
            let others = (0..children.len()).filter(|&i| i as Position != incident.child && children[i].significant);
            let left = others.filter(|&i| children[i].presence != Presence::Down).count();
            let shutdown = match policy.auto_shutdown {
                AutoShutdown::Never => false,
                AutoShutdown::AnySignificant => it.significant,
                AutoShutdown::AllSignificant => it.significant && left == 0,
            };
            return match (shutdown, it.restart) {
                (true, _) => Decision::Shutdown,
                (false, Restart::Temporary) => Decision::Forget,
                (false, _) if policy.strategy == Strategy::SimpleOneForOne => Decision::Forget,
                (false, _) => Decision::Keep,
            };
        }
        let recent = |limit: Intensity, whose: &dyn Fn(Position) -> bool| {
            let young = |at: Duration| incident.now - at <= limit.period;
            1 + self.restarts.iter().filter(|&&(child, at)| whose(child) && young(at)).count() as u32
        };
        let mine = |child| child == incident.child;
        let decision = match it.own_intensity {
            Some(limit) if recent(limit, &mine) > limit.max => Decision::Fail,
            None if recent(policy.intensity, &|child| children[child as usize].own_intensity.is_none())
                > policy.intensity.max =>
            {
                Decision::Escalate
            }
            own => {
                let (mut stop, mut start) = (Vec::new(), Vec::new());
                for (other, facts) in (0..).zip(children) {
                    let together = match policy.strategy {
                        Strategy::OneForOne | Strategy::SimpleOneForOne => other == incident.child,
                        Strategy::OneForAll => true,
                        Strategy::RestForOne => other >= incident.child,
                    };
                    if together && facts.restart != Restart::Temporary {
                        start.push(other);
                    }
                    if together && other != incident.child && facts.presence == Presence::Up {
                        stop.insert(0, other);
                    }
                }
                Decision::Restart { stop, start, attempt: recent(own.unwrap_or(policy.intensity), &mine) }
            }
        };
        self.restarts.push((incident.child, incident.now));
        decision
    }
}

fn intensities() -> impl Generate<Value = Intensity> {
    (0_u32..4, 0_u64..30).prop_map(|(max, secs)| Intensity::new(max, Duration::from_secs(secs)))
}

fn children() -> impl Generate<Value = Vec<ChildFacts>> {
    let restart = prop_oneof![Just(Restart::Permanent), Just(Restart::Transient), Just(Restart::Temporary)];
    let presence = prop_oneof![Just(Presence::Up), Just(Presence::Pending), Just(Presence::Down)];
    let facts = (restart, any::<bool>(), proptest::option::of(intensities()), presence).prop_map(
        |(restart, significant, own_intensity, presence)| {
            // A specification with both is refused.
            let significant = significant && own_intensity.is_none();
            ChildFacts { restart, significant, own_intensity, presence }
        },
    );
    proptest::collection::vec(facts, 1..6)
}

fn policies() -> impl Generate<Value = Policy> {
    let strategy = prop_oneof![
        Just(Strategy::OneForOne),
        Just(Strategy::OneForAll),
        Just(Strategy::RestForOne),
        Just(Strategy::SimpleOneForOne)
    ];
    let auto_shutdown =
        prop_oneof![Just(AutoShutdown::Never), Just(AutoShutdown::AnySignificant), Just(AutoShutdown::AllSignificant)];
    (strategy, intensities(), auto_shutdown).prop_map(|(strategy, intensity, auto_shutdown)| Policy {
        strategy,
        intensity,
        auto_shutdown,
    })
}

/// The positions are the indices.
fn at(children: &[ChildFacts]) -> impl Fn(RangeInclusive<Position>) -> Vec<(Position, ChildFacts)> {
    move |positions| (0..).zip(children.iter().copied()).filter(|(position, _)| positions.contains(position)).collect()
}

fn backoffs() -> impl Generate<Value = RestartBackoff> {
    (0_u64..500, 0_u64..5_000, 0_u32..=100).prop_map(|(base, cap, percent)| RestartBackoff {
        base: Duration::from_millis(base),
        cap: Duration::from_millis(cap),
        jitter: f64::from(percent) / 100.0,
    })
}

/// The longest wait before a restart: none before the first, the base before the second, and each twice the one before.
fn longest_wait(backoff: &RestartBackoff, attempt: u32) -> Duration {
    let mut wait = if attempt < 2 { Duration::ZERO } else { backoff.base };
    for _ in 2..attempt {
        wait = (wait * 2).min(backoff.cap);
    }
    wait.min(backoff.cap)
}

#[test]
fn the_children_that_restart_stop_or_escalate_are_those_of_the_model() {
    let branches = [
        "forgotten",
        "kept",
        "restarted",
        "restarted with siblings that were stopped",
        "restarted without a temporary sibling",
        "waits for a restart",
        "failed alone",
        "escalated",
        "shut down",
        "not shut down: another significant child is up",
    ];
    let incidents = prop::collection::vec((any::<Index>(), any::<bool>(), 0_u64..20, any::<u64>()), 1..40);
    play("restart", &branches, (policies(), children(), backoffs(), incidents), |case, seen| {
        let (policy, children, backoff, incidents) = case;
        let (mut shared, mut own) = (Window::default(), vec![Window::default(); children.len()]);
        let (mut model, mut now) = (Model::default(), Duration::ZERO);
        for (child, normal, pause, random) in incidents {
            now += Duration::from_secs(pause);
            let child = child.index(children.len());
            let facts = children[child];
            let incident = Incident { child: child as Position, facts, normal, now };
            let decided = decide(&policy, at(&children), incident, &mut shared, &mut own[child]);
            prop_assert_eq!(&decided, &model.next(&policy, &children, incident));
            let branch = match decided {
                Decision::Forget => "forgotten",
                Decision::Keep if facts.significant && policy.auto_shutdown == AutoShutdown::AllSignificant => {
                    "not shut down: another significant child is up"
                }
                Decision::Keep => "kept",
                Decision::Fail => "failed alone",
                Decision::Escalate => "escalated",
                Decision::Shutdown => "shut down",
                Decision::Restart { stop, start, attempt } => {
                    let (wait, longest) = (backoff.delay(attempt, random), longest_wait(&backoff, attempt));
                    let share = backoff.jitter * (random as f64 / u64::MAX as f64);
                    let expected = longest.as_secs_f64() * (1.0 - share);
                    prop_assert!((wait.as_secs_f64() - expected).abs() < 1e-6, "{wait:?} is not {expected} s");
                    if wait > Duration::ZERO {
                        seen.insert("waits for a restart");
                    }
                    if policy.strategy == Strategy::OneForAll && start.len() < children.len() {
                        seen.insert("restarted without a temporary sibling");
                    }
                    if stop.is_empty() { "restarted" } else { "restarted with siblings that were stopped" }
                }
            };
            seen.insert(branch);
        }
        Ok(())
    });
}
