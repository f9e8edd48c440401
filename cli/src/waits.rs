//! What an open run waits for from people: approvals of actions, answers to questions, interrupted nodes of workflows, and turns
//! that need attention.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};

use callboard::actors::approvals::{Card, Keyboard, Rows};
use callboard::actors::{StreamMode, Watched};
use callboard::env::Env;
use callboard::messages::state::StateRules;
use callboard::messages::{Envelope, Question, RunId, Timestamp};
use callboard::runtime::{RunError, RunHandle};
use callboard::supervision::runs::{Follower, Interrupt, Run};

use crate::agents::dialog;
use crate::output::note_words;
use crate::page::{brief, note, time};
use crate::stable_json;
use crate::workflow::{compensation, interrupts};

/// How long a run whose turns all wait for people must have had no event before [`rests`] returns: a turn may ask several questions.
const QUIET: Duration = Duration::from_millis(300);

/// One thing that a run waits for.
pub(crate) enum Wait {
    Approval(Box<Envelope>),
    Question(Question),
    Node(Interrupt),
    Attention {
        turn: u32,
        /// The node of the turn; `None` outside of a workflow.
        node: Option<String>,
        why: String,
    },
}

/// All that a run waits for, including approvals and questions that have expired and that the run has not closed yet.
pub(crate) fn all(run: &Run) -> Vec<Wait> {
    let approvals = run.open_approvals().map(|envelope| Wait::Approval(Box::new(envelope.clone())));
    let mut questions: Vec<Question> = run.open_questions().collect();
    questions.sort_by_key(|question| (question.asked_at, question.id.request));
    let troubled = run.turns_that_need_attention().map(|(turn, why)| {
        let is_compensation = run.is_compensation(turn.number);
        let node = run.node_of(turn.number).map(|node| if is_compensation { compensation(&node) } else { node });
        Wait::Attention { turn: turn.number, node, why: why.to_owned() }
    });
    let asked = approvals.chain(questions.into_iter().map(Wait::Question));
    asked.chain(run.interrupts().map(Wait::Node)).chain(troubled).collect()
}

/// What a run waits for, without what has expired.
pub(crate) fn open(run: &Run) -> Vec<Wait> {
    let now = Env::system().now().wall;
    all(run).into_iter().filter(|wait| !wait.is_expired(now)).collect()
}

/// The status of an open run: the greatest of what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// It waits for nothing from people.
    Open,
    /// It waits for an answer to a question, or for a decision about an interrupted node.
    WaitsForAnswer,
    WaitsForConsent,
    NeedsAttention,
}

impl Status {
    /// The status of a run that has not ended.
    pub(crate) fn of(run: &Run, now: Timestamp) -> Self {
        let open = all(run).into_iter().filter(|wait| !wait.is_expired(now));
        open.map(|wait| wait.status()).max().unwrap_or(Self::Open)
    }

    /// Its name in JSON and for `--state`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::WaitsForAnswer => "waits_for_answer",
            Self::WaitsForConsent => "waits_for_consent",
            Self::NeedsAttention => "needs_attention",
        }
    }
}

impl Wait {
    fn status(&self) -> Status {
        match self {
            Self::Approval(_) => Status::WaitsForConsent,
            Self::Question(_) | Self::Node(_) => Status::WaitsForAnswer,
            Self::Attention { .. } => Status::NeedsAttention,
        }
    }

    /// A line about it for `runs show`, with the line's label.
    pub(crate) fn line(&self, now: Timestamp) -> (&'static str, String) {
        const SHOWN: usize = 400;
        let expired = |at: Timestamp, what: &str| {
            if at > now { String::new() } else { format!("; expired at {}: {what} when the run is resumed", time(at)) }
        };
        match self {
            Self::Approval(envelope) => {
                let action = brief(&envelope.action.to_string(), SHOWN);
                let expired = expired(envelope.expires_at, "it is denied");
                ("consent", format!("{} wants to {action}{expired}", envelope.agent))
            }
            Self::Question(question) => {
                let expired = question.expires_at.map(|at| expired(at, "its turn continues without an answer"));
                let text = brief(&dialog::text_of(question).replace('\n', " "), SHOWN);
                ("question", format!("{} asks: {text}{}", question.agent, expired.unwrap_or_default()))
            }
            Self::Node(interrupt) => ("node", format!("{} waits for a person", brief(&interrupt.node, SHOWN))),
            Self::Attention { turn, why, .. } => ("attention", format!("turn {turn}: {}", brief(why, SHOWN))),
        }
    }

