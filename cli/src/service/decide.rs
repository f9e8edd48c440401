//! `callboard pending`, `approve`, `deny` and `answer`: what runs wait for, and what a person responds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use callboard::actors::approvals::Card;
use callboard::env::Env;
use callboard::messages::{
    ApprovalId, Interrupt, Pending as Wait, PendingId, PlacedTurn, RunEvent, RunId, TurnId, visible, visible_lines,
};
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
use super::follow::{self, read};
use super::left::{Left, to_serve};

/// What the id of an approval begins with.
const APPROVAL: &str = "approval:";

/// Who has decided what nobody decided in time.
const EXPIRY: &str = "expiry";

/// How many boards deep the run is looked for that waits for a turn at another board.
const MAX_DEPTH: u32 = 64;

/// How much is shown of what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// All of it, where a person decides.
    Whole,
    /// The beginning and the end of what is long, and the command that shows all.
    Brief,
}

/// What waits, as a person sees it - of an action all that is bound to the consent - and the commands that decide it. `left` is the run, if no
/// process works on it: nothing can be decided then.
pub(super) fn shown_card(wait: &Wait, detail: Detail, stores: &Stores, left: Option<&Left>) -> String {
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
        Some(left) => vec![left.undecided()],
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
    let all = AllWaits::of(&stores).await?;
    if let Some(wanted) = arguments.id.as_ref().filter(|wanted| is_part(wanted)) {
        return Err(not_whole(&all, wanted));
    }
    let AllWaits { mut found, notes, exit } = all;
    if let Some(wanted) = &arguments.id {
        let run = match wanted.parse::<PendingId>() {
            Ok(id) => {
                found.retain(|(wait, _)| wait.id() == id);
                None
            }
            Err(_) => {
                let (store, run) = stores.find(wanted).await?;
                let placed = store.placed_of(&read(&store, run).await?).await?;
                let runs: BTreeSet<RunId> = placed.iter().map(|run| run.submission().run).chain([run]).collect();
                found.retain(|(wait, _)| runs.contains(&wait.run()));
                Some(run)
            }
        };
        if found.is_empty() {
            let text = match run {
                Some(run) => format!("run {} waits for nobody", short(run)),
                None => not_waited_for(&stores, wanted).await?,
            };
            return Err(Failure::new(exit.unwrap_or(Exit::NotFound), text).with(&notes));
        }
    }
    let (mut text, now) = (String::new(), Env::system().now().wall);
    for (wait, store) in &found {
        let (run, kind) = (wait.run(), waits::line(wait, now).0);
        let left = Left::if_left(store, run, &stores).await?;
        let card = shown_card(wait, Detail::Whole, &stores, left.as_ref());
        let of = match asking_run(store, run).await? {
            of if of == run => short(run),
            of => format!("{}  in a turn at another board, which is {} there", short(of), short(run)),
        };
        text.push_str(&format!("{of}  {kind}\n{card}"));
    }
    if found.is_empty() {
        text.push_str(if exit.is_none() { "nothing waits for you\n" } else { "nothing else waits for you\n" });
    }
    let shown: Vec<Value> = found.iter().map(|(wait, _)| shown_wait(wait)).collect();
    let page = Page::new(folded(&text), json!({ "pending": shown }));
    Ok(Page { exit: exit.unwrap_or(Exit::Done), remarks: notes, ..page })
}

/// The run that people know: the one that waits for a turn at another board which is this run there, or the run itself.
async fn asking_run(store: &Store, mut run: RunId) -> Result<RunId, Failure> {
    for _ in 0..MAX_DEPTH {
        let history = store.history(run).await.map_err(Failure::of)?;
        let Some(RunEvent::Submitted(submission)) = history.first() else { break };
        let Some(placed) = &submission.task.placed else { break };
        run = placed.turn.run;
    }
    Ok(run)
}

/// Why nothing of this id waits: what was decided, as everybody reads it who comes too late.
async fn not_waited_for(stores: &Stores, wanted: &str) -> Result<String, Failure> {
    let id: Option<PendingId> = wanted.parse().ok();
    for store in &stores.open_existing().await?.stores {
        let run = match &id {
            Some(PendingId::Question(question)) => question.request.turn.run,
            Some(PendingId::Node(turn) | PendingId::Attention(turn)) => turn.run,
            Some(PendingId::Approval(id)) => match store.decision(*id).await? {
                Some(decision) => return Ok(format!("already {decision}")),
                None => continue,
            },
            None => continue,
        };
        let history = store.history(run).await.map_err(Failure::of)?;
        let closed = |event: &RunEvent| id.as_ref().and_then(|id| shapes::closed_of(event, id));
        if let Some(closed) = history.iter().rev().find_map(closed) {
            return Ok(format!("already {closed}"));
        }
    }
    Ok(format!("{} is not waited for: it was answered, or has expired", visible(wanted)))
}

/// That a run waits for nobody, with what was decided last in it, or in a turn of it at another board.
async fn waits_for_nobody(store: &Store, run: RunId) -> Result<Failure, Failure> {
    let (mut runs, mut decided) = (vec![run], None);
    while let Some(run) = runs.pop() {
        let history = store.history(run).await.map_err(Failure::of)?;
        let turns: BTreeSet<u32> = history.iter().filter_map(RunEvent::turn).collect();
        runs.extend(turns.into_iter().map(|number| PlacedTurn::run_of(TurnId { run, number })));
        let last = history.iter().rev().find_map(|event| Some((event, shapes::closed(event)?)));
        let Some((event, how)) = last else { continue };
        let how = match event {
            // The event does not have the place at which it was decided.
            RunEvent::Decided { approval, .. } => {
                store.decision(*approval).await?.map_or(how, |decision| decision.to_string())
            }
            _ => how,
        };
        decided = decided.max(Some((event.at(), how)));
    }
    let how = decided.map_or_else(String::new, |(_, how)| format!(": already {how}"));
    Ok(Failure::not_found(format!("run {} waits for nobody{how}", short(run))))
}

