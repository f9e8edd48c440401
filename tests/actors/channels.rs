//! The suite for channels, on a channel in this process: one that keeps the rules passes, and those that break one are found out.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::approvals::{Channel, Decider};
use callboard::messages::{ApprovalId, Decision, Envelope};
use callboard::testing::channels::{Audience, SeenCard, check};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

callboard::channel_conformance! {
    whole noticeboard: Pinboard::new(Flaw::None)
}

/// How long after it has looked for a decision the channel of a new process looks again.
const LOOKS_AGAIN: Duration = Duration::from_millis(1);

/// A rule that the channel breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    ShowsEachTimeItIsAsked,
    NamesNobody,
    ClaimsEveryDecision,
    TellsNobody,
    ForgetsAtTheEnd,
    ShowsWhatWasDecided,
}

/// A board with pins, which outlives processes.
#[derive(Clone)]
struct Pinboard {
    pins: Arc<Mutex<Pins>>,
    changes: watch::Sender<()>,
    flaw: Flaw,
}

#[derive(Default)]
struct Pins {
    pinned: BTreeMap<ApprovalId, Pin>,
    seen: Vec<SeenCard>,
    is_unreachable: bool,
}

struct Pin {
    text: String,
    closed: bool,
    /// What is appended to the text of a decision that was made here.
    here: &'static str,
    decider: Decider,
}

impl Pinboard {
    fn new(flaw: Flaw) -> Self {
        Self { pins: Arc::default(), changes: watch::Sender::new(()), flaw }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Pins) -> T) -> T {
        let changed = {
            let mut pins = self.pins.lock();
            let changed = change(&mut pins);
            pins.show(self.flaw);
            changed
        };
        self.changes.send_replace(());
        changed
    }

    fn close(&self, id: ApprovalId, decision: Option<&Decision>) {
        self.change(|pins| {
            let Some(pin) = pins.pinned.get_mut(&id).filter(|pin| !pin.closed) else { return };
            pin.closed = true;
            pin.text += &match decision {
                None => " withdrawn".to_owned(),
                Some(_) if self.flaw == Flaw::NamesNobody => " denied".to_owned(),
                Some(decision) => {
                    let verdict = if decision.approved { "approved" } else { "denied" };
                    let here = if self.flaw == Flaw::ClaimsEveryDecision { " on noticeboard" } else { pin.here };
                    format!(" {verdict} by {} at {}{here}", decision.by, decision.at)
                }
            };
        });
    }
}

impl Pins {
    fn show(&mut self, flaw: Flaw) {
        if self.is_unreachable {
            return;
        }
        for (id, pin) in &self.pinned {
            let card = SeenCard {
                place: "wall".to_owned(),
                key: id.to_string(),
                text: pin.text.clone(),
                is_open: !pin.closed || flaw == Flaw::ShowsWhatWasDecided && pin.text.contains("during"),
            };
            match self.seen.iter_mut().find(|seen| seen.key == card.key) {
                Some(seen) => *seen = card,
                None if pin.closed && flaw != Flaw::ShowsWhatWasDecided => {}
                None => self.seen.push(card),
            }
        }
    }
}

/// The channel of a process.
struct Pinning(Pinboard);

impl Channel for Pinning {
    fn name(&self) -> &str {
        "noticeboard"
    }

    fn started(&self, decider: &Decider) {
        for (id, pin) in &self.0.pins.lock().pinned {
            if !pin.closed {
                let (id, decider, board) = (*id, decider.clone(), self.0.clone());
                tokio::spawn(async move {
                    // A run that is read back later decides what has expired.
                    loop {
                        if let Some(decision) = decider.decision(id).await.unwrap() {
                            return board.close(id, Some(&decision));
                        }
                        tokio::time::sleep(LOOKS_AGAIN).await;
                    }
                });
            }
        }
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        let pin =
            || Pin { text: envelope.action.target.to_string(), closed: false, here: "", decider: decider.clone() };
        self.0.change(|pins| {
            pins.pinned.entry(envelope.id()).or_insert_with(pin).decider = decider.clone();
            if self.0.flaw == Flaw::ShowsEachTimeItIsAsked {
                let (place, key) = ("wall".to_owned(), "again".to_owned());
                pins.seen.push(SeenCard { place, key, text: envelope.action.target.to_string(), is_open: false });
            }
        });
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        self.0.close(envelope.id(), decision);
    }
}

impl Audience for Pinboard {
    fn names(&self) -> [String; 2] {
        ["ann".to_owned(), "bob".to_owned()]
    }

    fn open(&self) -> Arc<dyn Channel> {
        if self.flaw == Flaw::ForgetsAtTheEnd {
            self.change(|pins| {
                for (number, seen) in pins.seen.iter_mut().enumerate() {
                    seen.key = format!("of an earlier process: {number}");
                }
                pins.pinned.clear();
            });
        }
        Arc::new(Pinning(self.clone()))
    }

    fn cards(&self) -> Vec<SeenCard> {
        self.pins.lock().seen.clone()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn choose<'a>(&'a self, person: usize, card: &'a SeenCard, approves: bool) -> BoxFuture<'a, String> {
        Box::pin(async move {
            let (id, by) = (ApprovalId::try_from(card.key.clone()).unwrap(), &self.names()[person]);
            let decider = self.change(|pins| {
                let pin = pins.pinned.get_mut(&id).unwrap();
                pin.here = " on noticeboard";
                pin.decider.clone()
            });
            let decided = if approves { decider.approve(id, by).await } else { decider.deny(id, by, "").await };
            match decided {
                Err(error) if self.flaw != Flaw::TellsNobody => error.to_string(),
                Ok(_) | Err(_) => String::new(),
            }
        })
    }

    fn set_reachable(&self, is_reachable: bool) {
        self.change(|pins| pins.is_unreachable = !is_reachable);
    }
}

#[test]
fn a_channel_that_breaks_a_rule_is_found_out() {
    for (flaw, rule, expected) in [
        (Flaw::ShowsEachTimeItIsAsked, "a_question_is_shown_once", "shown twice"),
        (Flaw::NamesNobody, "a_decision_made_elsewhere_closes_the_question_and_is_shown", "\"the auditor\" is not on"),
        (Flaw::ClaimsEveryDecision, "a_decision_made_elsewhere_closes_the_question_and_is_shown", "not decided there"),
        (Flaw::TellsNobody, "a_decision_is_shown_to_everybody_and_later_choices_are_told_of_it", "bob is not told"),
        (Flaw::TellsNobody, "of_two_people_at_once_one_decides_and_the_other_is_told", "is not told who was first"),
        (Flaw::ForgetsAtTheEnd, "an_open_question_is_open_once_after_a_restart", "shown twice"),
        (Flaw::ShowsWhatWasDecided, "a_channel_that_reaches_nobody_delays_nobody_and_catches_up", "decided meanwhile"),
    ] {
        let failed = catch_unwind(AssertUnwindSafe(|| check(Pinboard::new(flaw), rule)));
        let panic = failed.expect_err(&format!("{flaw:?} is not found out"));
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(expected), "{flaw:?}: {text}");
    }
}
