//! `callboard inbox`: everything that needs a person, in one list in which it is decided.

mod dialog;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::sync::Arc;

use serde_json::{Value, json};

use callboard::messages::{RunId, visible};
use callboard_server::inbox::{Item, ItemId, ItemKind};
use callboard_text::quoted;

use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, folded, time_of};
use crate::person::is_anybody_here;
use crate::run_names::short;
use crate::stores::Stores;
use crate::stores::store::Store;

use super::arguments::Inbox;
use super::boards::{answer_of_service, ask_board, ask_service, is_unsent, of_service, without_server};
use super::decide::AllWaits;
use super::left::Left;

/// The most items of a page of the server.
const PAGE: usize = 200;
/// What `--do` decides.
const RESPONSES: [&str; 10] =
    ["approve", "deny", "edit", "answer", "resume", "restart", "retry", "drop", "overwrite", "read_again"];
/// The width of the column with the kinds.
const LABEL: usize = 17;

/// The board that takes the decision about an item.
enum Place {
    /// The one of `callboard serve`.
    Server,
    /// Another process, which works on this store.
    Board(Arc<Store>, Arc<str>),
    /// None works on its run: why nothing can be decided, and what continues it.
    Left(String),
}

/// What is named on the command line.
enum Wanted {
    Item(String),
    /// All items of this run.
    Run(RunId),
}

/// An item as the server has it, and who decides about it.
struct Listed {
    item: Value,
    place: Place,
}

impl Listed {
    fn text(&self, field: &str) -> &str {
        self.item[field].as_str().unwrap_or_default()
    }

    fn id(&self) -> &str {
        self.text("id")
    }

    fn kind(&self) -> Option<ItemKind> {
        ItemKind::of_name(self.text("kind"))
    }

