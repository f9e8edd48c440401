//! The rule of effects that must not be repeated, against a model.

use proptest::prelude::*;

use crate::messages::FailureKind;
use crate::testing::rules::{Seen, play};

use super::*;

/// What happens to a turn that wants its effect.
#[derive(Clone, Debug)]
enum Op {
    /// An attempt reaches the effect. The tool would answer `reconciled` about an earlier execution, and the process may end
    /// after `requests` requests.
    Attempt { reconciled: Reconciled, policy: Option<OnUnknown>, requests: usize, fails: bool },
    /// A person answers, if there is a question.
    Answer(Resolution),
    /// The question expires, if there is one.
    Expire,
}

/// SEMANTICS 14 as a model: the effect happens once for each permission, its result is final, and a question ends with the
/// answer.
#[derive(Default)]
struct Model {
    record: Option<Record>,
    /// How often it has happened.
    done: usize,
    /// How often it may have happened: the first time, and each time a tool or a person reported that it did not happen or
    /// ordered it again.
    permitted: usize,
    result: Option<Result<Json, Failure>>,
}

fn intent() -> Intent {
    Intent::new("charge", "order 7", &Json::from(3))
}

fn facts() -> Facts {
    let at = Timestamp::from_millis(1_000);
    Facts { at, nonce: 1, expires_at: at, on_unknown: OnUnknown::Ask }
}

impl Model {
    /// Sends a request to the run; twice if the request is repeated.
    fn request(&mut self, request: &TurnRequest) {
        for _ in 0..2 {
            match decide(RequestKey { turn: 1, ordinal: 0 }, self.record.as_ref(), request, facts()).unwrap() {
                Decided::Event(event) => self.record = Some(recorded(&event, self.record.as_ref()).unwrap()),
                Decided::Recorded => {}
                Decided::Changed(why) => panic!("{why}"),
            }
        }
    }

    fn resolved(&mut self, resolution: Resolution) {
        let Some(Record::Once(Once { state: OnceState::Asked(_), .. })) = &self.record else { return };
        self.permitted += usize::from(resolution == Resolution::Repeat);
        let event = RunEvent::OutcomeResolved { turn: 1, ordinal: 0, resolution, by: "ann".into(), at: facts().at };
        self.record = recorded(&event, self.record.as_ref());
    }

    fn attempt(
        &mut self,
        reconciled: &Reconciled,
        policy: Option<OnUnknown>,
        mut requests: usize,
        fails: bool,
        seen: &mut Seen,
    ) {
        let mut next = next(self.record.as_ref(), &intent()).unwrap();
        loop {
            if requests == 0 {
                return;
            }
            requests -= 1;
            next = match next {
                Next::Begin { round } => {
                    self.request(&TurnRequest::Intend { intent: intent(), round, is_tool: false });
                    self.permitted += usize::from(self.permitted == 0);
                    self.done += 1;
                    if requests > 0 {
                        let failure = Failure::new(FailureKind::Terminal, "refused");
                        self.finish(if fails { Err(failure) } else { Ok(Json::from("receipt")) });
                    }
                    return;
                }
                Next::Result { result, .. } => return self.finish(result),
                Next::Unknown { round, begun: Some(_) } => {
                    let next = after(reconciled.clone(), round);
                    seen.extend(matches!(next, Next::Result { .. }).then_some("found out"));
                    self.permitted += usize::from(matches!(next, Next::Begin { .. }));
                    next
                }
                Next::Unknown { round, begun: None } => {
                    let was_open = matches!(&self.record, Some(Record::Once(Once { state: OnceState::Begun, .. })));
                    let request = TurnRequest::Resolve { intent: intent(), round, on_unknown: policy, problem: None };
                    self.request(&request);
                    match &self.record {
                        Some(Record::Once(Once { state: OnceState::Resolved(resolution), round, .. })) => {
                            self.permitted += usize::from(was_open && *resolution == Resolution::Repeat);
                            seen.extend(was_open.then_some("decided by policy"));
                            Next::Resolved { resolution: resolution.clone(), round: *round }
                        }
                        // It waits for a person.
                        _ => return,
                    }
                }
                Next::Resolved { resolution: Resolution::Repeat, round } => Next::Begin { round: round + 1 },
                Next::Resolved { resolution: Resolution::Done(value), .. } => {
                    seen.insert("said by a person");
                    return self.result_is(Ok(value));
                }
                Next::Resolved { resolution: Resolution::GiveUp | Resolution::Report, .. } => {
                    seen.insert("given up");
                    return;
                }
            };
        }
    }