/// What waits as JSON, with its run.
pub(super) fn shown_wait(wait: &Wait) -> Value {
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
    let asked = match store.board_of(run).await? {
        Some(board) => ask_board(&store, &board, request, Some(&body)).await.map(Some),
        None => ask_heir(&store, request, Some(&body)).await,
    };
    let answer = match asked {
        Ok(Some(answer)) => answer,
        Ok(None) => return Err(undecided(&Left::of(&store, run, &stores).await?, run)),
        Err(failure) => return Err(not_decided(&store, run, &stores, failure).await?),
    };
    let done = missing(&wait, &answer).unwrap_or_else(|| done.to_owned());
    Ok(Page::new(format!("{done}: {}\n", waits::line(&wait, Env::system().now().wall).1), answer))
}

/// That nothing can be decided about a run that no process works on.
fn undecided(left: &Left, run: RunId) -> Failure {
    let (run, remedy) = (short(run), left.remedy(", and decide then"));
    Failure::new(
        Exit::Unavailable,
        match left.agents.is_empty() {
            true => format!("no process works on run {run}; {remedy}"),
            false => format!("run {run} {}\n    {remedy}", left.why()),
        },
    )
}

/// Why nothing was decided, with what to start if the run waits for a board that has its agents.
async fn not_decided(store: &Store, run: RunId, stores: &Stores, failure: Failure) -> Result<Failure, Failure> {
    if failure.exit() != Exit::Unavailable {
        return Ok(failure);
    }
    let fold = read(store, run).await?;
    if fold.result().is_some() {
        return Ok(failure);
    }
    let Some(board) = store.board_of(run).await? else {
        // Its board is gone, and no other one has taken the run over.
        return Ok(undecided(&Left::of(store, run, stores).await?, run));
    };
    let agents = store.agents_lacking(&fold, Some(&*board)).await?;
    let remedy = to_serve(&agents, "", &command_line("serve", stores.named()));
    Ok(if agents.is_empty() { failure } else { failure.with(&format!("    {remedy}")) })
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
    let begin = format!("{APPROVAL}{wanted}");
    let named = beginning(&found, &begin);
    if named.is_empty() {
        return failure;
    }
    failure.with(&format!("{wanted} is the code of a card, which is no id; write\n{}", named.join("\n")))
}

/// The ids of what waits that begin so, each in a line.
fn beginning(found: &[(Wait, Arc<Store>)], begin: &str) -> Vec<String> {
    let ids = found.iter().map(|(wait, _)| wait.id().to_string());
    ids.filter(|id| id.starts_with(begin)).map(|id| format!("    {id}")).collect()
}

/// Whether it is a part of the id of an approval.
fn is_part(wanted: &str) -> bool {
    wanted.starts_with(APPROVAL) && wanted.parse::<PendingId>().is_err()
}

/// The refusal of a part of an id. People decide what they have seen, and others may begin alike: none is chosen for them.
fn not_whole(AllWaits { found, notes, exit: _ }: &AllWaits, wanted: &str) -> Failure {
    let what = format!("{} is no whole id of an approval", visible(wanted));
    let named = beginning(found, wanted);
    let text = match named.is_empty() {
        true => format!("{what}, and none that begins so is waited for; callboard pending lists them"),
        false => format!("{what}; write\n{}", named.join("\n")),
    };
    Failure::usage(text).with(notes)
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
    if is_part(wanted) {
        return Err(not_whole(&AllWaits::of(stores).await?, wanted));
    }
    let id: Option<PendingId> = wanted.parse().ok();
    let (store, run) = match &id {
        Some(id) => {
            let AllWaits { found, notes, exit } = AllWaits::of(stores).await?;
            let found = found.into_iter().find(|(wait, _)| wait.id() == *id);
            return match found {
                Some(found) => Ok(found),
                None => {
                    let why = not_waited_for(stores, wanted).await?;
                    Err(Failure::new(exit.unwrap_or(Exit::NotFound), why).with(&notes))
                }
            };
        }
        None => match stores.find(wanted).await {
            Ok(found) => found,
            Err(failure) => return Err(with_code(stores, wanted, failure).await),
        },
    };
    let mut waiting = waits::open(&follow::read_with_placed(&store, run).await?);
    let (last, others) = (waiting.pop(), waiting.len());
    let asked_in_vain = match &last {
        Some(wait) => asked_in_vain(&store.history(wait.run()).await.map_err(Failure::of)?),
        None => BTreeSet::new(),
    };
    match (last, others) {
        (Some(Wait::Approval(envelope)), 0) if asked_in_vain.iter().any(|asked| *asked != envelope.id()) => {
            let (run, id) = (short(run), Wait::Approval(envelope).id());
            Err(Failure::usage(format!(
                "run {run} has asked for consent before, which nobody decided in time, so it may not be what you mean: name what it \
                 asks for now\n  {id}\nto see it: callboard pending {run}"
            )))
        }
        (Some(only), 0) => Ok((only, Arc::new(store))),
        (None, _) => Err(waits_for_nobody(&store, run).await?),
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
