//! `callboard boards`: the boards that work on a store, on this machine and on others.

use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{BoardEntry, Timestamp, visible};
use serde_json::{Value, json};

use crate::page::{Failure, Page, brief, duration, lines_of, table};
use crate::stores::Common;
use crate::stores::store::LEASE;

/// The most characters of a name or of an address in the table.
const SHOWN: usize = 60;

/// Lists the boards on the stores.
pub(super) async fn list(arguments: &Common) -> Result<Page, Failure> {
    let open = arguments.choice.stores()?.open_existing().await?;
    let mut boards = Vec::new();
    for store in &open.stores {
        boards.extend(store.boards().await?);
    }
    Ok(Page { remarks: open.notes(), ..page(&boards, Env::system().now().wall) })
}

fn page(boards: &[BoardEntry], now: Timestamp) -> Page {
    let mut drawn = table(["board", "agents", "runs", "renewed", "up", "build", "address"], &[2]);
    for BoardEntry { name, left, info, .. } in boards {
        let agents: Vec<String> = info.agents.iter().map(|agent| visible(agent.as_str())).collect();
        let renewed = if left.is_zero() { "gone".to_owned() } else { format!("{} ago", duration(lag(*left))) };
        let up = Duration::from_millis(now.as_millis().saturating_sub(info.began_at.as_millis()));
        let address = info.address.as_deref().unwrap_or_default();
        let [name, build, address] = [&**name, &*info.build, address].map(|text| brief(text, SHOWN));
        drawn.add_row([name, agents.join(", "), info.runs.to_string(), renewed, duration(up), build, address]);
    }
    let text = if boards.is_empty() { "no board works on the store\n".to_owned() } else { lines_of(&drawn) };
    Page::new(text, boards.iter().map(row).collect())
}

/// The time since the last renewal of a lease.
fn lag(left: Duration) -> Duration {
    LEASE.saturating_sub(left)
}

fn row(board: &BoardEntry) -> Value {
    let BoardEntry { name, session, left, info, .. } = board;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "board": name, "session": session, "id": info.id, "build": info.build, "began_at": info.began_at.as_millis(),
        "address": info.address, "agents": info.agents, "runs": info.runs, "is_gone": left.is_zero(),
        "lag_ms": (!left.is_zero()).then(|| millis(lag(*left))), "lease_left_ms": millis(*left),
    })
}
