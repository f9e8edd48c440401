//! The rules of votes against a model: who may decide, what a vote does, and when it is decided; over gateways that share a store and
//! end at any time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use serde_json::json;

use super::Decider;
use super::reference::TestClock;
use crate::actors::shard_queues::ShardQueues;
use crate::env::Env;
use crate::messages::{
    Action, ActionKind, AgentName, Deciders, Durability, Envelope, Escalation, Groups, Rationale, RequestId, RunId,
    Terms, Timestamp, TurnId, Vote, Votes,
};
use crate::storage::{Memory, Storage};
use crate::supervision::runs::rules::errors::AnswerError;
use crate::testing::rules::play;

const GATEWAYS: usize = 2;
/// All but the last are in `ops`, and the last is in `leads`. The first has asked for the run, by a token.
const PEOPLE: [&str; 4] = ["ann", "bob", "cat", "dan"];
const ESCALATES_AT: u64 = 40;
const EXPIRES_AT: u64 = 90;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Yes,
    YesForRun,
    No,
    Other,
}

#[derive(Clone, Debug)]
enum Op {
    Decide {
        gateway: usize,
        person: usize,
        says: Says,
    },
    /// The timer of the question fires.
    TimeIsUp {
        gateway: usize,
    },
    /// A gateway ends with its process; the next one is asked the same, and looks at what is stored.
    Restart {
        gateway: usize,
    },
    Wait {
        millis: u64,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let says =
        prop_oneof![6 => Just(Says::Yes), 3 => Just(Says::YesForRun), 1 => Just(Says::No), 1 => Just(Says::Other)];
    let decide = (0..GATEWAYS, 0..PEOPLE.len(), says);
    let op = prop_oneof![
        12 => decide.prop_map(|(gateway, person, says)| Op::Decide { gateway, person, says }),
        4 => (0..GATEWAYS).prop_map(|gateway| Op::TimeIsUp { gateway }),
        2 => (0..GATEWAYS).prop_map(|gateway| Op::Restart { gateway }),
        4 => (10_u64..60).prop_map(|millis| Op::Wait { millis }),
    ];
    prop::collection::vec(op, 1..20)
}

/// Who decides, and who has changed what is asked, if anybody.
fn envelopes() -> impl Strategy<Value = Envelope> {
    let group = prop::option::weighted(0.8, Just("ops"));
    let fields = (group, 1_u32..4, any::<bool>(), any::<bool>(), prop::option::weighted(0.3, 0..PEOPLE.len()));
    fields.prop_map(|(group, at_least, excludes_requester, escalates, editor)| {
        let after = Duration::from_millis(ESCALATES_AT);
        let escalation = escalates.then(|| Escalation { after, group: "leads".into() });
        let edited_by = |editor: usize| Vote { by: PEOPLE[editor].into(), at: Timestamp::from_millis(0), until: None };
        Envelope {
            version: Envelope::VERSION,
            kind: ActionKind::Requested,
            request: RequestId { turn: TurnId { run: RunId(uuid::Uuid::nil()), number: 1 }, ordinal: 0 },
            agent: AgentName::new("writer").unwrap(),
            action: Action::new("write_file", "a.md", json!({ "path": "a.md" })),
            policy: Envelope::ASK.into(),
            nonce: 1,
            expires_at: Timestamp::from_millis(EXPIRES_AT),
            remind_at: None,
            escalates_at: escalation.is_some().then_some(Timestamp::from_millis(ESCALATES_AT)),
            deciders: Deciders { group: group.map(Into::into), at_least, excludes_requester, escalation },
            requester: Some("laptop".into()),
            edited_by: editor.map(edited_by),
            rationale: Rationale::default(),
        }
    })
}

/// What the rules say, in other words than theirs.
struct Model {
    now: u64,
    approved: Vec<(&'static str, u64, bool)>,
    /// Whether it was approved, by whom, and under which terms.
    decided: Option<(bool, &'static str, Terms)>,
    open: [bool; GATEWAYS],
}

impl Model {
    fn is_barred(&self, envelope: &Envelope, person: usize, now: u64) -> Option<&'static str> {
        let Deciders { group, excludes_requester, escalation, .. } = &envelope.deciders;
        let is_lead = person == 3;
        match (*excludes_requester && person == 0, group.is_some() && is_lead, escalation.is_some()) {
            (true, ..) => Some("the requester"),
            (false, true, false) => Some("in no group"),
            (false, true, true) if now < ESCALATES_AT => Some("too early"),
            (false, true, true) | (false, false, _) => None,
        }
    }

    fn count(&mut self, envelope: &Envelope) {
        if self.decided.is_none() && self.approved.len() >= envelope.deciders.at_least as usize {
            let for_run = self.approved.iter().all(|(_, _, for_run)| *for_run);
            let until = Timestamp::from_millis(EXPIRES_AT);
            let terms = if for_run { Terms::Run { until } } else { Terms::Once };
            self.decided = self.approved.last().map(|(by, ..)| (true, *by, terms));
        }
    }
}

#[test]
fn votes_decide_when_there_are_enough_of_them_and_one_denial_does_at_once() {
    let branches = [
        "a vote",
        "enough votes",
        "denied",
        "replaced",
        "expired",
        "too late",
        "has approved",
        "already decided",
        "the requester",
        "in no group",
        "too early",
        "for the run",
        "decided by who has changed it",
        "voted through both",
    ];
    play("votes", &branches, (envelopes(), ops()), |(envelope, ops), seen| {
        let clock = TestClock::default();
        let storage: Arc<dyn Storage> = Arc::new(Memory::new(Arc::new(clock.clone())));
        let env = Env::new(clock.clone(), 1);
        let id = envelope.id();
        let groups = Groups::default().group("ops", ["ann", "bob", "cat"]).group("leads", ["dan"]);
        let groups = groups.requesters(|token| (token == "laptop").then(|| "ann".into()));
        let gateway = || {
            let storage = (Arc::clone(&storage), Durability::Memory);
            let decider = Decider::new(env.clone(), storage, Arc::new(ShardQueues::new(1)), groups.clone());
            decider.request(&envelope);
            let _ = decider.queue.decide(id, None).now_or_never().unwrap();
            decider
        };
        let mut model = Model { now: 0, approved: Vec::new(), decided: None, open: [true; GATEWAYS] };
        let editor = envelope.edited_by.as_ref().and_then(|vote| PEOPLE.iter().position(|name| **name == *vote.by));
        if let Some(editor) = editor.filter(|editor| model.is_barred(&envelope, *editor, 0).is_none()) {
            model.approved.push((PEOPLE[editor], 0, false));
            model.count(&envelope);
        }
        if model.decided.is_some() {
            seen.insert("decided by who has changed it");
            model.open = [false; GATEWAYS];
        }
        let mut gateways = [gateway(), gateway()];
        let mut voted_at = [false; GATEWAYS];
        for op in ops {
            let at = Timestamp::from_millis(model.now);
            match op {
                Op::Wait { millis } => {
                    model.now += millis;
                    clock.0.store(model.now, Ordering::Relaxed);
                }
                Op::Restart { gateway: which } => {
                    gateways[which] = gateway();
                    model.open[which] = model.decided.is_none();
                }
                Op::TimeIsUp { gateway } if model.now >= EXPIRES_AT => {
                    let _ = gateways[gateway].expire(id).now_or_never().unwrap();
                    if model.decided.is_none() {
                        model.decided = Some((false, "expiry", Terms::Once));
                        seen.insert("expired");
                    }
                    model.open[gateway] = false;
                }
                Op::TimeIsUp { .. } => {}
                Op::Decide { gateway, person, says } => {
                    let (decider, by) = (&gateways[gateway], PEOPLE[person]);
                    let actual = match says {
                        Says::Yes => decider.approve(id, by).now_or_never(),
                        Says::YesForRun => decider.approve_for_run(id, by, Duration::from_secs(9)).now_or_never(),
                        Says::No => decider.deny(id, by, "no").now_or_never(),
                        Says::Other => decider.approve_edited(id, by, json!({ "path": "b.md" })).now_or_never(),
                    };
                    let actual = actual.unwrap();
                    if !model.open[gateway] || model.now >= EXPIRES_AT {
                        seen.insert("too late");
                        prop_assert!(actual.is_err(), "{actual:?}");
                        continue;
                    }
                    if model.decided.is_some() {
                        // The first decision counts, and reaches the run by this gateway as well, unless nothing was to be written.
                        seen.insert("already decided");
                        prop_assert!(actual.is_err(), "{actual:?}");
                        model.open[gateway] = !matches!(actual, Err(AnswerError::AlreadyDecided { .. }));
                        continue;
                    }
                    if let Some(why) = model.is_barred(&envelope, person, model.now) {
                        seen.insert(why);
                        let is_requester = why == "the requester";
                        prop_assert_eq!(matches!(actual, Err(AnswerError::OfRequester { .. })), is_requester);
                        prop_assert_eq!(matches!(actual, Err(AnswerError::NotInGroup { .. })), !is_requester);
                        continue;
                    }
                    match says {
                        Says::No => model.decided = Some((false, by, Terms::Once)),
                        Says::Other => {
                            model.decided =
                                Some((true, by, Terms::Edited { arguments: json!({ "path": "b.md" }).into() }));
                        }
                        Says::Yes | Says::YesForRun => {
                            if let Some((_, earlier, _)) = model.approved.iter().find(|(name, ..)| *name == by) {
                                seen.insert("has approved");
                                let at = Timestamp::from_millis(*earlier);
                                prop_assert_eq!(actual, Err(AnswerError::HasApproved { id, by: by.into(), at }));
                                continue;
                            }
                            model.approved.push((by, model.now, says == Says::YesForRun));
                            model.count(&envelope);
                        }
                    }
                    voted_at[gateway] = true;
                    if voted_at == [true; GATEWAYS] {
                        seen.insert("voted through both");
                    }
                    let votes = actual.unwrap();
                    prop_assert_eq!(&votes, &decider.votes(id).now_or_never().unwrap().unwrap());
                    let Votes { approved, missing, decision } = votes;
                    let is_alone = envelope.deciders.at_least == 1 && says != Says::No && says != Says::Other;
                    let expected: Vec<&str> = model.approved.iter().map(|(name, ..)| *name).collect();
                    if !is_alone {
                        prop_assert_eq!(approved.iter().map(|vote| &*vote.by).collect::<Vec<_>>(), expected);
                    }
                    match (&model.decided, decision) {
                        (None, None) => {
                            seen.insert("a vote");
                            prop_assert_eq!(
                                missing as usize,
                                envelope.deciders.at_least as usize - model.approved.len()
                            );
                        }
                        (Some((is_approved, by, terms)), Some(decision)) => {
                            seen.insert(match says {
                                Says::No => "denied",
                                Says::Other => "replaced",
                                Says::Yes | Says::YesForRun => "enough votes",
                            });
                            if matches!(terms, Terms::Run { .. }) {
                                seen.insert("for the run");
                            }
                            prop_assert_eq!((decision.approved, &*decision.by, decision.at), (*is_approved, *by, at));
                            prop_assert_eq!((&decision.terms, &decision.votes, missing), (terms, &approved, 0));
                            model.open[gateway] = false;
                        }
                        (expected, actual) => prop_assert!(false, "{expected:?} {actual:?}"),
                    }
                }
            }
            let stored = gateways[0].decision(id).now_or_never().unwrap().unwrap();
            let stored = stored.map(|decision| (decision.approved, decision.by.to_string()));
            prop_assert_eq!(stored, model.decided.as_ref().map(|(approved, by, _)| (*approved, (*by).to_owned())));
            for (gateway, is_open) in gateways.iter().zip(model.open) {
                prop_assert_eq!(gateway.queue.is_open(id), is_open);
            }
        }
        Ok(())
    });
}
