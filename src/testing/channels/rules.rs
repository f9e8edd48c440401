//! The rules of channels.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::messages::{Decision, Envelope};

use super::SeenCard;
use super::stage::{Mishap, Process, Stage, approval};

const HOUR: Duration = Duration::from_secs(3600);
/// As long as people usually have.
pub(super) const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// Somebody who decides, and not through the channel.
const AUDITOR: &str = "the auditor";

/// Fails if two of these cards are in one place.
#[track_caller]
fn assert_once(cards: &[SeenCard]) {
    let places: BTreeSet<&str> = cards.iter().map(|card| &*card.place).collect();
    assert_eq!(places.len(), cards.len(), "a question is shown twice in one place: {cards:#?}");
}

/// Fails if the cards do not have each of these texts.
#[track_caller]
fn assert_shown(cards: &[SeenCard], texts: &[&str]) {
    for card in cards {
        for text in texts {
            assert!(card.text.contains(text), "{text:?} is not on a closed card: {}", card.text);
        }
    }
}

/// The hour and the minute of a decision, in UTC.
fn minute(decision: &Decision) -> String {
    decision.at.to_string().chars().skip("2026-01-01T".len()).take("12:34".len()).collect()
}

/// Decides through no channel.
async fn decide_elsewhere(process: &Process<'_>, asked: &Envelope) -> Decision {
    if let Err(error) = process.board.people().deny(asked.id(), AUDITOR, "not now").await {
        panic!("the board takes no decision: {error}");
    }
    process.decision(asked).await
}

/// However often the channel is asked.
pub(super) fn a_question_is_shown_once(stage: &Stage) {
    stage.process(Mishap::AsksTwice, async |process| {
        let (_, first) = process.ask("first.txt").await;
        process.opened("first.txt").await;
        decide_elsewhere(&process, &first).await;
        process.closed("first.txt").await;
        // What is sent for the first question comes before what is sent for the second.
        process.ask("second.txt").await;
        process.opened("second.txt").await;
        assert_once(&process.cards("first.txt"));
        assert_once(&process.cards("second.txt"));
    });
}

/// Everybody sees who decided, when, and that it was not on this channel.
pub(super) fn a_decision_made_elsewhere_closes_the_question_and_is_shown(stage: &Stage) {
    stage.process(Mishap::None, async |process| {
        let (_, asked) = process.ask("elsewhere.txt").await;
        process.opened("elsewhere.txt").await;
        let decision = decide_elsewhere(&process, &asked).await;
        let closed = process.closed("elsewhere.txt").await;
        assert_shown(&closed, &["denied", AUDITOR, &minute(&decision)]);
        for card in closed {
            let claims = format!("on {}", process.name);
            assert!(!card.text.to_lowercase().contains(&claims), "it was not decided there: {}", card.text);
        }
    });
}

/// A question that expires is closed, and it shows why.
pub(super) fn an_expired_question_is_closed(stage: &Stage) {
    stage.process(Mishap::None, async |process| {
        for seconds in [1, 2, 4, 8, 16, 32] {
            let path = format!("expiring-{seconds}.txt");
            let run = process.submit(&path, Duration::from_secs(seconds)).await;
            tokio::select! {
                biased;
                _ = process.opened(&path) => {
                    assert_shown(&process.closed(&path).await, &["expir"]);
                    return;
                }
                // It has expired before anybody has seen it.
                _ = run.result() => {}
            }
        }
        panic!("no question is shown before it expires");
    });
}

/// A question whose run is cancelled is closed.
pub(super) fn a_withdrawn_question_is_closed(stage: &Stage) {
    stage.process(Mishap::None, async |process| {
        let (run, _) = process.ask("withdrawn.txt").await;
        process.opened("withdrawn.txt").await;
        assert!(matches!(run.cancel("no longer needed").await, Ok(true)), "the run could not be cancelled");
        assert_shown(&process.closed("withdrawn.txt").await, &["withdrawn"]);
    });
}

/// Whether it panics before it shows a question or after: the question is shown, once, and closed.
pub(super) fn a_panic_of_the_channel_loses_no_question(stage: &Stage) {
    for (mishap, path) in [(Mishap::PanicsBefore, "before.txt"), (Mishap::PanicsAfter, "after.txt")] {
        stage.process(mishap, async |process| {
            let (_, asked) = process.ask(path).await;
            process.returned(|counts| counts.asked >= 2).await;
            process.opened(path).await;
            let decision = decide_elsewhere(&process, &asked).await;
            let closed = process.closed(path).await;
            assert_once(&closed);
            assert_shown(&closed, &["denied", AUDITOR, &minute(&decision)]);
        });
    }
}

