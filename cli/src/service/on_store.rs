//! `callboard boards`: the boards that work on a store, on this machine and on others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{AgentName, BoardAgent, BoardEntry, Timestamp, visible};
use serde_json::{Value, json};

use crate::page::{Failure, Page, brief, duration, lines_of, table};
use crate::stores::Common;

/// The most characters of a name or of an address in the table.
const SHOWN: usize = 60;

/// Lists the boards on the stores.
pub(super) async fn list(arguments: &Common) -> Result<Page, Failure> {
    let open = arguments.choice.stores()?.open_existing().await?;
    let mut boards = Vec::new();
    for store in &open.stores {
        boards.push(store.boards_with_left().await?);
    }
    Ok(Page { remarks: open.notes(), ..page(&boards, Env::system().now().wall) })
}

/// The boards of each store.
fn page(stores: &[Vec<BoardEntry>], now: Timestamp) -> Page {
    let mut drawn = table(["board", "agents", "runs", "lease", "up", "build", "address"], &[2]);
    let (mut differences, mut rows) = (String::new(), Vec::new());
    for boards in stores {
        let differing = differing(boards);
        for (agent, Difference { boards, fields }) in &differing {
            let [agent, boards] = [agent.as_str(), &boards.join(", ")].map(visible);
            let fields = fields.join(", ");
            differences
                .push_str(&format!("{agent} is declared differently ({fields}) by {boards}: each uses its own\n"));
        }
        differences.extend(apart(boards).into_iter().map(|line| line + "\n"));
        for board @ BoardEntry { name, left, info, .. } in boards {
            let agents: Vec<String> = info.agents.iter().map(|agent| visible(agent.name.as_str())).collect();
            let lease = if left.is_zero() { "gone".to_owned() } else { duration(*left) };
            let up = Duration::from_millis(now.as_millis().saturating_sub(info.began_at.as_millis()));
            let address = info.address.as_deref().unwrap_or_default();
            let [name, build, address] = [&**name, &*info.build, address].map(|text| brief(text, SHOWN));
            drawn.add_row([name, agents.join(", "), info.runs.to_string(), lease, duration(up), build, address]);
            rows.push(row(board, &differing));
        }
    }
    let text = if rows.is_empty() { "no board works on the store\n".to_owned() } else { lines_of(&drawn) };
    Page::new(text + &differences, rows.into())
}

/// Which boards that live cannot read each other's letters, and whose sessions cannot be read at all, each with what to do.
pub(super) fn apart(boards: &[BoardEntry]) -> Vec<String> {
    let living = boards.iter().filter(|board| !board.left.is_zero());
    let (read, unread): (Vec<_>, Vec<_>) = living.partition(|board| board.info.letters != 0);
    let forms: BTreeSet<u32> = read.iter().map(|board| board.info.letters).collect();
    let differ = (forms.len() > 1).then(|| {
        let shown = |BoardEntry { name, info, .. }: &&BoardEntry| {
            format!("{} (build {}, form {})", visible(name), visible(&info.build), info.letters)
        };
        let all: Vec<String> = read.iter().map(shown).collect();
        format!(
            "boards of these builds cannot read each other's letters, and ask each other nothing: {}; have all run the newest build",
            all.join(", ")
        )
    });
    let unread = unread.into_iter().map(|BoardEntry { name, left, .. }| {
        format!(
            "the session of board {} cannot be read: a build wrote it that differs too much from this one ({}), or no board did; others ask it \
             nothing, and leave runs of boards that they do not know alone while its lease lasts ({})",
            visible(name),
            env!("CARGO_PKG_VERSION"),
            duration(*left)
        )
    });
    differ.into_iter().chain(unread).collect()
}

/// How boards declare an agent that is not the same on all of them.
struct Difference<'b> {
    /// The names of the boards that have it.
    boards: Vec<&'b str>,
    fields: Vec<&'static str>,
}

/// The agents that boards that live declare differently.
fn differing(boards: &[BoardEntry]) -> BTreeMap<&AgentName, Difference<'_>> {
    let mut declared: BTreeMap<&AgentName, Vec<(&str, &BoardAgent)>> = BTreeMap::new();
    for BoardEntry { name, info, .. } in boards.iter().filter(|board| !board.left.is_zero()) {
        for agent in &info.agents {
            declared.entry(&agent.name).or_default().push((name, agent));
        }
    }
    declared.into_iter().filter_map(|(name, declared)| Some((name, difference(&declared)?))).collect()
}

fn difference<'b>(declared: &[(&'b str, &BoardAgent)]) -> Option<Difference<'b>> {
    let (_, first) = declared.first()?;
    let fields: BTreeSet<_> = declared.iter().flat_map(|(_, agent)| fields_that_differ(first, agent)).collect();
    let boards = declared.iter().map(|(board, _)| *board).collect();
    (!fields.is_empty()).then(|| Difference { boards, fields: fields.into_iter().collect() })
}

fn fields_that_differ(one: &BoardAgent, other: &BoardAgent) -> Vec<&'static str> {
    let fields = [
        ("role", one.role != other.role),
        ("capabilities", one.capabilities != other.capabilities),
        ("projects", one.projects != other.projects),
        ("authority", one.authority != other.authority),
        ("mode", one.mode != other.mode),
        ("effects", one.has_effects != other.has_effects),
    ];
    fields.into_iter().filter_map(|(field, differs)| differs.then_some(field)).collect()
}

fn row(board: &BoardEntry, differing: &BTreeMap<&AgentName, Difference<'_>>) -> Value {
    let BoardEntry { name, session, left, info, .. } = board;
    let is_gone = left.is_zero();
    let agents: Vec<&AgentName> = info.agents.iter().map(|agent| &agent.name).collect();
    let differing: BTreeMap<&str, &[&str]> = agents
        .iter()
        .filter_map(|agent| Some((agent.as_str(), &*differing.get(agent)?.fields)))
        .filter(|_| !is_gone)
        .collect();
    json!({
        "board": name, "session": session, "id": info.id, "build": info.build, "began_at": info.began_at.as_millis(),
        "address": info.address, "letters": info.letters, "agents": agents, "differing": differing, "channels": info.channels,
        "runs": info.runs, "approvals": info.approvals, "is_gone": is_gone,
        "lease_left_ms": u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
    })
}