    /// Whether its time is over: the run continues without it.
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        match self {
            Self::Approval(envelope) => envelope.expires_at <= now,
            Self::Question(question) => question.expires_at.is_some_and(|at| at <= now),
            Self::Node(_) | Self::Attention { .. } => false,
        }
    }

    /// It as JSON.
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Approval(envelope) => json!({
                "approval": envelope.id(),
                "agent": envelope.agent,
                "action": envelope.action.action,
                "target": envelope.action.target,
                "arguments": envelope.action.arguments,
                "expires_at": stable_json::time(envelope.expires_at),
            }),
            Self::Question(Question { agent, question, expires_at, .. }) => {
                json!({ "agent": agent, "question": question, "expires_at": expires_at.map(stable_json::time) })
            }
            Self::Node(Interrupt { node, agent, input, state, .. }) => {
                json!({ "node": node, "agent": agent, "input": input, "state": state })
            }
            Self::Attention { node: Some(node), why, .. } => json!({ "node": node, "needs_attention": why }),
            Self::Attention { node: None, why, .. } => json!({ "needs_attention": why }),
        }
    }
}

/// All that a run waits for as JSON, including what has expired.
pub(crate) fn all_json(run: &Run, now: Timestamp) -> Value {
    let json = |wait: Wait| {
        let (mut json, is_expired) = (wait.json(), wait.is_expired(now));
        if let (Wait::Approval(_) | Wait::Question(_), Some(fields)) = (&wait, json.as_object_mut()) {
            fields.insert("is_expired".to_owned(), is_expired.into());
        }
        json
    };
    all(run).into_iter().map(json).collect()
}

/// The JSON of a run that was left waiting: what it waits for, and the command line that continues it.
pub(crate) fn json(run: RunId, open: &[Wait], resumption: Option<&str>) -> Value {
    json!({ "run": run, "waits_for": open.iter().map(Wait::json).collect::<Vec<_>>(), "to_continue": resumption })
}

/// Prints the approvals and questions where nobody can be asked. `place` is the folder of the tools, if it is not the current one.
pub(crate) fn note_cards(open: &[Wait], place: Option<&str>) {
    let cards = open.iter().filter_map(|wait| match wait {
        Wait::Approval(envelope) => Some(dialog::placed(Card::of(envelope).brief(), place)),
        Wait::Question(question) => Some(dialog::shown(question)),
        Wait::Node(_) | Wait::Attention { .. } => None,
    });
    let cards: Vec<String> = cards.map(|card| card.trim_end().to_owned()).collect();
    if !cards.is_empty() {
        let text = format!("there is nobody at a terminal to ask:\n{}\n", cards.join("\n"));
        note(Keyboard::columns().map_or_else(|| text.clone(), |columns| Rows::fold(&text, columns)).trim_end());
    }
}

/// Prints the interrupted nodes of a workflow.
pub(crate) fn note_nodes(open: &[Wait]) {
    for wait in open {
        match wait {
            Wait::Node(interrupt) => note_words(interrupts::shown(interrupt).trim_end()),
            Wait::Approval(_) | Wait::Question(_) | Wait::Attention { .. } => {}
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
            Some(Watched::Event(event)) if follower.run().is_some() || event.sequence == 1 => follower.take(&event),
            Some(Watched::Live(_)) => Vec::new(),
            // The follower lacks the first events: it reads the run again.
            Some(Watched::Event(_) | Watched::Missed(_)) => follower.catch_up(run.read().await?),
            None => std::future::pending().await,
        };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::Action;
    use callboard::prelude::*;

    use super::*;
    use crate::runs::list::status;

    #[test]
    fn an_expired_approval_is_shown_as_expired_and_no_longer_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pays = |turn: Turn| async move {
                turn.people().approve(Action::new("pay", "order 1", json!({}))).await?;
                Ok(Command::new())
            };
            let board = Callboard::builder().agent("pays", pays).start().await.unwrap();
            let run = board.submit(Task::new("x")).await.unwrap();
            let expires_at = board.next_approval().await.unwrap().expires_at;
            let (run, before) = (run.read().await.unwrap(), Timestamp::from_millis(expires_at.as_millis() - 1));
            assert_eq!(Status::of(&run, before), Status::WaitsForConsent);
            assert_eq!(all(&run)[0].line(before), ("consent", "pays wants to pay order 1".to_owned()));
            assert_eq!(
                (status(&run, before), status(&run, expires_at)),
                ("waits for consent".to_owned(), "open (1 turn, consent expired)".to_owned())
            );
            let (_, line) = all(&run)[0].line(expires_at);
            assert!(
                line.starts_with("pays wants to pay order 1; expired at 20")
                    && line.ends_with(": it is denied when the run is resumed"),
                "{line}"
            );
            assert_eq!(
                (&all_json(&run, before)[0]["is_expired"], &all_json(&run, expires_at)[0]["is_expired"]),
                (&false.into(), &true.into())
            );
            board.shutdown().await;
        });
    }
}