    /// What can be done, by the names of the responses.
    fn responses(&self) -> Vec<&str> {
        let actions = self.item["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
        actions.iter().filter_map(|action| action["response"].as_str()).collect()
    }

    /// Whether it has this id, or is of the run that is named.
    fn is(&self, wanted: &Wanted) -> bool {
        match wanted {
            Wanted::Item(id) => id == self.id(),
            Wanted::Run(run) => self.text("request_id").parse() == Ok(*run),
        }
    }

    fn fits(&self, arguments: &Inbox, wanted: &[Wanted], run: Option<RunId>) -> bool {
        let Inbox { kind, agent, .. } = arguments;
        (wanted.is_empty() || wanted.iter().any(|wanted| self.is(wanted)))
            && kind.as_ref().is_none_or(|kind| kind == self.text("kind"))
            && agent.as_ref().is_none_or(|agent| agent == self.text("agent"))
            && run.is_none_or(|run| self.text("request_id").parse() == Ok(run))
    }

    /// Who decides, and who has approved; a line for each.
    fn deciding(&self) -> Vec<String> {
        let deciding = &self.item["deciding"];
        let Some(deciders) = deciding["deciders"].as_str() else { return Vec::new() };
        let mut lines = vec![format!("decided by {}", visible(deciders))];
        for vote in deciding["approved_by"].as_array().into_iter().flatten() {
            let by = visible(vote["by"].as_str().unwrap_or_default());
            lines.push(format!("approved by {by} at {}", time_of(&vote["at"])));
        }
        if lines.len() > 1 {
            lines.push(format!("{} more to approve", deciding["missing"]));
        }
        if let Some(group) = deciding["escalates_to"].as_str() {
            lines.push(format!("from {} also by {}", time_of(&deciding["escalates_at"]), visible(group)));
        }
        if let Some(editor) = deciding["edited_by"].as_str() {
            lines.push(format!("changed to this by {}", visible(editor)));
        }
        if let Some(why) = self.item["may_not"].as_str() {
            lines.push(format!("you do not decide this: {}", visible(why)));
        }
        lines
    }

    /// The item as a person sees it, folded, with the commands that decide about it in whole lines: these are copied.
    fn shown(&self, stores: &Stores) -> String {
        let (kind, agent) = (self.kind().map_or("item", |kind| kind.words().0), self.text("agent"));
        let agent = if agent.is_empty() { String::new() } else { format!("{} ", visible(agent)) };
        let cut = match self.item["left_out"].as_u64() {
            Some(left_out) if left_out > 0 => format!(" … {left_out} more characters"),
            _ => String::new(),
        };
        let mut text = format!("{kind:LABEL$}{agent}{}{cut}\n", self.text("what"));
        let mut line = |line: String| text.push_str(&format!("{:LABEL$}{line}\n", ""));
        if let Ok(run) = self.text("request_id").parse::<RunId>() {
            let from = self.item["from_agent"].as_str().map(|from| format!(", from {}", visible(from)));
            let task = self.item["task"].as_str().map(|task| format!(": {}", visible(&quoted(task))));
            line(format!("run {}{}{}", short(run), task.unwrap_or_default(), from.unwrap_or_default()));
            if let Some(chain) = self.item["chain"].as_str() {
                line(format!("chain {}", visible(chain)));
            }
            if let Some(tokens) = self.item["tokens"].as_u64().filter(|tokens| *tokens > 0) {
                let cost = self.item["cost_usd"].as_f64().filter(|cost| *cost > 0.0);
                line(format!(
                    "{tokens} tokens so far{}",
                    cost.map_or_else(String::new, |cost| format!(", ${cost:.2}"))
                ));
            }
        }
        let since = self.item["since"].is_string().then(|| format!("since {}; ", time_of(&self.item["since"])));
        let otherwise = match self.item["expires_at"].is_string() {
            true => format!("at {} {}", time_of(&self.item["expires_at"]), self.text("otherwise")),
            false if self.responses().is_empty() => format!("until that is corrected, {}", self.text("otherwise")),
            false => format!("until somebody decides, {}", self.text("otherwise")),
        };
        line(format!("{}{otherwise}", since.unwrap_or_default()));
        self.deciding().into_iter().for_each(&mut line);
        let mut text = folded(&text);
        let mut line = |line: String| text.push_str(&format!("{:LABEL$}{line}\n", ""));
        match &self.place {
            Place::Left(why) => line(why.clone()),
            // Whoever reads it may not decide.
            Place::Server | Place::Board(..) if self.item["may_not"].is_string() => {}
            Place::Server | Place::Board(..) => {
                for action in self.item["actions"].as_array().into_iter().flatten() {
                    let command = action["command"].as_str().unwrap_or_default();
                    let command = command.strip_prefix("callboard ").unwrap_or(command);
                    line(visible(&command_line(command, stores.named())));
                }
            }
        }
        text
    }
}

/// The items of `callboard serve` and of all other processes of the project.
struct AllItems {
    items: Vec<Listed>,
    is_cut: bool,
    /// What could not be read, and that no server runs.
    notes: String,
    exit: Option<Exit>,
}

impl AllItems {
    async fn of(stores: &Stores) -> Result<Self, Failure> {
        let (mut items, mut is_cut, mut notes) = (Vec::new(), false, String::new());
        let mut page = String::new();
        loop {
            let path = format!("/v1/inbox?limit={PAGE}{page}");
            let answer = match of_service(stores).request("GET", &path, None).await {
                Err(error) if is_unsent(&error) => {
                    let why = without_server(stores, &error).await;
                    notes.push_str(&format!("{why}\n"));
                    break;
                }
                answer => answer_of_service(stores, answer).await?,
            };
            let of_page = answer["items"].as_array().cloned().unwrap_or_default();
            items.extend(of_page.into_iter().map(|item| Listed { item, place: Place::Server }));
            is_cut |= answer["is_cut"].as_bool().unwrap_or_default();
            match answer["next"].as_str() {
                Some(next) => page = format!("&page={}", super::boards::encoded(next)),
                None => break,
            }
        }
        let known: BTreeSet<String> = items.iter().map(|listed| listed.id().to_owned()).collect();
        let AllWaits { found, notes: of_stores, exit } = AllWaits::of(stores).await?;
        for (wait, store) in found.into_iter().filter(|(wait, _)| !known.contains(&wait.id().to_string())) {
            let place = match store.board_of(wait.run()).await? {
                Some(board) => Place::Board(Arc::clone(&store), board),
                None => Place::Left(Left::of(&store, wait.run(), stores).await?.undecided()),
            };
            let mut item = Item::of_pending(&wait).json();
            if let Ok(fold) = super::follow::read(&store, wait.run()).await {
                item["task"] = json!(fold.submission().task.body);
                item["from_agent"] = json!(fold.submission().task.from_agent);
            }
            items.push(Listed { item, place });
        }
        items.sort_by_key(Listed::kind);
        Ok(Self { items, is_cut, notes: notes + &of_stores, exit })
    }
}

/// Lists what needs a person, or decides about it.
pub(super) async fn inbox(arguments: &Inbox) -> Result<Page, Failure> {
    let stores = arguments.common.choice.stores()?;
    if let Some(kind) = arguments.kind.as_deref().filter(|kind| ItemKind::of_name(kind).is_none()) {
        let kinds = ItemKind::ALL.map(ItemKind::name).join(", ");
        return Err(Failure::usage(format!("{} is no kind of the inbox: there are {kinds}", visible(kind))));
    }
    let run = match &arguments.run {
        Some(run) => Some(stores.find(run).await?.1),
        None => None,
    };
    let mut wanted = Vec::new();
    for id in &arguments.ids {
        wanted.push(match ItemId::read(id) {
            Some(_) => Wanted::Item(id.clone()),
            None => Wanted::Run(stores.find(id).await?.1),
        });
    }
    let AllItems { mut items, is_cut, notes, exit } = AllItems::of(&stores).await?;
    items.retain(|listed| listed.fits(arguments, &wanted, run));
    let is_listed = |wanted: &Wanted| items.iter().any(|listed| listed.is(wanted));
    if let Some((missing, _)) = arguments.ids.iter().zip(&wanted).find(|(_, wanted)| !is_listed(wanted)) {
        let text = format!("{} does not wait for a person, or no longer", visible(missing));
        return Err(Failure::new(exit.unwrap_or(Exit::NotFound), text).with(&notes));
    }
    if let Some(response) = &arguments.response {
        if !RESPONSES.contains(&&**response) {
            let known = RESPONSES.join(", ");
            return Err(Failure::usage(format!("{} is no response: there are {known}", visible(&quoted(response)))));
        }
        let is_all = arguments.ids.is_empty() && arguments.kind.is_none() && arguments.agent.is_none() && run.is_none();
        if is_all {
            return Err(Failure::usage("name the items: write their ids, or add --kind, --agent or --run".to_owned()));
        }
        return decided(&items, &stores, &decision_of(response, arguments)?).await;
    }
    if !arguments.common.json && std::io::stdout().is_terminal() && is_anybody_here(arguments.no_input) {
        return dialog::one_by_one(&items, &stores, is_cut, &notes).await;
    }
    let shown: Vec<&Value> = items.iter().map(|listed| &listed.item).collect();
    let page = Page::new(
        text_of(&items, &stores, is_cut),
        json!({ "items": shown, "counts": counts(&items), "is_cut": is_cut }),
    );
    Ok(Page { exit: exit.unwrap_or(Exit::Done), remarks: notes, ..page })
}

fn counts(items: &[Listed]) -> Value {
    let count = |kind: ItemKind| items.iter().filter(|listed| listed.kind() == Some(kind)).count();
    let counted = ItemKind::ALL.into_iter().map(|kind| (kind.name().to_owned(), json!(count(kind))));
    Value::Object(counted.filter(|(_, count)| *count != 0).collect())
}

/// `2 approvals · 1 dead letter`.
fn summary(items: &[Listed], is_cut: bool) -> String {
    let count = |kind: ItemKind| (kind, items.iter().filter(|listed| listed.kind() == Some(kind)).count());
    let parts = ItemKind::ALL.into_iter().map(count).filter(|(_, count)| *count != 0).map(|(kind, count)| {
        let (one, several) = kind.words();
        format!("{count} {}", if count == 1 { one } else { several })
    });
    let parts: Vec<String> = parts.collect();
    match (parts.is_empty(), is_cut) {
        (true, _) => "nothing needs you".to_owned(),
        (false, false) => parts.join(" · "),
        (false, true) => format!("{} · and more", parts.join(" · ")),
    }
}

fn text_of(items: &[Listed], stores: &Stores, is_cut: bool) -> String {
    let shown = items.iter().map(|listed| format!("\n{}", listed.shown(stores)));
    format!("{}\n{}", summary(items, is_cut), shown.collect::<String>())
}

/// What `--do` decides, without the id of an item.
fn decision_of(response: &str, arguments: &Inbox) -> Result<Value, Failure> {
    let mut decision = json!({ "response": response });
    if let Some(reason) = &arguments.reason {
        decision["reason"] = json!(reason);
    }
    if let Some(value) = &arguments.value {
        decision[field_of(response)] = crate::values::json(value).map_err(Failure::usage)?;
    }
    Ok(decision)
}

/// The field of a response that takes a value.
fn field_of(response: &str) -> &'static str {
    match response {
        "overwrite" => "values",
        "resume" => "input",
        "edit" => "arguments",
        _ => "value",
    }
}