    fn finish(&mut self, result: Result<Json, Failure>) {
        let (name, is_tainted) = ("charge".into(), false);
        self.record = Some(match result.clone() {
            Ok(value) => Record::Step { name, value, is_tainted },
            Err(failure) => Record::StepFailed { name, failure, is_tainted },
        });
        self.result_is(result);
    }

    fn result_is(&mut self, result: Result<Json, Failure>) {
        assert_eq!(self.result.get_or_insert(result.clone()), &result, "it came to something else before");
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let reconciled = prop_oneof![
        4 => Just(Reconciled::Unknown),
        1 => Just(Reconciled::NotDone),
        1 => Just(Reconciled::Done("found".into())),
    ];
    let policy = prop_oneof![
        4 => Just(None),
        1 => prop_oneof![
            Just(OnUnknown::Ask), Just(OnUnknown::Report), Just(OnUnknown::Fail), Just(OnUnknown::Repeat)
        ].prop_map(Some),
    ];
    let attempt = (reconciled, policy, 0..6_usize, any::<bool>())
        .prop_map(|(reconciled, policy, requests, fails)| Op::Attempt { reconciled, policy, requests, fails });
    let resolution =
        prop_oneof![Just(Resolution::Repeat), Just(Resolution::GiveUp), Just(Resolution::Done("said".into()))];
    proptest::collection::vec(
        prop_oneof![4 => attempt, 2 => resolution.prop_map(Op::Answer), 1 => Just(Op::Expire)],
        1..20,
    )
}

#[test]
fn an_effect_happens_no_more_often_than_was_permitted_and_keeps_its_result() {
    let branches = ["done twice", "failed", "found out", "said by a person", "given up", "decided by policy"];
    play("outside effects", &branches, ops(), |ops, seen| {
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Attempt { reconciled, policy, requests, fails } => {
                    model.attempt(&reconciled, policy, requests, fails, seen);
                }
                Op::Answer(resolution) => model.resolved(resolution),
                Op::Expire => model.resolved(Resolution::GiveUp),
            }
            prop_assert!(model.done <= model.permitted, "{} > {}: {:?}", model.done, model.permitted, model.record);
            if model.result.is_some() {
                let is_begun = matches!(model.record, Some(Record::Once(Once { state: OnceState::Begun, .. })));
                prop_assert!(!is_begun, "it was begun again after its result");
            }
        }
        seen.extend((model.done > 1).then_some("done twice"));
        seen.extend(matches!(model.result, Some(Err(_))).then_some("failed"));
        Ok(())
    });
}

#[test]
fn something_else_in_its_place_is_a_changed_turn() {
    let other = Intent::new("charge", "order 7", &Json::from(4));
    let record = Record::Once(Once { intent: Box::new(intent()), round: 0, state: OnceState::Begun });
    assert!(
        next(Some(&record), &other)
            .unwrap_err()
            .contains("charge order 7 where the journal has charge order 7 with other")
    );
    let request = TurnRequest::Intend { intent: other, round: 0, is_tool: false };
    assert!(matches!(
        decide(RequestKey { turn: 1, ordinal: 0 }, Some(&record), &request, facts()),
        Some(Decided::Changed(_))
    ));
    let step = Record::StepStarted { name: "charge".into() };
    assert_eq!(next(Some(&step), &intent()), Ok(Next::Begin { round: 0 }), "it was repeatable then");
}
