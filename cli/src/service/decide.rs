//! `callboard pending`, `approve`, `deny` and `answer`: what runs wait for, and what a person responds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use callboard::actors::approvals::Card;
use callboard::env::Env;
use callboard::messages::{ApprovalId, Interrupt, Pending as Wait, PendingId, RunEvent, visible, visible_lines};
use callboard_server::json as shapes;

use crate::agents::dialog;
use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, count, folded, whole_json};
use crate::run_names::short;
use crate::stores::Stores;
use crate::stores::store::Store;
use crate::waits;

use super::arguments::{Answer, Approve, Deny, Pending, What};
use super::boards::{ask_board, ask_heir};
use super::follow::{self, continuation, continuation_if_left, read};

/// Who has decided what nobody decided in time.
const EXPIRY: &str = "expiry";

/// How much is shown of what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// All of it, where a person decides.
    Whole,
    /// The beginning and the end of what is long, and the command that shows all.
    Brief,
}

/// What waits, as a person sees it - of an action all that is bound to the consent - and the commands that decide it. `left` is the command
/// line that continues the run, if no process works on it: nothing can be decided then.
pub(super) fn shown_card(wait: &Wait, detail: Detail, stores: &Stores, left: Option<&str>) -> String {
    let how = || visible(&command_line(&format!("pending {}", wait.id()), stores.named()));
    let card = match (wait, detail) {
        (Wait::Approval(envelope), Detail::Whole) => Card::of(envelope).whole(),
        (Wait::Approval(envelope), Detail::Brief) => Card::of(envelope).brief_with(&how()),
        (_, Detail::Whole) => whole(wait),
        (_, Detail::Brief) => {
            let (whole, line) = (whole(wait), waits::line(wait, Env::system().now().wall).1);
            let left_out = whole.trim_end().len().saturating_sub(line.len());
            if left_out == 0 { line } else { format!("{line}\n… {left_out} more bytes: {}", how()) }
        }
    };
    let commands = match left {
        Some(line) => vec![format!("no process works on it; to continue it, and decide then: {line}")],
        None => commands_of(wait, stores),
    };
    let lines = card.trim_end().lines().map(str::to_owned).chain(commands.iter().map(|command| visible(command)));
    lines.map(|line| format!("    {line}\n")).collect()
}

/// All of what waits that is no action.
fn whole(wait: &Wait) -> String {
    match wait {
        Wait::Approval(envelope) => Card::of(envelope).whole(),
        Wait::Question(question) => dialog::shown(question),
        Wait::Node(Interrupt { node, input, state, .. }) => {
            let [input, state] = [input, state].map(|json| whole_json(json, "  "));
            format!("{} waits for a person\ninput\n{input}state\n{state}", visible(node))
        }
        Wait::Attention { turn, why, .. } => {
            format!("turn {}: {}", turn.number, visible_lines(why).replace('\n', "\n  │ "))
        }
    }
}

/// The commands that answer what waits.
pub(super) fn commands_of(wait: &Wait, stores: &Stores) -> Vec<String> {
    let id = wait.id();
    let line = |command: String| command_line(&command, stores.named());
    match wait {
        Wait::Approval(_) => vec![line(format!("approve {id}")), line(format!("deny {id}"))],
        Wait::Question(_) => vec![line(format!("answer {id} TEXT"))],
        Wait::Node(_) => vec![line(format!("answer {id}"))],
        Wait::Attention { .. } => vec![line(format!("approve {id}"))],
    }
}

/// All that waits, with the store that has it.
pub(super) struct AllWaits {
    pub(super) found: Vec<(Wait, Arc<Store>)>,
    /// A line for each store and each run that could not be read.
    pub(super) notes: String,
    /// What a search that is not complete ends with.
    pub(super) exit: Option<Exit>,
}