/// Decides the same about each item, and prints what came of it.
async fn decided(items: &[Listed], stores: &Stores, decision: &Value) -> Result<Page, Failure> {
    let (mut results, mut text, mut refused) = (Vec::new(), String::new(), 0);
    for listed in items {
        let result = decide(listed, stores, decision.clone()).await?;
        let what = format!("{} {}", visible(listed.text("agent")), listed.text("what"));
        match problem_of(&result) {
            None => text.push_str(&format!("{}: {}\n", done(decision, &result), what.trim())),
            Some(problem) => {
                refused += 1;
                text.push_str(&format!("refused: {}: {problem}\n", what.trim()));
            }
        }
        results.push(result);
    }
    if items.is_empty() {
        text.push_str("nothing that fits needs you\n");
    }
    let exit = if refused == 0 { Exit::Done } else { Exit::Failed };
    Ok(Page { exit, ..Page::new(folded(&text), json!({ "results": results })) })
}

/// What was done, and how many people have to approve yet.
fn done(decision: &Value, result: &Value) -> String {
    let response = decision["response"].as_str().unwrap_or_default();
    let past = match response {
        "approve" => "approved",
        "deny" => "denied",
        "answer" => "answered",
        "resume" => "resumed",
        "restart" => "started again",
        "retry" => "tried again",
        "drop" => "dropped",
        "overwrite" => "overwritten",
        "read_again" => "read again",
        other => other,
    };
    match result["missing"].as_u64() {
        Some(missing) if missing > 0 => format!("{}, and {missing} more to approve", visible(past)),
        _ => visible(past),
    }
}

/// Why a decision was refused, if it was.
fn problem_of(result: &Value) -> Option<String> {
    result["problem"].is_object().then(|| visible(result["problem"]["detail"].as_str().unwrap_or("it was refused")))
}

/// Sends a decision to the process that works on the run.
async fn decide(listed: &Listed, stores: &Stores, mut decision: Value) -> Result<Value, Failure> {
    const PATH: &str = "/v1/inbox/decisions";
    decision["id"] = listed.item["id"].clone();
    let body = json!({ "decisions": [decision] });
    let answer = match &listed.place {
        Place::Left(why) => {
            return Ok(json!({ "id": listed.id(), "problem": { "code": "unavailable", "detail": why } }));
        }
        Place::Server => ask_service(stores, ("POST", PATH), Some(&body)).await?,
        Place::Board(store, board) => ask_board(store, board, ("POST", PATH), Some(&body)).await?,
    };
    Ok(answer["results"][0].clone())
}
