//! The service: its routes as a client in the process or over a connection has them, its private socket, and what it does for
//! schedules, webhooks and clients of the Model Context Protocol.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[cfg(unix)]
mod audit;
#[cfg(unix)]
#[path = "../../../../tests/common/browser.rs"]
mod browser;
#[path = "../../../../tests/campaigns/mod.rs"]
mod campaigns;
mod changing;
#[path = "../../../../tests/charges/mod.rs"]
mod charges;
mod connections;
#[cfg(unix)]
mod dashboard;
mod decisions;
mod delivery;
mod hostile;
#[cfg(unix)]
mod hostile_pages;
#[path = "../../../callboard-knowledge/tests/knowledge/hostile_queries/table.rs"]
mod hostile_queries;
#[cfg(unix)]
mod in_browser;
mod inbox;
#[cfg(unix)]
mod kills;
mod knowledge;
#[cfg(unix)]
mod list_pages;
mod lists;
mod mcp;
#[cfg(target_os = "linux")]
mod overload;
#[path = "../../../../tests/passing/mod.rs"]
mod passing;
#[cfg(unix)]
mod past_pages;
#[cfg(unix)]
mod private;
mod requests;
#[cfg(unix)]
mod run_page;
mod runs;
mod schedules;
#[cfg(unix)]
#[path = "../../../../tests/common/skipping.rs"]
mod skipping;
mod support;
#[cfg(unix)]
mod tls;
mod watching;
mod webhooks;