impl AllWaits {
    pub(super) async fn of(stores: &Stores) -> Result<Self, Failure> {
        let open = stores.open_existing().await?;
        let mut all = Self { found: Vec::new(), notes: open.notes(), exit: open.exit() };
        for store in open.stores.into_iter().map(Arc::new) {
            for run in store.open_runs().await? {
                if store.history(run).await.is_ok_and(|history| history.is_empty()) {
                    // Its submission was not acknowledged, or it was deleted.
                    continue;
                }
                match read(&store, run).await {
                    Ok(fold) => all.found.extend(waits::open(&fold).into_iter().map(|wait| (wait, Arc::clone(&store)))),
                    // It may have been deleted since.
                    Err(why) => all.notes.push_str(&format!("not read: {}\n", why.text())),
                }
            }
        }
        Ok(all)
    }
}

/// Lists what waits for a person: all of it, or that which is named.
pub(super) async fn pending(arguments: &Pending) -> Result<Page, Failure> {
    let stores = arguments.common.choice.stores()?;
    let AllWaits { mut found, notes, exit } = AllWaits::of(&stores).await?;
    if let Some(wanted) = &arguments.id {
        let (id, run) = match wanted.parse::<PendingId>() {
            Ok(id) => (Some(id), None),
            Err(_) => (None, Some(stores.find(wanted).await?.1)),
        };
        found.retain(|(wait, _)| id.as_ref().is_some_and(|id| *id == wait.id()) || run == Some(wait.run()));
        if found.is_empty() {
            let text = match run {
                Some(run) => format!("run {} waits for nobody", short(run)),
                None => not_waited_for(wanted),
            };
            return Err(Failure::new(exit.unwrap_or(Exit::NotFound), text).with(&notes));
        }
    }
    let (mut text, now) = (String::new(), Env::system().now().wall);
    for (wait, store) in &found {
        let (run, kind) = (wait.run(), waits::line(wait, now).0);
        let left = continuation_if_left(store, run, &stores).await?;
        let card = shown_card(wait, Detail::Whole, &stores, left.as_deref());
        text.push_str(&format!("{}  {kind}\n{card}", short(run)));
    }
    if found.is_empty() {
        text.push_str(if exit.is_none() { "nothing waits for you\n" } else { "nothing else waits for you\n" });
    }
    let shown: Vec<Value> = found.iter().map(|(wait, _)| shown(wait)).collect();
    let page = Page::new(folded(&text), json!({ "pending": shown }));
    Ok(Page { exit: exit.unwrap_or(Exit::Done), remarks: notes, ..page })
}

fn not_waited_for(id: &str) -> String {
    format!("{} is not waited for: it was answered, or has expired", visible(id))
}

fn shown(wait: &Wait) -> Value {
    let mut shape = shapes::pending(wait);
    shape["request_id"] = json!(wait.run());
    shape
}

pub(super) async fn approve(arguments: &Approve) -> Result<Page, Failure> {
    let edited = arguments.edit.as_deref().map(crate::values::json).transpose().map_err(Failure::usage)?;
    let is_plain = edited.is_none() && !arguments.for_run;
    respond(&arguments.what, |wait| match (wait, edited) {
        (Wait::Approval(_), Some(edited)) => {
            Ok((json!({ "response": "edit", "arguments": edited }), "approved with other arguments"))
        }
        (Wait::Approval(_), None) if is_plain => Ok((json!({ "response": "approve" }), "approved")),
        (Wait::Approval(_), None) => Ok((json!({ "response": "approve", "for_run": true }), "approved for the run")),
        (_, _) if !is_plain => Err("only an approval takes --for-run or --edit"),
        (Wait::Attention { .. }, _) => Ok((json!({ "response": "restart" }), "started again")),
        (Wait::Question(_) | Wait::Node(_), _) => Err("it is answered, with `callboard answer`, and not approved"),
    })
    .await
}

pub(super) async fn deny(arguments: &Deny) -> Result<Page, Failure> {
    respond(&arguments.what, |wait| match wait {
        Wait::Approval(_) => Ok((json!({ "response": "deny", "reason": arguments.reason }), "denied")),
        Wait::Question(_) | Wait::Node(_) | Wait::Attention { .. } => {
            Err("only an approval can be denied; `callboard cancel` ends a run")
        }
    })
    .await
}

