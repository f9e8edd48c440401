//! The inbox: one list of everything that needs a person.

// - `item`: an item, its id and its actions; pure. `gathered`: all items of a board. `reading`: what their runs are about.
// - `difference`: what a change of a file changes; pure. `changed`: the texts that are changed, as they are now.
// - `decisions`: what people decide, one or many at a time. `live`: the same list for those who
// watch it.
mod changed;
mod decisions;
mod difference;
mod gathered;
mod item;
mod live;
mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::response::sse::Event;
use axum::{Extension, Json};
use callboard::messages::{Pending, PendingId, RunId, visible};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::body::Id;
use crate::context::{Context, Shared};
use crate::events::answer;
use crate::people;
use crate::problem::Problem;
use crate::query;
use crate::tokens::Caller;

pub(crate) use changed::{Changed, Present};
pub(crate) use decisions::decide;
pub(crate) use difference::Difference;
pub(crate) use gathered::{Gathered, Sources};
pub use item::{About, Deciding, Item, ItemAction, ItemId, ItemKind};
pub(crate) use live::Live;
#[cfg(feature = "dashboard")]
pub(crate) use live::Seen;
pub(crate) use reading::Reading;

/// The most items of a page, and how many it has by default.
const MAX_LIMIT: usize = 200;
const LIMIT: usize = 50;

/// Which items a query asks for.
#[derive(Default)]
pub(crate) struct Filter {
    kind: Option<ItemKind>,
    agent: Option<String>,
    run: Option<RunId>,
}

impl Filter {
    fn fits(&self, item: &Item) -> bool {
        self.kind.is_none_or(|kind| item.kind == kind)
            && self.agent.as_ref().is_none_or(|agent| item.agent.as_ref() == Some(agent))
            && self.run.is_none_or(|run| item.run == Some(run))
    }

    /// The filter that the query of a page has. What others add to an address is not in it.
    ///
    /// # Errors
    /// As [`Filter::read`].
    #[cfg(feature = "dashboard")]
    pub(crate) fn of_query(query: Option<&str>) -> Result<Self, Problem> {
        let value = |wanted: &str| {
            let mut pairs = query::pairs(query.unwrap_or_default());
            pairs.find(|(name, value)| name == wanted && !value.is_empty()).map(|(_, value)| value.into_owned())
        };
        Self::read(value("kind").as_deref(), value("agent"), value("run").as_deref())
    }

    /// Whether it leaves anything out.
    #[cfg(feature = "dashboard")]
    pub(crate) fn is_set(&self) -> bool {
        self.kind.is_some() || self.other().is_some()
    }

    /// The agent or the run that alone is asked for, in words.
    #[cfg(feature = "dashboard")]
    pub(crate) fn other(&self) -> Option<String> {
        let agent = self.agent.as_ref().map(|agent| format!("the agent {agent}"));
        agent.or_else(|| self.run.map(|run| format!("the run {run}")))
    }

    /// The query of the page after an item.
    #[cfg(feature = "dashboard")]
    pub(crate) fn next(&self, after: &str) -> String {
        let run = self.run.map(|run| run.to_string());
        let pairs =
            [("kind", self.kind.map(ItemKind::name)), ("agent", self.agent.as_deref()), ("run", run.as_deref())];
        let set = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(set).append_pair("after", after).finish()
    }

    /// The kind that alone is asked for.
    #[cfg(feature = "dashboard")]
    pub(crate) const fn kind(&self) -> Option<ItemKind> {
        self.kind
    }

    /// # Errors
    /// A name that no kind has, or an id that no run can have.
    fn read(kind: Option<&str>, agent: Option<String>, run: Option<&str>) -> Result<Self, Problem> {
        let unknown = |kind| {
            let kinds = ItemKind::ALL.map(ItemKind::name).join(", ");
            Problem::bad(format!("{} is no kind of the inbox: there are {kinds}", visible(kind)))
        };
        let no_run = |run| Problem::bad(format!("{} is no id of a run", visible(run)));
        Ok(Self {
            kind: kind.map(|kind| ItemKind::of_name(kind).ok_or_else(|| unknown(kind))).transpose()?,
            agent,
            run: run.map(|run| run.parse().map_err(|_| no_run(run))).transpose()?,
        })
    }
}

/// A page of the inbox.
pub(crate) struct Page {
    pub(crate) items: Vec<Item>,
    /// How many there are of each kind, of those that fit.
    pub(crate) counts: BTreeMap<ItemKind, usize>,
    /// Whether there are more than were counted.
    pub(crate) is_cut: bool,
    /// The last item of the page, if another page follows.
    pub(crate) next: Option<String>,
}

impl Page {
    /// The items that fit, after one of them, with what their runs are about, and what the caller may not decide.
    ///
    /// # Errors
    /// That one is no longer there, or the store cannot be read.
    pub(crate) async fn of(
        context: &Context,
        caller: &Caller,
        gathered: &Gathered,
        filter: &Filter,
        (after, limit): (Option<&str>, usize),
    ) -> Result<Self, Problem> {
        let fitting: Vec<&Item> = gathered.items.iter().filter(|item| filter.fits(item)).collect();
        let mut counts = BTreeMap::new();
        for item in &fitting {
            *counts.entry(item.kind).or_default() += 1;
        }
        let gone = |id: &str| Problem::bad(format!("{} no longer waits: begin with the first page", visible(id)));
        let place = |id: &str| fitting.iter().position(|item| item.id.to_string() == id).ok_or_else(|| gone(id));
        let begin = after.map(place).transpose()?.map_or(0, |place| place + 1);
        let of_page: Vec<Item> = fitting.iter().skip(begin).take(limit).map(|item| (*item).clone()).collect();
        let has_more = fitting.len() > begin + of_page.len();
        let next = of_page.last().filter(|_| has_more).map(|item| item.id.to_string());
        let items = completed(context, caller, of_page).await?;
        Ok(Self { items, counts, is_cut: gathered.is_cut, next })
    }

