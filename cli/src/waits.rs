//! What an open run waits for from people: approvals of actions, answers to questions, interrupted nodes of workflows, and turns
//! that need attention.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};

use callboard::actors::approvals::{Card, Keyboard, Rows};
use callboard::actors::{StreamMode, Watched};
use callboard::env::Env;
use callboard::messages::{Pending, RunId, StateRules, Timestamp};
use callboard::runtime::{RunError, RunHandle};
use callboard::supervision::runs::{Follower, Run};
use callboard_server::json as shapes;

use crate::agents::dialog;
use crate::output::note_words;
use crate::page::{brief, note, time};
use crate::workflow::interrupts;

/// How long a run whose turns all wait for people must have had no event before [`rests`] returns: a turn may ask several questions.
const QUIET: Duration = Duration::from_millis(300);

/// What a run waits for, without what has expired.
pub(crate) fn open(run: &Run) -> Vec<Pending> {
    let now = Env::system().now().wall;
    run.pending().into_iter().filter(|wait| !wait.is_expired(now)).collect()
}

/// A line about it for `runs show`, with the line's label.
pub(crate) fn line(wait: &Pending, now: Timestamp) -> (&'static str, String) {
    const SHOWN: usize = 400;
    let expired = |at: Timestamp, what: &str| {
        if at > now { String::new() } else { format!("; expired at {}: {what} when the run is resumed", time(at)) }
    };
    match wait {
        Pending::Approval(envelope) => {
            let action = brief(&envelope.action.to_string(), SHOWN);
            let expired = expired(envelope.expires_at, "it is denied");
            ("consent", format!("{} wants to {action}{expired}", envelope.agent))
        }
        Pending::Question(question) => {
            let expired = question.expires_at.map(|at| expired(at, "its turn continues without an answer"));
            let text = brief(&question.text().replace('\n', " "), SHOWN);
            ("question", format!("{} asks: {text}{}", question.agent, expired.unwrap_or_default()))
        }
        Pending::Node(interrupt) => ("node", format!("{} waits for a person", brief(&interrupt.node, SHOWN))),
        Pending::Attention { turn, why, .. } => ("attention", format!("turn {}: {}", turn.number, brief(why, SHOWN))),
    }
}

/// All that a run waits for as JSON, including what has expired.
pub(crate) fn all_json(run: &Run, now: Timestamp) -> Value {
    let json = |wait: Pending| {
        let mut json = shapes::pending(&wait);
        json["is_expired"] = wait.is_expired(now).into();
        json
    };
    run.pending().into_iter().map(json).collect()
}

/// The JSON of a run that was left waiting: what it waits for, and the command line that continues it.
pub(crate) fn json(run: RunId, open: &[Pending], resumption: Option<&str>) -> Value {
    json!({ "run": run, "waits_for": open.iter().map(shapes::pending).collect::<Vec<_>>(), "to_continue": resumption })
}

/// Prints the approvals and questions where nobody can be asked. `place` is the folder of the tools, if it is not the current one.
pub(crate) fn note_cards(open: &[Pending], place: Option<&str>) {
    let cards = open.iter().filter_map(|wait| match wait {
        Pending::Approval(envelope) => Some(dialog::placed(Card::of(envelope).brief(), place)),
        Pending::Question(question) => Some(dialog::shown(question)),
        Pending::Node(_) | Pending::Attention { .. } => None,
    });
    let cards: Vec<String> = cards.map(|card| card.trim_end().to_owned()).collect();
    if !cards.is_empty() {
        let text = format!("there is nobody at a terminal to ask:\n{}\n", cards.join("\n"));
        note(Keyboard::columns().map_or_else(|| text.clone(), |columns| Rows::fold(&text, columns)).trim_end());
    }
}

/// Prints the interrupted nodes of a workflow.
pub(crate) fn note_nodes(open: &[Pending]) {
    for wait in open {
        match wait {
            Pending::Node(interrupt) => note_words(interrupts::shown(interrupt).trim_end()),
            Pending::Approval(_) | Pending::Question(_) | Pending::Attention { .. } => {}
        }
    }
}

/// Returns once nothing in the run can continue in this process and there was no event for [`QUIET`]: if nobody can be asked, once all
/// its turns wait for people; otherwise once all of them need attention. Does not return if the run ends.
pub(crate) async fn rests(run: &RunHandle, is_anybody_here: bool) -> Result<(), RunError> {
    let is_over = if is_anybody_here { Run::is_stuck } else { Run::waits_for_people };
    let mut follower = Follower::new(StateRules::default());
    let mut events = run.events(1, &[StreamMode::Debug]).await?;
    loop {
        let rests = follower.run().is_some_and(is_over);
        let watched = tokio::select! {
            biased;
            watched = events.next() => watched,
            () = tokio::time::sleep(QUIET), if rests => return Ok(()),
        };
        let _ = match watched {
            Some(Watched::Event { sequence, event, .. }) if follower.run().is_some() || sequence == 1 => {
                follower.take(sequence, &event)
            }
            Some(Watched::Live { .. }) => Vec::new(),
            // The follower lacks the first events: it reads the run again.
            Some(Watched::Event { .. } | Watched::Missed(_)) => follower.catch_up(run.read().await?),
            None => std::future::pending().await,
        };
    }
}