pub(super) async fn answer(arguments: &Answer) -> Result<Page, Failure> {
    let Answer { what, answer, is_json, json: _ } = arguments;
    let value = answer.as_ref().map(|text| if *is_json { crate::values::json(text) } else { Ok(json!(text)) });
    let value = value.transpose().map_err(Failure::usage)?;
    respond(what, |wait| match (wait, value) {
        (Wait::Question(_), Some(value)) => Ok((json!({ "response": "answer", "value": value }), "answered")),
        (Wait::Question(_), None) => Err("it is a question: write the answer after its id"),
        (Wait::Node(_), Some(input)) => Ok((json!({ "response": "resume", "input": input }), "resumed")),
        (Wait::Node(_), None) => Ok((json!({ "response": "resume" }), "resumed")),
        (Wait::Approval(_), _) => Err("it is approved or denied, with `callboard approve` or `callboard deny`"),
        (Wait::Attention { .. }, _) => Err("its turn is started again with `callboard approve`"),
    })
    .await
}

/// Sends the response to the process that works on the run.
async fn respond(
    what: &What,
    response: impl FnOnce(&Wait) -> Result<(Value, &'static str), &'static str>,
) -> Result<Page, Failure> {
    let stores = what.choice.stores()?;
    let (wait, store) = find(&stores, &what.id).await?;
    let (id, run) = (wait.id(), wait.run());
    let (body, done) = response(&wait).map_err(|why| Failure::usage(format!("{id}: {why}")))?;
    let path = format!("/v1/pending/{}", id.to_string().replace('/', "%2F"));
    let request = ("POST", &*path);
    let answer = match store.board_of(run).await? {
        Some(board) => Some(ask_board(&store, &board, request, Some(&body)).await?),
        None => match ask_heir(&store, request, Some(&body)).await {
            // No board has taken the run over.
            Err(_) if store.board_of(run).await?.is_none() => None,
            answer => answer?,
        },
    };
    let Some(answer) = answer else {
        let line = visible(&continuation(&store, run, &stores).await?);
        let text = format!("no process works on run {}; to continue it, and decide then: {line}", short(run));
        return Err(Failure::new(Exit::Unavailable, text));
    };
    let done = missing(&wait, &answer).unwrap_or_else(|| done.to_owned());
    Ok(Page::new(format!("{done}: {}\n", waits::line(&wait, Env::system().now().wall).1), answer))
}

/// How many people have approved and how many more have to, while more have to.
fn missing(wait: &Wait, answer: &Value) -> Option<String> {
    let missing = answer["missing"].as_u64().filter(|missing| *missing > 0)?;
    let approved = answer["approved_by"].as_array().map_or(0, Vec::len) as u64;
    let Wait::Approval(envelope) = wait else { return None };
    let group = envelope.deciders.group.as_deref().map_or_else(String::new, |group| format!(" of {}", visible(group)));
    Some(format!("{approved} of {} approved; needs {missing} more{group}", approved + missing))
}

/// The same error; where what was written is the code of a card, followed by the id of what waits.
async fn with_code(stores: &Stores, wanted: &str, failure: Failure) -> Failure {
    let Ok(AllWaits { found, .. }) = AllWaits::of(stores).await else { return failure };
    let begin = format!("approval:{wanted}");
    let ids = found.iter().map(|(wait, _)| wait.id().to_string());
    let named: Vec<String> = ids.filter(|id| id.starts_with(&begin)).map(|id| format!("    {id}")).collect();
    if named.is_empty() {
        return failure;
    }
    failure.with(&format!("{wanted} is the code of a card, which is no id; write\n{}", named.join("\n")))
}

/// The approvals that a run has asked for, and that neither a person nor a policy has decided.
fn asked_in_vain(history: &[RunEvent]) -> BTreeSet<ApprovalId> {
    // An edit asks again in the same place.
    let mut asked = BTreeMap::new();
    for event in history {
        match event {
            RunEvent::ApprovalAsked { turn, ordinal, envelope, .. } => {
                asked.insert((*turn, *ordinal), envelope.id());
            }
            RunEvent::Decided { approval, decision, .. } if &*decision.by != EXPIRY => {
                asked.retain(|_, asked| asked != approval);
            }
            _ => {}
        }
    }
    asked.into_values().collect()
}

/// What waits under this id, or the only thing that a run of this name waits for.
async fn find(stores: &Stores, wanted: &str) -> Result<(Wait, Arc<Store>), Failure> {
    let id: Option<PendingId> = wanted.parse().ok();
    let (store, run) = match &id {
        Some(id) => {
            let AllWaits { found, notes, exit } = AllWaits::of(stores).await?;
            let found = found.into_iter().find(|(wait, _)| wait.id() == *id);
            return found
                .ok_or_else(|| Failure::new(exit.unwrap_or(Exit::NotFound), not_waited_for(wanted)).with(&notes));
        }
        None => match stores.find(wanted).await {
            Ok(found) => found,
            Err(failure) => return Err(with_code(stores, wanted, failure).await),
        },
    };
    let history = store.history(run).await.map_err(Failure::of)?;
    let asked_in_vain = asked_in_vain(&history);
    let mut waiting = waits::open(&follow::folded(history, run)?);
    match (waiting.pop(), waiting.len()) {
        (Some(Wait::Approval(envelope)), 0) if asked_in_vain.iter().any(|asked| *asked != envelope.id()) => {
            let (run, id) = (short(run), Wait::Approval(envelope).id());
            Err(Failure::usage(format!(
                "run {run} has asked for consent before, which nobody decided in time, so it may not be what you mean: name what it \
                 asks for now\n  {id}\nto see it: callboard pending {run}"
            )))
        }
        (Some(only), 0) => Ok((only, Arc::new(store))),
        (None, _) => Err(Failure::not_found(format!("run {} waits for nobody", short(run)))),
        (Some(last), others) => {
            let ids: Vec<String> = waiting.iter().chain([&last]).map(|wait| format!("\n  {}", wait.id())).collect();
            let several = count(others + 1, "thing");
            Err(Failure::usage(format!("run {} waits for {several}: name one of them{}", short(run), ids.concat())))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::time::Duration;

    use callboard::messages::Action;
    use callboard::prelude::{Callboard, Command, Task, Turn};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_nobody_decided_in_time_is_told_from_what_is_asked_now() {
        let asks = |turn: Turn| async move {
            let mut denied = Vec::new();
            for target in ["first", "second", "third"] {
                denied.push(turn.people().approve(Action::new("deploy", target, "")).await.is_err());
            }
            Ok(Command::output(denied))
        };
        let board = Callboard::builder().env(Env::repeatable(1)).agent("asks", asks).start().await.unwrap();
        let run = board.submit(Task::new("x").approval_ttl(Duration::from_secs(60))).await.unwrap();
        let mut asked = Vec::new();
        let mut in_vain = Vec::new();
        for is_decided in [true, false, true] {
            let wait = run.next_pending().await.unwrap().unwrap();
            let Wait::Approval(envelope) = &wait else { panic!("{wait:?}") };
            asked.push(envelope.id());
            let others: Vec<_> = asked_in_vain(&run.history().await.unwrap()).into_iter().collect();
            in_vain.push(others.into_iter().filter(|id| *id != envelope.id()).collect::<Vec<_>>());
            if is_decided {
                board.people().approve(envelope.id(), "ann").await.unwrap();
            } else {
                tokio::time::sleep(Duration::from_secs(61)).await;
            }
        }
        assert_eq!(run.result().await.unwrap().output, json!([false, true, false]));
        assert_eq!(in_vain, [vec![], vec![], vec![asked[1]]]);
        board.shutdown().await;
    }
}