    fn json(&self) -> Value {
        let counts: BTreeMap<&str, usize> = self.counts.iter().map(|(kind, count)| (kind.name(), *count)).collect();
        json!({
            "items": self.items.iter().map(Item::json).collect::<Vec<_>>(),
            "counts": counts,
            "is_cut": self.is_cut,
            "next": self.next,
        })
    }
}

/// Answers with a page of the inbox, as far as the token of the caller may see it.
pub(crate) async fn list(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>, Problem> {
    let [kind, agent, run, limit, page] = query::values(query.as_deref(), ["kind", "agent", "run", "limit", "page"])?;
    let filter = Filter::read(kind.as_deref(), agent.map(Into::into), run.as_deref())?;
    let limit = limit.map_or(Some(LIMIT), |limit| limit.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit)));
    let limit = limit.ok_or_else(|| Problem::bad(format!("`limit` in the query is a number from 1 to {MAX_LIMIT}")))?;
    let gathered = context.inbox_sources().gather().await?.seen_by(&caller);
    Ok(Json(Page::of(&context, &caller, &gathered, &filter, (page.as_deref(), limit)).await?.json()))
}

/// Adds what the runs of items are about, and why the caller may not decide.
async fn completed(context: &Context, caller: &Caller, items: Vec<Item>) -> Result<Vec<Item>, Problem> {
    let mut completed = Vec::with_capacity(items.len());
    for item in context.reading.complete(&context.board, items).await {
        let may_not = may_not(context, caller, &item).await;
        completed.push(Item { may_not, ..gathered::with_votes(&context.board, item).await? });
    }
    Ok(completed)
}

/// Why the caller may not decide about an item.
pub(crate) async fn may_not(context: &Context, caller: &Caller, item: &Item) -> Option<String> {
    if let Some(scope) = item.id.scope().filter(|scope| !caller.scopes.contains(scope)) {
        return Some(format!("{} does not have the scope {}", visible(&caller.name), scope));
    }
    let ItemId::Pending(id) = &item.id else { return None };
    let decider = match people::decider(context, caller) {
        Ok(decider) => decider,
        Err(problem) => return Some(problem.detail),
    };
    match id {
        PendingId::Approval(id) if item.deciding.is_some() => {
            context.board.people().check(*id, &decider).await.err().map(|error| error.to_string())
        }
        PendingId::Approval(_) | PendingId::Question(_) | PendingId::Node(_) | PendingId::Attention(_) => None,
    }
}

/// What became of an item that is not there, if that is known.
pub(crate) async fn closed(context: &Context, id: &str) -> Option<String> {
    match ItemId::read(id)? {
        ItemId::Pending(id) => people::closed(context, &id).await,
        _ => None,
    }
}

/// The problem with an item that is not there: what became of it, if that is known.
pub(crate) async fn no_longer(context: &Context, id: &str) -> Problem {
    let closed = closed(context, id).await;
    if closed.is_none() && !context.has_recovered() {
        return Problem::recovering();
    }
    let how = closed.map_or_else(String::new, |how| format!(": {how}"));
    Problem::not_found(format!("{} does not wait{how}; /v1/inbox lists what does", visible(id)))
}

/// Answers with one item, with all that a person has to see before deciding about it.
pub(crate) async fn get(
    State(context): Shared,
    Id(id): Id,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>, Problem> {
    let gathered = context.inbox_sources().gather().await?.seen_by(&caller);
    let Some(found) = gathered.items.iter().find(|item| item.id.to_string() == id) else {
        return Err(no_longer(&context, &id).await);
    };
    let items = completed(&context, &caller, vec![found.clone()]).await?;
    let item = items.into_iter().next().ok_or_else(|| Problem::not_found("it no longer waits"))?;
    let mut shape = item.json();
    shape["task"] = json!(item.about.as_ref().map(|about| &about.task));
    if let Some(pending) = gathered.pending_of(&item) {
        shape["pending"] = people::shown(pending);
        shape["card"] = json!(people::card(pending));
        if let Pending::Approval(envelope) = pending {
            let present = context.changed_by(&caller, envelope).await;
            let Difference { lines, note, is_to_present: _ } = Difference::of(envelope, present.as_deref());
            (shape["difference"], shape["difference_note"]) = (json!(lines), json!(note));
        }
    }
    Ok(Json(shape))
}

/// Streams an event `inbox` with the number of items of each kind whenever the inbox has changed, the first at once.
pub(crate) async fn events(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let [] = query::values(query.as_deref(), [])?;
    let permit = context.streams.open(&caller)?;
    let seen = context.live.watch(context.inbox_sources()).await?;
    let who = caller.clone();
    let events = stream::unfold((seen, true), |(mut seen, is_first)| async move {
        if !is_first {
            seen.changed().await.ok()?;
        }
        let gathered = Arc::clone(&seen.borrow_and_update());
        Some((gathered, (seen, false)))
    });
    let events = events.map(move |gathered| {
        let counts = gathered.counts_for(&who);
        Event::default().event("inbox").data(json!({ "counts": counts, "is_cut": gathered.is_cut }).to_string())
    });
    Ok(answer(&context, caller, permit, events))
}