/// A late or second click is answered with who has decided; nothing changes.
pub(super) fn a_decision_is_shown_to_everybody_and_later_choices_are_told_of_it(stage: &Stage) {
    stage.process(Mishap::None, async |process| {
        let [first, second] = stage.names();
        let (run, asked) = process.ask("doubled.txt").await;
        let card = process.opened("doubled.txt").await.remove(0);
        process.choose(0, &card, true).await;
        let closed = process.closed("doubled.txt").await;
        let decision = process.decision(&asked).await;
        assert_eq!((decision.approved, &*decision.by), (true, &*first));
        assert_shown(&closed, &["approved", &first, &minute(&decision)]);
        let claims = format!("on {}", process.name);
        assert!(
            closed.iter().all(|card| card.text.to_lowercase().contains(&claims)),
            "{claims:?} is not in {closed:?}"
        );
        for (person, approves) in [(1, false), (0, true)] {
            let told = process.choose(person, &card, approves).await;
            assert!(told.contains(&first), "{} is not told who has decided: {told:?}", [&first, &second][person]);
        }
        assert_eq!(process.decision(&asked).await, decision);
        let result = run.result().await.map(|result| result.output.to_string());
        assert_eq!(result.as_deref(), Ok("\"written\""));
    });
}

/// One decides, and the other is answered with who it was.
pub(super) fn of_two_people_at_once_one_decides_and_the_other_is_told(stage: &Stage) {
    stage.process(Mishap::None, async |process| {
        let names = stage.names();
        let (_, asked) = process.ask("both.txt").await;
        let card = process.opened("both.txt").await.remove(0);
        let told = tokio::join!(process.choose(0, &card, true), process.choose(1, &card, false));
        let closed = process.closed("both.txt").await;
        let decision = process.decision(&asked).await;
        let first = names.iter().position(|name| **name == *decision.by);
        let Some(first) = first else { panic!("neither of the two has decided, but {}", decision.by) };
        assert_eq!(decision.approved, first == 0, "the decision is not what {} chose", decision.by);
        let late = if first == 0 { told.1 } else { told.0 };
        assert!(late.contains(&*decision.by), "who was second is not told who was first: {late:?}");
        assert_shown(&closed, &[&decision.by]);
    });
}

/// The board continues while nobody is reached, and afterwards people see what is open, and no more than that.
pub(super) fn a_channel_that_reaches_nobody_delays_nobody_and_catches_up(stage: &Stage) {
    stage.process(Mishap::None, async |process| {
        let (_, seen_before) = process.ask("before.txt").await;
        process.opened("before.txt").await;
        process.audience.set_reachable(false);
        let (run, decided) = process.ask("during.txt").await;
        let (_, _) = process.ask("still-open.txt").await;
        process.returned(|counts| counts.asked >= 3).await;
        for asked in [&decided, &seen_before] {
            decide_elsewhere(&process, asked).await;
        }
        process.returned(|counts| counts.settled >= 2).await;
        assert!(run.result().await.is_ok(), "the run does not end");
        process.audience.set_reachable(true);
        assert_shown(&process.closed("before.txt").await, &["denied", AUDITOR]);
        let card = process.opened("still-open.txt").await.remove(0);
        process.choose(0, &card, true).await;
        process.closed("still-open.txt").await;
        let open: Vec<_> = process.cards("during.txt").into_iter().filter(|card| card.is_open).collect();
        assert!(open.is_empty(), "what was decided meanwhile is asked: {open:?}");
    });
}

/// A process that shows a question, and ends without a shutdown when the channel has noted that.
fn show_and_end(stage: &Stage, path: &str, time: Duration) {
    stage.process(Mishap::None, async |process| {
        process.ask_within(path, time).await;
        process.opened(path).await;
        // What is sent for this one comes after the other was noted.
        process.ask("later.txt").await;
        process.opened("later.txt").await;
    });
}

/// What the process before has shown stays, or is replaced; people answer it.
pub(super) fn an_open_question_is_open_once_after_a_restart(stage: &Stage) {
    show_and_end(stage, "kept.txt", WEEK);
    stage.process(Mishap::None, async |process| {
        let asked = approval(&process.board, "kept.txt").await;
        process.returned(|counts| counts.asked >= 1).await;
        // What is sent for this one comes after what is sent for the other.
        process.ask("next.txt").await;
        process.opened("next.txt").await;
        let open = process.opened("kept.txt").await;
        assert_once(&open);
        process.choose(1, &open[0], false).await;
        process.closed("kept.txt").await;
        let decision = process.decision(&asked).await;
        assert_eq!((decision.approved, &*decision.by), (false, &*stage.names()[1]));
    });
}

/// It was decided while no process had the channel.
pub(super) fn what_was_decided_meanwhile_is_closed_after_a_restart(stage: &Stage) {
    show_and_end(stage, "meanwhile.txt", WEEK);
    stage.process_without_channel(async |board| {
        let asked = approval(&board, "meanwhile.txt").await;
        assert!(board.people().deny(asked.id(), AUDITOR, "").await.is_ok(), "the board takes no decision");
        let run = board.run(asked.request.turn.run);
        assert!(run.result().await.is_ok(), "the run does not end");
    });
    stage.process(Mishap::None, async |process| {
        assert_shown(&process.closed("meanwhile.txt").await, &["denied", AUDITOR]);
    });
}

/// It expired while no process ran.
pub(super) fn what_has_expired_meanwhile_is_closed_after_a_restart(stage: &Stage) {
    show_and_end(stage, "overdue.txt", HOUR);
    stage.pass(HOUR);
    stage.process(Mishap::None, async |process| {
        assert_shown(&process.closed("overdue.txt").await, &["expir"]);
    });
}
